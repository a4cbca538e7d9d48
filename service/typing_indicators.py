"""Typing indicators: who is writing in a chat session. They are in memory only, and shown for a few seconds."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Literal

import msgspec

from service import db
from service.chat_signals import ChatSignal
from service.models import ChatSession
from service.models.callers import Caller

EXPIRY = 6  # seconds for which clients show an indicator
MIN_INTERVAL = 2.0  # seconds between two indicators of a sender in a chat session; others in between have no effect
BOT_INTERVAL = 4.0  # seconds between the indicators of a bot
MAX_SENDERS = 10_000  # whose last indicator is remembered


class TypingIndicator(ChatSignal, array_like=True, frozen=True, tag="typing"):
    """A user or bot is writing in a chat session."""

    sender_type: Literal["user", "agent", "bot"]
    sender_id: str

    def is_shown_to(self, caller: Caller) -> bool:
        """Return whether a caller sees the indicator: all who see the chat session, except the sender."""
        return caller.id != self.sender_id and super().is_shown_to(caller)


class ReceivedIndicators:
    """The newest indicators that this process has received, each with a number."""

    def __init__(self) -> None:
        self.count = 0
        self._newest: deque[tuple[int, TypingIndicator]] = deque(maxlen=256)

    def add(self, indicator: TypingIndicator) -> None:
        self.count += 1
        self._newest.append((self.count, indicator))

    def since(self, count: int) -> tuple[int, list[TypingIndicator]]:
        """Return the new count, and the indicators after the first `count`."""
        newest = list(self._newest)  # a copy, because other threads add to it
        return max([count, *(number for number, _ in newest)]), [one for number, one in newest if number > count]


received = ReceivedIndicators()
_last_sent: dict[tuple[str, str], float] = {}
_lock = threading.Lock()


def show(caller: Caller, session: ChatSession) -> bool:
    """Show the others in a chat session that the caller is writing. Return False if they see nothing."""
    if not caller.shows_typing or session.status == "archived":
        return False
    sender_type: Literal["user", "agent"] = "user" if caller.id == session.user_id else "agent"
    _send(TypingIndicator(session.id, session.user_id, session.app_id, sender_type, caller.id))
    return True


@contextlib.contextmanager
def of_bot(session: ChatSession) -> Iterator[None]:
    """Show that the bot of a chat session is writing, until the end of the block."""
    indicator = TypingIndicator(session.id, session.user_id, session.app_id, "bot", session.bot_id)
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            db.read_or(None, lambda: _send(indicator))
            is_over.wait(BOT_INTERVAL)
        db.close_database()

    thread = threading.Thread(target=repeat, name="typing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _send(indicator: TypingIndicator) -> None:
    """Send an indicator to all processes, unless the same was sent just before."""
    key, now = (indicator.chat_session_id, indicator.sender_id), time.monotonic()
    with _lock:
        if now - _last_sent.get(key, 0.0) < MIN_INTERVAL:
            return
        if len(_last_sent) >= MAX_SENDERS:
            _last_sent.clear()
        _last_sent[key] = now
    db.send_signal(msgspec.json.encode(indicator).decode())
