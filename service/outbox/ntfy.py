"""Publishes push notifications on an ntfy server, as JSON (https://docs.ntfy.sh/publish/#publish-as-json)."""

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from service import translation
from service.branding import branding_of
from service.console.labels import notification_title
from service.console.messages import json_value
from service.http_client import HttpServer, is_printable
from service.models import Delivery, Notification, PushTopic, StoredBranding, User
from service.models.deliveries import Channel
from service.models.push_topics import PUSH
from service.outbox.requests import post
from service.settings import Settings
from service.translation import gettext

DEFAULT_PRIORITY, HIGH_PRIORITY = 3, 4
INVALID = (400, 413)  # the statuses for a message that ntfy does not accept at any time
MAX_TEXT = 1000  # characters; ntfy makes an attachment of a message of more than 4,096 bytes


class NtfyTransport:
    """Publishes notifications for the topics of their users. Raises ValueError with a sentence for the operator."""

    channel: Channel = PUSH
    target = ""

    def __init__(self, settings: Settings) -> None:
        try:
            self._server = HttpServer(settings.ntfy, allow_plain=False)
        except ValueError:
            raise ValueError(
                "--ntfy must have the form https://push.example, or http:// with a private address"
            ) from None
        if not is_printable(settings.ntfy_token):
            raise ValueError("CX_NTFY_TOKEN must consist of printable ASCII characters without spaces")
        self._settings = settings
        self._headers = {"Authorization": f"Bearer {settings.ntfy_token}"} if settings.ntfy_token else {}

    def deliver(self, delivery: Delivery, notifications: Sequence[Notification]) -> None:
        """Publish one message about the notifications of a user who has a topic. Raises DeliveryError."""
        topic = PushTopic.of(delivery.user_id)
        if topic is None:
            return
        with translation.use(_language_of(delivery.user_id)):
            message = {"topic": topic, "title": self._title(), "message": self._text(notifications)}
        message |= self._click(notifications[-1])
        priority = HIGH_PRIORITY if delivery.is_urgent else DEFAULT_PRIORITY
        content = msgspec.json.encode(message | {"priority": priority})
        post(self._server, "/", content, self._headers, final=INVALID)

    def _title(self) -> str:
        """Return the name of the installation. Without a title, ntfy shows the topic, which is secret."""
        name = branding_of(self._settings, StoredBranding.values()).name
        return name or urlsplit(self._settings.public_url).hostname or gettext("Chat")

    def _text(self, notifications: Sequence[Notification]) -> str:
        if not self._settings.push_content:
            is_message = notifications[-1].type == "chat_message"
            return gettext("New message") if is_message else gettext("New notification")
        return "\n".join(map(_line, notifications))[:MAX_TEXT]

    def _click(self, notification: Notification) -> dict[str, str]:
        """Return the address of the page to open."""
        if not self._settings.public_url or self._settings.documented_only:
            return {}
        page = f"chats/{notification.session_id}" if notification.session_id else "notifications"
        return {"click": f"{self._settings.public_url}/console/{page}"}


def _line(notification: Notification) -> str:
    payload = json_value(msgspec.json.decode(notification.payload))
    title = notification_title(notification.type, notification.title, payload)
    return f"{title}: {notification.body}" if notification.body else title


def _language_of(user_id: str) -> str:
    return translation.choose(filter(None, (User.chosen_language(user_id), User.get_by_id(user_id).locale)))
