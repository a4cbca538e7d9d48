"""The page of the address for push notifications."""

from typing import Literal

from msgspec import Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import HtmlPage, Redirect
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.console.push_addresses import address_of, qr_code
from service.errors import PushUnavailable
from service.models import PushTopic
from service.models.callers import Caller
from service.settings import Settings
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")


class PushQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class PushForm(ConsoleForm, kw_only=True):
    """An address to create in place of the previous one, or to end."""

    act: Literal["renew", "end"]


@routes.get("/console/push", statuses=(200, 400, 401, 404), errors=(PushUnavailable,))
def show_push_address(caller: Caller, query: PushQuery, settings: Settings) -> HtmlPage:
    """Show the page of the address for push notifications."""
    if not settings.ntfy:
        raise PushUnavailable
    return push_page(caller, query, settings)


def push_page(caller: Caller, query: PushQuery, settings: Settings, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of the address for push notifications."""
    topic = settings.ntfy and PushTopic.of(caller.id)
    address = address_of(topic, settings) if topic else None
    return layout.show(
        caller,
        "push",
        gettext("Push notifications"),
        query=query,
        done=query.done,
        active="settings",
        server=settings.ntfy,
        address=address,
        code=address and qr_code(address.app_url),
        failure=failure,
    )


@routes.post("/console/push", statuses=(303, 400, 401, 404), max_body=MAX_FORM, errors=(PushUnavailable,))
@layout.form_handler(push_page, PushQuery)
def change_push_address(caller: Caller, body: PushForm, settings: Settings) -> Redirect:
    """Create or end the address for push notifications."""
    if not settings.ntfy:
        raise PushUnavailable
    if body.act == "end":
        PushTopic.end(caller.id)
        return Redirect("/console/push?done=push_ended")
    PushTopic.renew(caller.id)
    return Redirect("/console/push?done=push_renewed")
