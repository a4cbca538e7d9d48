"""Messages as the console shows them."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from service import clock, db
from service.console import display_names
from service.console.display_names import DisplayProfile
from service.console.layout import Row, clip
from service.console.times import Times
from service.console.translated import Reader, TranslationView
from service.models import ChatSession, Message, MessageImage, actions
from service.models.callers import Caller
from service.models.contents import IMAGE, value_in
from service.models.inbox import PinnedPreview
from service.models.message_images import ImageSize
from service.models.message_translations import MAX_TEXT
from service.models.messages import preview
from service.translation import gettext
from service.types import JsonValue

PAGE_BYTES = 2 * db.HTML_PAGE_BYTES  # of the rows of a page: a byte of text takes up to four bytes of JSON
CONTEXT_ROWS = 12  # messages before and after a message that is opened
MAX_JSON = 4_000  # characters of a content that is not text but other JSON
FORM_ID = "console "  # before the number of a form, in the `client_message_id` of its message
GROUP_SECONDS = 300  # between messages of one sender that are shown as a group
MAX_QUOTE = 500  # characters of a quoted text

ROLES = {"user": "customer", "bot": "bot", "system": "system"}  # all other sender types are staff


class Button(NamedTuple):
    """An action that a message offers."""

    id: str
    label: str
    is_chosen: bool


class MessageView(NamedTuple):
    """A message on a page."""

    id: str
    text: str
    is_json: bool  # not text but other JSON, shown unchanged
    profile: DisplayProfile
    role: str  # "own", "customer", "agent", "bot" or "system"
    sent: str
    day: str  # if this is the first message of the day, else empty
    quote: str
    is_private: bool
    is_pinned: bool
    is_edited: bool
    is_purged: bool
    is_hidden: bool  # deleted by the customer; visible to staff only
    may_edit: bool
    images: list[ImageSize]
    buttons: list[Button]
    may_press: bool
    is_sealed: bool  # read-once, and not read by the other side
    may_reveal: bool
    revealed_at: str  # the time at which a read-once message was read, else empty
    status: str  # "sent", "delivered" or "read" for a message with receipts of the caller's side, else empty
    number: str  # of the form that sent it, for its sender
    translation: TranslationView | None
    may_translate: bool
    is_foreign: bool  # probably in another language than that of its reader
    is_continued: bool  # shortly after a message of the same sender and kind, so that the sender is not repeated


class PinnedMessage(NamedTuple):
    """A pinned message in the list at the top of a chat."""

    id: str
    name: str
    text: str


class Senders:
    """The senders of messages, read with one statement per kind of sender."""

    def __init__(self, messages: Iterable[tuple[str | None, ChatSession]], caller: Caller) -> None:
        """`messages` are pairs of a sender's identifier and a session."""
        pairs = list(messages)
        ids, sessions = {id for id, _ in pairs}, [session for _, session in pairs]
        self.caller = caller
        self.users = display_names.users(ids | {session.user_id for session in sessions})
        self.bots = display_names.bots(ids | {session.bot_id for session in sessions})
        self.apps = display_names.apps(session.app_id for session in sessions)

    def find(self, kind: str, id: str | None, session: ChatSession) -> tuple[str, DisplayProfile, str]:
        """Return the identifier, profile and role of the sender of a message."""
        sender = id or (session.user_id if kind == "user" else session.bot_id if kind == "bot" else "") or ""
        profile = self.users.get(sender) or self.bots.get(sender) or self.apps[session.app_id]
        return sender, profile, "own" if sender == self.caller.id else ROLES.get(kind, "agent")


def pinned_messages(rows: Iterable[PinnedPreview], session: ChatSession, caller: Caller) -> list[PinnedMessage]:
    """Return the pinned messages of one session as a caller sees them."""
    rows = list(rows)
    senders = Senders(((row.sender_id, session) for row in rows), caller)
    pinned = []
    for row in rows:
        _, profile, role = senders.find(row.sender_type, row.sender_id, session)
        text = shown_preview(row.text, row.content_type, is_read_once=row.is_read_once, is_purged=row.gdpr_purged)
        pinned.append(PinnedMessage(row.id, gettext("You") if role == "own" else profile.name, text))
    return pinned


def shown_preview(text: str, content_type: str, *, is_read_once: bool, is_purged: bool) -> str:
    """Return the beginning of a message's text, else what the message is."""
    if is_purged:
        return gettext("This message was deleted permanently.")
    if text:
        return _printable(preview(text, content_type))
    if is_read_once:
        return gettext("Read-once message")
    return gettext("Photo") if content_type == IMAGE else gettext("(no text)")


def views(
    rows: Iterable[Row], session: ChatSession, caller: Caller, times: Times, reader: Reader | None = None
) -> list[MessageView]:
    """Return messages of one session as a caller sees them; with their `reader`, with translations."""
    return views_of_all([(row, session) for row in rows], caller, times, reader)


