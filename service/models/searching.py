"""Searching all messages that a caller may see."""

from typing import Any

from service import formats
from service.db import Order, Page, Position, contains, padded, page, prepared, snapshot, sought, sum_of
from service.models.chats import Message
from service.models.people import Caller
from service.models.reach import Part, parts_of, within
from service.models.reading import LIVE, PUBLIC, merge, nth

SEARCH_DEPTH = 20_000  # messages that are looked at for one page: 50 ms on a slow machine


def search(caller: Caller, text: str, after: Position, limit: int) -> Page[Message]:
    """A page of the messages in which a text stands, whatever its case, among those that a caller may see.

    The newest first. No page looks at more than SEARCH_DEPTH messages, so it may hold fewer than `limit`, or none, and
    the next one goes on from there.
    """
    text, apart = sought(formats.fold(text.strip())), caller.role != "admin"
    who = (caller.id, caller.app_id, *after.key)
    with snapshot():
        parts = parts_of(caller)
        bottom = max(_depth(*who, part=part, apart=apart, depth=SEARCH_DEPTH).value() or "" for part in parts)
        found = merge(limit + 1, (_holding(text, bottom, limit + 1, *who, part=part, apart=apart) for part in parts))
        shown = page(_those(*padded([id for (id,) in found])), [Order(Message.id, True)], Position(), limit)
    shown.next_key = shown.next_key or ((bottom,) if bottom else ())
    return shown


@prepared
def _depth(*who: Any, part: Part, apart: bool, depth: int) -> Any:
    return nth(_older(*who, part=part), Order(Message.id, True, apart=apart), depth)


@prepared
def _holding(text: str, bottom: str, most: int, *who: Any, part: Part, apart: bool) -> Any:
    found = _older(*who, part=part).where(Message.id >= bottom, contains(Message.search_text, text))
    return found.order_by(Order(Message.id, True, apart=apart).sql()).limit(sum_of(most))


def _older(user_id: str, works_for: str | None, *before: str, part: Part) -> Any:
    """The messages of a part of what a caller may see, older than one that is maybe given."""
    own = (Message.owner_id == user_id) & PUBLIC
    found = Message.select(Message.id).where(within(part, own, Message.app_id, works_for, LIVE))
    return found.where(Message.id < before[0]) if before else found


@prepared
def _those(*ids: str) -> Any:
    return Message.select().where(Message.id.in_(ids))
