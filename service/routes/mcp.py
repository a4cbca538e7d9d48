"""The MCP server, for assistants that act for a user, and its metadata (RFC 9728)."""

from service.api.operations import Operation, Routes
from service.api.parameter_types import OAuthBody, RequestInfo
from service.auth import consent
from service.errors import NotFound, OriginNotAllowed
from service.mcp import methods
from service.mcp.endpoint import METADATA, McpEndpoint
from service.mcp.protocol import RpcMessage, RpcReply
from service.mcp.resources import RESOURCES
from service.mcp.tools import TOOLS

routes = Routes("MCP server", prefix="", extension=True)


class ResourceMetadata(OAuthBody):
    """The metadata of a protected resource (RFC 9728)."""

    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


def metadata_of(site: str, operations: tuple[Operation, ...]) -> ResourceMetadata:
    """Return the metadata; its scopes are those that all tools and resources need."""
    called = {one.operation for one in (*TOOLS, *RESOURCES)}
    needed = {operation.needed_scope for operation in operations if operation.name in called}
    scopes = sorted(scope for scope in needed if scope.removesuffix(":read") not in needed - {scope})
    return ResourceMetadata(f"{site}{consent.RESOURCE}", [site], scopes, ["header"], "MCP")


@routes.post(
    consent.RESOURCE,
    statuses=(200, 202, 400, 401, 403, 404),
    resource=consent.RESOURCE,
    endpoint=McpEndpoint,
    runs="slow",
    calls=methods.CALLS,
    errors=(NotFound, OriginNotAllowed),
    example={"jsonrpc": "2.0", "id": 1, "method": "ping"},
)
def answer_mcp(body: RpcMessage, mcp: methods.Session) -> RpcReply:
    """Answer a message of the Model Context Protocol (streamable HTTP)."""
    return RpcReply(body.id, result=methods.answer(mcp, body))


@routes.get(METADATA, statuses=(200,), public=True)
def describe_mcp_server(request_info: RequestInfo, operations: tuple[Operation, ...]) -> ResourceMetadata:
    """Get the metadata of the MCP server (RFC 9728)."""
    return metadata_of(request_info.base_url, operations)


@routes.get(METADATA + consent.RESOURCE, statuses=(200,), public=True)
def describe_mcp_path(request_info: RequestInfo, operations: tuple[Operation, ...]) -> ResourceMetadata:
    """Get the metadata of the MCP server at the address that belongs to its path (RFC 9728, section 3.1)."""
    return metadata_of(request_info.base_url, operations)
