"""The inbox, a chat, and what is found in them."""

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
    edit: OptionalUlid = ""  # which gets other words
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
    if given:  # where the form was sent from
        query = Window(
            reply=given["reply"], edit=given["message"] if given["act"] == "edit" else "", at=given["message"]
        )
    after = updates.since(caller, "").after  # what happens while we read is news
    rows, older, newer = window(caller, session, query)
    times = frame.times_of(User.get_by_id(caller.id))

    def shown(some: list[dict[str, Any]]) -> list[bubbles.Bubble]:
        return bubbles.bubbles(some, session, caller, times) if some else []

    overview = inbox.overview(caller, session.id)
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
        "replying": shown(one(caller, session, query.reply)),
        "editing": [bubble for bubble in shown(one(caller, session, query.edit)) if bubble.may_edit],
        "statuses": STATUSES,
        "is_staff": caller.is_staff(session.app_id),
    }
    title = f"Chat with {values['title_of'].name}"
    return frame.show(caller, "chat", title, query=query, done=query.done, active="inbox", **values, **told)


@routes.post("/console/chats/{id}", answers=(303, 400, 401, 403, 404), most=256 * KIB)
@frame.told_on(chat_page, Window)
def change_chat(caller: Caller, session: ChatSession, body: ChatForm, origin: Origin, settings: Settings) -> Moved:
    """Write into a chat session, or do something with it or a message of it."""
    if body.act == "send":
        return _send(caller, session, body, Hearing(origin.languages, bool(settings.assistant_url)))
    return ACTIONS[body.act](caller, session, body)


def _send(caller: Caller, session: ChatSession, body: ChatForm, hearing: Hearing) -> Moved:
    content = talk.stored_content({"text": _words(body)})
    own_id = f"console {body.number[:64]}" if body.number else None
    draft = talk.Draft(content, body.is_private, body.reply or None, own_id)
    try:
        talk.send(caller, session, draft, hearing, talk.bot_reply(caller, session, draft, hearing))
    except ClientMessageIdReused:
        raise StaleForm(frame.SENT_BEFORE) from None
    return Moved(f"/console/chats/{session.id}#end")


def _edit(caller: Caller, session: ChatSession, body: ChatForm) -> Moved:
    talk.edit(caller, _message(caller, session, body), talk.stored_content({"text": _words(body)}))
    return _back(session, body, "edited")


def _pin(caller: Caller, session: ChatSession, body: ChatForm) -> Moved:
    _message(caller, session, body).pin()
    return _back(session, body, "pinned")


def _unpin(caller: Caller, session: ChatSession, body: ChatForm) -> Moved:
    _message(caller, session, body).unpin()
    return _back(session, body, "unpinned")


def _delete(caller: Caller, session: ChatSession, body: ChatForm) -> Moved:
    _message(caller, session, body).soft_delete()
    return _back(session, body, "deleted")


def _read(caller: Caller, session: ChatSession, body: ChatForm) -> Moved:
    inbox.mark_read(caller, session, body.message or None)
    return Moved(f"/console/chats/{session.id}?done=read#end")


def _move(caller: Caller, session: ChatSession, body: ChatForm) -> Moved:
    status = session.become(body.status, caller)
    return Moved(f"/console/chats/{session.id}?done={status if status in frame.DONE else 'moved'}")


ACTIONS: dict[str, Callable[[Caller, ChatSession, ChatForm], Moved]] = {
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


def _back(session: ChatSession, body: ChatForm, done: str) -> Moved:
    return Moved(f"/console/chats/{session.id}?at={body.message}&done={done}#m-{body.message}")


def window(caller: Caller, session: ChatSession, query: Window) -> tuple[list[dict[str, Any]], bool, bool]:
    """The messages of a page in their order, and whether there are older and newer ones."""

    def part(direction: Literal["forward", "backward"], key: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        page = inbox.messages(caller, session, Position(key=(key,) if key else ()), limit, direction)
        rows = msgspec.json.decode(page.rows)
        return (rows if direction == "forward" else rows[::-1]), bool(page.next_key)

    if query.at:
        place = just_before(query.at)
        before, older = part("backward", place, bubbles.AROUND)
        after, newer = part("forward", place, bubbles.AROUND)
        return before + after, older, newer
    if query.after:
        rows, newer = part("forward", query.after, SHOWN)
        return rows, True, newer
    rows, older = part("backward", query.before, SHOWN)
    return rows, older, bool(query.before)


def one(caller: Caller, session: ChatSession, id: str) -> list[dict[str, Any]]:
    """One message of a chat, if the caller sees it."""
    if not id:
        return []
    rows = inbox.messages(caller, session, Position(key=(just_before(id),)), 1, "forward").rows
    return [row for row in msgspec.json.decode(rows) if row["id"] == id]


def just_before(id: str) -> str:
    """A text that sorts before an identifier, and after every earlier one: those of a moment differ in their end."""
    return f"{id[:-1]}{chr(ord(id[-1]) - 1)}~"
