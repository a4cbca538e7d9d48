"""Data-share grants: which MCP servers may use which tools on behalf of a user."""

import json
from typing import Annotated, Literal

import peewee
from msgspec import Meta, Raw, Struct

from service import clock
from service.db import Order, Page, Position, Query, Table, database, page, render, snapshot, write
from service.errors import ConversationNotFound, Forbidden, GrantLimitReached, GrantNotFound, InvalidBody
from service.fields import ActiveFlag, Identifier, Integers, SqlValue, Strings, Text, Timestamp, Uuid, reference
from service.models.audit_log import AuditLog, Kind
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.ownership import Owned
from service.models.turns import refuse_waiting
from service.models.users import User
from service.models.webhooks import EventType, emit

ACTIVE_LIMIT = 500  # active grants of a user; their list is not paginated
ACTIVE_BYTES = 2 * 1024 * 1024  # of the tools and scope_meta of all active grants of a user
ANY_TOOL = "*"


class Tools(Strings):
    """Tool names: at least one, without duplicates; `*` alone allows every tool."""

    accepts = Annotated[Strings.accepts, Meta(extra_json_schema={"minItems": 1, "uniqueItems": True})]

    def to_stored(self, value: SqlValue) -> SqlValue:
        if not value:
            raise ValueError("expected at least one tool")
        if len(set(value)) < len(value):
            raise ValueError("expected every tool once")
        if ANY_TOOL in value and len(value) > 1:
            raise ValueError("expected * alone")
        return super().to_stored(value)


class Verdict(Struct):
    """Whether a tool may be used, the grant that decides, and the reason: see `DataShare.check_access`."""

    allowed: bool
    grant_id: Uuid | None
    reason: Literal["granted", "not_granted", "tool_not_allowed", "expired", "revoked"]


