"""What has changed for a caller since they last asked, and for whom anything has changed at all.

A change has a moment, later than every other that its writer could see; but writers do not finish in the order of their
moments. So a position is the newest moment that was told, less a margin, and what was told within the margin.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from msgspec import Meta, Struct

from service import clock, db
from service.auth.signing import sign, verify
from service.db import prepared, sum_of
from service.errors import InvalidCursor
from service.fields import Uuid
from service.models import ChatSession, LoginSession, User
from service.models.people import Caller
from service.models.reach import Part, parts_of, sessions_within

MARGIN = 5 * clock.SECOND  # a write takes no longer than it may wait for a lock
MOST = 100  # chat sessions told at a time
ANYBODY = "anybody"  # the topic of admins


class Changes(Struct):
    """What to ask for anew."""

    chats: Annotated[list[Uuid], Meta(description="Chat sessions with something new in them, the longest ago first.")]
    notifications: Annotated[bool, Meta(description="Whether notifications came, went or were read.")]
    after: Annotated[str, Meta(description="Where to go on.")]

    @property
    def is_nothing(self) -> bool:
        return not self.chats and not self.notifications


def since(caller: Caller, after: str) -> Changes:
    """What has changed for a caller since a position; without one, nothing, and the position of this moment.

    Raises InvalidCursor.
    """
    with db.snapshot():
        inbox = int(_inbox(caller.id).value())
        if not after:  # by the clock: the newest change of all is nobody's business
            floor = clock.now() - MARGIN
            return Changes([], False, _position(caller, floor, _recent(caller, floor), inbox))
        floor, told, known_inbox = _read(caller, after)
        found = _recent(caller, floor, len(told) + MOST)
    fresh = {id: moment for id, moment in found.items() if told.get(id) != moment}
    for id in list(fresh)[MOST:]:
        del fresh[id], found[id]
    newest = max([*found.values(), floor + MARGIN])
    kept = {id: moment for id, moment in found.items() if moment >= newest - MARGIN}
    return Changes(list(fresh), inbox != known_inbox, _position(caller, newest - MARGIN, kept, inbox))


def topics(caller: Caller) -> frozenset[str]:
    """What a caller waits for; the end of its login session, too."""
    works_for = {"admin": {ANYBODY}, "agent": {f"app {caller.app_id}"}}.get(caller.role, set())
    return frozenset({f"user {caller.id}", f"login {caller.session_id}"} | works_for)


@contextmanager
def news() -> Iterator[Callable[[], set[str]]]:
    """Looks at the whole database: which topics were touched since the last look. For the waiting room."""
    known: dict[str, int] = {}
    state: Any = None

    def look() -> set[str]:
        nonlocal known, state
        now = db.state()
        if now == state:
            return set()
        state = now
        touched: dict[str, tuple[int, set[str]]] = {}
        whose = (ChatSession.id, ChatSession.user_id, ChatSession.app_id)
        for id, user_id, app_id, moment in ChatSession.with_news_since(ChatSession.newest() - MARGIN, *whose):
            touched[id] = moment, {f"user {user_id}", f"app {app_id}", ANYBODY}
        for id, moment in User.with_news_since(User.newest() - MARGIN, User.id):
            touched[id] = moment, {f"user {id}"}
        for id, moment in LoginSession.ended_lately(MARGIN):
            touched[id] = moment, {f"login {id}"}
        fresh = [about for id, (moment, about) in touched.items() if known.get(id) != moment]
        known = {id: moment for id, (moment, _) in touched.items()}
        return set().union(*fresh)

    try:
        yield look
    finally:
        db.close_database()


def _recent(caller: Caller, floor: int, most: int = MOST) -> dict[str, int]:
    """The first sessions of a caller that changed at `floor` or later, with the moment, the longest ago first."""
    found: list[tuple[int, str]] = []
    for part in parts_of(caller):
        found += _changed(caller.id, caller.app_id, floor, most, part=part).rows()
    return {id: moment for moment, id in sorted(found)[:most]}


@prepared
def _changed(user_id: str, works_for: str | None, floor: int, most: int, *, part: Part) -> Any:
    moment = ChatSession.news_at if part in ("everything", "served") else ChatSession.public_news_at  # as they may see
    recent = ChatSession.select(moment, ChatSession.id)
    recent = recent.where(sessions_within(part, user_id, works_for), moment >= floor)
    return recent.order_by(moment, ChatSession.id).limit(sum_of(most))


@prepared
def _inbox(user_id: str) -> Any:
    return User.select(User.news_at).where(User.id == user_id)


def _position(caller: Caller, floor: int, told: dict[str, int], inbox: int) -> str:
    return sign("updates", [caller.id, floor, told, inbox])


def _read(caller: Caller, text: str) -> tuple[int, dict[str, int], int]:
    with contextlib.suppress(ValueError):
        user_id, floor, told, inbox = verify("updates", text)
        if user_id == caller.id:
            return floor, told, inbox
    raise InvalidCursor("after: not a position that you were given.")
