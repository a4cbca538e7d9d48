"""Apps: the tenants of the service."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service.api.operations import Routes
from service.api.parameter_types import Cursor
from service.api.schemas import BodyColumns
from service.db import Page, render
from service.models import App, AssistantUsage
from service.models.assistant_usage import AssistantUse
from service.models.callers import Caller
from service.models.ratings import Satisfaction, satisfaction
from service.models.staff import StaffMember, list_staff
from service.settings import Settings
from service.types import JsonObject

routes = Routes("Apps", scope="bots", extension=True)

NEW_APP = BodyColumns(App, "name", required=("name",))
APP_CHANGES = BodyColumns(App, "name", required=("name",), partial=True)
NewApp = Annotated[JsonObject, NEW_APP]
AppChanges = Annotated[JsonObject, APP_CHANGES]


class AppsQuery(Struct):
    """Page size for a list."""

    cursor: Cursor = Cursor()
    per_page: Annotated[int, Meta(ge=1, le=100, description="Maximum number of rows to return.")] = 25


@routes.get("/apps", statuses=(200, 400), meta=("next_cursor", "per_page"))
def list_apps(caller: Caller, query: AppsQuery) -> Page[App]:
    """List the apps whose staff you are, by name; admins are staff of all apps."""
    return App.staffed_by(caller, query.cursor, query.per_page)


@routes.post("/apps", statuses=(201, 400, 403), admin_only=True, example={"name": "Second shop"})
def create_app(caller: Caller, body: NewApp) -> Annotated[Raw, App]:
    """Create an app (admins only)."""
    return App.add(body, caller.id)


@routes.get("/apps/{app_id}", statuses=(200, 400, 403, 404))
def get_app(app: App) -> Annotated[Raw, App]:
    """Get an app (staff only)."""
    return render(App, app.id)


@routes.get("/apps/{app_id}/staff", statuses=(200, 400, 403, 404), meta=("next_cursor", "per_page"))
def list_app_staff(app: App, query: AppsQuery) -> Page[StaffMember]:
    """List the users to whom chat sessions of an app can be assigned (staff only)."""
    return list_staff(app.id, query.cursor, query.per_page)


@routes.get("/apps/{app_id}/satisfaction", statuses=(200, 400, 403, 404))
def get_satisfaction(app: App) -> Satisfaction:
    """Get the satisfaction of the customers of an app, from its newest ratings (staff only)."""
    return satisfaction(app.id)


@routes.get("/apps/{app_id}/assistant-usage", statuses=(200, 400, 403, 404))
def get_assistant_usage(app: App, settings: Settings) -> AssistantUse:
    """Get the use of the assistant by an app in the last 24 months, and what is left of its budget (staff only)."""
    return AssistantUsage.of_app(app.id, settings.assistant_tokens)


@routes.patch("/apps/{app_id}", statuses=(200, 400, 403, 404), admin_only=True, example={"name": "First shop"})
def update_app(caller: Caller, app: App, body: AppChanges) -> Annotated[Raw, App]:
    """Update an app (admins only)."""
    return app.edit(body, caller.id)
