"""Apps, users, their login sessions, and the failed attempts that throttle guessing."""

from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import peewee
from msgspec import Struct

from service import clock, formats, preferences
from service.db import Page, Position, Table, prepared, render, write
from service.errors import AppNotFound, Forbidden, NotFound
from service.fields import (
    EXPORT,
    NEVER,
    OWN,
    Boolean,
    Document,
    Identifier,
    Integer,
    Integers,
    Sortable,
    Stamp,
    Text,
    Timestamp,
    Uuid,
    Word,
    compact_json,
    reference,
)
from service.models.ledger import MISUSES, OPERATOR, SERVICE, Kind, Ledger
from service.models.news import Newsworthy

INSTALL_LIMIT = 100  # command-line clients of a user, which are one response


class Caller(NamedTuple):
    """Who is asking: a user through one of its login sessions."""

    id: str
    role: str
    app_id: str | None
    session_id: str
    scopes: frozenset[str] | None  # None: everything the user may do

    def may(self, scope: str) -> bool:
        """Whether the token reaches as far as `scope`; a scope includes its own `:read`."""
        return self.scopes is None or bool(self.scopes & {scope, scope.removesuffix(":read")})

    def is_staff(self, app_id: str) -> bool:
        """Whether the caller works for an app: its agents do, and admins do everywhere."""
        return self.role == "admin" or (self.role == "agent" and self.app_id == app_id)


