"""Errors of the MCP server and of its clients."""

from service.errors.base import ApiError
from service.errors.requests import BadRequest


class OriginNotAllowed(ApiError):
    """Pages of this origin may not use the MCP server; the operator names allowed ones with --allow-origin."""

    status = 403
    code = "origin_not_allowed"


class InvalidTarget(BadRequest):
    """The resource is not the MCP server of this service, or the client may not ask for tokens for it (RFC 8707)."""

    code = "invalid_target"


class InvalidRedirectUri(BadRequest):
    """Expected one to five redirect addresses on the loopback interface, such as http://127.0.0.1/callback."""

    code = "invalid_redirect_uri"
