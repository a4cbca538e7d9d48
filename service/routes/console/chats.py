"""The inbox, the search, and the page of a chat."""

import functools
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from service import clock, db, pictures, typing_indicators, updates, validators
from service.api.operations import KIB, Routes
from service.api.parameter_types import BINARY, Cursor, File, FileContent, HtmlPage, Redirect, RequestInfo, Upload
from service.assistant import suggestions, translations
from service.console import display_names, layout, messages
from service.console.chat_list import ChatListQuery, read_chat_list, status_choices
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUlid, OptionalUuid, Row, optional
from service.console.markup import highlighted, linked
from service.console.next_step import find_inbox_step
from service.console.times import Times
from service.console.translated import Reader
from service.db import Page, Position
from service.errors import ClientMessageIdReused, InvalidBody, StaleForm
from service.models import (
    CannedReply,
    ChatSession,
    Message,
    MessageImage,
    actions,
    assignments,
    bot_replies,
    inbox,
    posting,
    ratings,
    read_once,
    search,
    sending,
    snoozing,
)
from service.models.bot_replies import ReplyOptions
from service.models.callers import Caller
from service.models.chats import STATUSES
from service.models.contents import EMPTY, text_in
from service.models.customer_details import read_customer_details
from service.models.encoded_pictures import EncodedPicture
from service.models.languages import own_language
from service.models.message_images import MESSAGE_LIMIT
from service.models.message_translations import store_for_staff, with_translation
from service.models.staff import list_staff
from service.settings import Settings
from service.translation import gettext, ngettext
from service.translation.language_names import language_name

SCORES = tuple(str(score) for score in range(1, ratings.MAX_SCORE + 1))
MAX_STAFF = 100  # to choose from

OptionalLanguage = Annotated[
    str, Meta(max_length=64, description="A BCP 47 tag or empty."), optional(validators.plain_language)
]

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")


class InboxQuery(ChatListQuery):
    """Filters and page of the inbox."""

    cursor: Cursor = Cursor()
    done: str = ""


class SearchQuery(Struct):
    """Search text."""

    q: Annotated[str, Meta(max_length=200)] = ""
    cursor: Cursor = Cursor()


class ChatQuery(ChatListQuery):
    """The messages on the page: before, after or around a message, by default the newest; the list beside them."""

    before: OptionalUlid = ""
    after: OptionalUlid = ""
    at: OptionalUlid = ""
    reply: OptionalUlid = ""  # the message that the composer replies to
    edit: OptionalUlid = ""  # the message that the composer edits
    note: bool = False  # the composer writes a private note
    canned: OptionalUuid = ""  # the canned reply in the composer
    translate_to: OptionalLanguage = ""  # the composer sends messages in this language
    done: str = ""


class ChatForm(ConsoleForm, kw_only=True):
    """An action in a chat."""

    act: Literal[
        "send",
        "press",
        "rate",
        "edit",
        "pin",
        "unpin",
        "delete",
        "delivered",
        "read",
        "status",
        "assign",
        "snooze",
        "handover",
        "typing",
        "translate",
    ]
    text: str = ""
    is_private: bool = False
    is_read_once: bool = False
    translate_to: OptionalLanguage = ""  # the language in which the customer sees the message
    reply: OptionalUlid = ""
    message: OptionalUlid = ""
    action: str = ""  # the pressed one, of the message
    buttons: str = ""  # labels of the actions that the message offers, one a line
    status: str = ""
    assignee: OptionalUuid = ""  # "" gives the chat back to its bot
    score: str = ""
    comment: Annotated[str, Meta(max_length=2_000)] = ""
    until: str = ""  # the end of a snooze, in the time zone of the user
    image: str = ""  # the name of a file that was chosen and not attached
    image_1: OptionalUuid = ""
    image_2: OptionalUuid = ""
    image_3: OptionalUuid = ""
    image_4: OptionalUuid = ""


class RevealForm(ConsoleForm, kw_only=True):
    """A read-once message to show."""

    message: OptionalUlid = ""


IMAGES = tuple(f"image_{number}" for number in range(1, MESSAGE_LIMIT + 1))


def attached_images(body: ChatForm) -> tuple[str, ...]:
    """Return the identifiers of the pictures in the composer."""
    return tuple(filter(None, (getattr(body, name) for name in IMAGES)))


