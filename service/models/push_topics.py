"""The ntfy topics of users: where their push notifications are published."""

import secrets

from service.db import Query, Table, compiled, write
from service.fields import INTERNAL, Text, reference
from service.models.audit_log import AuditLog
from service.models.deliveries import Channel, Delivery

PUSH: Channel = "push"
TARGET = ""  # of deliveries: there is one ntfy server


class PushTopic(Table):
    """The topic of a user. Every person and program that knows it can read what is published there."""

    user_id = reference("user", primary_key=True, visibility=INTERNAL)
    topic = Text(64, unique=True, default=None, visibility=INTERNAL)

    @classmethod
    def of(cls, user_id: str) -> str | None:
        """Return the topic of a user, if there is one."""
        found: str | None = _topic(user_id).value()
        return found

    @classmethod
    def renew(cls, user_id: str) -> str:
        """Create a topic for a user, in place of the previous one. Return it."""
        topic = secrets.token_urlsafe(24)
        with write(user_id):
            renewed = cls.insert(user_id=user_id, topic=topic)
            renewed.on_conflict(conflict_target=[cls.user_id], update={"topic": topic}).execute()
            AuditLog.record("push_topic_renewed", user_id, user_id)
        return topic

    @classmethod
    def end(cls, user_id: str) -> None:
        """Delete the topic of a user, and the push notifications that wait."""
        with write(user_id):
            if cls.delete().where(cls.user_id == user_id).execute():
                waiting = (Delivery.channel == PUSH) & (Delivery.target == TARGET) & (Delivery.user_id == user_id)
                Delivery.delete().where(waiting).execute()
                AuditLog.record("push_topic_ended", user_id, user_id)


@compiled
def _topic(user_id: str) -> Query:
    return PushTopic.select(PushTopic.topic).where(PushTopic.user_id == user_id)


Delivery.reaches[PUSH, TARGET] = lambda user_id: PushTopic.of(user_id) is not None