def views_of_all(
    rows: Sequence[tuple[Row, ChatSession]], caller: Caller, times: Times, reader: Reader | None = None
) -> list[MessageView]:
    """Return messages as a caller sees them, each given with its session."""
    senders = Senders(((row["sender_id"], session) for row, session in rows), caller)
    images = MessageImage.of_messages([row["id"] for row, _ in rows if row["content_type"] == IMAGE])
    offers = {row["id"]: found for row, _ in rows if (found := _offered(row))}
    chosen = actions.chosen_of(offers)
    numbers = _form_numbers([row["id"] for row, _ in rows if row["sender_id"] == caller.id])
    sent = _sent_translations([row["id"] for row, _ in rows if row["translations"]])
    views, last_day, last_sent = [], "", ""
    last_group: tuple[object, ...] = ()
    for row, session in rows:
        sender, profile, role = senders.find(row["sender_type"], row["sender_id"], session)
        revealed_at = _revealed_at(row)
        text, is_json = ("", False) if revealed_at else text_of(row["content"])
        is_sealed = row["is_read_once"] and not row["content"] and not row["gdpr_purged"]
        day = times.day(row["created_at"])
        group = session.id, sender, role, row["is_private"], row["deleted_at"] is not None
        is_same = group == last_group and day == last_day
        is_continued = is_same and _seconds(last_sent, row["created_at"]) < GROUP_SECONDS
        views.append(
            MessageView(
                row["id"],
                text,
                is_json,
                profile,
                role,
                row["created_at"],
                day if day != last_day else "",
                quoted(row["reply_snapshot"]),
                row["is_private"],
                row["is_pinned"],
                row["is_edited"],
                row["gdpr_purged"],
                row["deleted_at"] is not None,
                sender == caller.id and _may_edit(row) and not is_json,
                images.get(row["id"], []),
                [Button(id, label, id == chosen.get(row["id"])) for id, label in offers.get(row["id"], ())],
                caller.id == session.user_id and session.status != "archived" and row["id"] not in chosen,
                is_sealed,
                is_sealed and (sender == session.user_id) != (caller.id == session.user_id),
                revealed_at,
                _receipt_status(row, session, caller),
                numbers.get(row["id"], ""),
                reader.choose(json_value(row["translations"]), sent.get(row["id"]), is_own=role == "own")
                if reader and text
                else None,
                bool(reader and reader.is_staff and role != "own") and not is_json and _may_translate(row, text),
                bool(reader and reader.is_foreign(role)),
                is_continued,
            )
        )
        last_day, last_group, last_sent = day, group, row["created_at"]
    return views


def _receipt_status(row: Row, session: ChatSession, caller: Caller) -> str:
    """Return the status of a message that the caller's side sent and the other side may read; empty for others."""
    is_own_side = (row["sender_type"] == "user") == (caller.id == session.user_id)
    has_receipts = not (row["is_private"] or row["is_read_once"] or row["gdpr_purged"] or row["deleted_at"])
    return str(row["status"]) if is_own_side and has_receipts and caller.shows_receipts else ""


def _may_edit(row: Row) -> bool:
    """Return whether the sender of a message can edit it."""
    return not (row["gdpr_purged"] or row["deleted_at"] or row["is_read_once"])


def _may_translate(row: Row, text: str) -> bool:
    """Return whether the assistant may translate a message for staff."""
    is_shown = not (row["gdpr_purged"] or row["deleted_at"] or row["is_private"] or row["is_read_once"])
    return is_shown and 0 < len(text) <= MAX_TEXT


def _revealed_at(row: Row) -> str:
    """Return when a read-once message was read; empty for others."""
    value = json_value(row["content"]) if row["is_read_once"] else None
    time = value.get("revealed_at") if isinstance(value, dict) else None
    try:
        return clock.read_timestamp(time) if isinstance(time, str) else ""
    except ValueError:
        return ""


def _offered(row: Row) -> list[tuple[str, str]]:
    """Return the identifiers and labels of the actions that a message offers."""
    found = actions.offered(row["sender_type"], row["action_source_id"], row["action_payload"])
    return [(action.id, _printable(action.label)) for action in found]


def _form_numbers(ids: list[str]) -> dict[str, str]:
    """Return the numbers of the forms that sent messages, by the identifier of the message."""
    sent = Message.select(Message.id, Message.client_message_id).where(Message.id.in_(ids)) if ids else []
    return {message.id: (message.client_message_id or "").partition(FORM_ID)[2] for message in sent}


def _sent_translations(ids: list[str]) -> dict[str, JsonValue]:
    """Return the translations that were sent with messages, by the identifier of the message."""
    sent = Message.select(Message.id, Message.translations).where(Message.id.in_(ids)) if ids else []
    return {message.id: value_in(message.translations) for message in sent}


def _seconds(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


def text_of(content: list[int]) -> tuple[str, bool]:
    """Return the text of a message content, and whether it is other JSON instead of text."""
    value = json_value(content)
    text = value.get("text") if isinstance(value, dict) else value
    if isinstance(text, str):
        return _printable(text), False
    return ("", False) if value is None else (_printable(_indented(value)), True)


def _indented(value: object) -> str:
    """Return indented JSON, clipped to MAX_JSON characters; the rest of a long value is not encoded."""
    text, length = [], 0
    for part in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        text.append(part)
        length += len(part)
        if length > MAX_JSON:
            break
    return clip("".join(text), MAX_JSON)


def quoted(snapshot: list[int]) -> str:
    """Return the text that a reply quotes; empty if there is none."""
    value = json_value(snapshot)
    text = value.get("text") if isinstance(value, dict) else ""
    if text == "" and isinstance(value, dict):
        text = preview(text, value.get("content_type", ""))
    return _printable(clip(text, MAX_QUOTE)) if isinstance(text, str) else ""


def json_value(content: list[int]) -> JsonValue:
    """Return the JSON value in a bytes column, or the integers if the bytes are not JSON."""
    if not content:
        return None
    try:
        return json.loads(bytes(content))
    except (ValueError, RecursionError):
        return content


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()
