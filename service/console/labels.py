"""Labels of the values of enumerations, such as the status of a chat, and of members in the messages of errors."""

from typing import get_args

from service.models import audit_log, bots, chats, feedback
from service.models.assignments import ASSIGNED
from service.models.notifications import REMINDER
from service.models.snoozing import REOPENED
from service.translation import gettext

NOTIFICATION_TYPES = ("chat_message", "chat_status", ASSIGNED, REOPENED, REMINDER)
FINDING_LEVELS = ("ok", "warning", "error")  # of the doctor
FEEDBACK_TYPES = ("general", "bug", "idea", "praise")

MEMBERS = (
    "accent",
    "allowed_tools",
    "answer",
    "app_id",
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