class DataShare(Owned, Table):
    """A data-share grant."""

    get_for_errors = (GrantNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user")
    app_id = Identifier(null=True)
    conversation_id = Identifier(null=True)
    mcp_server_id = Text(255, min_length=1, default=None)
    allowed_tools = Tools(default=None)
    scope_meta = Integers()
    expires_at = Timestamp(null=True)
    granted_at = Timestamp(default=clock.timestamp)
    revoked_at = Timestamp(null=True)
    is_active = ActiveFlag("revoked_at", since="granted_at", until="expires_at")

    @classmethod
    def active(cls) -> peewee.Expression:
        """Return the condition of active grants. It includes expiry: nothing is written when a grant expires."""
        return cls.revoked_at.is_null() & (cls.end() > clock.timestamp())

    @classmethod
    def end(cls) -> peewee.ColumnBase:
        """Return the expiry as SQL that sorts; a grant that never expires sorts after every time."""
        return peewee.fn.coalesce(cls.expires_at, peewee.SQL("'~'"))

    def require_access(self, caller: Caller) -> None:
        """Raise Forbidden for all callers but the owner and admins."""
        if caller.role != "admin":
            self.require_owner(caller)

    @classmethod
    def grant(cls, user_id: str, **columns: SqlValue) -> "DataShare":
        """Create a grant; one for every tool must expire.

        Raises ConversationNotFound, GrantLimitReached or InvalidBody.
        """
        with write(user_id):
            now = clock.timestamp()  # inside the write, because the grant may expire while it waits for the lock
            if (columns.get("expires_at") or "~") <= now:
                raise InvalidBody("$.expires_at: expected a time in the future")
            grant = cls(user_id=user_id, granted_at=now, **columns)
            if ANY_TOOL in grant.tools and not grant.expires_at:
                raise InvalidBody("$.expires_at: required if every tool is allowed (*)")
            conversation = columns.get("conversation_id")
            own = ChatSession.select().where(ChatSession.user_id == user_id)
            if conversation and not own.where(ChatSession.conversation_id == conversation).exists():
                raise ConversationNotFound
            total: Query = cls.select(peewee.fn.count(cls.id), cls._size()).where(cls._active_of(user_id))
            ((number, size),) = list(total.tuples())
            if number >= ACTIVE_LIMIT:
                raise GrantLimitReached
            if size + len(f"{grant.allowed_tools}{grant.scope_meta}".encode()) > ACTIVE_BYTES:
                message = (
                    f"The tools and scope_meta of active grants have at most {ACTIVE_BYTES} bytes of JSON together."
                )
                raise GrantLimitReached(message)
            grant.save(force_insert=True)
            grant._emit("data_share.created")
            grant._record("data_share_created", user_id)
            return grant

    @classmethod
    def list_active(cls, user_id: str) -> Raw:
        """Return the active grants of a user, rendered, newest first.

        An import may exceed the limit: all grants are returned, as far as their bytes fit into a page.
        """
        active = cls.select().where(cls._active_of(user_id))
        order = [Order(cls.granted_at, True), Order(cls.id, True)]
        found = page(active, order, Position(), ACTIVE_LIMIT)
        if found.next_key:
            found = page(active, order, Position(), max(active.count(), ACTIVE_LIMIT))
        return found.rows

    @classmethod
    def _active_of(cls, user_id: str) -> peewee.Expression:
        return (cls.user_id == user_id) & cls.active()

    @classmethod
    def _size(cls) -> peewee.ColumnBase:
        """Return the bytes of the tools and scope_meta of the selected grants, as SQL."""
        size = sum((database.byte_length(column) for column in (cls.allowed_tools, cls.scope_meta)), peewee.SQL("0"))
        return peewee.fn.coalesce(peewee.fn.sum(size), 0)

    @classmethod
    def list_page(cls, user_id: str, after: Position, limit: int, *, past: bool) -> "Page[DataShare]":
        """Return a page of the active grants of a user, or of the `past` ones, newest first."""
        found = cls.select().where(cls.user_id == user_id, ~cls.active() if past else cls.active())
        return page(found, [Order(cls.granted_at, True), Order(cls.id, True)], after, limit)

    @classmethod
    def list_all(cls, after: Position, limit: int, *, past: bool, user_id: str = "") -> "Page[DataShare]":
        """Return a page of the active or `past` grants of all users, or of one user, newest first."""
        found = cls.select().where(~cls.active() if past else cls.active())
        if user_id:
            found = found.where(cls.user_id == user_id)
        return page(found, [Order(cls.granted_at, True), Order(cls.id, True)], after, limit)

    def revoke(self, caller: Caller) -> None:
        """Revoke the grant; an expired grant as well, so that it stays inactive if the clock is set back."""
        unrevoked = DataShare.revoked_at.is_null()
        with write(self.user_id):
            if DataShare.update(revoked_at=clock.timestamp()).where(DataShare.id == self.id, unrevoked).execute():
                self._emit("data_share.revoked")
                refuse_waiting(self.user_id, self.mcp_server_id)
                self._record("data_share_revoked", caller.id)

    def _emit(self, event: EventType) -> None:
        """Queue an event about the grant for the webhooks."""
        about = {"app_id": self.app_id, "conversation_id": self.conversation_id, "mcp_server_id": self.mcp_server_id}
        emit(event, self.id, data_share_id=self.id, user_id=self.user_id, **about)

    def _record(self, kind: Kind, actor_id: str) -> None:
        """Record the grant in the audit log."""
        about = {"grant": self.id, "server": self.mcp_server_id, "tools": self.tools, "expires_at": self.expires_at}
        AuditLog.record(kind, actor_id, self.user_id, **about, app=self.app_id, conversation=self.conversation_id)

    def rendered(self) -> Raw:
        """Return the grant, rendered."""
        return render(DataShare, self.id)

    @classmethod
    def check_access(cls, user_id: str, mcp_server_id: str, tool: str, conversation_id: str | None) -> Verdict:
        """Return whether an MCP server may use a tool for a user, in a conversation or outside of conversations.

        A grant for a conversation applies to that conversation only. Reasons: `granted`; `tool_not_allowed` if no
        active grant has the tool; `revoked` or `expired`, of the newest grant, if none is active; `not_granted`.
        """
        grants = cls.select().where(cls.user_id == user_id, cls.mcp_server_id == mcp_server_id)
        grants = grants.order_by(cls.granted_at.desc(), cls.id.desc())
        everywhere, here = cls.conversation_id.is_null(), cls.conversation_id == conversation_id
        with snapshot():
            active = list(grants.where(cls.active(), everywhere | here))
            # Two queries, because each reads one end of an index, however long the history is.
            past = [] if active else [grants.where(scope).first() for scope in (everywhere, here)]
        for grant in active:
            if {tool, ANY_TOOL} & set(grant.tools):
                return Verdict(True, grant.id, "granted")
        if active:
            return Verdict(False, active[0].id, "tool_not_allowed")
        newest = max(filter(None, past), key=lambda grant: (grant.granted_at, grant.id), default=None)
        if newest is None:
            return Verdict(False, None, "not_granted")
        return Verdict(False, newest.id, "revoked" if newest.revoked_at else "expired")

    @classmethod
    def find_active(cls, id: str, mcp_server_id: str) -> "DataShare | None":
        """Return an active grant to a server; None if it has another server, or a disabled user, or does not exist."""
        grants = cls.select().join(User, on=User.id == cls.user_id).where(cls.active(), ~User.is_disabled)
        found: DataShare | None = grants.where(cls.id == id, cls.mcp_server_id == mcp_server_id).first()
        return found

    @property
    def tools(self) -> list[str]:
        """Return the tool names in `allowed_tools`."""
        return list(json.loads(self.allowed_tools))

    class Meta:
        indexes = ((("user_id", "mcp_server_id", "conversation_id", "granted_at", "id"), False),)


_unrevoked = DataShare.revoked_at.is_null()
DataShare.add_index(DataShare.user_id, DataShare.end(), name="data_share_active", where=_unrevoked)
DataShare.add_index(
    DataShare.user_id, DataShare.mcp_server_id, DataShare.end(), name="data_share_active_server", where=_unrevoked
)
