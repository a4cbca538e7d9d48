"""Data-share grants: which MCP servers may use which tools on a user's behalf."""

import json
from typing import Annotated, Any, Literal

import peewee
from msgspec import Meta, Raw, Struct

from service import clock
from service.db import Order, Page, Position, Table, database, page, render, snapshot, write
from service.errors import ConversationNotFound, Forbidden, GrantLimitReached, GrantNotFound, InvalidBody
from service.fields import Identifier, Integers, Standing, Strings, Text, Timestamp, Uuid, reference
from service.models.chats import ChatSession
from service.models.ledger import Kind, Ledger
from service.models.people import Caller

ACTIVE_LIMIT = 500
ACTIVE_BYTES = 2 * 1024 * 1024  # of the tools and scope_meta of all active grants, which are one response
ANY_TOOL = "*"


class Tools(Strings):
    """Tool names, each once, at least one; `*` alone means all."""

    accepts = Annotated[Strings.accepts, Meta(extra_json_schema={"minItems": 1, "uniqueItems": True})]

    def store(self, value: Any) -> Any:
        if not value:
            raise ValueError("expected at least one tool")
        if len(set(value)) < len(value):
            raise ValueError("expected every tool once")
        if ANY_TOOL in value and len(value) > 1:
            raise ValueError("expected * alone")
        return super().store(value)


class Verdict(Struct):
    """Whether a tool may be used, which grant decided, and why: see `DataShare.judge`."""

    allowed: bool
    grant_id: Uuid | None
    reason: Literal["granted", "not_granted", "tool_not_allowed", "expired", "revoked"]


