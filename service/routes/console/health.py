"""The page of the state of the service, for admins."""

import platform
import time

from msgspec import Struct

from service import db, history, metrics
from service.api.operations import Routes
from service.api.parameter_types import HtmlPage
from service.console import layout
from service.console.charts import Chart, draw
from service.console.times import age_of
from service.db import migrations
from service.history import Point, Sample
from service.models.callers import Caller
from service.operate import doctor, stored_backups
from service.settings import Settings
from service.translation import gettext
from service.translation.numbers import format_number, format_size
from service.version import VERSION

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)

MIB = 1 << 20


class HealthQuery(Struct):
    """No parameters."""


@routes.get("/console/health", statuses=(200, 400, 401, 403))
def show_health(caller: Caller, query: HealthQuery, settings: Settings) -> HtmlPage:
    """Show the page of the state of the service (admins only)."""
    taken = [*history.samples, history.take_sample()]
    return layout.show(
        caller,
        "health",
        gettext("Health"),
        facts=facts(taken[-1], settings),
        charts=charts(taken),
        minutes=round((taken[-1].at - taken[0].at) / 60),
        findings=doctor.examine_host(settings),
    )


def facts(current: Sample, settings: Settings) -> dict[str, str]:
    """Return what is true now, by name."""
    up = int(time.time() - metrics.shared.started_at)
    days, hours, minutes = up // 86400, up // 3600 % 24, up // 60 % 60
    memory = sum(usage.memory for usage in metrics.shared.usages().values())
    free = db.database.sizes().get("free")
    backups = stored_backups.state(settings).backups
    found = {
        gettext("Version"): VERSION,
        gettext("Python"): platform.python_version(),
        gettext("Database"): gettext("{kind}, schema {number}", kind=db.database.kind, number=migrations.version()),
        gettext("Running for"): gettext("{days} d {hours} h {minutes} min", days=days, hours=hours, minutes=minutes),
        gettext("Processes"): f"{max(1, metrics.shared.slots - 1)}",
        gettext("Memory of all processes"): format_size(memory) if memory else "",
        gettext("Requests since the start"): format_number(current.traffic.requests),
        gettext("Open connections"): format_number(current.traffic.connections),
        gettext("Requests that wait for a thread"): format_number(current.traffic.queued),
        gettext("Last backup in the console"): gettext("{age} ago", age=age_of(backups[0].created_at))
        if backups
        else gettext("None"),
        gettext("Free disk space"): format_size(free) if free is not None else "",
    }
    return {name: text for name, text in found.items() if text}


def charts(taken: list[Sample]) -> list[Chart]:
    """Return the charts of some samples."""
    sizes = [Point(s.at, None if s.database_bytes is None else s.database_bytes / MIB) for s in taken]
    return [
        draw(gettext("Requests per second"), history.request_rates(taken), "", 1),
        draw(gettext("Mean duration of requests"), history.mean_durations(taken), " ms", 1),
        draw(gettext("Duration of 95 % of the requests"), history.slow_durations(taken), " ms"),
        draw(gettext("Server errors per minute"), history.error_rates(taken), "", 1),
        draw(gettext("Open connections"), [Point(s.at, s.traffic.connections) for s in taken], ""),
        draw(gettext("Requests that wait for a thread"), [Point(s.at, s.traffic.queued) for s in taken], ""),
        draw(gettext("Size of the database"), sizes, " MiB", 1),
        draw(gettext("Messages that wait for a reply of the AI"), [Point(s.at, s.pending_replies) for s in taken], ""),
    ]
