"""Texts of others on their way to a terminal or a log: they neither command the one nor forge a line of the other."""

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
    """A text with JSON's escapes in place of what is not to be seen; JSON still means the same."""
    return "".join(json.dumps(letter)[1:-1] if _is_unprintable(letter) else letter for letter in text)


def _is_unprintable(letter: str) -> bool:
    return unicodedata.category(letter) in _UNPRINTABLE
