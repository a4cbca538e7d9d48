"""Labels of the values of enumerations, such as the status of a chat, and of members in the messages of errors."""

from typing import get_args

from service.models import audit_log, bots, chats, feedback
from service.models.announcements import ANNOUNCEMENT
from service.models.assignments import ASSIGNED
from service.models.feedback import FEEDBACK_STATUS
from service.models.messages import PHOTO, READ_ONCE
from service.models.notifications import REMINDER
from service.models.posting import WAITING
from service.models.snoozing import REOPENED
from service.translation import gettext
from service.types import JsonValue

COMPOSED = (ASSIGNED, REOPENED, WAITING)  # types of notifications whose title the service composes
NOTIFICATION_TYPES = ("chat_message", "chat_status", *COMPOSED, FEEDBACK_STATUS, REMINDER, ANNOUNCEMENT)
FINDING_LEVELS = ("ok", "warning", "error")  # of the doctor
FINDING_SUBJECTS = ("program", "address", "folder", "leftovers", "disk")
FEEDBACK_TYPES = ("general", "bug", "idea", "praise")

MEMBERS = (
    "accent",
    "allowed_tools",
    "answer",
    "app_id",
    "buttons",
    "chat_language",
    "contact",
    "contact_email",
    "contact_phone",
    "contact_website",
    "country",
    "description",
    "display_name",
    "email",
    "ends_at",
    "expires_at",
    "first_name",
    "language",
    "last_name",
    "locale",
    "mcp_server_id",
    "muted_until",
    "name",
    "notes",
    "password",
    "phone",
    "question",
    "rating",
    "reminder_at",
    "shortcut",
    "since",
    "slug",
    "social_links",
    "starts_at",
    "text",
    "timezone",
    "title",
    "until",
)

VALUES: tuple[str, ...] = (
    *chats.STATUSES,
    *get_args(bots.Status),
    *feedback.STATUSES,
    *FEEDBACK_TYPES,
    *NOTIFICATION_TYPES,
    *audit_log.KINDS,
    *FINDING_LEVELS,
    *FINDING_SUBJECTS,
    *MEMBERS,
)
"""The values and members that have a label in each language."""


def source_label(value: str) -> str:
    """Return the English label of a value, such as in progress."""
    return value.replace("_", " ")


def label_of(value: str) -> str:
    """Return the label of a value in the language of the request."""
    return gettext(source_label(value))


def capitalized_label(value: str) -> str:
    """Return the label of a value with a capital first letter."""
    label = label_of(value)
    return label[:1].upper() + label[1:]


def notification_title(type: str, title: str, payload: JsonValue) -> str:
    """Return the title of a notification: in the language of the request if the service has composed it."""
    status = str(payload.get("status")) if isinstance(payload, dict) else ""
    if type == "chat_status" and status in chats.STATUSES:
        return gettext("Your chat is {status}", status=label_of(status))
    if type == FEEDBACK_STATUS and status in feedback.STATUSES:
        return gettext("Your feedback is {status}", status=label_of(status))
    return gettext(title) if type in COMPOSED else title


def notification_body(body: str) -> str:
    """Return the text of a notification; what stands for a message without a text, in the language of the request."""
    return gettext(body) if body in (PHOTO, READ_ONCE) else body
