"""What a client of the MCP server may do with its scopes, as the consent page shows it."""

from collections.abc import Iterable

from service.api.operations import Operation
from service.auth.consent import RequestedAccess
from service.mcp.resources import PROFILE
from service.mcp.tools import TOOLS
from service.translation import gettext, gettext_noop

# By operation. The other resources are chats, which the tools read as well.
TEXTS = {tool.operation: tool.title for tool in TOOLS} | {PROFILE.operation: gettext_noop("Read your profile")}


def access_of_tools(requested: RequestedAccess, operations: Iterable[Operation]) -> RequestedAccess:
    """Return the requested access with the tools that its scopes permit, and without scopes that no tool needs."""
    scopes, reading, changing = set[str](), list[str](), list[str]()
    for operation in operations:
        needed = operation.needed_scope
        sufficient = {needed, needed.removesuffix(":read")}.intersection(requested.scopes)
        if operation.name in TEXTS and sufficient:
            scopes |= sufficient
            (reading if operation.method == "GET" else changing).append(gettext(TEXTS[operation.name]))
    return requested._replace(scopes=sorted(scopes), reading=reading, changing=changing)