class AttachForm(Upload, ChatForm, kw_only=True):
    """A picture for the message in the composer, and the composer's values."""

    image: Annotated[
        FileContent,
        File(5 * 1024 * KIB),
        Meta(description="JPEG, PNG or WebP, at most 5 MiB.", extra_json_schema=BINARY),
    ]


@routes.get("/", statuses=(200, 400, 401))
def show_inbox(caller: Caller, query: InboxQuery) -> HtmlPage:
    """Show the inbox: your chat sessions."""
    after = updates.since(caller, "").after  # before the queries: later changes count as updates
    chats = read_chat_list(caller, query, query.cursor)
    return layout.show(
        caller,
        "inbox",
        gettext("Inbox"),
        page=chats.page,
        query=query,
        done=query.done,
        after=after,
        chats=chats,
        status_choices=status_choices(),
        preview=messages.shown_preview,
        next_step=None if chats.rows else find_inbox_step(caller),
    )


@routes.get("/console/search", statuses=(200, 400, 401))
def show_search(caller: Caller, query: SearchQuery) -> HtmlPage:
    """Show the page of the search."""
    text = query.q.strip()
    page: Page[Message] = search.search(caller, text, query.cursor, layout.PAGE_ROWS) if text else Page(b"[]", ())
    rows = msgspec.json.decode(page.rows)
    session_ids = sorted({row["chat_session_id"] for row in rows})
    sessions = {session.id: session for session in ChatSession.select().where(ChatSession.id.in_(session_ids))}
    times = layout.times_of(caller)
    views = messages.views_of_all([(row, sessions[row["chat_session_id"]]) for row in rows], caller, times)
    results = list(zip((row["chat_session_id"] for row in rows), views, strict=True))
    titles = display_names.chat_titles(caller, [session.__data__ for session in sessions.values()])
    return layout.show(
        caller,
        "search",
        gettext("Search"),
        page=page,
        query=query,
        results=results,
        titles=titles,
        highlighted=functools.partial(highlighted, search=text),
    )


@routes.get("/console/chats/{id}", statuses=(200, 400, 401, 403, 404))
def show_chat(caller: Caller, session: ChatSession, query: ChatQuery, settings: Settings) -> HtmlPage:
    """Show a chat session and its messages."""
    return chat_page(caller, session, query, settings)


