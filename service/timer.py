"""The thread for work that is due at a time: it reopens snoozed chat sessions."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from service import db
from service.models import snoozing

log = logging.getLogger("cx.server")

INTERVAL = 2.0  # seconds
SHUTDOWN_TIMEOUT = 1.0  # seconds


@contextmanager
def timer_thread(stop: threading.Event) -> Iterator[None]:
    """Runs the thread until the end of the block, then waits for it for a short time."""
    thread = threading.Thread(target=run, args=(stop,), name="timer-0", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SHUTDOWN_TIMEOUT)


def run(stop: threading.Event) -> None:
    """Does what is due, at intervals, until `stop` is set."""
    while not stop.wait(INTERVAL):
        try:
            while snoozing.reopen_due() and not stop.is_set():
                pass
        except Exception as error:  # it is still due at the next attempt
            db.reconnect_after(error)
            if not db.is_unavailable(error):  # requests and /readyz report an unavailable database
                log.exception("a snoozed chat session was not reopened")
    db.close_database()
