"""The languages in which a customer of a chat session is answered, by bots and by assistants."""

from service import formats
from service.models.chats import ChatSession
from service.models.people import User


def languages_of(session: ChatSession, accept_language: str = "") -> list[str]:
    """The languages to answer a session's customer in, the preferred one first; empty where nothing is known.

    That of the customer's `chat_language`; without one, those of `accept_language`, the header of the request that is
    being answered, or of the last request that had one; without any, the `locale` of the profile.
    """
    known = formats.accepted_languages(accept_language) or formats.accepted_languages(session.accept_language)
    chosen = User.preferences_of(session.user_id)["chat_language"]
    if chosen or known:
        return [chosen] if chosen else known
    locale = User.get_by_id(session.user_id).locale
    return [locale] if locale else []
