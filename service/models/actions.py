"""Actions: buttons that staff and bots offer to a customer in a message, and the customer's press of one of them.

An offer has its actions in `action_payload`. A press is a message of the customer with the identifier of the action in
`action_id`, that of the offer in `action_source_id`, and the payload of the action in `action_payload`.
"""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from service.db import Query
from service.errors import ActionAlreadyChosen, ActionNotFound, Forbidden, InvalidBody, MessageNotFound, SessionNotFound
from service.fields import JsonText, SqlValue, compact_json, json_of_bytes, json_of_integers
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.contents import EMPTY
from service.models.messages import Message
from service.types import JsonObject

MAX_ACTIONS = 8  # of an offer
MAX_LABEL = 80  # characters of a label, and of an identifier
MAX_PAYLOAD = 1024  # bytes of JSON
NO_ACTIONS = "[]"  # as stored in a column `Actions`

LABEL = r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f]$"
Line = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL, pattern=LABEL)]


class Action(Struct):
    """A button: its identifier, its label, and an object for the program that processes the press."""

    id: Line
    label: Line
    payload: JsonObject | None = None


def checked_actions(actions: list[Action]) -> list[Action]:
    """Return the actions of an offer unchanged. Raises ValueError."""
    if len({action.id for action in actions}) < len(actions):
        raise ValueError("two actions have the same id")
    if any(len(compact_json(action.payload).encode()) > MAX_PAYLOAD for action in actions):
        raise ValueError(f"a payload has at most {MAX_PAYLOAD} bytes of JSON")
    return actions


class Offer(Struct):
    """The actions that a message offers."""

    actions: Annotated[list[Action], Meta(min_length=1, max_length=MAX_ACTIONS), checked_actions]

    def stored(self) -> str:
        """Return the `action_payload` of the message."""
        return json_of_bytes(msgspec.to_builtins(self))


class Actions(JsonText):
    """The actions of an offer, as an array."""

    wire = list[Action]
    accepts = Annotated[list[Action], Meta(max_length=MAX_ACTIONS)]

    def to_stored(self, value: SqlValue) -> SqlValue:
        return compact_json(msgspec.to_builtins(checked_actions(value)))


def payload_offering(stored: str) -> str:
    """Return the `action_payload` of a message that offers the actions in a column."""
    return EMPTY if stored == NO_ACTIONS else json_of_integers(list(f'{{"actions":{stored}}}'.encode()))


def labels_in(text: str) -> list[str]:
    """Return the labels in a text with one label a line."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def labelled(labels: Sequence[str], known: Sequence[Action] = ()) -> list[Action]:
    """Return actions with these labels: those of `known`, and others, identified by numbers. Raises InvalidBody."""
    if len(labels) > MAX_ACTIONS:
        raise InvalidBody("$.buttons: at most eight are possible")
    if not all(1 <= len(label) <= MAX_LABEL for label in labels):
        raise InvalidBody("$.buttons: a label has 1 to 80 characters")
    if not all(re.fullmatch(LABEL, label) for label in labels):
        raise InvalidBody("$.buttons: a label has no control characters")
    left = list(known)
    numbers = (str(number) for number in itertools.count(1))
    unused = (number for number in numbers if number not in {action.id for action in known})
    found = list[Action]()
    for label in labels:
        same = next((action for action in left if action.label == label), None)
        if same:
            left.remove(same)
        found.append(same or Action(next(unused), label))
    return found


def offer_of(labels: Sequence[str]) -> str:
    """Return the `action_payload` that offers actions with these labels. Raises InvalidBody."""
    return Offer(labelled(labels)).stored()


def offered(sender_type: str, source_id: str | None, payload: Sequence[int]) -> list[Action]:
    """Return the actions that a message offers, from its columns; customers offer none."""
    if not payload or source_id or sender_type == "user":
        return []
    try:
        return msgspec.convert(json.loads(bytes(payload)), Offer).actions
    except (ValueError, RecursionError):  # an import may contain any JSON
        return []


def choose(caller: Caller, session: ChatSession, source_id: str, action_id: str) -> Action:
    """Return the action that the customer of a session chooses.

    Raises Forbidden for others, MessageNotFound or ActionNotFound.
    """
    if caller.id != session.user_id:
        raise Forbidden(not_found=SessionNotFound)
    offer = Message.get_for(caller, source_id, session)
    if offer.deleted_at:
        raise MessageNotFound
    actions = offered(offer.sender_type, offer.action_source_id, msgspec.json.decode(offer.action_payload))
    for action in actions:
        if action.id == action_id:
            return action
    raise ActionNotFound


def pressed_before(session: ChatSession, source_id: str, action_id: str) -> Message | None:
    """Return the press of an offer. Raises ActionAlreadyChosen if it is of another action, deleted or purged."""
    own = (Message.action_source_id == source_id) & (Message.chat_session_id == session.id)
    press: Message | None = Message.get_or_none(own, Message.sender_type == "user")
    if press and (press.action_id != action_id or press.deleted_at or press.gdpr_purged_at):
        raise ActionAlreadyChosen
    return press


def chosen_of(offer_ids: Iterable[str]) -> dict[str, str]:
    """Return the identifiers of the actions that were chosen, by offer."""
    ids = list(offer_ids)
    presses = Message.select(Message.action_source_id, Message.action_id)
    presses = presses.where(Message.action_source_id.in_(ids), Message.sender_type == "user")
    rows: Query = presses.tuples()
    return dict(rows) if ids else {}
