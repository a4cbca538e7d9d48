"""Consent rules: the authorization request of a client, and the meaning of its scopes.

Does not use the database. Sources: RFC 6749, RFC 7636, RFC 8252.
"""

import re
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from service import validators
from service.translation import gettext, gettext_noop

CLIENT_ID = "service-cli"  # the command-line client; others register themselves, to use the MCP server
RESOURCE = "/mcp"  # the MCP server, for which their tokens are (RFC 8707)

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_LOOPBACK_URI = re.compile(
    r"http://(?P<host>127\.0\.0\.1|\[::1\]|localhost)(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?"
    r"(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?",
    re.ASCII,
)
_SCOPE_TOKENS = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: +[\x21\x23-\x5b\x5d-\x7e]+)*", re.ASCII)

# The text on the consent page for each scope: `scope:read` grants the first, `scope` both.
SCOPE_TEXTS = {
    "profile": (
        gettext_noop("Read your profile, settings and avatar"),
        gettext_noop("Change your profile, settings and avatar"),
    ),
    "chats": (
        gettext_noop("Read your chats"),
        gettext_noop("Send messages as you, pin and delete messages, start and end chats"),
    ),
    "bots": (gettext_noop("Search bots"), gettext_noop("Manage the bots that you can manage")),
    "data-shares": (gettext_noop("Read your data shares"), gettext_noop("Grant and revoke data shares as you")),
    "feedback": (
        gettext_noop("Read the feedback that you can read"),
        gettext_noop("Submit feedback as you, and as an admin set its status"),
    ),
    "events": (gettext_noop("Read your events"), gettext_noop("Create, change and delete your events")),
    "notifications": (
        gettext_noop("Read your notifications"),
        gettext_noop("Mark your notifications as read, and delete them"),
    ),
}
# No token is ever issued with this scope: clients cannot manage login sessions, clients or secret addresses.
ACCOUNT = "account"
SCOPES = frozenset(SCOPE_TEXTS) | {f"{scope}:read" for scope in SCOPE_TEXTS}


def challenge(text: str) -> str:
    """Return a code challenge of method S256: a SHA-256 digest in base64url (RFC 7636, section 4.2).

    Raises ValueError for any other text.
    """
    if not _CHALLENGE.fullmatch(text):
        raise ValueError("expected the 43 base64url characters of a SHA-256 digest")
    return text


def loopback_uri(text: str) -> str:
    """Return a redirect URI on the loopback interface (RFC 8252, section 7.3). Raises ValueError for any other text.

    Matched with a strict pattern: browsers and URL parsers differ on unusual addresses, so none is accepted.
    """
    match = _LOOPBACK_URI.fullmatch(text)
    if not match or int(match["port"] or 1) > 65535 or match["host"] == "localhost":
        raise ValueError("expected http://127.0.0.1 or http://[::1], with or without a port, path and query")
    return text


def local_uri(text: str) -> str:
    """Return a redirect URI on the loopback interface, or on `localhost`. Raises ValueError for any other text.

    RFC 8252, section 8.3, advises against the name, since the host may resolve it differently. Browsers do not.
    """
    loopback_uri(text.replace("//localhost", "//127.0.0.1", 1))
    return text


def without_port(uri: str) -> str:
    """Return a redirect URI without its port."""
    return re.sub(r"^(http://(?:[\w.]+|\[::1\])):[0-9]+", r"\1", uri, flags=re.ASCII)


def scope_list(text: str) -> str:
    """Return scopes separated by single spaces (RFC 6749, section 3.3). Raises ValueError for invalid characters."""
    if text.strip() and not _SCOPE_TOKENS.fullmatch(text.strip()):
        raise ValueError("expected scopes separated by spaces")
    return " ".join(dict.fromkeys(text.split()))


class ConsentRequest(Struct):
    """The authorization request of a client (RFC 6749, section 4.1.1; RFC 8707, section 2)."""

    client_id: Annotated[str, Meta(max_length=4096, description="`service-cli`, or that of a registered client.")]
    response_type: Literal["code"]
    code_challenge: Annotated[str, Meta(description="Base64url of the SHA-256 digest of the code verifier."), challenge]
    code_challenge_method: Literal["S256"]
    redirect_uri: Annotated[str, Meta(max_length=2048, description="Address on the loopback interface."), local_uri]
    state: Annotated[str, Meta(min_length=1, max_length=512), validators.displayable]
    install_id: Annotated[
        str, Meta(max_length=128, description="Required for `service-cli`."), validators.displayable
    ] = ""
    scope: Annotated[str, Meta(max_length=1000, description="Separated by spaces; all if empty."), scope_list] = ""
    install_name: Annotated[str, Meta(max_length=64), validators.displayable] = ""
    resource: Annotated[str, Meta(max_length=2048, description="The MCP server, for a registered client.")] = ""


class RequestedAccess(NamedTuple):
    """The access that a request would grant: its scopes, their texts for the consent page, and unknown scopes."""

    scopes: list[str]
    reading: list[str]
    changing: list[str]
    unknown: list[str]


def requested_access(scope: str) -> RequestedAccess:
    """Return the access that the scopes of a request would grant; all scopes if `scope` is empty."""
    requested = scope.split() or list(SCOPE_TEXTS)
    scopes = [name for name in requested if name in SCOPES]
    reading = [gettext(text) for name, (text, _) in SCOPE_TEXTS.items() if {name, f"{name}:read"} & set(scopes)]
    changing = [gettext(text) for name, (_, text) in SCOPE_TEXTS.items() if name in scopes]
    return RequestedAccess(scopes, reading, changing, [name for name in requested if name not in SCOPES])
