"""The inbox, a chat, and what is found in them."""

import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from service import updates
from service.console import bubbles, faces, frame
from service.console.frame import ConsoleForm, OptionalUlid
from service.db import Page, Position
from service.errors import ClientMessageIdReused, InvalidBody, StaleForm
from service.models import ChatSession, Message, User, searching
from service.models import conversing as talk
from service.models import reading as inbox
from service.models.chats import STATUSES, known_status
from service.models.people import Caller
from service.models.speaking import Hearing
from service.operations import KIB, Routes
from service.settings import Settings
from service.signature import Cursor, Html, Moved, Origin

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

SHOWN = 50  # messages of a page


class Inbox(Struct):
    """Which chat sessions."""

    status: Annotated[str, frame.optional(known_status)] = ""
    cursor: Cursor = Cursor()
    done: str = ""


class Sought(Struct):
    """What is searched for."""

    q: Annotated[str, Meta(max_length=200)] = ""
    cursor: Cursor = Cursor()


class Window(Struct):
    """Which messages of a chat: those before or after a message, or around it; the newest without one."""

    before: OptionalUlid = ""
    after: OptionalUlid = ""
    at: OptionalUlid = ""
    reply: OptionalUlid = ""  # to which an answer is written
    edit: OptionalUlid = ""  # the message in the composer
    note: bool = False  # the composer writes a private note
    done: str = ""


class ChatForm(ConsoleForm, kw_only=True):
    """Something done in a chat."""

    act: Literal["send", "edit", "pin", "unpin", "delete", "read", "status"]
    text: str = ""
    is_private: bool = False
    reply: OptionalUlid = ""
    message: OptionalUlid = ""
    status: str = ""


@routes.get("/", answers=(200, 400, 401))
def show_inbox(caller: Caller, query: Inbox) -> Html:
    """Your chat sessions, as a page."""
    after = updates.since(caller, "").after  # what happens while we read is news
    page = inbox.list_sessions(caller, query.cursor, 25, query.status)
    rows = msgspec.json.decode(page.rows)
    told: dict[str, Any] = {"after": after, "titles": faces.titles(caller, rows), "statuses": STATUSES}
    return frame.show(caller, "inbox", "Inbox", page=page, query=query, done=query.done, **told)


@routes.get("/console/search", answers=(200, 400, 401))
def show_search(caller: Caller, query: Sought) -> Html:
    """Messages in which a text stands, as a page."""
    text = query.q.strip()
    page: Page[Any] = searching.search(caller, text, query.cursor, 25) if text else Page(b"[]", ())
    rows = msgspec.json.decode(page.rows)
    own = sorted({row["chat_session_id"] for row in rows})
    sessions = {session.id: session for session in ChatSession.select().where(ChatSession.id.in_(own))}
    times = frame.times_of(User.get_by_id(caller.id))
    found = [
        (id, *bubbles.bubbles([row], sessions[id], caller, times)) for row in rows for id in [row["chat_session_id"]]
    ]
    titles = faces.titles(caller, [session.__data__ for session in sessions.values()])
    return frame.show(caller, "search", "Search", page=page, query=query, found=found, titles=titles)


@routes.get("/console/chats/{id}", answers=(200, 400, 401, 403, 404))
def show_chat(caller: Caller, session: ChatSession, query: Window) -> Html:
    """A chat session and its messages, as a page."""
    return chat_page(caller, session, query)


def chat_page(caller: Caller, session: ChatSession, query: Window, **told: Any) -> Html:
    """The page of a chat."""
    given = told.get("given") or {}
    if given:  # the form is shown again as it was sent
        edit = given["message"] if given["act"] == "edit" else ""
        note = given["is_private"] if given["act"] == "send" else query.note
        query = msgspec.structs.replace(query, reply=given["reply"], edit=edit, note=note)
    after = updates.since(caller, "").after  # what happens while we read is news
    rows, older, newer = window(caller, session, query)
    times = frame.times_of(User.get_by_id(caller.id))

    def shown(some: list[dict[str, Any]]) -> list[bubbles.Bubble]:
        return bubbles.bubbles(some, session, caller, times) if some else []

    overview = inbox.overview(caller, session.id)
    replying = shown(one(caller, session, query.reply))
    if any(bubble.is_private for bubble in replying):
        query = msgspec.structs.replace(query, note=True)
    values: dict[str, Any] = {
        "after": after,
        "session": overview,
        "title_of": faces.titles(caller, [msgspec.to_builtins(overview)])[session.id],
        "customer": faces.people([session.user_id])[session.user_id],
        "messages": shown(rows),
        "pinned": shown(msgspec.json.decode(inbox.pinned_messages(caller, session))),
        "older": rows[0]["id"] if older else "",
        "newer": rows[-1]["id"] if newer else "",
        "newest": rows[-1]["id"] if rows and not newer else "",
        "replying": replying,
        "editing": [bubble for bubble in shown(one(caller, session, query.edit)) if bubble.may_edit],
        "statuses": STATUSES,
        "is_staff": caller.is_staff(session.app_id),
        "address": functools.partial(address, session, query),
    }
    title = f"Chat with {values['title_of'].name}"
    return frame.show(caller, "chat", title, query=query, done=query.done, active="inbox", **values, **told)


