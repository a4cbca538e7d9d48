"""The tables, each with the questions and verbs that belong to it.

`RECORDS` names what import and export know, in an order in which every reference points backwards.
"""

from service.db import Table
from service.models.answer_index import BotAnswerWord
from service.models.answering import BotAnswer
from service.models.bots import Bot
from service.models.chats import ChatSession, Message
from service.models.due_answers import DueAnswer
from service.models.events import CalendarFeed, Event
from service.models.feedback import Feedback
from service.models.installs import Approval
from service.models.keeping import KeptAnswer, Moment, SigningKey
from service.models.ledger import Ledger
from service.models.notifications import Notification
from service.models.people import App, LoginAttempt, LoginSession, User
from service.models.pictures import Avatar
from service.models.reading import ReadMarker
from service.models.sharing import DataShare

__all__ = [
    "App",
    "Approval",
    "Avatar",
    "Bot",
    "BotAnswer",
    "BotAnswerWord",
    "CalendarFeed",
    "ChatSession",
    "DataShare",
    "DueAnswer",
    "Event",
    "Feedback",
    "KeptAnswer",
    "Ledger",
    "LoginAttempt",
    "LoginSession",
    "Message",
    "Moment",
    "Notification",
    "RECORDS",
    "ReadMarker",
    "SigningKey",
    "TABLES",
    "User",
]

RECORDS: dict[str, type[Table]] = {
    "app": App,
    "user": User,
    "bot": Bot,
    "chat_session": ChatSession,
    "message": Message,
    "event": Event,
    "notification": Notification,
    "data_share": DataShare,
    "feedback": Feedback,
    "avatar": Avatar,
    "bot_answer": BotAnswer,
}

TABLES: tuple[type[Table], ...] = (
    *RECORDS.values(),
    BotAnswerWord,
    LoginSession,
    LoginAttempt,
    Approval,
    SigningKey,
    Moment,
    KeptAnswer,
    ReadMarker,
    CalendarFeed,
    DueAnswer,
    Ledger,
)
