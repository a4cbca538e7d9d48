"""Translations of messages: those that were sent with a message, and those that only staff sees.

Stored by language, as `{"fr": {"text": "…", "is_automatic": true, "source_language": "de"}}`.
"""

from typing import Annotated

from msgspec import Meta, Struct, to_builtins

from service.db import write
from service.errors import Forbidden, InvalidBody, MessageChanged, MessageGone, NothingToTranslate, SessionNotFound
from service.fields import compact_json, json_of_integers
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.contents import EMPTY, clean, value_in
from service.models.messages import Message
from service.types import JsonValue

MAX_LANGUAGES = 8  # into which a message is translated
MAX_TEXT = 4_000  # characters of a text that is translated

LanguageTag = Annotated[str, Meta(description="A BCP 47 tag.")]


class Translation(Struct):
    """The text of a message in another language."""

    language: LanguageTag
    text: str
    is_automatic: Annotated[bool, Meta(description="Whether the assistant made it.")]
    source_language: Annotated[str, Meta(description="A BCP 47 tag; empty if unknown.")] = ""


def translations_of(value: JsonValue) -> dict[str, Translation]:
    """Return the translations in the JSON of a message by language; imports may have plain texts, or other JSON."""
    items = value.items() if isinstance(value, dict) else ()
    found = ((clean(tag), item if isinstance(item, dict) else {"text": item}) for tag, item in items)
    return {
        tag: Translation(
            tag, clean(text), item.get("is_automatic") is True, clean(str(item.get("source_language") or ""))
        )
        for tag, item in found
        if isinstance(text := item.get("text"), str)
    }


def with_translation(stored: str, translation: Translation) -> str:
    """Return the stored translations of a message with a further one."""
    value = value_in(stored)
    members = to_builtins(translation)
    translations = {**(value if isinstance(value, dict) else {}), members.pop("language"): members}
    return json_of_integers(list(clean(compact_json(translations)).encode()))


def find_translation(caller: Caller, session: ChatSession, message: Message, language: str) -> Translation | None:
    """Return the stored translation of a message into a language for staff; None if it can be made.

    Raises Forbidden for customers, NothingToTranslate for a private note or a message without a text, MessageGone, or
    InvalidBody if the message has translations into too many languages.
    """
    if not caller.is_staff(session.app_id):
        raise Forbidden(not_found=SessionNotFound)
    if message.deleted_at or message.hidden_at or message.gdpr_purged_at:
        raise MessageGone
    if message.is_private or message.is_read_once or not message.plain_text.strip():
        raise NothingToTranslate
    known = translations_of(value_in(_for_staff(message)))
    if language not in known and len(known) >= MAX_LANGUAGES:
        raise InvalidBody("A message is translated into at most eight languages.")
    return known.get(language)


def store_for_staff(caller: Caller, session: ChatSession, message: Message, translation: Translation) -> Translation:
    """Store a translation of a message that only staff sees, and return it, or the one that is stored.

    The message is as it was when it was translated: raises MessageChanged if it was edited meanwhile, otherwise the
    errors of `find_translation`, and PinLimitReached.
    """
    with write(session.id):
        current = Message.get_for(caller, message.id, session)
        stored = find_translation(caller, session, current, translation.language)
        if stored:
            return stored
        if current.content != message.content:
            raise MessageChanged
        translations = with_translation(_for_staff(current), translation)
        if current.pinned_at:
            current.require_pin_space(staff_translations=translations)
        Message.update(staff_translations=translations).where(Message.id == current.id).execute()
        ChatSession.mark_changed(session.id, is_private=True)
        return translation


def _for_staff(message: Message) -> str:
    """Return the stored translations that staff sees."""
    return str(message.translations if message.staff_translations == EMPTY else message.staff_translations)
