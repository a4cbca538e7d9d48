"""Changes for a caller since a position, and the callers to wake after a change.

Every change has a revision, later than all revisions visible to its transaction; but transactions do not commit in the
order of their revisions. A position therefore holds the newest reported revision minus a margin, and the revisions
reported within the margin.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from service import chat_signals, clock, db, drafts, typing_indicators
from service.api.event_stream import BEGIN, EventStream, event
from service.auth import tokens
from service.db import Query, compiled
from service.drafts import Draft
from service.errors import InvalidCursor
from service.fields import Uuid
from service.models import ChatSession, LoginSession, User
from service.models.callers import Caller
from service.models.receipts import changed_receipts
from service.models.visibility import Scope, scopes_of, session_condition
from service.signing import sign, verify
from service.typing_indicators import TypingIndicator

MARGIN = 5 * clock.SECOND  # a write takes no longer, because it waits no longer for a lock
MAX_CHATS = 100  # chat sessions in one response
ADMIN_TOPIC = "admin"


class Changes(Struct):
    """The lists to fetch again."""

    chats: Annotated[list[Uuid], Meta(description="Chat sessions that have changed, least recently changed first.")]
    notifications: Annotated[bool, Meta(description="Whether notifications were added, removed or read.")]
    after: Annotated[str, Meta(description="Position for the next request.")]

    @property
    def is_empty(self) -> bool:
        return not self.chats and not self.notifications


def since(caller: Caller, after: str) -> Changes:
    """Return what has changed for a caller since a position; without a position, the current one and no changes.

    Raises InvalidCursor.
    """
    return _since(caller, after)[0]


def _since(caller: Caller, after: str) -> tuple[Changes, dict[str, int]]:
    """Return what `since` returns, and a revision of each changed chat session that was reported before."""
    with db.snapshot():
        inbox = int(_inbox_revision(caller.id).value())
        if not after:  # by the clock, because the newest revision would reveal the activity of other users
            floor = clock.now() - MARGIN
            return Changes([], False, _position(caller, floor, _changed_sessions(caller, floor), inbox)), {}
        floor, reported, reported_inbox = _read_position(caller, after)
        found = _changed_sessions(caller, floor, len(reported) + MAX_CHATS)
    new = {id: revision for id, revision in found.items() if reported.get(id) != revision}
    for id in list(new)[MAX_CHATS:]:
        del new[id], found[id]
    newest = max([*found.values(), floor + MARGIN])
    within_margin = {id: revision for id, revision in found.items() if revision >= newest - MARGIN}
    position = _position(caller, newest - MARGIN, within_margin, inbox)
    return Changes(list(new), inbox != reported_inbox, position), {id: reported.get(id, floor - 1) for id in new}


class Typing(Struct):
    """Another user or a bot writes in a chat session; shown for six seconds, or until the message arrives."""

    chat_session_id: Uuid
    sender_type: str  # as of messages


class DraftEvent(Struct):
    """The reply that a bot is writing to a message: all of its text so far, or the end of the draft."""

    chat_session_id: Uuid
    message_id: str
    status: drafts.DraftStatus
    text: str


Describe = Callable[[Caller, Changes], object]  # returns the data of an event


class UpdateStream(EventStream):
    """The changes for a caller, as events whose identifiers are positions."""

    def __init__(self, caller: Caller, after: str, describe: Describe = lambda caller, changes: changes) -> None:
        self._caller, self._position, self._describe = caller, after, describe
        self.caller, self.topics, self.until = caller.id, stream_topics(caller), caller.expires_at
        self._indicators = typing_indicators.received.count
        self._drafts = 0
        self.first = BEGIN + self._changes() + self._written()

    def read(self) -> bytes:
        self._caller = tokens.caller_of(self._caller.session_id)
        self.topics = stream_topics(self._caller)
        return self._typing() + self._written() + self._changes()

    def _typing(self) -> bytes:
        """Return events about the others who have been writing since the last call."""
        self._indicators, found = typing_indicators.received.since(self._indicators)
        shown = [indicator for indicator in found if indicator.is_shown_to(self._caller)]
        return b"".join(event("typing", Typing(one.chat_session_id, one.sender_type)) for one in shown)

    def _written(self) -> bytes:
        """Return events with the drafts that have changed since the last call."""
        self._drafts, found = drafts.received.since(self._drafts)
        shown = [draft for draft in found if draft.is_shown_to(self._caller)]
        return b"".join(
            event("draft", DraftEvent(draft.chat_session_id, draft.message_id, draft.status, draft.text))
            for draft in shown
        )

    def _changes(self) -> bytes:
        """Return an event with what has changed since the position; without a position, with the current one.

        Receipts are events before it: a stream that is cut after them sends them again.
        """
        is_first = not self._position
        found, reported = _since(self._caller, self._position)
        self.has_more = len(found.chats) == MAX_CHATS
        if found.is_empty and not is_first:
            return b""
        self._position = found.after
        receipts = changed_receipts(reported) if self._caller.shows_receipts else ()
        changes = event("changes", self._describe(self._caller, found), id=found.after)
        return b"".join(event("receipt", receipt._asdict()) for receipt in receipts) + changes


def topics(caller: Caller) -> frozenset[str]:
    """Return the topics that wake a caller, including the end of its login session."""
    staff = {"admin": {ADMIN_TOPIC}, "agent": {f"app {caller.app_id}"}}.get(caller.role, set())
    return frozenset({f"user {caller.id}", f"login {caller.session_id}"} | staff)


def stream_topics(caller: Caller) -> frozenset[str]:
    """Return the topics that wake the event streams of a caller."""
    return topics(caller) | chat_signals.topics(caller)


@contextmanager
def watch() -> Iterator[Callable[[], set[str]]]:
    """Give a function that returns the topics changed in the whole database since its last call."""
    known: dict[str, int] = {}
    state: object = None

    def changed_topics() -> set[str]:
        nonlocal known, state
        signalled = drafts.received.expire().union(*map(_receive, signals()))
        now = db.change_marker()
        if now == state:
            return signalled
        state = now
        changed: dict[str, tuple[int, set[str]]] = {}
        columns = (ChatSession.id, ChatSession.user_id, ChatSession.app_id)
        floor = ChatSession.latest_revision() - MARGIN
        for id, user_id, app_id, revision in ChatSession.changed_since(floor, *columns):
            changed[id] = revision, {f"user {user_id}", f"app {app_id}", ADMIN_TOPIC}
        for id, revision in User.changed_since(User.latest_revision() - MARGIN, User.id):
            changed[id] = revision, {f"user {id}"}
        for id, ended_at in LoginSession.recently_ended(MARGIN):
            changed[id] = ended_at, {f"login {id}"}
        new = [about for id, (revision, about) in changed.items() if known.get(id) != revision]
        known = {id: revision for id, (revision, _) in changed.items()}
        return signalled.union(*new)

    try:
        with db.listening() as signals:
            yield changed_topics
    finally:
        db.close_database()


def _receive(text: str) -> set[str]:
    """Keep a signal for the event streams of this process, and return its topics."""
    try:
        signal = msgspec.json.decode(text, type=TypingIndicator | Draft)
    except msgspec.DecodeError:
        return set()  # of another version of the service
    if isinstance(signal, Draft):
        drafts.received.add(signal)
    else:
        typing_indicators.received.add(signal)
    return signal.topics


def _changed_sessions(caller: Caller, floor: int, limit: int = MAX_CHATS) -> dict[str, int]:
    """Return the first chat sessions of a caller with a revision from `floor` on, in order of their revisions."""
    found: list[tuple[int, str]] = []
    for scope in scopes_of(caller):
        found += _changed(caller.id, caller.app_id, floor, limit, scope=scope).rows()
    return {id: revision for revision, id in sorted(found)[:limit]}


@compiled
def _changed(user_id: str, caller_app_id: str | None, floor: int, limit: int, *, scope: Scope) -> Query:
    revision = ChatSession.revision if scope in ("all", "app") else ChatSession.public_revision
    found = ChatSession.select(revision, ChatSession.id)
    found = found.where(session_condition(scope, user_id, caller_app_id), revision >= floor)
    return found.order_by(revision, ChatSession.id).limit(limit)


@compiled
def _inbox_revision(user_id: str) -> Query:
    return User.select(User.revision).where(User.id == user_id)


def _position(caller: Caller, floor: int, reported: dict[str, int], inbox: int) -> str:
    return sign("updates", [caller.id, floor, reported, inbox])


def _read_position(caller: Caller, text: str) -> tuple[int, dict[str, int], int]:
    with contextlib.suppress(ValueError):
        user_id, floor, reported, inbox = verify("updates", text)
        if user_id == caller.id:
            return floor, reported, inbox
    raise InvalidCursor("after: not a position returned to you.")
