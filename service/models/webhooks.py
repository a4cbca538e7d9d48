"""Webhooks: the events that are sent to them, and those that have ended."""

from typing import Literal, get_args

from service import clock
from service.db import Query, Table, compiled, write
from service.fields import INTERNAL, Text, Timestamp
from service.models.audit_log import OPERATOR, SERVICE, AuditLog
from service.models.deliveries import Channel, Delivery

WEBHOOK: Channel = "webhook"
EventType = Literal[
    "message.created",
    "message.edited",
    "message.deleted",
    "message.revealed",
    "chat.created",
    "chat.status_changed",
    "chat.assigned",
    "feedback.created",
    "feedback.status_changed",
    "data_share.created",
    "data_share.revoked",
    "user.created",
    "user.deleted",
]
EVENT_TYPES: tuple[str, ...] = get_args(EventType)
ENDED = "the webhook has ended, because its receiver answered 410"


class EndedWebhook(Table):
    """A webhook whose receiver has answered 410 (Gone). It gets no events until the operator enables it again."""

    url = Text(primary_key=True, default=None, visibility=INTERNAL)
    ended_at = Timestamp(default=clock.timestamp, visibility=INTERNAL)

    @classmethod
    def end(cls, url: str) -> None:
        """End a webhook, and give up what waits for it. No effect if it has ended."""
        with write(url):
            if cls.find(url):
                return
            cls.create(url=url)
            waiting = (Delivery.channel == WEBHOOK) & (Delivery.target == url) & Delivery.failed_at.is_null()
            Delivery.update(failed_at=clock.now(), error=ENDED).where(waiting).execute()
            AuditLog.record("webhook_ended", SERVICE, "", url=url)

    @classmethod
    def enable(cls, url: str) -> bool:
        """Send events to a webhook again, as an operator. Return whether it had ended."""
        with write(url):
            found = bool(cls.delete().where(cls.url == url).execute())
            if found:
                AuditLog.record("webhook_enabled", OPERATOR, "", url=url)
        return found

    @classmethod
    def times(cls) -> dict[str, str]:
        """Return when each of the ended webhooks has ended, by URL."""
        rows: Query = cls.select(cls.url, cls.ended_at).tuples()
        return dict(rows)


def is_enabled() -> bool:
    """Return whether there are webhooks."""
    return Delivery.is_configured(WEBHOOK)


def emit(event: EventType, topic: str, **data: str | bool | None) -> None:
    """Queue an event for the webhooks, inside the write that causes it.

    Events of a topic arrive in order. `data` holds identifiers and states, never a text of a user.
    """
    if is_enabled():
        ended = {url for (url,) in _ended().rows()}
        Delivery.add(WEBHOOK, event, topic=topic, payload=data, except_for=ended)


@compiled
def _ended() -> Query:
    return EndedWebhook.select(EndedWebhook.url)
