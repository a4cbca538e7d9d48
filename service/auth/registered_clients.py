"""Clients that register themselves to use the MCP server (RFC 7591).

Nothing is stored: the identifier of a client is its signed name and redirect addresses, with a random number. Tokens of
these clients are for the MCP server only.
"""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from service.auth import consent
from service.auth.consent import ConsentRequest
from service.errors import InvalidClient, InvalidParameter, InvalidRedirectUri
from service.signing import sign, verify

PREFIX = "cxm_"
MAX_ADDRESSES, MAX_ADDRESS = 5, 256  # redirect addresses of a client, and their characters


class RegisteredClient(NamedTuple):
    """A client: its random number, its name, and where it may be redirected to."""

    id: str
    name: str
    addresses: list[str]

    def may_redirect_to(self, address: str) -> bool:
        """Return whether the client has registered an address; the port may differ (RFC 8252, section 7.3)."""
        known = map(consent.without_port, self.addresses)
        return consent.without_port(address) in known


def register(name: str, addresses: Sequence[str]) -> str:
    """Return the identifier of a new client. Raises InvalidRedirectUri."""
    if not 1 <= len(addresses) <= MAX_ADDRESSES or any(len(address) > MAX_ADDRESS for address in addresses):
        raise InvalidRedirectUri
    try:
        return PREFIX + sign("client", [secrets.token_urlsafe(16), name, list(map(consent.local_uri, addresses))])
    except ValueError:
        raise InvalidRedirectUri from None


def find(client_id: str) -> RegisteredClient:
    """Return the client with an identifier. Raises InvalidClient."""
    text = client_id.removeprefix(PREFIX) if client_id.startswith(PREFIX) else ""
    try:
        return RegisteredClient(*verify("client", text))
    except ValueError:
        raise InvalidClient from None


def completed(request: ConsentRequest, site: str) -> ConsentRequest:
    """Return a request with what its client has registered. Raises InvalidParameter."""
    if request.client_id == consent.CLIENT_ID:
        return _of_command_line(request)
    try:
        client = find(request.client_id)
    except InvalidClient:
        raise InvalidParameter("client_id: expected service-cli, or the identifier of a registered client.") from None
    if not client.may_redirect_to(request.redirect_uri):
        raise InvalidParameter("redirect_uri: expected an address that the client has registered.")
    if request.resource not in ("", site + consent.RESOURCE):
        raise InvalidParameter(f"resource: expected {site}{consent.RESOURCE}.")
    return structs.replace(request, install_id=client.id, install_name=client.name, resource=consent.RESOURCE)


def _of_command_line(request: ConsentRequest) -> ConsentRequest:
    """Return a request of the command-line client unchanged. Raises InvalidParameter."""
    try:
        consent.loopback_uri(request.redirect_uri)
    except ValueError as error:
        raise InvalidParameter(f"redirect_uri: {error}.") from None
    if not request.install_id:
        raise InvalidParameter("install_id: required.")
    if request.resource:
        raise InvalidParameter("resource: expected none.")
    return request
