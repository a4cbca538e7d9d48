"""The tables, each with the questions and verbs that belong to it.

`RECORDS` names what import and export know, in an order in which every reference points backwards.
"""

from service.db import Table
from service.models.bots import Bot
from service.models.chats import ChatSession, Message
from service.models.inbox import Notification
from service.models.keeping import KeptAnswer, SigningKey
from service.models.people import App, LoginAttempt, LoginSession, User

__all__ = [
    "App",
    "Bot",
    "ChatSession",
    "KeptAnswer",
    "LoginAttempt",
    "LoginSession",
    "Message",
    "Notification",
    "RECORDS",
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
    "notification": Notification,
}

TABLES: tuple[type[Table], ...] = (*RECORDS.values(), LoginSession, LoginAttempt, SigningKey, KeptAnswer)
