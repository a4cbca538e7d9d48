"""The languages in which bots and the assistant reply to the customer of a chat session."""

from service import validators
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
