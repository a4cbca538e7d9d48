"""Data shares: grants that let MCP servers use tools on behalf of a user."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Form, OAuthBody, RequestInfo
from service.api.schemas import BodyColumns
from service.auth import introspection, server_credentials
from service.errors import ConversationNotFound, GrantLimitReached, InvalidBody, InvalidClientSecret
from service.fields import AnyUuid, Uuid
from service.models import DataShare, ServerCredential
from service.models.callers import Caller
from service.models.data_shares import Verdict
from service.types import JsonObject

routes = Routes("Data shares", scope="data-shares")

NewDataShare = Annotated[
    JsonObject,
    BodyColumns(DataShare, "allowed_tools", "app_id", "conversation_id", "expires_at", "mcp_server_id", "scope_meta"),
]
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Use(Struct):
    """The MCP server and the tool that it is about to use."""

    mcp_server_id: Name
    tool: Name
    conversation_id: AnyUuid | None = None
    grant_id: AnyUuid | None = None  # a grant of the user; required with a client secret, without effect with a token


class IntrospectionRequest(Form):
    """The identifier of a grant (RFC 7662, section 2.1), and the credentials of a client that sends no header."""

    token: str
    token_type_hint: str = ""
    client_id: str = ""
    client_secret: str = ""


class IntrospectionAnswer(OAuthBody, omit_defaults=True):
    """A grant as its server sees it (RFC 7662, section 2.2); of one that is not active, `active` only."""

    active: bool
    sub: str = ""  # the user, by a pseudonym that only this server gets
    scope: str = ""  # the tools, separated by spaces; * is every tool
    exp: int = 0  # seconds; missing: never
    conversation_id: Uuid | None = None  # missing: every conversation


@routes.post(
    "/data-shares",
    statuses=(201, 400, 401, 404),
    errors=(ConversationNotFound, GrantLimitReached),
    example={"mcp_server_id": "weather.demo.example", "allowed_tools": ["forecast"]},
)
def create_data_share(caller: Caller, body: NewDataShare) -> Annotated[Raw, DataShare]:
    """Grant an MCP server the use of tools on your behalf."""
    return DataShare.grant(caller.id, **body).rendered()


@routes.get("/data-shares", statuses=(200, 401))
def list_data_shares(caller: Caller) -> Annotated[Raw, list[DataShare]]:
    """List your active grants, newest first."""
    return DataShare.list_active(caller.id)


@routes.get("/data-shares/{id}", statuses=(200, 400, 403, 404))
def get_data_share(caller: Caller, grant: DataShare) -> Annotated[Raw, DataShare]:
    """Get one of your grants, active or not."""
    grant.require_owner(caller)
    return grant.rendered()


@routes.delete("/data-shares/{id}", statuses=(200, 400, 403, 404))
def revoke_data_share(caller: Caller, grant: DataShare) -> Annotated[Raw, DataShare]:
    """Revoke a grant."""
    grant.revoke(caller)
    return grant.rendered()


@routes.post(
    "/data-shares/check",
    statuses=(200, 400, 401),
    extension=True,
    scope="data-shares:read",
    basic=server_credentials.authenticate,
    errors=(InvalidClientSecret,),
    example={"mcp_server_id": "weather.demo.example", "tool": "forecast"},
    runs="read",
)
def check_data_share(caller: Caller | ServerCredential, body: Use) -> Verdict:
    """Check whether an MCP server may use a tool on your behalf; for gateways, with a client secret, too."""
    if isinstance(caller, ServerCredential):
        if body.grant_id is None:
            raise InvalidBody("$.grant_id: required with a client secret")
        return caller.check_access(body.grant_id, body.mcp_server_id, body.tool, body.conversation_id)
    return DataShare.check_access(caller.id, body.mcp_server_id, body.tool, body.conversation_id)


@routes.post(
    "/data-shares/introspect",
    statuses=(200, 400, 401),
    extension=True,
    public=True,
    scope="",
    max_body=MAX_FORM,
    errors=(InvalidClientSecret,),
    example={"token": "7d0f5a52-4d38-4c5e-9c1b-0f7a4c1d2e3f", "client_id": "…", "client_secret": "cxm_…"},
    runs="read",
)
def introspect_data_share(body: IntrospectionRequest, request_info: RequestInfo) -> IntrospectionAnswer:
    """Get the state of a grant to your MCP server; for gateways and servers with a client secret (RFC 7662)."""
    client = server_credentials.authenticate(request_info.authorization, body.client_id, body.client_secret)
    found = introspection.introspect(client.mcp_server_id, body.token)
    return IntrospectionAnswer(True, *found) if found else IntrospectionAnswer(False)
