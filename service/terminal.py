"""Texts of others on their way to a terminal, which they must not command."""

import json
import unicodedata

# Controls, formats such as those that turn the direction of writing, surrogates, ends of lines and paragraphs.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean(text: str) -> str:
    """A text in one line, with blanks in place of what is not to be seen."""
    if text.isprintable():
        return text
    return "".join(" " if _is_unprintable(letter) else letter for letter in text)


def escape(text: str) -> str:
    """A JSON text that means the same, with escapes in place of what is not to be seen."""
    return "".join(json.dumps(letter)[1:-1] if _is_unprintable(letter) else letter for letter in text)


def _is_unprintable(letter: str) -> bool:
    return unicodedata.category(letter) in _UNPRINTABLE
