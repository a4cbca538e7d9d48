"""The page of push notifications: the address for the app ntfy, and browsers."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import HtmlPage, Redirect
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.console.push_addresses import address_of, qr_code
from service.errors import PushUnavailable
from service.models import Delivery, PushSubscription, PushTopic
from service.models.callers import Caller
from service.models.push_topics import PUSH
from service.outbox import web_push
from service.settings import Settings
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")


class PushQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class PushForm(ConsoleForm, kw_only=True):
    """An address to create in place of the previous one, or to end."""

    act: Literal["renew", "end"]


class BrowserForm(ConsoleForm, kw_only=True):
    """The subscription of this browser, which the script fills in; or the end of it, or of all of the user."""

    act: Literal["subscribe", "unsubscribe", "unsubscribe_all"]
    endpoint: Annotated[str, Meta(max_length=2000)] = ""
    p256dh: Annotated[str, Meta(max_length=100)] = ""
    auth: Annotated[str, Meta(max_length=100)] = ""


@routes.get("/console/push", statuses=(200, 400, 401, 404), errors=(PushUnavailable,))
def show_push_address(caller: Caller, query: PushQuery, settings: Settings) -> HtmlPage:
    """Show the page of push notifications."""
    if not Delivery.is_configured(PUSH):
        raise PushUnavailable
    return push_page(caller, query, settings)


def push_page(caller: Caller, query: PushQuery, settings: Settings, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of push notifications."""
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
        public_key=web_push.public_key() if settings.web_push else "",
        endpoints=[subscription.endpoint for subscription in PushSubscription.open_of(caller.id)],
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


@routes.post("/console/push/browser", statuses=(303, 400, 401, 404), max_body=MAX_FORM, errors=(PushUnavailable,))
@layout.form_handler(push_page, PushQuery)
def change_push_browser(caller: Caller, body: BrowserForm, settings: Settings) -> Redirect:
    """Begin or end push notifications in a browser."""
    web_push.require_configured(settings)
    if body.act == "subscribe":
        web_push.subscribe(caller, body.endpoint, body.p256dh, body.auth, settings)
        return Redirect("/console/push?done=browser_added")
    is_everywhere = body.act == "unsubscribe_all"
    PushSubscription.end(caller, everywhere=is_everywhere)
    return Redirect(f"/console/push?done={'browsers_removed' if is_everywhere else 'browser_removed'}")
