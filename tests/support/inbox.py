"""Events and notifications: rows and requests."""

from collections.abc import Iterable
from typing import Any

from service import clock, db
from service.models import Event, Notification
from tests.support.client import Client, Reply

EVENT = [
    *("id", "user_id", "app_id", "title", "notes", "starts_at", "ends_at", "reminder_at", "is_time_sensitive"),
    *("source", "source_event_id", "created_at", "updated_at"),
]

WARNING = "X-Request-Warning"


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def timestamp(number: int) -> str:
    """Return the time of a number of seconds after ten o'clock on 2026-11-20."""
    return clock.timestamp(clock.milliseconds("2026-11-20T10:00:00.000Z") + number * clock.SECOND)


def create_event(client: Client, title: str = "Call", starts_at: str = timestamp(0), **columns: Any) -> Event:
    """Create an event of a user."""
    return Event.create(user_id=client.user.id, title=title, starts_at=starts_at, **columns)


def create_notification(client: Client, title: str = "News", **columns: Any) -> Notification:
    """Create a notification of a user."""
    return Notification.create(user_id=client.user.id, title=title, **columns)


def fill(client: Client, number: int) -> None:
    """Create events, every third one time-sensitive, and as many notifications; always three with the same time."""
    times = [(index, timestamp(index // 3)) for index in range(number)]
    rows = [(clock.uuid(), client.user.id, str(index), time, index % 3 == 0) for index, time in times]
    events = [(*row, "", "manual", row[3], row[3]) for row in rows]
    event = "event (id, user_id, title, starts_at, is_time_sensitive, notes, source, created_at, updated_at)"
    notifications = [(*row[:4], "chat_message", "", "[]") for row in rows]
    notification = "notification (id, user_id, title, created_at, type, body, payload)"
    with db.write():
        for table, values in ((event, events), (notification, notifications)):
            parameters = ", ".join([db.database.param] * len(values[0]))
            db.database.cursor().executemany(f"INSERT INTO {table} VALUES ({parameters})", values)


def titles(reply: Reply | Iterable[dict[str, Any]]) -> list[str]:
    """Return the titles of a page, or of the rows of several pages."""
    return [row["title"] for row in (reply.data if isinstance(reply, Reply) else reply)]


def read_all(client: Client, body: Any = None, **options: Any) -> int:
    """Mark notifications as read; return their number. Fails if the response has a warning."""
    reply = client.patch("/notifications/read-all", body, **options)
    assert WARNING not in reply.headers
    assert set(reply.data) == {"marked_read"}
    return int(reply.data["marked_read"])


def unread(client: Client) -> int:
    return int(client.get("/notifications?limit=1").meta["unread_count"])
