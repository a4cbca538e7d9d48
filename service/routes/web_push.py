"""The browsers and apps in which a user gets push notifications (Web Push)."""

from typing import Annotated

from msgspec import Meta, Struct

from service.api.operations import Routes
from service.auth.consent import ACCOUNT
from service.errors import PushUnavailable
from service.models import PushSubscription
from service.models.callers import Caller
from service.outbox import web_push
from service.settings import Settings

routes = Routes("Notifications", scope=ACCOUNT, extension=True)

Endpoint = Annotated[str, Meta(min_length=1, max_length=2000, description="URL at the push service.")]
Key = Annotated[str, Meta(min_length=1, max_length=100)]


class PushServerKey(Struct):
    """The key of this service."""

    public_key: Annotated[str, Meta(description="The `applicationServerKey` of subscriptions.")]


class BrowserKeys(Struct):
    """The keys of a push subscription, as base64url."""

    p256dh: Key
    auth: Key


class BrowserSubscription(Struct):
    """A push subscription, as `PushSubscription.toJSON()` returns it."""

    endpoint: Endpoint
    keys: BrowserKeys


class BrowserState(Struct):
    """Whether the browser is subscribed."""

    subscribed: bool


@routes.get("/users/me/web-push", statuses=(200, 401, 404), errors=(PushUnavailable,))
def get_push_key(settings: Settings) -> PushServerKey:
    """Get the key with which browsers subscribe to push notifications."""
    web_push.require_configured(settings)
    return PushServerKey(web_push.public_key())


@routes.post(
    "/users/me/web-push",
    statuses=(200, 400, 401, 404),
    errors=(PushUnavailable,),
    example={"endpoint": "https://push.example/x", "keys": {"p256dh": "BCVx…", "auth": "BTBZ…"}},
)
def subscribe_browser(caller: Caller, body: BrowserSubscription, settings: Settings) -> BrowserState:
    """Get push notifications in the browser of your login session, until the session ends."""
    web_push.subscribe(caller, body.endpoint, body.keys.p256dh, body.keys.auth, settings)
    return BrowserState(True)


@routes.delete("/users/me/web-push", statuses=(200, 401))
def unsubscribe_browser(caller: Caller) -> BrowserState:
    """End the push notifications in the browser of your login session."""
    PushSubscription.end(caller)
    return BrowserState(False)
