"""Makes untrusted texts safe for terminals and logs: no control sequences, no forged lines."""

import json
import unicodedata

# Control characters, format characters such as those for the direction of writing, surrogates, line and paragraph
# separators.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean(text: str) -> str:
    """Return the text in one line, with a space in place of each character that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(" " if _is_unprintable(character) else character for character in text)


def escape(text: str) -> str:
    """Return the text with JSON's escape in place of each character that cannot be printed. JSON keeps its meaning."""
    return "".join(json.dumps(character)[1:-1] if _is_unprintable(character) else character for character in text)


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in _UNPRINTABLE
