"""Access and refresh tokens: the signed identifier and generation of a login session.

A token is checked against the row of its session at every use: when the row ends, its tokens are invalid at once. The
database stores no token.
"""

from typing import Literal, NamedTuple

from msgspec import Struct

from service import clock
from service.db import Query, compiled, is_unavailable, write
from service.errors import InvalidToken, Unauthenticated
from service.models import AuditLog, Delivery, LoginSession, User
from service.models.callers import Caller
from service.settings import Settings
from service.signing import sign, verify

PREFIX = {"access": "cxa_", "refresh": "cxr_"}
MEMORY = 30 * clock.DAY  # for which expired login sessions are kept, to recognise their programs
REUSE_PERIOD = 10 * clock.SECOND  # the previous refresh token remains valid: for two tabs, or a lost response


class Tokens(Struct, frozen=True):
    """The pair of tokens that login and refresh return."""

    access_token: str
    refresh_token: str


def log_in(user_id: str, settings: Settings, label: str = "") -> Tokens:
    """Create a login session and return its tokens; call it inside a write."""
    return pair_of(create_token_session(user_id, settings, label=label), settings)


def create_token_session(user_id: str, settings: Settings, label: str = "", **columns: object) -> LoginSession:
    """Create a login session with the lifetime of refresh tokens; call it inside a write."""
    return create_session(user_id, settings.refresh_days * clock.DAY, label, is_generation_used=True, **columns)


def create_session(user_id: str, lifetime: int, label: str, **columns: object) -> LoginSession:
    """Create a login session with a lifetime in milliseconds, and delete the expired sessions of the user.

    Queues an e-mail about it if the user has signed in before, but not from such a program.
    """
    now, label = clock.now(), label[:200]
    is_new = Delivery.is_configured("email") and LoginSession.is_from_new_program(user_id, label)
    expired = LoginSession.expires_at <= now - (MEMORY if Delivery.is_configured("email") else 0)
    LoginSession.delete().where(LoginSession.user_id == user_id, expired).execute()
    session = LoginSession.create(user_id=user_id, expires_at=now + lifetime, label=label, **columns)
    if is_new and session.kind != "client":  # which a signed-in user has approved
        Delivery.add("email", "login", user_id=user_id, payload={"login_session_id": session.id})
    scopes = None if session.scopes is None else session.scopes.split()
    details = {"login": session.id, "by": session.kind, "install": session.install_id, "scopes": scopes}
    AuditLog.record("login", user_id, user_id, **details)
    return session


def log_out(caller: Caller, *, everywhere: bool = False) -> None:
    """End the caller's login session, or all login sessions of the user."""
    with write(caller.id):
        if not everywhere:
            LoginSession(id=caller.session_id, user_id=caller.id).end("logout")
        elif LoginSession.end_all(caller.id):
            AuditLog.record("logout", caller.id, caller.id, everywhere=True)


def authenticate(header: str, resource: str = "") -> Caller:
    """Return the caller of an `Authorization` header. Raises Unauthenticated or InvalidToken.

    The token must be for `resource`; tokens of the API are for none (RFC 8707).
    """
    scheme, _, token = header.partition(" ")
    if not header or scheme.lower() != "bearer":
        raise Unauthenticated
    now = clock.now()
    session_id, generation, expires_at = _read("access", token.strip(" "), now)
    session = _get_open(session_id, now)
    if generation > session.generation or session.resource != resource:
        raise InvalidToken
    if generation == session.generation and not session.is_generation_used:
        _record_first_use(session)
    return session.caller(expires_at)


def caller_of(session_id: str) -> Caller:
    """Return the caller of a login session. Raises InvalidToken if the session has ended."""
    session = _get_open(session_id, clock.now())
    return session.caller(session.expires_at)


def is_open(session_id: str) -> bool:
    """Return whether a login session is open."""
    return bool(User.open_logins().where(LoginSession.id == session_id).exists())


class _OpenSession(NamedTuple):
    """An open login session, with role, app and settings of its user."""

    id: str
    generation: int
    is_generation_used: bool
    scopes: str | None
    expires_at: int
    user_id: str
    resource: str
    role: str
    app_id: str | None
    settings: str

    def caller(self, expires_at: int) -> Caller:
        """Return the user with a token or cookie that expires at a time."""
        scopes = None if self.scopes is None else frozenset(self.scopes.split())
        return Caller(self.user_id, self.role, self.app_id, self.id, scopes, expires_at, settings=self.settings)


@compiled
def _open_session(session_id: str, now: int) -> Query:
    users = (User.role, User.app_id, User.settings)
    columns = (getattr(LoginSession, name) for name in _OpenSession._fields[: -len(users)])
    return User.open_logins(now).where(LoginSession.id == session_id).select(*columns, *users)


def _get_open(session_id: str, now: int) -> _OpenSession:
    """Return an open login session. Raises InvalidToken."""
    row = _open_session(session_id, now).row()
    if row is None:
        raise InvalidToken
    return _OpenSession(*row)


def rotate(refresh_token: str, settings: Settings) -> Tokens:
    """Exchange a refresh token for a new pair of tokens. Raises InvalidToken."""
    return pair_of(rotate_session(refresh_token, settings), settings)


def rotate_session(refresh_token: str, settings: Settings, client: str = "") -> LoginSession:
    """Advance the login session of a refresh token by one generation, and return it.

    The session must be of the registered `client`, or of none (RFC 6749, section 6).

    The previous token returns the current generation again, for ten seconds or until the current pair is first used. An
    older token is treated as copied and ends the login session (RFC 9700, section 4.14.2). Raises InvalidToken.
    """
    session_id, generation, _ = _read("refresh", refresh_token, clock.now())
    with write(session_id):
        session: LoginSession | None = User.open_logins().where(LoginSession.id == session_id).first()
        if session is None or session.registered_client != client:
            raise InvalidToken
        is_reusable = clock.now() - session.rotated_at <= REUSE_PERIOD or not session.is_generation_used
        if generation == session.generation:
            session = session.rotate(clock.now() + settings.refresh_days * clock.DAY)
        elif generation < session.generation - 1 or not is_reusable:
            session.end("refresh_token_reused")
            session = None
    if session is None:
        raise InvalidToken
    return session


def _record_first_use(session: _OpenSession) -> None:
    """Record the first use of the current pair: from now on the previous refresh token is valid for ten seconds only.

    Errors of an unavailable database, such as a full disk, are ignored: requests that only read must not fail.
    """
    try:
        current = (LoginSession.id == session.id) & (LoginSession.generation == session.generation)
        LoginSession.update(is_generation_used=True).where(current).execute()
    except Exception as error:
        if not is_unavailable(error):
            raise


def pair_of(session: LoginSession, settings: Settings) -> Tokens:
    """Return the tokens of the current generation of a login session."""
    identity = [session.id, session.generation]
    access = sign("access", [*identity, min(session.expires_at, clock.now() + settings.access_minutes * clock.MINUTE)])
    return Tokens(PREFIX["access"] + access, PREFIX["refresh"] + sign("refresh", [*identity, session.expires_at]))


def _read(kind: Literal["access", "refresh"], token: str, now: int) -> tuple[str, int, int]:
    """Return the login session, the generation and the end of an unexpired token. Raises InvalidToken."""
    try:
        session_id, generation, expires_at = verify(kind, token.removeprefix(PREFIX[kind]))
    except ValueError:
        raise InvalidToken from None
    if not token.startswith(PREFIX[kind]) or expires_at <= now:
        raise InvalidToken
    return session_id, generation, expires_at
