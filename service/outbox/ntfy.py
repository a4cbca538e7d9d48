"""Publishes push notifications on an ntfy server, as JSON (https://docs.ntfy.sh/publish/#publish-as-json)."""

from collections.abc import Sequence

import msgspec

from service import translation
from service.http_client import HttpServer, is_printable
from service.models import Delivery, Notification, PushTopic
from service.models.deliveries import Channel
from service.models.push_topics import PUSH, TARGET
from service.outbox import push_messages
from service.outbox.requests import post
from service.outbox.transport import Transport
from service.settings import Settings

DEFAULT_PRIORITY, HIGH_PRIORITY = 3, 4
INVALID = (400, 413)  # the statuses for a message that ntfy does not accept at any time


class NtfyTransport(Transport):
    """Publishes notifications for the topics of their users. Raises ValueError with a sentence for the operator."""

    channel: Channel = PUSH
    target = TARGET

    def __init__(self, settings: Settings) -> None:
        try:
            self._server = HttpServer(settings.ntfy, allow_plain=False, keeps_connection=True)
        except ValueError:
            raise ValueError(
                "--ntfy must have the form https://push.example, or http:// with a private address"
            ) from None
        if not is_printable(settings.ntfy_token):
            raise ValueError("CX_NTFY_TOKEN must consist of printable ASCII characters without spaces")
        self._settings = settings
        self._headers = {"Authorization": f"Bearer {settings.ntfy_token}"} if settings.ntfy_token else {}

    def close(self) -> None:
        self._server.close()

    def deliver(self, delivery: Delivery, notifications: Sequence[Notification]) -> None:
        """Publish one message about the notifications of a user who has a topic. Raises DeliveryError."""
        topic = PushTopic.of(delivery.user_id)
        if topic is None:
            return
        settings = self._settings
        with translation.use(push_messages.language_of(delivery.user_id)):
            text = push_messages.text(settings, notifications)
            message = {"topic": topic, "title": push_messages.title(settings), "message": text}
        if settings.public_url and not settings.documented_only:
            message["click"] = settings.public_url + push_messages.page_of(notifications[-1])
        priority = HIGH_PRIORITY if delivery.is_urgent else DEFAULT_PRIORITY
        content = msgspec.json.encode(message | {"priority": priority})
        post(self._server, "/", content, self._headers, final=INVALID)
