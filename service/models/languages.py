"""The languages of the customer of a chat session, in which bots and the assistant reply, and those of staff."""

import contextlib
from collections.abc import Iterable

from service import validators
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.users import User


def languages_of(session: ChatSession, accept_language: str = "") -> list[str]:
    """Return the languages to reply in, preferred first; empty if none is known.

    The customer's `chat_language` setting; otherwise `accept_language`, the header of the current request, or that of
    the customer's last request with one; otherwise the `locale` of the profile.
    """
    accepted = validators.accepted_languages(accept_language) or validators.accepted_languages(session.accept_language)
    chosen = User.preferences_of(session.user_id)["chat_language"]
    if chosen or accepted:
        return [chosen] if chosen else accepted
    locale = User.get_by_id(session.user_id).locale
    return [locale] if locale else []


def own_language(caller: Caller, accept_language: str = "") -> str:
    """Return the language that a caller reads, as from `plain_languages`.

    The chosen language of the pages; otherwise the `locale` of the profile; otherwise the language of the page, or the
    first one of `accept_language`; otherwise English.
    """
    locale = User.get_by_id(caller.id).locale
    accepted = validators.accepted_languages(accept_language)
    return plain_languages([User.chosen_language(caller.id), locale, caller.language, *accepted, "en"])[0]


def plain_languages(tags: Iterable[str]) -> list[str]:
    """Return the language, script and region of each tag, into which a text can be translated; others are left out."""
    found = []
    for tag in tags:
        with contextlib.suppress(ValueError):
            found.append(validators.plain_language(tag))
    return found


def is_same_language(one: str, other: str) -> bool:
    """Return whether two tags have the same primary language."""
    return one.lower().partition("-")[0] == other.lower().partition("-")[0]
