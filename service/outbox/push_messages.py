"""What push notifications say, in the language of `translation.use`."""

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from service import translation
from service.branding import branding_of
from service.console.labels import notification_body, notification_title
from service.console.messages import json_value
from service.models import Notification, StoredBranding, User
from service.settings import Settings
from service.translation import gettext

MAX_TEXT = 1000  # characters; ntfy makes an attachment of a message of more than 4,096 bytes


def title(settings: Settings) -> str:
    """Return the name of the installation. Without a title, ntfy shows the topic, which is secret."""
    name = branding_of(settings, StoredBranding.values()).name
    return name or urlsplit(settings.public_url).hostname or gettext("Chat")


def text(settings: Settings, notifications: Sequence[Notification]) -> str:
    """Return what has happened, with titles and texts of messages only if the operator says so."""
    if not settings.push_content:
        is_message = notifications[-1].type == "chat_message"
        return gettext("New message") if is_message else gettext("New notification")
    return "\n".join(map(_line, notifications))[:MAX_TEXT]


def page_of(notification: Notification) -> str:
    """Return the path of the page to open."""
    return f"/console/chats/{notification.session_id}" if notification.session_id else "/console/notifications"


def language_of(user_id: str) -> str:
    """Return the language of push notifications to a user."""
    return translation.choose(filter(None, (User.chosen_language(user_id), User.get_by_id(user_id).locale)))


def _line(notification: Notification) -> str:
    payload = json_value(msgspec.json.decode(notification.payload))
    title = notification_title(notification.type, notification.title, payload)
    return f"{title}: {notification_body(notification.body)}" if notification.body else title
