"""Which translation of a message its reader sees on a page."""

from typing import NamedTuple

from service.models import ChatSession
from service.models.callers import Caller
from service.models.languages import is_same_language, languages_of, own_language, plain_languages
from service.models.message_translations import Translation, translations_of
from service.translation.language_names import language_name
from service.types import JsonValue


class TranslationView(NamedTuple):
    """A translation of a message."""

    text: str
    is_automatic: bool  # made by the assistant
    tag: str
    language: str  # its name
    source_language: str  # the name of the language of the message; empty if unknown
    is_first: bool  # shown in place of the text


class Reader:
    """The reader of a chat session, and the languages of the reader and of the customer."""

    def __init__(self, caller: Caller, session: ChatSession) -> None:
        own, customer = own_language(caller), plain_languages(languages_of(session))
        self.is_customer = caller.id == session.user_id
        self.is_staff = caller.is_staff(session.app_id) and not self.is_customer
        self.languages = [*customer, own] if self.is_customer else [own]
        self.other_language = customer[0] if customer and not is_same_language(customer[0], own) else ""

    def is_foreign(self, role: str) -> bool:
        """Return whether a message of a role is probably in another language than that of staff who reads it."""
        return self.is_staff and role in ("customer", "bot") and bool(self.other_language)

    def choose(self, translations: JsonValue, sent: JsonValue, *, is_own: bool) -> TranslationView | None:
        """Return the translation of a message that the reader sees, if any.

        Customers see an automatic translation that was `sent` with the message. Staff see one into their own language,
        and otherwise what the customer sees.
        """
        shown = _automatic(sent)
        known = shown if self.is_customer else translations_of(translations)
        own = next((known[tag] for tag in self.languages if tag in known and not is_own), None)
        found = own or next(iter(shown.values()), None)
        if found is None or (is_own and self.is_customer):
            return None
        is_first = self.is_customer or found is own
        source = language_name(found.source_language) if found.source_language else ""
        name = language_name(found.language)
        return TranslationView(found.text, found.is_automatic, found.language, name, source, is_first)


def _automatic(translations: JsonValue) -> dict[str, Translation]:
    """Return the translations of the assistant by language."""
    return {tag: found for tag, found in translations_of(translations).items() if found.is_automatic}
