"""What MCP servers may see and do for somebody."""

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from service.console import faces, frame
from service.console.frame import ConsoleForm, OptionalUuid
from service.db import Position
from service.errors import InvalidBody
from service.models import DataShare, User
from service.models import reading as inbox
from service.models.people import Caller
from service.operations import FORM, Routes
from service.shapes import Writes
from service.signature import Cursor, Html, Moved

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

NEW_GRANT = Writes(DataShare, "mcp_server_id", "allowed_tools", "conversation_id", "expires_at")


class Grants(Struct):
    """Which of the grants that hold no longer."""

    cursor: Cursor = Cursor()
    done: str = ""


class GrantForm(ConsoleForm, kw_only=True):
    """A grant to be given, or to be withdrawn."""

    act: Literal["grant", "revoke"]
    id: OptionalUuid = ""
    mcp_server_id: str = ""
    allowed_tools: str = ""  # apart by commas, blanks or lines
    conversation_id: OptionalUuid = ""
    expires_at: str = ""


@routes.get("/console/shares", answers=(200, 400, 401))
def show_shares(caller: Caller, query: Grants) -> Html:
    """Your data-share grants, those that hold and the earlier ones, as a page."""
    return shares_page(caller, query)


def shares_page(caller: Caller, query: Grants, **told: Any) -> Html:
    """The page of data shares."""
    active = msgspec.json.decode(DataShare.active_of(caller.id))
    past = DataShare.past_of(caller.id, query.cursor, 25)
    own = msgspec.json.decode(inbox.list_sessions(caller, Position(), 100, "").rows)
    own = [row for row in own if row["user_id"] == caller.id]
    titles = faces.titles(caller, own)
    conversations = {row["conversation_id"]: titles[row["id"]].name for row in own}
    return frame.show(
        caller,
        "shares",
        "Data shares",
        page=past,
        query=query,
        done=query.done,
        active_grants=active,
        conversations=conversations,
        **told,
    )


@routes.post("/console/shares", answers=(303, 400, 401, 403, 404), most=FORM)
@frame.told_on(shares_page, Grants)
def change_shares(caller: Caller, body: GrantForm) -> Moved:
    """Let an MCP server use tools on your behalf, or no longer."""
    if body.act == "revoke":
        DataShare.reach(caller, body.id).revoke(caller)
        return Moved("/console/shares?done=revoked")
    given: dict[str, Any] = {"mcp_server_id": body.mcp_server_id.strip()}
    given["allowed_tools"] = [*dict.fromkeys(re.split(r"[\s,]+", body.allowed_tools.strip(" \t\r\n,")))]
    if not given["mcp_server_id"] or given["allowed_tools"] == [""]:
        raise InvalidBody("Name the server, and at least one tool.")
    if body.conversation_id:
        given["conversation_id"] = body.conversation_id
    if body.expires_at:
        try:
            given["expires_at"] = frame.times_of(User.get_by_id(caller.id)).read(body.expires_at)
        except ValueError as error:
            raise InvalidBody(f"$.expires_at: {error}") from None
    columns = NEW_GRANT.read(given)
    frame.once(caller, "grant", body, lambda: DataShare.give(caller.id, **columns).id)
    return Moved("/console/shares?done=granted")