class App(Table):
    """A tenant: the app whose bots and chat sessions belong together."""

    reach_raises = (AppNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    name = Text(200)

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "App":
        """The app, for those who work for it. Raises AppNotFound or Forbidden."""
        app = cls.known(id)
        if app is None:
            raise AppNotFound
        if not caller.is_staff(app.id):
            raise Forbidden(concealed=AppNotFound)
        return app


class User(Newsworthy, Table):
    """A person who may log in (section 2.2 of the document)."""

    id = Identifier(primary_key=True, default=clock.uuid)
    email = Text(formats.LONGEST_EMAIL, least=1, form=formats.email_address, unique=True, default=None)
    first_name = Text(100)
    last_name = Text(100)
    auth_provider = Text(64, default="password")
    created_at = Timestamp(default=clock.timestamp)
    last_login_at = Timestamp(null=True)
    is_anonymous = Boolean(default=False)
    is_verified = Boolean(default=False)
    location = Integers()
    onboarding_completed = Boolean(default=False)
    profile_image = Text(2048)
    role = Word("user", "agent", "admin")
    user_type = Text(64, default="customer")
    app_id = reference("app", null=True, leaves=EXPORT)
    display_name = Text(100, leaves=OWN)
    phone = Text(20, form=formats.phone_number, leaves=OWN)
    locale = Text(64, form=formats.language_tag, leaves=OWN)
    timezone = Text(64, form=formats.time_zone, leaves=OWN)
    settings = Document(form=preferences.check, leaves=EXPORT)
    news_at = Integer(default=0, leaves=NEVER, index=True)  # in the notifications
    is_disabled = Boolean(default=False, leaves=EXPORT)
    password_hash = Text(leaves=EXPORT)

    also_accepts: ClassVar[dict[str, Any]] = {"password": str}

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Passwords are stored as hashes."""
        return {"password_hash": given["password"]} if "password" in given else {}

    @classmethod
    def by_email(cls, email: str) -> "User | None":
        """The user with an address, however it is written."""
        return cls.get_or_none(cls.email == formats.fold_email(email))

    @classmethod
    def end_sessions_of_another_password(cls, id: str, password_hash: str) -> None:
        """End a user's login sessions if `password_hash` is about to replace another."""
        if cls.select().where(cls.id == id, cls.password_hash != password_hash).exists():
            LoginSession.end_all(id)

    def change_password(self, password_hash: str) -> None:
        """Set another password, as an operator does; it ends every login session."""
        with write(self.id):
            User.update(password_hash=password_hash).where(User.id == self.id).execute()
            LoginSession.end_all(self.id)
            Ledger.record("password_changed", OPERATOR, self.id)

    def disable(self) -> None:
        """Shut the user out, at once, as an operator does."""
        with write(self.id):
            disabled = User.update(is_disabled=True).where(User.id == self.id, ~User.is_disabled).execute()
            LoginSession.end_all(self.id)
            if disabled:
                Ledger.record("user_disabled", OPERATOR, self.id)

    @classmethod
    def update_profile(cls, id: str, columns: dict[str, Any]) -> msgspec.Raw:
        """Set columns of a user; the user, rendered."""
        with write(id):
            if columns:
                cls.update(columns).where(cls.id == id).execute()
            return render(cls, id)

    @classmethod
    def preferences_of(cls, id: str) -> dict[str, Any]:
        """A user's settings, every known member present; to be read only."""
        return preferences.read(cls._stored_preferences(id))

    @classmethod
    def patch_preferences(cls, id: str, patch: dict[str, Any]) -> dict[str, Any]:
        """Merge a patch into a user's settings; what they are then. Raises InvalidBody, and nothing changes."""
        patch = {name: value for name, value in patch.items() if name != "updated_at"}
        with write(id):
            before = cls._stored_preferences(id)
            after = preferences.check(preferences.merge(msgspec.json.decode(before), patch))
            if compact_json(after) != before:  # as texts: to Python, 1 and true are equal
                after["updated_at"] = clock.timestamp()
                cls.update(settings=compact_json(after)).where(cls.id == id).execute()
            return preferences.complete(after)

    @classmethod
    def _stored_preferences(cls, id: str) -> str:
        return str(_settings(id).value())

    def enable(self) -> None:
        """Let the user log in again, as an operator does."""
        with write(self.id):
            if User.update(is_disabled=False).where(User.id == self.id, User.is_disabled).execute():
                Ledger.record("user_enabled", OPERATOR, self.id)


@prepared
def _settings(id: str) -> Any:
    return User.select(User.settings).where(User.id == id)


class Login(Struct):
    """A login session as its user sees it."""

    id: Uuid
    kind: Literal["login", "browser", "client"]
    label: str  # the user agent, or the name of the install
    scopes: list[str] | None  # None: everything that the user may do
    created_at: Stamp
    refreshed_at: Stamp  # when its tokens were last given out
    expires_at: Stamp
    is_current: bool


class LoginSession(Table):
    """One login and the tokens that descend from it; each request reads its row, so ending it acts at once.

    `generation` counts the refresh tokens given out; a token carries the one it belongs to.
    """

    reach_raises = (NotFound,)
    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user", index=True)
    kind = Word("login", "browser", "client", leaves=NEVER)  # with a password, by cookie, from the command line
    created_at = Integer(default=clock.now)
    expires_at = Integer()
    ended_at = Integer(null=True)
    generation = Integer(default=1)
    rotated_at = Integer(default=clock.now)
    is_generation_used = Boolean(default=False)
    scopes = Text(null=True, default=None, leaves=NEVER)
    label = Text(leaves=NEVER)
    install_id = Text(null=True, default=None, leaves=NEVER)  # of a command-line client

    @classmethod
    def end_install(cls, user_id: str, install_id: str) -> list[str]:
        """End the logins of a command-line client's install, in a write; their identifiers, for the ledger."""
        now = clock.now()
        own = (
            (cls.user_id == user_id) & (cls.install_id == install_id) & cls.ended_at.is_null() & (cls.expires_at > now)
        )
        return sorted(row.id for row in cls.update(ended_at=now).where(own).returning(cls.id).execute())

    @classmethod
    def installs_of(cls, user_id: str) -> "list[LoginSession]":
        """The logins of a user's command-line clients, the newest first."""
        held = cls.ended_at.is_null() & (cls.expires_at > clock.now()) & cls.install_id.is_null(False)
        return list(cls.select().where(cls.user_id == user_id, held).order_by(cls.created_at.desc(), cls.id))

    @classmethod
    def has_room_for(cls, user_id: str, install_id: str) -> bool:
        """Whether a user may let a command-line client in: one that is in already, or as long as there are few."""
        others = {login.install_id for login in cls.installs_of(user_id)} - {install_id}
        return len(others) < INSTALL_LIMIT

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "LoginSession":
        """One of the caller's own logins, ended or not. Raises NotFound."""
        session = cls.get_or_none(cls.id == id, cls.user_id == caller.id)
        if session is None:
            raise NotFound
        return session

    def expect_install(self) -> None:
        """Raises NotFound for a login that is not of a command-line client."""
        if self.install_id is None:
            raise NotFound

    @classmethod
    def open_of(cls, caller: Caller, after: Position, limit: int) -> "Page[Login]":
        """A page of the caller's login sessions that still count, the newest first."""
        found = cls.open_sessions().where(cls.user_id == caller.id)
        if after.key:
            moment, id = after.key
            found = found.where((cls.created_at < moment) | ((cls.created_at == moment) & (cls.id > id)))
        rows = list(found.order_by(cls.created_at.desc(), cls.id).limit(limit + 1))
        shown = rows[:limit]
        next_key = (shown[-1].created_at, shown[-1].id) if len(rows) > limit else ()
        return Page(msgspec.json.encode([session.shown_to(caller) for session in shown]), next_key)

    def shown_to(self, caller: Caller) -> Login:
        """What its user sees of it."""
        return Login(
            id=self.id,
            kind=self.kind,
            label=self.label,
            scopes=None if self.scopes is None else self.scopes.split(),
            created_at=clock.timestamp(self.created_at),
            refreshed_at=clock.timestamp(self.rotated_at),
            expires_at=clock.timestamp(self.expires_at),
            is_current=self.id == caller.session_id,
        )

    @classmethod
    def end_all(cls, user_id: str, *, but: str = "") -> int:
        """End every login session of a user, or every other one, also those that are just being opened; how many."""
        held = (cls.user_id == user_id) & cls.ended_at.is_null() & (cls.id != but)
        with write(user_id):
            return int(cls.update(ended_at=clock.now()).where(held).execute())

    @classmethod
    def open_sessions(cls, now: Any = None) -> "peewee.ModelSelect[LoginSession]":
        """The login sessions that still count, with their users."""
        live = cls.ended_at.is_null() & (cls.expires_at > (now or clock.now())) & ~User.is_disabled
        return cls.select(cls, User.role, User.app_id).join(User, on=(cls.user_id == User.id)).where(live)

    def advanced(self, expires_at: int) -> "LoginSession | None":
        """This login session at its next generation; None if it has just ended."""
        held = (LoginSession.id == self.id) & LoginSession.ended_at.is_null()
        fresh = {"generation": self.generation + 1, "rotated_at": clock.now(), "expires_at": expires_at}
        changed = LoginSession.update(is_generation_used=False, **fresh).where(held).execute()
        return LoginSession.get_by_id(self.id) if changed else None

    @classmethod
    def ended_lately(cls, margin: int) -> list[tuple[str, int]]:
        """The login sessions that ended within a margin before the last one that did, and when."""
        return _ended_since(int(_last_end().value() or 0) - margin).rows()

    def end(self, kind: Kind = "login_ended") -> None:
        """End this login session; `kind` says in the ledger why."""
        still = LoginSession.ended_at.is_null()
        with write(self.user_id):
            if LoginSession.update(ended_at=clock.now()).where(LoginSession.id == self.id, still).execute():
                actor_id = SERVICE if kind in MISUSES else self.user_id
                Ledger.record(kind, actor_id, self.user_id, login=self.id)


LoginSession.add_index(LoginSession.ended_at, name="login_session_ended", where=LoginSession.ended_at.is_null(False))


@prepared
def _ended_since(moment: int) -> Any:
    return LoginSession.select(LoginSession.id, LoginSession.ended_at).where(LoginSession.ended_at >= moment)


@prepared
def _last_end() -> Any:
    return LoginSession.select(peewee.fn.max(LoginSession.ended_at)).where(LoginSession.ended_at.is_null(False))


class LoginAttempt(Table):
    """An attempt to log in that failed, or has not succeeded yet."""

    id = Sortable(primary_key=True, default=clock.ulid)
    at = Integer()
    account = Text(leaves=NEVER)
    network = Text(leaves=NEVER)

    class Meta:
        indexes = ((("account", "at"), False), (("network", "at"), False), (("at",), False))
