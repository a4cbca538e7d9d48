"""Data-share grants: what MCP servers may see (section 4.5 of the document; contract, section 6)."""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from service.errors import ConversationNotFound, GrantLimitReached
from service.fields import AnyUuid
from service.models import DataShare
from service.models.people import Caller
from service.models.sharing import Verdict
from service.operations import Routes
from service.shapes import Writes

routes = Routes("Data shares", scope="data-shares")

NewDataShare = Annotated[
    dict[str, Any],
    Writes(DataShare, "allowed_tools", "app_id", "conversation_id", "expires_at", "mcp_server_id", "scope_meta"),
]
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Use(Struct):
    """What an MCP server is about to do."""

    mcp_server_id: Name
    tool: Name
    conversation_id: AnyUuid | None = None


@routes.post(
    "/data-shares",
    answers=(201, 400, 401, 404),
    raises=(ConversationNotFound, GrantLimitReached),
    example={"mcp_server_id": "weather.demo.example", "allowed_tools": ["forecast"]},
)
def create_data_share(caller: Caller, body: NewDataShare) -> Annotated[Raw, DataShare]:
    """Let an MCP server use tools on your behalf."""
    return DataShare.give(caller.id, **body).rendered()


@routes.get("/data-shares", answers=(200, 401))
def list_data_shares(caller: Caller) -> Annotated[Raw, list[DataShare]]:
    """Your active grants, the newest first."""
    return DataShare.active_of(caller.id)


@routes.get("/data-shares/{id}", answers=(200, 400, 403, 404))
def get_data_share(caller: Caller, grant: DataShare) -> Annotated[Raw, DataShare]:
    """One of your grants, active or not."""
    grant.expect_owner(caller)
    return grant.rendered()


@routes.delete("/data-shares/{id}", answers=(200, 400, 403, 404))
def revoke_data_share(caller: Caller, grant: DataShare) -> Annotated[Raw, DataShare]:
    """Withdraw a grant."""
    grant.revoke(caller)
    return grant.rendered()


@routes.post(
    "/data-shares/check",
    answers=(200, 400, 401),
    extension=True,
    scope="data-shares:read",
    example={"mcp_server_id": "weather.demo.example", "tool": "forecast"},
    runs="read",
)
def check_data_share(caller: Caller, body: Use) -> Verdict:
    """Say whether an MCP server may use a tool on your behalf; its gateway asks before it acts."""
    return DataShare.judge(caller.id, body.mcp_server_id, body.tool, body.conversation_id)
