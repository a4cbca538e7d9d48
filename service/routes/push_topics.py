"""The address at which a user gets push notifications, on the ntfy server of the installation."""

from msgspec import Struct

from service.api.operations import Routes
from service.auth.consent import ACCOUNT
from service.console.push_addresses import PushAddress, address_of
from service.errors import PushTopicNotFound, PushUnavailable
from service.models import PushTopic
from service.models.callers import Caller
from service.settings import Settings

routes = Routes("Notifications", scope=ACCOUNT, extension=True)


class NoPushTopic(Struct):
    """Push notifications have ended."""

    ended: bool


@routes.get("/users/me/push-topic", statuses=(200, 401, 404), errors=(PushTopicNotFound,))
def get_push_topic(caller: Caller, settings: Settings) -> PushAddress:
    """Get your secret address for push notifications."""
    topic = settings.ntfy and PushTopic.of(caller.id)
    if not topic:
        raise PushTopicNotFound
    return address_of(topic, settings)


@routes.post("/users/me/push-topic", statuses=(200, 401, 404), errors=(PushUnavailable,))
def renew_push_topic(caller: Caller, settings: Settings) -> PushAddress:
    """Create a secret address for push notifications; replaces the previous address."""
    if not settings.ntfy:
        raise PushUnavailable
    return address_of(PushTopic.renew(caller.id), settings)


@routes.delete("/users/me/push-topic", statuses=(200, 401))
def end_push_topic(caller: Caller) -> NoPushTopic:
    """End your push notifications: the address is not used any more."""
    PushTopic.end(caller.id)
    return NoPushTopic(True)
