"""Access and refresh tokens: signed names of a login session's generation, checked against its row at every use.

Nothing usable rests in the database, and whatever ends the row ends its tokens at once (contract, section 3).
"""

from typing import Any, Literal, NamedTuple

from msgspec import Struct

from service import clock
from service.auth.signing import sign, verify
from service.db import is_unavailable, prepared, write
from service.errors import InvalidToken, Unauthenticated
from service.models import Ledger, LoginSession, User
from service.models.people import Caller
from service.settings import Settings

PREFIX = {"access": "cxa_", "refresh": "cxr_"}
OVERLAP = 10 * clock.SECOND  # how long the previous refresh token is taken in any case: two tabs, a lost answer


class Tokens(Struct, frozen=True):
    """The pair that login and refresh give (section 2.3 of the document)."""

    access_token: str
    refresh_token: str


def begin(user_id: str, settings: Settings, label: str = "") -> Tokens:
    """The tokens of a new login session; call it inside a write."""
    return pair_of(open_session(user_id, settings, label=label), settings)


def open_session(user_id: str, settings: Settings, label: str = "", **columns: Any) -> LoginSession:
    """A new login session, as long as refresh tokens live; call it inside a write."""
    return keep_session(user_id, settings.refresh_days * clock.DAY, label, is_generation_used=True, **columns)


def keep_session(user_id: str, life: int, label: str, **columns: Any) -> LoginSession:
    """A new login session that lasts `life` milliseconds, and no more of the user's that have expired."""
    now = clock.now()
    LoginSession.delete().where(LoginSession.user_id == user_id, LoginSession.expires_at <= now).execute()
    session = LoginSession.create(user_id=user_id, expires_at=now + life, label=label[:200], **columns)
    scopes = None if session.scopes is None else session.scopes.split()
    about = {"login": session.id, "by": session.kind, "install": session.install_id, "scopes": scopes}
    Ledger.record("login", user_id, user_id, **about)
    return session


def log_out(caller: Caller, *, everywhere: bool = False) -> None:
    """End the caller's login session, or all that the user has."""
    with write(caller.id):
        if not everywhere:
            LoginSession(id=caller.session_id, user_id=caller.id).end("logout")
        elif LoginSession.end_all(caller.id):
            Ledger.record("logout", caller.id, caller.id, everywhere=True)


def authenticate(header: str) -> Caller:
    """The caller that an `Authorization` header names. Raises Unauthenticated or InvalidToken."""
    scheme, _, token = header.partition(" ")
    if not header or scheme.lower() != "bearer":
        raise Unauthenticated
    now = clock.now()
    session_id, generation = _read("access", token.strip(" "), now)
    session = _open(session_id, now)
    if generation > session.generation:
        raise InvalidToken
    if generation == session.generation and not session.is_generation_used:
        _note_use(session)
    return session.caller()


def caller_of(session_id: str) -> Caller:
    """The caller that a login session names. Raises InvalidToken when it has ended."""
    return _open(session_id, clock.now()).caller()


def is_open(session_id: str) -> bool:
    """Whether a login session still counts."""
    return bool(LoginSession.open_sessions().where(LoginSession.id == session_id).exists())


class _Login(NamedTuple):
    """An open login session, with role and app of its user."""

    id: str
    generation: int
    is_generation_used: bool
    scopes: str | None
    user_id: str
    role: str
    app_id: str | None

    def caller(self) -> Caller:
        scopes = None if self.scopes is None else frozenset(self.scopes.split())
        return Caller(self.user_id, self.role, self.app_id, self.id, scopes)


@prepared
def _opened(session_id: str, now: int) -> Any:
    users = (User.role, User.app_id)
    known = (getattr(LoginSession, name) for name in _Login._fields[: -len(users)])
    return LoginSession.open_sessions(now).where(LoginSession.id == session_id).select(*known, *users)


def _open(session_id: str, now: int) -> _Login:
    """The login session of that identifier, if it is open. Raises InvalidToken."""
    row = _opened(session_id, now).row()
    if row is None:
        raise InvalidToken
    return _Login(*row)


def rotate(refresh_token: str, settings: Settings) -> Tokens:
    """A new pair for a refresh token. Raises InvalidToken."""
    return pair_of(rotate_session(refresh_token, settings), settings)


def rotate_session(refresh_token: str, settings: Settings) -> Any:
    """The login session of a refresh token, at the generation whose pair its holder now gets.

    The previous token gets the current pair again, for ten seconds or until that pair is first used. Anything older
    was copied: it ends the whole login session. Raises InvalidToken.
    """
    session_id, generation = _read("refresh", refresh_token, clock.now())
    with write(session_id):
        session = LoginSession.open_sessions().where(LoginSession.id == session_id).first()
        if session is None:
            raise InvalidToken
        overlaps = clock.now() - session.rotated_at <= OVERLAP or not session.is_generation_used
        if generation == session.generation:
            session = session.advanced(clock.now() + settings.refresh_days * clock.DAY)
        elif generation < session.generation - 1 or not overlaps:
            session.end("refresh_token_reused")
            session = None
    if session is None:
        raise InvalidToken
    return session


def _note_use(session: _Login) -> None:
    """From now on the previous refresh token overlaps for its ten seconds only. A full disk must not stop readers."""
    try:
        own = (LoginSession.id == session.id) & (LoginSession.generation == session.generation)
        LoginSession.update(is_generation_used=True).where(own).execute()
    except Exception as error:
        if not is_unavailable(error):
            raise


def pair_of(session: LoginSession, settings: Settings) -> Tokens:
    """The tokens of a login session's present generation."""
    own = [session.id, session.generation]
    access = sign("access", [*own, min(session.expires_at, clock.now() + settings.access_minutes * clock.MINUTE)])
    return Tokens(PREFIX["access"] + access, PREFIX["refresh"] + sign("refresh", [*own, session.expires_at]))


def _read(kind: Literal["access", "refresh"], token: str, now: int) -> tuple[str, int]:
    """The login session and generation that a token names which has not expired. Raises InvalidToken."""
    try:
        session_id, generation, expires_at = verify(kind, token.removeprefix(PREFIX[kind]))
    except ValueError:
        raise InvalidToken from None
    if not token.startswith(PREFIX[kind]) or expires_at <= now:
        raise InvalidToken
    return session_id, generation
