"""The pages on which staff lists, adds, edits and deletes the canned replies of an app."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from service.api.operations import KIB, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.api.schemas import BodyColumns
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.models import App, CannedReply
from service.models.callers import Caller
from service.translation import gettext
from service.types import JsonObject

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

REPLY = BodyColumns(CannedReply, "shortcut", "text", "language")
MAX_REPLY_FORM = 160 * KIB  # bytes: a canned reply may have 10,000 characters of twelve bytes each


class RepliesPageQuery(Struct):
    """The beginning of the shortcut, the chat to insert a canned reply into, and the position in the list."""

    prefix: Annotated[str, Meta(max_length=64)] = ""
    chat: OptionalUuid = ""
    cursor: Cursor = Cursor()
    done: str = ""


class ReplyPageQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class ReplyForm(ConsoleForm, kw_only=True):
    """A canned reply to add."""

    shortcut: str = ""
    text: str = ""
    language: str = ""


class ReplyChangeForm(ReplyForm, kw_only=True):
    """A canned reply to change or to delete."""

    act: Literal["save", "delete"]


@routes.get("/console/apps/{app_id}/canned-replies", statuses=(200, 400, 401, 403, 404))
def show_canned_replies(caller: Caller, app: App, query: RepliesPageQuery) -> HtmlPage:
    """Show the page of the canned replies of an app (staff only)."""
    return replies_page(caller, app, query)


def replies_page(caller: Caller, app: App, query: RepliesPageQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of the canned replies of an app."""
    page = CannedReply.page_of(app.id, query.prefix, query.cursor, layout.PAGE_ROWS)
    return layout.show(
        caller,
        "canned-replies",
        gettext("Canned replies"),
        page=page,
        query=query,
        active="inbox" if query.chat else "catalogue",
        done=query.done,
        failure=failure,
        app=app,
        current=failure.values,
    )


@routes.post("/console/apps/{app_id}/canned-replies", statuses=(303, 400, 401, 403, 404), max_body=MAX_REPLY_FORM)
@layout.form_handler(replies_page, RepliesPageQuery)
def add_canned_reply(caller: Caller, app: App, body: ReplyForm, query: RepliesPageQuery) -> Redirect:
    """Add a canned reply to an app (staff only)."""
    columns = REPLY.read(read_reply(body))
    layout.run_once(caller, "canned reply", body, lambda: msgspec.json.decode(CannedReply.add(app.id, columns))["id"])
    return Redirect(f"{address_of(app)}{layout.page_link(query, done='reply_added')}")


@routes.get("/console/apps/{app_id}/canned-replies/{id}", statuses=(200, 400, 401, 403, 404))
def show_canned_reply(caller: Caller, app: App, reply: CannedReply, query: ReplyPageQuery) -> HtmlPage:
    """Show the form of a canned reply (staff only)."""
    return reply_page(caller, app, reply, query)


def reply_page(
    caller: Caller, app: App, reply: CannedReply, query: ReplyPageQuery, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page with the form of a canned reply."""
    return layout.show(
        caller,
        "canned-reply",
        gettext("Canned reply"),
        active="catalogue",
        done=query.done,
        failure=failure,
        app=app,
        reply_id=reply.id,
        current=failure.values or {name: getattr(reply, name) for name in REPLY.columns},
    )


@routes.post("/console/apps/{app_id}/canned-replies/{id}", statuses=(303, 400, 401, 403, 404), max_body=MAX_REPLY_FORM)
@layout.form_handler(reply_page, ReplyPageQuery)
def edit_canned_reply(caller: Caller, app: App, reply: CannedReply, body: ReplyChangeForm) -> Redirect:
    """Edit or delete a canned reply of an app (staff only)."""
    if body.act == "delete":
        reply.remove()
        return Redirect(f"{address_of(app)}?done=deleted")
    reply.edit(REPLY.read(read_reply(body)))
    return Redirect(f"{address_of(app)}/{reply.id}?done=changed")


def read_reply(body: ReplyForm) -> JsonObject:
    """Return the members of a canned reply as the API takes them; a shortcut may be given with its slash."""
    values = {name: layout.clean_text(getattr(body, name)) for name in REPLY.columns}
    return {**values, "shortcut": values["shortcut"].removeprefix("/")}


def address_of(app: App) -> str:
    """Return the address of the page of an app's canned replies."""
    return f"/console/apps/{app.id}/canned-replies"
