"""The thread for work that is due at a time: reminders, snoozed chat sessions, announcements, last questions."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from service import db
from service.auth import server_credentials
from service.models import Announcement, Delivery, Notification, StoredMail, snoozing

log = logging.getLogger("cx.server")

INTERVAL = 2.0  # seconds
SHUTDOWN_TIMEOUT = 1.0  # seconds

Tasks: TypeAlias = tuple[Callable[[], int], ...]
"""Each does a batch of what is due, and returns how much it was. Several processes may call them at the same time."""

TASKS_OF_EACH_PROCESS: Tasks = (server_credentials.record_questions,)
TASKS: Tasks = (
    *TASKS_OF_EACH_PROCESS,
    Notification.remind_all,
    snoozing.reopen_due,
    Announcement.send_next,
    Delivery.delete_old,
    StoredMail.delete_old,
)


@contextmanager
def timer_thread(stop: threading.Event, tasks: Tasks) -> Iterator[None]:
    """Run the thread until the end of the block, then wait for it for a short time."""
    thread = threading.Thread(target=run, args=(stop, tasks), name="timer-0", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SHUTDOWN_TIMEOUT)


def run(stop: threading.Event, tasks: Tasks) -> None:
    """Do what is due, at intervals, until `stop` is set."""
    while not stop.wait(INTERVAL):
        for task in tasks:
            try:
                while task() and not stop.is_set():
                    pass
            except Exception as error:  # it is still due at the next attempt
                db.reconnect_after(error)
                if not db.is_unavailable(error):  # requests and /readyz report an unavailable database
                    log.exception("%s failed", task.__qualname__)
    db.close_database()
