"""The page of the data shares of all users, for admins."""

import msgspec
from msgspec import Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.console.people import emails_of, find_person
from service.db import Page
from service.errors import GrantNotFound, InvalidBody
from service.models import DataShare
from service.models.callers import Caller
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)


class AllSharesQuery(Struct):
    """Filters of the list. `person` is an e-mail address or an identifier."""

    past: bool = False
    person: str = ""
    cursor: Cursor = Cursor()
    done: str = ""


class RevokeForm(ConsoleForm, kw_only=True):
    """A grant to revoke."""

    id: OptionalUuid = ""


@routes.get("/console/all-shares", statuses=(200, 400, 401, 403))
def show_all_shares(caller: Caller, query: AllSharesQuery) -> HtmlPage:
    """Show the page of the data shares of all users (admins only)."""
    return all_shares_page(caller, query)


def all_shares_page(caller: Caller, query: AllSharesQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of the data shares of all users."""
    page: Page[DataShare] = Page(b"[]", ())
    try:
        user_id = find_person(query.person) if query.person.strip() else ""
        page = DataShare.list_all(query.cursor, layout.PAGE_ROWS, past=query.past, user_id=user_id)
    except InvalidBody as error:
        failure = FormFailure(error)
    return layout.show(
        caller,
        "all-shares",
        gettext("Data shares of all users"),
        page=page,
        query=query,
        done=query.done,
        failure=failure,
        clip=layout.clip,
        emails=emails_of(row["user_id"] for row in msgspec.json.decode(page.rows)),
    )


@routes.post("/console/all-shares", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM, errors=(GrantNotFound,))
@layout.form_handler(all_shares_page, AllSharesQuery)
def revoke_any_share(caller: Caller, body: RevokeForm) -> Redirect:
    """Revoke a grant of any user (admins only)."""
    DataShare.get_for(caller, body.id).revoke(caller)
    return Redirect("/console/all-shares?done=revoked")
