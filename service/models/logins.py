"""Login sessions, and the failed login attempts that throttling counts."""

import re
from typing import Literal, Self, get_args

import msgspec
import peewee
from msgspec import Struct

from service import clock
from service.db import Page, Position, Query, Table, compiled, write
from service.errors import NotFound
from service.fields import (
    INTERNAL,
    Boolean,
    Choice,
    DateTime,
    Identifier,
    Integer,
    SqlValue,
    Text,
    UlidIdentifier,
    Uuid,
    reference,
)
from service.models.audit_log import MISUSES, SERVICE, AuditLog, Kind
from service.models.callers import Caller

LoginKind = Literal["login", "browser", "client"]  # started with a password, in a browser, by a command-line client
INSTALL_LIMIT = 100  # command-line clients of a user; the list of them is not paginated


class Login(Struct):
    """A login session as shown to its user."""

    id: Uuid
    kind: LoginKind
    label: str  # the user agent, or the name of the install
    scopes: list[str] | None  # None: no restriction
    created_at: DateTime
    refreshed_at: DateTime  # when its tokens were last issued
    expires_at: DateTime
    is_current: bool


class LoginSession(Table):
    """A login session. Every request reads its row, so ending it takes effect at once.

    `generation` counts the refresh tokens issued; each token holds the generation that it belongs to.
    """

    get_for_errors = (NotFound,)
    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user", index=True)
    kind = Choice(*get_args(LoginKind), visibility=INTERNAL)
    created_at = Integer(default=clock.now)
    expires_at = Integer()
    ended_at = Integer(null=True)
    generation = Integer(default=1)
    rotated_at = Integer(default=clock.now)
    is_generation_used = Boolean(default=False)
    scopes = Text(null=True, default=None, visibility=INTERNAL)
    label = Text(visibility=INTERNAL)
    install_id = Text(null=True, default=None, visibility=INTERNAL)  # of a command-line client
    resource = Text(default="", visibility=INTERNAL)  # that its tokens are for (RFC 8707); empty: the API

    @classmethod
    def is_open(cls, now: SqlValue = None) -> peewee.Expression:
        """Return the condition that a login session has neither ended nor expired."""
        return cls.ended_at.is_null() & (cls.expires_at > (now or clock.now()))

    @classmethod
    def is_from_new_program(cls, user_id: str, label: str) -> bool:
        """Return whether a user has login sessions, but none with this label; versions in labels are not compared."""
        labels = cls.select(cls.label).where(cls.user_id == user_id).distinct()
        known = {_without_versions(row.label) for row in labels}
        return bool(known) and _without_versions(label) not in known

    @property
    def registered_client(self) -> str:
        """The registered client with this login session; empty for the command-line client and browsers."""
        return self.install_id or "" if self.resource else ""

    @classmethod
    def end_install(cls, user_id: str, install_id: str, resource: str = "") -> list[str]:
        """End the login sessions of an install of a client, inside a write. Return their identifiers."""
        install = (cls.install_id == install_id) & (cls.resource == resource)
        own = (cls.user_id == user_id) & install & cls.is_open()
        return sorted(row.id for row in cls.update(ended_at=clock.now()).where(own).returning(cls.id).execute())

    @classmethod
    def installs_of(cls, user_id: str) -> "list[LoginSession]":
        """Return the open login sessions of a user's command-line clients, newest first."""
        installs = cls.select().where(cls.user_id == user_id, cls.is_open(), cls.install_id.is_null(False))
        return list(installs.order_by(cls.created_at.desc(), cls.id))

    @classmethod
    def may_add_install(cls, user_id: str, install_id: str) -> bool:
        """Return whether an install may log in: it has access already, or the user is below INSTALL_LIMIT."""
        others = {login.install_id for login in cls.installs_of(user_id)} - {install_id}
        return len(others) < INSTALL_LIMIT

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return one of the caller's login sessions, ended or not. Raises NotFound."""
        session = cls.get_or_none(cls.id == id, cls.user_id == caller.id)
        if session is None:
            raise NotFound
        return session

    def require_install(self) -> None:
        """Raise NotFound for a login session that is not of a command-line client."""
        if self.install_id is None:
            raise NotFound

    @classmethod
    def list_open(cls, caller: Caller, after: Position, limit: int, *, clients: bool | None = None) -> "Page[Login]":
        """Return a page of the caller's open login sessions, newest first.

        With `clients`, only those of command-line clients, or only the others if it is False.
        """
        return cls.list_open_of(caller.id, after, limit, current_id=caller.session_id, clients=clients)

    @classmethod
    def list_open_of(
        cls, user_id: str, after: Position, limit: int, *, current_id: str, clients: bool | None = None
    ) -> "Page[Login]":
        """Return a page of a user's open login sessions, newest first; `current_id` is that of the request."""
        found = cls.select().where(cls.user_id == user_id, cls.is_open())
        if clients is not None:
            found = found.where(cls.kind == "client" if clients else cls.kind != "client")
        if after.key:
            created_at, id = after.key
            found = found.where((cls.created_at < created_at) | ((cls.created_at == created_at) & (cls.id > id)))
        rows = list(found.order_by(cls.created_at.desc(), cls.id).limit(limit + 1))
        page = rows[:limit]
        next_key = (page[-1].created_at, page[-1].id) if len(rows) > limit else ()
        return Page(msgspec.json.encode([session.as_login(current_id) for session in page]), next_key)

    def as_login(self, current_id: str) -> Login:
        """Return the login session as shown to its user."""
        return Login(
            id=self.id,
            kind=self.kind,
            label=self.label,
            scopes=None if self.scopes is None else self.scopes.split(),
            created_at=clock.timestamp(self.created_at),
            refreshed_at=clock.timestamp(self.rotated_at),
            expires_at=clock.timestamp(self.expires_at),
            is_current=self.id == current_id,
        )

    @classmethod
    def end_all(cls, user_id: str, *, except_id: str = "") -> int:
        """End every login session of a user except one, also those opened concurrently. Return how many ended."""
        still_open = (cls.user_id == user_id) & cls.ended_at.is_null() & (cls.id != except_id)
        with write(user_id):
            return int(cls.update(ended_at=clock.now()).where(still_open).execute())

    @classmethod
    def end_as_admin(cls, actor_id: str, user_id: str, id: str = "") -> None:
        """End a login session of a user, or all of them. No effect if they have ended."""
        chosen = (cls.user_id == user_id) & cls.is_open()
        if id:
            chosen &= cls.id == id
        with write(user_id):
            ended = cls.update(ended_at=clock.now()).where(chosen).execute()
            if ended:
                AuditLog.record("login_ended", actor_id, user_id, login=id or None, everywhere=not id or None)

    def rotate(self, expires_at: int) -> "LoginSession | None":
        """Advance the login session to its next generation, and return it; None if it has ended."""
        still_open = (LoginSession.id == self.id) & LoginSession.ended_at.is_null()
        columns = {"generation": self.generation + 1, "rotated_at": clock.now(), "expires_at": expires_at}
        changed = LoginSession.update(is_generation_used=False, **columns).where(still_open).execute()
        return LoginSession.get_by_id(self.id) if changed else None

    @classmethod
    def recently_ended(cls, margin: int) -> list[tuple[str, int]]:
        """Return identifier and end of the login sessions that ended within `margin` ms of the last end."""
        return _ended_since(int(_last_end().value() or 0) - margin).rows()

    def end(self, kind: Kind = "login_ended") -> None:
        """End this login session; `kind` is the reason that the audit log records."""
        still_open = LoginSession.ended_at.is_null()
        with write(self.user_id):
            if LoginSession.update(ended_at=clock.now()).where(LoginSession.id == self.id, still_open).execute():
                actor_id = SERVICE if kind in MISUSES else self.user_id
                AuditLog.record(kind, actor_id, self.user_id, login=self.id)


LoginSession.add_index(LoginSession.ended_at, name="login_session_ended", where=LoginSession.ended_at.is_null(False))


def _without_versions(label: str) -> str:
    """Return a user agent without digits: an update of a browser does not make another one of it."""
    return re.sub(r"[0-9][0-9._]*", "", label)


@compiled
def _ended_since(ended_at: int) -> Query:
    return LoginSession.select(LoginSession.id, LoginSession.ended_at).where(LoginSession.ended_at >= ended_at)


@compiled
def _last_end() -> Query:
    return LoginSession.select(peewee.fn.max(LoginSession.ended_at)).where(LoginSession.ended_at.is_null(False))


class LoginAttempt(Table):
    """A login attempt that failed or is still in progress."""

    id = UlidIdentifier(primary_key=True, default=clock.ulid)
    at = Integer()
    account = Text(visibility=INTERNAL)
    network = Text(visibility=INTERNAL)

    class Meta:
        indexes = ((("account", "at"), False), (("network", "at"), False), (("at",), False))