def chat_page(
    caller: Caller, session: ChatSession, query: ChatQuery, settings: Settings, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page of a chat."""
    form_values = failure.values
    if "act" in form_values:  # after an error, the form keeps its values
        edit = form_values["message"] if form_values["act"] == "edit" else ""
        if form_values["act"] == "send":
            choices = {"note": form_values["is_private"], "translate_to": form_values["translate_to"]}
            query = msgspec.structs.replace(query, **choices)
        query = msgspec.structs.replace(query, reply=form_values["reply"], edit=edit)
    after = updates.since(caller, "").after  # before the queries: later changes count as updates
    rows, older, newer = messages_on_page(caller, session, query)
    times, reader = layout.times_of(caller), Reader(caller, session)

    def views(rows: list[Row]) -> list[messages.MessageView]:
        return messages.views(rows, session, caller, times, reader) if rows else []

    overview = inbox.overview(caller, session.id)
    replying = views(message_row(caller, session, query.reply))
    if any(view.is_private for view in replying):
        query = msgspec.structs.replace(query, note=True)
    partner = display_names.chat_titles(caller, [msgspec.to_builtins(overview)])[session.id]
    details = read_customer_details(caller, session) if caller.is_staff(session.app_id) else None
    return layout.show(
        caller,
        "chat",
        gettext("Chat with {name}", name=partner.name),
        query=query,
        done=query.done,
        after=after,
        failure=failure,
        active="inbox",
        session=overview,
        partner=partner,
        messages=views(rows),
        first_unread=first_unread(caller, session, rows, bool(older)),
        linked=linked,
        chats=read_chat_list(caller, query),
        status_choices=status_choices(),
        preview=messages.shown_preview,
        details=details,
        canned_text=read_canned_text(caller, session, query.canned),
        local_time=Times(details.user.timezone).time(clock.timestamp()) if details else "",
        pinned=messages.pinned_messages(inbox.pinned_previews(caller, session), session, caller),
        older=rows[0]["id"] if older else "",
        newer=rows[-1]["id"] if newer else "",
        newest=rows[-1]["id"] if rows and not newer else "",
        replying=replying,
        attached=MessageImage.unsent(caller, session, [form_values.get(name, "") for name in IMAGES]),
        editing=[view for view in views(message_row(caller, session, query.edit)) if view.may_edit],
        statuses=STATUSES,
        is_staff=caller.is_staff(session.app_id),
        may_call_person=may_call_person(session),
        has_assistant=settings.assistant_helps_staff,
        other_language=reader.other_language if reader.is_staff and settings.assistant_helps_staff else "",
        language_name=language_name,
        staff=staff_to_choose(caller, session),
        rating=ratings.rating_of(session),
        may_rate=ratings.may_rate(caller, session),
        scores=SCORES,
        next_morning=f"{times.field(clock.timestamp(clock.now() + clock.DAY))[:10]}T09:00",
        chat_address=functools.partial(chat_address, session, query),
    )


@routes.post(
    "/console/chats/{id}",
    statuses=(303, 400, 401, 403, 404, 429, 503),
    max_body=256 * KIB,
    errors=translations.ERRORS,
)
@layout.form_handler(chat_page, ChatQuery)
def change_chat(
    caller: Caller,
    session: ChatSession,
    query: ChatQuery,
    body: ChatForm,
    request_info: RequestInfo,
    settings: Settings,
) -> Redirect:
    """Send or edit a message, or change a message or the chat session."""
    if body.act in ("send", "press"):
        return _send(caller, session, body, request_info, settings)
    if body.act == "translate":
        _translate(caller, session, _message(caller, session, body), settings)
        return Redirect(f"{chat_address(session, query)}#m-{body.message}")
    done, fragment = ACTIONS[body.act](caller, session, body)
    return Redirect(f"{chat_address(session, query, reply='', edit='', done=done)}#{fragment}")


@routes.post("/console/chats/{id}/reveal", statuses=(200, 400, 401, 403, 404))
@layout.form_handler(chat_page, ChatQuery)
def show_read_once(
    caller: Caller, session: ChatSession, query: ChatQuery, body: RevealForm, settings: Settings
) -> HtmlPage:
    """Show a read-once message of the other side, for the last time."""
    message = Message.get_for(caller, body.message, session)
    after = updates.since(caller, "").after  # before the change, whose revision depends on all chats
    row = msgspec.json.decode(read_once.reveal(caller, session, message))
    (view,) = messages.views([row], session, caller, layout.times_of(caller))
    address, title = chat_address(session, query), gettext("Read-once message")
    return layout.show(
        caller, "read-once", title, active="inbox", after=after, message=view, linked=linked, chat_address=address
    )


@routes.post(
    "/console/chats/{id}/images",
    statuses=(200, 400, 401, 403, 404, 413, 415, 503),
    max_body=6 * 1024 * KIB,
)
@layout.form_handler(chat_page, ChatQuery)
def attach_image(
    caller: Caller, session: ChatSession, query: ChatQuery, body: AttachForm, settings: Settings
) -> HtmlPage:
    """Upload a picture, and show the chat with the picture in the composer."""
    ids = attached_images(body)
    if len(ids) >= MESSAGE_LIMIT:
        raise InvalidBody(
            ngettext("A message has at most {count} picture.", "A message has at most {count} pictures.", MESSAGE_LIMIT)
        )
    picture = EncodedPicture.of(pictures.make_picture(body.image))
    added = {f"image_{len(ids) + 1}": MessageImage.upload(caller, session, picture).id}
    kept = {f"image_{number}": id for number, id in enumerate(ids, 1)}
    return chat_page(caller, session, query, settings, FormFailure(values=msgspec.structs.asdict(body) | kept | added))


def may_call_person(session: ChatSession) -> bool:
    """Return whether the bot of a chat replies, so that a person can be called in its place."""
    return not session.handed_over_at and session.status != "archived" and bool(bot_replies.replying_bot(session))


@routes.post(
    "/console/chats/{id}/suggestion",
    statuses=(200, 400, 401, 403, 404, 429, 503),
    max_body=256 * KIB,
    errors=suggestions.ERRORS,
)
@layout.form_handler(chat_page, ChatQuery)
def suggest_text(
    caller: Caller, session: ChatSession, query: ChatQuery, body: ChatForm, settings: Settings
) -> HtmlPage:
    """Show the chat with a draft of the assistant in the composer, below its text (staff only)."""
    texts = layout.clean_text(body.text), suggestions.suggest(caller, session, settings)
    values = msgspec.structs.asdict(body) | {"text": "\n\n".join(filter(None, texts))}
    return chat_page(caller, session, query, settings, FormFailure(values=values))


def staff_to_choose(caller: Caller, session: ChatSession) -> list[Row]:
    """Return the first members of the staff to whom a chat can be assigned; none for customers."""
    if not caller.is_staff(session.app_id):
        return []
    rows: list[Row] = msgspec.json.decode(list_staff(session.app_id, Position(), MAX_STAFF).rows)
    return sorted(rows, key=lambda row: (row["id"] != caller.id, row["name"]))


def read_canned_text(caller: Caller, session: ChatSession, id: str) -> str:
    """Return the text of a canned reply of the app, for its staff; empty if there is none."""
    reply = CannedReply.find(id) if id and caller.is_staff(session.app_id) else None
    return str(reply.text) if reply and reply.app_id == session.app_id else ""


def chat_address(session: ChatSession, query: ChatQuery, **changes: object) -> str:
    """Return the address of a chat with the parameters of `query`, some of them changed."""
    return f"/console/chats/{session.id}{layout.page_link(query, **{'canned': '', **changes})}".removesuffix("?")


def _send(
    caller: Caller, session: ChatSession, body: ChatForm, request_info: RequestInfo, settings: Settings
) -> Redirect:
    options = ReplyOptions.of(request_info.languages, settings)
    draft = _pressed(caller, session, body) if body.act == "press" else _written(body)
    try:
        if body.translate_to and not body.is_private:
            draft = _with_translation(caller, session, draft, body.translate_to, settings)
        reply = sending.plan_bot_reply(caller, session, draft, options)
        # Here, so that a conflict in the database does not repeat the request to the assistant.
        db.retry_on_conflict(lambda: sending.send(caller, session, draft, options, reply))
    except ClientMessageIdReused:
        raise StaleForm(layout.ALREADY_SENT) from None
    query = ChatQuery(note=body.is_private, translate_to=body.translate_to)
    return Redirect(f"{chat_address(session, query)}#end")


def _with_translation(
    caller: Caller, session: ChatSession, draft: sending.Draft, language: str, settings: Settings
) -> sending.Draft:
    """Return a draft with its translation, unless it was sent before, or has pictures only."""
    sending.require_translatable(draft)
    text = text_in(draft.content)
    if not text or sending.sent_before(caller, session, draft):
        return draft
    translation = translations.translate(caller, session, text, language, settings)
    return draft._replace(translations=with_translation(EMPTY, translation))


def _translate(caller: Caller, session: ChatSession, message: Message, settings: Settings) -> None:
    """Store a translation of a message into the language of the caller."""
    language = own_language(caller)
    translation = translations.translate_message(caller, session, message, language, settings)
    db.retry_on_conflict(lambda: store_for_staff(caller, session, message, translation))


def _written(body: ChatForm) -> sending.Draft:
    """Return the message in the composer. Raises InvalidBody."""
    if body.image:
        raise InvalidBody("Attach the picture before you send the message.")
    images = attached_images(body)
    content = sending.stored_content({"text": layout.clean_text(body.text) if images else _text(body)})
    own_id = f"{messages.FORM_ID}{body.number[:64]}" if body.number else None
    ids = body.reply or None, own_id, images
    draft = sending.Draft(content, body.is_private, *ids, is_read_once=body.is_read_once)
    labels = actions.labels_in(body.buttons)
    return draft._replace(action_payload=actions.offer_of(labels)) if labels else draft


def _pressed(caller: Caller, session: ChatSession, body: ChatForm) -> sending.Draft:
    """Return the press of a button. Raises ActionNotFound, MessageNotFound or Forbidden."""
    action = actions.choose(caller, session, body.message, body.action)
    return sending.Draft(sending.stored_content({"text": action.label})).pressing(body.message, action)


# Each action returns a key of layout.SUCCESS_MESSAGES, and the fragment of the page to scroll to.


def _edit(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    _message(caller, session, body).edit(caller, sending.stored_content({"text": _text(body)}))
    return "edited", f"m-{body.message}"


def _pin(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    _message(caller, session, body).pin()
    return "pinned", f"m-{body.message}"


def _unpin(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    _message(caller, session, body).unpin()
    return "unpinned", f"m-{body.message}"


def _delete(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    _message(caller, session, body).delete_by(caller, session)
    older, _ = messages_beside(caller, session, "backward", body.message, 1)
    newer, _ = messages_beside(caller, session, "forward", body.message, 1)
    return "deleted", next((f"m-{row['id']}" for row in older + newer), "end")


def _read(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    inbox.mark_read(caller, session, body.message or None)
    return "read", "end"


def _confirm(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    inbox.mark_read(caller, session, body.message or None, "delivered")
    return "", "end"


def _set_status(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    status = posting.set_status(session, body.status, caller)
    return status if status in layout.SUCCESS_MESSAGES else "moved", "end"


def _assign(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    assignments.assign(caller, session, body.assignee or None)
    return "assigned" if body.assignee else "given_back", "end"


def _hand_over(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    bot_replies.call_person(caller, session)
    return "handed_over", "end"


def _show_typing(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    typing_indicators.show(caller, session)
    return "", "end"


def _rate(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    if body.score not in SCORES:
        raise InvalidBody("Choose a number of stars.")
    ratings.rate(caller, session, int(body.score), layout.clean_text(body.comment))
    return "rated", "end"


def _snooze(caller: Caller, session: ChatSession, body: ChatForm) -> tuple[str, str]:
    try:
        until = layout.times_of(caller).read(body.until)
    except ValueError as error:
        raise InvalidBody(f"$.until: {error}") from None
    snoozing.snooze(caller, session, until)
    return "snoozed", "end"


ACTIONS: dict[str, Callable[[Caller, ChatSession, ChatForm], tuple[str, str]]] = {
    "edit": _edit,
    "pin": _pin,
    "unpin": _unpin,
    "delete": _delete,
    "delivered": _confirm,
    "read": _read,
    "status": _set_status,
    "assign": _assign,
    "rate": _rate,
    "snooze": _snooze,
    "handover": _hand_over,
    "typing": _show_typing,
}


def _message(caller: Caller, session: ChatSession, body: ChatForm) -> Message:
    return Message.get_for(caller, body.message, session)


def _text(body: ChatForm) -> str:
    text = layout.clean_text(body.text)
    if not text:
        raise InvalidBody("Enter a message.")
    return text


def messages_on_page(caller: Caller, session: ChatSession, query: ChatQuery) -> tuple[list[Row], bool, bool]:
    """Return the messages of a page, oldest first, and whether there are older and newer messages."""
    if query.at:
        key = just_before(query.at)
        with db.limit_pages(messages.PAGE_BYTES // 2):
            before, older = messages_beside(caller, session, "backward", key, messages.CONTEXT_ROWS)
            after, newer = messages_beside(caller, session, "forward", key, messages.CONTEXT_ROWS)
        return before + after, older, newer
    with db.limit_pages(messages.PAGE_BYTES):
        if query.after:
            rows, newer = messages_beside(caller, session, "forward", query.after, layout.PAGE_ROWS)
            return rows, True, newer
        rows, older = messages_beside(caller, session, "backward", query.before, layout.PAGE_ROWS)
        return rows, older, bool(query.before)


def messages_beside(
    caller: Caller, session: ChatSession, direction: Literal["forward", "backward"], key: str, limit: int
) -> tuple[list[Row], bool]:
    """Return messages before or after an identifier, oldest first, and whether there are more in that direction."""
    page = inbox.messages(caller, session, Position(key=(key,) if key else ()), limit, direction)
    rows = msgspec.json.decode(page.rows)
    return (rows if direction == "forward" else rows[::-1]), bool(page.next_key)


def first_unread(caller: Caller, session: ChatSession, rows: list[Row], older: bool) -> str:
    """Return the first message of a page that the caller has not read; empty if it is on another page."""
    position = inbox.read_position(caller, session)
    unread = [row["id"] for row in rows if row["id"] > position and row["sender_id"] != caller.id]
    begins_here = rows and (rows[0]["id"] <= position or not older)
    return unread[0] if unread and begins_here else ""


def message_row(caller: Caller, session: ChatSession, id: str) -> list[Row]:
    """Return a message as a list of one row; empty if the caller cannot see it."""
    if not id:
        return []
    rows = inbox.messages(caller, session, Position(key=(just_before(id),)), 1, "forward").rows
    return [row for row in msgspec.json.decode(rows) if row["id"] == id]


def just_before(id: str) -> str:
    """Return a key that sorts directly before a ULID; ULIDs of one millisecond differ in their last characters."""
    return f"{id[:-1]}{chr(ord(id[-1]) - 1)}~"
