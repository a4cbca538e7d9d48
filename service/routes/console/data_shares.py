"""The page of data shares."""

import re
from typing import Literal

import msgspec
from msgspec import Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.api.schemas import BodyColumns
from service.console import display_names, layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.db import Position
from service.errors import InvalidBody
from service.models import DataShare, inbox
from service.models.callers import Caller
from service.translation import gettext
from service.types import JsonObject

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

NEW_GRANT = BodyColumns(DataShare, "mcp_server_id", "allowed_tools", "conversation_id", "expires_at")


class DataSharesQuery(Struct):
    """Filter of the list: revoked and expired grants, or active ones."""

    past: bool = False
    cursor: Cursor = Cursor()
    done: str = ""


class GrantForm(ConsoleForm, kw_only=True):
    """A grant to create or to revoke."""

    act: Literal["grant", "revoke"]
    id: OptionalUuid = ""
    mcp_server_id: str = ""
    allowed_tools: str = ""  # separated by commas, spaces or line breaks
    conversation_id: OptionalUuid = ""
    expires_at: str = ""


@routes.get("/console/shares", statuses=(200, 400, 401))
def show_shares(caller: Caller, query: DataSharesQuery) -> HtmlPage:
    """Show the page of data shares."""
    return shares_page(caller, query)


def shares_page(caller: Caller, query: DataSharesQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of data shares."""
    page = DataShare.list_page(caller.id, query.cursor, layout.PAGE_ROWS, past=query.past)
    sessions = msgspec.json.decode(inbox.list_sessions(caller, Position(), 100).rows)
    sessions = [row for row in sessions if row["user_id"] == caller.id]
    titles = display_names.chat_titles(caller, sessions)
    conversations = {row["conversation_id"]: titles[row["id"]].name for row in sessions}
    return layout.show(
        caller,
        "data-shares",
        gettext("Data shares"),
        page=page,
        query=query,
        done=query.done,
        clip=layout.clip,
        conversations=conversations,
        failure=failure,
    )


@routes.post("/console/shares", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM)
@layout.form_handler(shares_page, DataSharesQuery)
def change_shares(caller: Caller, body: GrantForm) -> Redirect:
    """Create or revoke a grant."""
    if body.act == "revoke":
        DataShare.get_for(caller, body.id).revoke(caller)
        return Redirect("/console/shares?done=revoked")
    members: JsonObject = {"mcp_server_id": body.mcp_server_id.strip()}
    members["allowed_tools"] = [*dict.fromkeys(re.split(r"[\s,]+", body.allowed_tools.strip(" \t\r\n,")))]
    if not members["mcp_server_id"] or members["allowed_tools"] == [""]:
        raise InvalidBody("Enter the server and at least one tool.")
    if body.conversation_id:
        members["conversation_id"] = body.conversation_id
    if body.expires_at:
        try:
            members["expires_at"] = layout.times_of(caller).read(body.expires_at)
        except ValueError as error:
            raise InvalidBody(f"$.expires_at: {error}") from None
    columns = NEW_GRANT.read(members)
    layout.run_once(caller, "grant", body, lambda: DataShare.grant(caller.id, **columns).id)
    return Redirect("/console/shares?done=granted")