@routes.post("/console/chats/{id}", answers=(303, 400, 401, 403, 404), most=256 * KIB)
@frame.told_on(chat_page, Window)
def change_chat(
    caller: Caller, session: ChatSession, query: Window, body: ChatForm, origin: Origin, settings: Settings
) -> Moved:
    """Write into a chat session, or do something with it or a message of it."""
    if body.act == "send":
        return _send(caller, session, body, Hearing(origin.languages, bool(settings.assistant_url)))
    done, place = ACTIONS[body.act](caller, session, body)
    return Moved(f"{address(session, query, reply='', edit='', done=done)}#{place}")


def address(session: ChatSession, query: Window, **changes: Any) -> str:
    """The address of a chat's page that shows what `query` asks for, but for some members."""
    return f"/console/chats/{session.id}{frame.link(query, **changes)}".removesuffix("?")


def _send(caller: Caller, session: ChatSession, body: ChatForm, hearing: Hearing) -> Moved:
    content = talk.stored_content({"text": _words(body)})
    own_id = f"console {body.number[:64]}" if body.number else None
    draft = talk.Draft(content, body.is_private, body.reply or None, own_id)
    try:
        talk.send(caller, session, draft, hearing, talk.bot_reply(caller, session, draft, hearing))
    except ClientMessageIdReused:
        raise StaleForm(frame.SENT_BEFORE) from None
    return Moved(f"{address(session, Window(note=body.is_private))}#end")


# Each returns what the page tells of it, a word of frame.DONE, and the part of the page to show.


def _edit(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    talk.edit(caller, _message(caller, session, body), talk.stored_content({"text": _words(body)}))
    return "edited", f"m-{body.message}"


def _pin(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    _message(caller, session, body).pin()
    return "pinned", f"m-{body.message}"


def _unpin(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    _message(caller, session, body).unpin()
    return "unpinned", f"m-{body.message}"


def _delete(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    _message(caller, session, body).delete_by(caller, session)
    older, _ = part(caller, session, "backward", body.message, 1)
    newer, _ = part(caller, session, "forward", body.message, 1)
    return "deleted", next((f"m-{row['id']}" for row in older + newer), "end")


def _read(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    inbox.mark_read(caller, session, body.message or None)
    return "read", "end"


def _move(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    status = session.become(body.status, caller)
    return status if status in frame.DONE else "moved", "end"


ACTIONS: dict[str, Callable[[Caller, ChatSession, ChatForm], tuple[str, str]]] = {
    "edit": _edit,
    "pin": _pin,
    "unpin": _unpin,
    "delete": _delete,
    "read": _read,
    "status": _move,
}


def _message(caller: Caller, session: ChatSession, body: ChatForm) -> Message:
    return Message.reach(caller, body.message, session)


def _words(body: ChatForm) -> str:
    text = frame.plain(body.text)
    if not text:
        raise InvalidBody("Write something first.")
    return text


def window(caller: Caller, session: ChatSession, query: Window) -> tuple[list[dict[str, Any]], bool, bool]:
    """The messages of a page in their order, and whether there are older and newer ones."""
    if query.at:
        place = just_before(query.at)
        before, older = part(caller, session, "backward", place, bubbles.AROUND)
        after, newer = part(caller, session, "forward", place, bubbles.AROUND)
        return before + after, older, newer
    if query.after:
        rows, newer = part(caller, session, "forward", query.after, SHOWN)
        return rows, True, newer
    rows, older = part(caller, session, "backward", query.before, SHOWN)
    return rows, older, bool(query.before)


def part(
    caller: Caller, session: ChatSession, direction: Literal["forward", "backward"], key: str, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Messages before or after an identifier in their order, and whether there are more in that direction."""
    page = inbox.messages(caller, session, Position(key=(key,) if key else ()), limit, direction)
    rows = msgspec.json.decode(page.rows)
    return (rows if direction == "forward" else rows[::-1]), bool(page.next_key)


def one(caller: Caller, session: ChatSession, id: str) -> list[dict[str, Any]]:
    """One message of a chat, if the caller sees it."""
    if not id:
        return []
    rows = inbox.messages(caller, session, Position(key=(just_before(id),)), 1, "forward").rows
    return [row for row in msgspec.json.decode(rows) if row["id"] == id]


def just_before(id: str) -> str:
    """A text that sorts before an identifier, and after every earlier one: those of a moment differ in their end."""
    return f"{id[:-1]}{chr(ord(id[-1]) - 1)}~"
