"""What an MCP server may know about a grant to it (RFC 7662)."""

import re
from typing import NamedTuple

from service import clock
from service.models import DataShare
from service.signing import pseudonym

_SCOPE_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+", re.ASCII)  # RFC 6749, section 3.3


class GrantState(NamedTuple):
    """An active grant."""

    subject: str
    scope: str
    expires_at: int  # in seconds; 0: never
    conversation_id: str | None  # None: every conversation


def introspect(mcp_server_id: str, token: str) -> GrantState | None:
    """Return the state of an active grant to a server. None, for every other text, does not say why.

    Names of tools that are no scope tokens, such as with a space, are omitted: they could look like other tools.
    """
    try:
        grant = DataShare.find_active(clock.read_uuid(token), mcp_server_id)
    except ValueError:
        return None
    if grant is None:
        return None
    tools = filter(_SCOPE_TOKEN.fullmatch, grant.tools)
    expires_at = clock.milliseconds(grant.expires_at) // clock.SECOND if grant.expires_at else 0
    subject = pseudonym("data share", mcp_server_id, grant.user_id)
    return GrantState(subject, " ".join(tools), expires_at, grant.conversation_id)
