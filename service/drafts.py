"""Drafts: the replies that the assistant is writing. They are in memory only, and end with the stored message."""

import threading
import time
from typing import Literal

import msgspec

from service import db
from service.chat_signals import ChatSignal
from service.models import ChatSession

MIN_INTERVAL = 0.2  # seconds between two texts of a draft
EXPIRY = 15.0  # seconds after the last text, because the process of a draft may have died
MAX_TEXT = 7000  # bytes of JSON, so that a signal can have it
MAX_DRAFTS = 256  # that a process remembers

DraftStatus = Literal["writing", "stored", "withdrawn"]


class Draft(ChatSignal, array_like=True, frozen=True, tag="draft"):
    """What the assistant has written so far of the reply to a message, or that this has ended."""

    message_id: str
    status: DraftStatus
    text: str


class ReceivedDrafts:
    """The newest draft of each chat session that this process has received, with a number and its time."""

    def __init__(self) -> None:
        self._count = 0
        self._newest: dict[str, tuple[int, float, Draft]] = {}
        self._lock = threading.Lock()

    def add(self, draft: Draft) -> None:
        with self._lock:
            self._add(draft)

    def _add(self, draft: Draft) -> None:
        self._count += 1
        self._newest.pop(draft.chat_session_id, None)
        self._newest[draft.chat_session_id] = self._count, time.monotonic(), draft
        if len(self._newest) > MAX_DRAFTS:
            del self._newest[next(iter(self._newest))]

    def expire(self) -> set[str]:
        """Withdraw the drafts that have had no text for EXPIRY, and forget those that have ended. Return topics."""
        oldest, topics = time.monotonic() - EXPIRY, set[str]()
        with self._lock:
            for id, (_, at, draft) in list(self._newest.items()):
                if at > oldest:
                    break
                del self._newest[id]
                if draft.status == "writing":
                    self._add(msgspec.structs.replace(draft, status="withdrawn", text=""))
                    topics |= draft.topics
        return topics

    def since(self, count: int) -> tuple[int, list[Draft]]:
        """Return the drafts after the first `count`, and the new count; after 0, those that have not ended."""
        with self._lock:
            found = [draft for number, _, draft in self._newest.values() if number > count]
            return self._count, [draft for draft in found if count or draft.status == "writing"]


received = ReceivedDrafts()


class DraftSender:
    """Sends the draft of the reply to a message to the event streams of all processes."""

    def __init__(self, session: ChatSession, message_id: str) -> None:
        self.session, self.message_id = session, message_id
        self._sent_at = 0.0

    def show(self, text: str) -> None:
        """Show the text so far, unless another was shown just before."""
        if text and time.monotonic() - self._sent_at >= MIN_INTERVAL:
            self._send("writing", _shortened(text))
            self._sent_at = time.monotonic()

    def end(self, *, is_stored: bool) -> None:
        """End the draft, if there is one: the reply is stored, or the draft is withdrawn."""
        if self._sent_at:
            self._send("stored" if is_stored else "withdrawn", "")
            self._sent_at = 0.0

    def _send(self, status: DraftStatus, text: str) -> None:
        session = self.session
        draft = Draft(session.id, session.user_id, session.app_id, self.message_id, status, text)
        db.read_or(None, lambda: db.send_signal(msgspec.json.encode(draft).decode()))


def _shortened(text: str) -> str:
    """Return a text, or its beginning whose JSON has at most MAX_TEXT bytes."""
    found = text
    while (size := len(msgspec.json.encode(found))) > MAX_TEXT:
        found = found[: len(found) * MAX_TEXT // size]
    return found if found == text else f"{found}…"
