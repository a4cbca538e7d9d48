"""What a command-line client may ask of a person: the parameters of its request, and what each scope allows.

Nothing here touches the database (contract, section 10; RFC 6749, RFC 7636, RFC 8252).
"""

import re
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from service import formats

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_LOOPBACK_URI = re.compile(
    r"http://(?P<host>127\.0\.0\.1|\[::1\])(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?"
    r"(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?",
    re.ASCII,
)
_SCOPE_TOKENS = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: +[\x21\x23-\x5b\x5d-\x7e]+)*", re.ASCII)

# What a person reads of each scope: with `:read` the first, without it both.
MEANINGS = {
    "profile": ("See your profile, settings and picture", "Change your profile, settings and picture"),
    "chats": ("Read your chats", "Write messages in your name, pin and delete messages, begin and end chats"),
    "bots": ("Look for bots", "Manage bots, where you may"),
    "data-shares": ("See which data shares you have granted", "Grant and revoke data shares in your name"),
    "feedback": ("See the feedback that you may see", "Give feedback in your name, and work through it, where you may"),
    "events": ("See your events", "Change your events"),
    "notifications": ("Read your notifications", "Mark your notifications as read, and delete them"),
}
# A scope that no token is ever given: a program must not touch the logins, clients and secret addresses of the person.
ACCOUNT = "account"
SCOPES = frozenset(MEANINGS) | {f"{scope}:read" for scope in MEANINGS}


def challenge(text: str) -> str:
    """A code challenge of S256: the 43 characters of a SHA-256 digest in base64url (RFC 7636, section 4.2)."""
    if not _CHALLENGE.fullmatch(text):
        raise ValueError("expected the 43 base64url characters of a SHA-256 digest")
    return text


def loopback_uri(text: str) -> str:
    """An address that leads nowhere but to this very computer (RFC 8252, section 7.3).

    The text is matched as a whole: browsers and URL parsers disagree on what is odd, so nothing odd passes.
    """
    found = _LOOPBACK_URI.fullmatch(text)
    if not found or int(found["port"] or 1) > 65535:
        raise ValueError("expected http://127.0.0.1 or http://[::1], with or without a port, path and query")
    return text


def scope_list(text: str) -> str:
    """Scopes apart by blanks (RFC 6749, section 3.3)."""
    if text.strip() and not _SCOPE_TOKENS.fullmatch(text.strip()):
        raise ValueError("expected scopes apart by blanks")
    return " ".join(dict.fromkeys(text.split()))


class ConsentRequest(Struct):
    """What a command-line client asks for (section 4.1 of the document)."""

    client_id: Literal["service-cli"]
    response_type: Literal["code"]
    code_challenge: Annotated[str, Meta(description="Base64url of the SHA-256 of the verifier."), challenge]
    code_challenge_method: Literal["S256"]
    redirect_uri: Annotated[str, Meta(max_length=2048, description="On the loopback interface."), loopback_uri]
    state: Annotated[str, Meta(min_length=1, max_length=512), formats.visible]
    install_id: Annotated[str, Meta(min_length=1, max_length=128), formats.visible]
    scope: Annotated[str, Meta(max_length=1000, description="Apart by blanks; none: all."), scope_list] = ""
    install_name: Annotated[str, Meta(max_length=64), formats.visible] = ""


class Asked(NamedTuple):
    """What a request would allow: the scopes to be granted; in words what they open; the ones that nobody knows."""

    scopes: list[str]
    reading: list[str]
    changing: list[str]
    unknown: list[str]


def understand(scope: str) -> Asked:
    """What the scopes of a request mean; none asked for means all."""
    asked = scope.split() or list(MEANINGS)
    scopes = [name for name in asked if name in SCOPES]
    reading = [words for name, (words, _) in MEANINGS.items() if {name, f"{name}:read"} & set(scopes)]
    changing = [words for name, (_, words) in MEANINGS.items() if name in scopes]
    return Asked(scopes, reading, changing, [name for name in asked if name not in SCOPES])
