"""The tables, and the functions that read and write them.

`RECORDS` lists what import and export handle, ordered so that every record comes after those that it refers to.
"""

from service.db import Table
from service.models import assignments, staff  # noqa: F401 (they add to the table of users)
from service.models.announcements import Announcement
from service.models.approvals import Approval
from service.models.apps import App
from service.models.assistant_months import AssistantMonth
from service.models.assistant_usage import AssistantUsage
from service.models.audit_log import AuditLog
from service.models.avatars import Avatar
from service.models.bot_pictures import BotPicture
from service.models.bots import Bot
from service.models.branding import StoredBranding
from service.models.canned_answer_index import CannedAnswerWord
from service.models.canned_answers import CannedAnswer
from service.models.canned_replies import CannedReply
from service.models.chats import ChatSession
from service.models.clock_state import ClockState
from service.models.data_shares import DataShare
from service.models.deliveries import Delivery
from service.models.device_authorizations import DeviceAuthorization
from service.models.events import CalendarFeed, Event
from service.models.feedback import Feedback
from service.models.feedback_screenshots import FeedbackScreenshot
from service.models.idempotency_keys import IdempotencyKey
from service.models.inbox import ReadMarker
from service.models.logins import LoginAttempt, LoginSession
from service.models.message_images import MessageImage
from service.models.messages import Message
from service.models.notifications import Notification
from service.models.push_subscriptions import PushKey, PushSubscription
from service.models.push_topics import PushTopic
from service.models.ratings import ChatRating
from service.models.reply_queue import PendingReply
from service.models.server_credentials import ServerCredential
from service.models.signing_keys import SigningKey
from service.models.stored_mails import StoredMail
from service.models.users import User
from service.models.webhooks import EndedWebhook

__all__ = [
    "Announcement",
    "App",
    "Approval",
    "AssistantMonth",
    "AssistantUsage",
    "AuditLog",
    "Avatar",
    "Bot",
    "CannedAnswer",
    "CannedAnswerWord",
    "BotPicture",
    "CalendarFeed",
    "CannedReply",
    "ChatRating",
    "ChatSession",
    "ClockState",
    "DataShare",
    "Delivery",
    "DeviceAuthorization",
    "EndedWebhook",
    "Event",
    "Feedback",
    "FeedbackScreenshot",
    "IdempotencyKey",
    "LoginAttempt",
    "LoginSession",
    "ServerCredential",
    "Message",
    "MessageImage",
    "Notification",
    "PendingReply",
    "PushKey",
    "PushSubscription",
    "PushTopic",
    "RECORDS",
    "ReadMarker",
    "SigningKey",
    "StoredMail",
    "StoredBranding",
    "TABLES",
    "User",
]

RECORDS: dict[str, type[Table]] = {
    "app": App,
    "user": User,
    "bot": Bot,
    "chat_session": ChatSession,
    "message": Message,
    "message_image": MessageImage,
    "chat_rating": ChatRating,
    "event": Event,
    "notification": Notification,
    "data_share": DataShare,
    "feedback": Feedback,
    "feedback_screenshot": FeedbackScreenshot,
    "avatar": Avatar,
    "bot_answer": CannedAnswer,
    "canned_reply": CannedReply,
    "bot_picture": BotPicture,
}

TABLES: tuple[type[Table], ...] = (
    *RECORDS.values(),
    CannedAnswerWord,
    LoginSession,
    LoginAttempt,
    Approval,
    DeviceAuthorization,
    SigningKey,
    ClockState,
    StoredBranding,
    IdempotencyKey,
    ReadMarker,
    CalendarFeed,
    PushTopic,
    PushSubscription,
    PushKey,
    PendingReply,
    Delivery,
    StoredMail,
    Announcement,
    EndedWebhook,
    AssistantUsage,
    AssistantMonth,
    ServerCredential,
    AuditLog,
)