class DataShare(Table):
    """A data-share grant (section 2.8 of the document)."""

    reach_raises = (GrantNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user")
    app_id = Identifier(null=True)
    conversation_id = Identifier(null=True)
    mcp_server_id = Text(255, least=1, default=None)
    allowed_tools = Tools(default=None)
    scope_meta = Integers()
    expires_at = Timestamp(null=True)
    granted_at = Timestamp(default=clock.timestamp)
    revoked_at = Timestamp(null=True)
    is_active = Standing("revoked_at", since="granted_at", until="expires_at")

    @classmethod
    def active(cls) -> Any:
        """The condition of the grants that hold now; when one expires, nothing is written."""
        return cls.revoked_at.is_null() & (cls.end() > clock.timestamp())

    @classmethod
    def end(cls) -> Any:
        """When a grant expires, as SQL that sorts; never is later than any time."""
        return peewee.fn.coalesce(cls.expires_at, peewee.SQL("'~'"))

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "DataShare":
        """The grant, for its user and for admins. Raises GrantNotFound or Forbidden."""
        grant = cls.known(id)
        if grant is None:
            raise GrantNotFound
        if caller.role != "admin":
            grant.expect_owner(caller)
        return grant

    def expect_owner(self, caller: Caller) -> None:
        """Raises Forbidden for everybody but the user who gave it."""
        if self.user_id != caller.id:
            raise Forbidden(concealed=GrantNotFound)

    @classmethod
    def give(cls, user_id: str, **columns: Any) -> "DataShare":
        """A new grant. Raises ConversationNotFound, GrantLimitReached or InvalidBody."""
        with write(user_id):
            now = clock.timestamp()  # once the lock is held: waiting for it may outlast the grant
            if (columns.get("expires_at") or "~") <= now:
                raise InvalidBody("$.expires_at: expected a time to come")
            conversation = columns.get("conversation_id")
            own = ChatSession.select().where(ChatSession.user_id == user_id)
            if conversation and not own.where(ChatSession.conversation_id == conversation).exists():
                raise ConversationNotFound
            grant = cls(user_id=user_id, granted_at=now, **columns)
            total: Any = cls.select(peewee.fn.count(cls.id), cls._size()).where(cls._active_of(user_id))
            ((number, size),) = list(total.tuples())
            if number >= ACTIVE_LIMIT:
                raise GrantLimitReached
            if size + len(f"{grant.allowed_tools}{grant.scope_meta}".encode()) > ACTIVE_BYTES:
                told = f"The tools and scope_meta of active grants have at most {ACTIVE_BYTES} bytes of JSON together."
                raise GrantLimitReached(told)
            grant.save(force_insert=True)
            grant._record("data_share_created", user_id)
            return grant

    @classmethod
    def active_of(cls, user_id: str) -> Raw:
        """The grants of a user that hold now, the newest first, rendered.

        An import may bring more than can be given: all of them, as far as a page has room for their bytes.
        """
        active = cls.select().where(cls._active_of(user_id))
        order = [Order(cls.granted_at, True), Order(cls.id, True)]
        found = page(active, order, Position(), ACTIVE_LIMIT)
        if found.next_key:
            found = page(active, order, Position(), max(active.count(), ACTIVE_LIMIT))
        return found.rows

    @classmethod
    def _active_of(cls, user_id: str) -> Any:
        return (cls.user_id == user_id) & cls.active()

    @classmethod
    def _size(cls) -> Any:
        """The bytes of what a grant may hold much of, of all grants that are selected."""
        size = sum((database.byte_length(column) for column in (cls.allowed_tools, cls.scope_meta)), peewee.SQL("0"))
        return peewee.fn.coalesce(peewee.fn.sum(size), 0)

    @classmethod
    def past_of(cls, user_id: str, after: Position, limit: int) -> "Page[DataShare]":
        """A page of the grants of a user that hold no longer, the newest first."""
        past = cls.select().where(cls.user_id == user_id, ~cls.active())
        return page(past, [Order(cls.granted_at, True), Order(cls.id, True)], after, limit)

    def revoke(self, caller: Caller) -> None:
        """Withdraw the grant, an expired one too: it must stay withdrawn when the clock is set back."""
        still = DataShare.revoked_at.is_null()
        with write(self.user_id):
            if DataShare.update(revoked_at=clock.timestamp()).where(DataShare.id == self.id, still).execute():
                self._record("data_share_revoked", caller.id)

    def _record(self, kind: Kind, actor_id: str) -> None:
        """Put the grant, as it was given, into the ledger."""
        about = {"grant": self.id, "server": self.mcp_server_id, "tools": self.tools, "expires_at": self.expires_at}
        Ledger.record(kind, actor_id, self.user_id, **about, app=self.app_id, conversation=self.conversation_id)

    def rendered(self) -> Raw:
        """The grant as it is now."""
        return render(DataShare, self.id)

    @classmethod
    def judge(cls, user_id: str, mcp_server_id: str, tool: str, conversation_id: str | None) -> Verdict:
        """Whether an MCP server may use a tool for a user, in a conversation or outside of any.

        A grant for one conversation counts in that one only. Reasons: `granted`; of a grant that holds
        `tool_not_allowed`; of the newest that does not `revoked` or `expired`; `not_granted` where there is none.
        """
        given = cls.select().where(cls.user_id == user_id, cls.mcp_server_id == mcp_server_id)
        given = given.order_by(cls.granted_at.desc(), cls.id.desc())
        anywhere, here = cls.conversation_id.is_null(), cls.conversation_id == conversation_id
        with snapshot():
            holding = list(given.where(cls.active(), anywhere | here))
            # The two places apart: each is one end of an index, however long the history.
            over = [] if holding else [given.where(place).first() for place in (anywhere, here)]
        for grant in holding:
            if {tool, ANY_TOOL} & set(grant.tools):
                return Verdict(True, grant.id, "granted")
        if holding:
            return Verdict(False, holding[0].id, "tool_not_allowed")
        newest = max(filter(None, over), key=lambda grant: (grant.granted_at, grant.id), default=None)
        if newest is None:
            return Verdict(False, None, "not_granted")
        return Verdict(False, newest.id, "revoked" if newest.revoked_at else "expired")

    @property
    def tools(self) -> list[str]:
        """The names in `allowed_tools`."""
        return list(json.loads(self.allowed_tools))

    class Meta:
        indexes = ((("user_id", "mcp_server_id", "conversation_id", "granted_at", "id"), False),)


_unrevoked = DataShare.revoked_at.is_null()
DataShare.add_index(DataShare.user_id, DataShare.end(), name="data_share_active", where=_unrevoked)
DataShare.add_index(
    DataShare.user_id, DataShare.mcp_server_id, DataShare.end(), name="data_share_active_server", where=_unrevoked
)
