"""The page of apps, for admins."""

from typing import Literal

import msgspec
from msgspec import Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.api.schemas import BodyColumns
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.errors import AppNotFound
from service.models import App
from service.models.callers import Caller
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)

NEW_APP = BodyColumns(App, "name", required=("name",))


class AppsPageQuery(Struct):
    """Position in the list."""

    cursor: Cursor = Cursor()
    done: str = ""


class AppForm(ConsoleForm, kw_only=True):
    """An app to create or to rename."""

    act: Literal["add", "rename"]
    id: OptionalUuid = ""
    name: str = ""


@routes.get("/console/apps", statuses=(200, 400, 401, 403))
def show_apps(caller: Caller, query: AppsPageQuery) -> HtmlPage:
    """Show the page of apps (admins only)."""
    return apps_page(caller, query)


def apps_page(caller: Caller, query: AppsPageQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of apps."""
    page = App.staffed_by(caller, query.cursor, layout.PAGE_ROWS)
    return layout.show(caller, "apps", gettext("Apps"), page=page, query=query, done=query.done, failure=failure)


@routes.post("/console/apps", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM, errors=(AppNotFound,))
@layout.form_handler(apps_page, AppsPageQuery)
def change_apps(caller: Caller, body: AppForm) -> Redirect:
    """Create or rename an app (admins only)."""
    name = body.name.strip()
    if body.act == "rename":
        App.get_for(caller, body.id).edit(NEW_APP.read({"name": name}), caller.id)
        return Redirect("/console/apps?done=changed")
    columns = NEW_APP.read({"name": name})
    layout.run_once(caller, "app", body, lambda: msgspec.json.decode(App.add(columns, caller.id))["id"])
    return Redirect("/console/apps?done=app_added")
