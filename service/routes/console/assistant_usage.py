"""The page of the use of the assistant by an app, for its staff."""

from msgspec import Struct

from service.api.operations import Routes
from service.api.parameter_types import HtmlPage
from service.console import layout
from service.console.charts import draw
from service.history import Point
from service.models import App, AssistantUsage
from service.models.callers import Caller
from service.settings import Settings
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")


class AssistantUsageQuery(Struct):
    """No parameters."""


@routes.get("/console/apps/{app_id}/assistant-usage", statuses=(200, 400, 401, 403, 404))
def show_assistant_usage(caller: Caller, app: App, query: AssistantUsageQuery, settings: Settings) -> HtmlPage:
    """Show the page of the use of the assistant by an app (staff only)."""
    use = AssistantUsage.of_app(app.id, settings.assistant_tokens)
    points = [Point(number, month.tokens) for number, month in enumerate(reversed(use.months))]
    chart = draw(gettext("Tokens by month"), points, "") if len(points) > 1 else None
    return layout.show(
        caller, "assistant-usage", gettext("Use of the AI"), active="catalogue", app=app, use=use, chart=chart
    )
