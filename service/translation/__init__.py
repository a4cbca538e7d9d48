"""Texts of the pages in the language of the user.

The source texts are English. A catalogue beside this file, such as `de.po`, has their translations. `make translations`
collects the texts, and the build of the executable compiles the catalogues.

    dates            names of months and days, and formats of dates, by language
    language_names   names of languages, by language

Functions translate into the language that `use` has set for the current request:

    gettext            a text, with values for its placeholders
    ngettext           a text that depends on a number
    gettext_noop       marks a text that is translated later
    html               a text with HTML elements; the values are escaped
"""

import functools
import gettext as catalogues
import html as escaping
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

LANGUAGES = {
    "ar": "العربية",
    "de": "Deutsch",
    "en": "English",
    "es": "Español",
    "fr": "Français",
    "ja": "日本語",
    "pt-BR": "Português (Brasil)",
    "zh-Hans": "简体中文",
}
"""The languages of the pages: BCP 47 tags, and their own names."""

RIGHT_TO_LEFT = frozenset({"ar"})
SOURCE = "en"
FOLDER = Path(__file__).parent

_TRADITIONAL_CHINESE = ("zh-hant", "zh-hk", "zh-mo", "zh-tw")
_current: ContextVar[str] = ContextVar("language", default=SOURCE)


class Html(str):
    """HTML, which is not escaped again."""

    __slots__ = ()


def choose(tags: Iterable[str]) -> str:
    """Return the language for a list of BCP 47 tags, preferred first; English if no tag matches.

    A tag matches by its primary language: `pt-PT` is served `pt-BR`. Traditional Chinese is not served simplified.
    """
    by_primary = {tag.lower().partition("-")[0]: tag for tag in LANGUAGES}
    for tag in tags:
        lower = tag.lower()
        language = by_primary.get(lower.partition("-")[0])
        if language and not lower.startswith(_TRADITIONAL_CHINESE):
            return language
    return SOURCE


@contextmanager
def use(language: str) -> Iterator[None]:
    """Translate into a language of `LANGUAGES` inside a `with` block, in the current thread."""
    token = _current.set(language)
    try:
        yield
    finally:
        _current.reset(token)


def current_language() -> str:
    """Return the language that `use` has set."""
    return _current.get()


def gettext(text: str, /, **values: object) -> str:
    """Return the translation of a text, with values for its placeholders, such as {name}."""
    translated = _catalogue(_current.get()).gettext(text)
    return translated.format(**values) if values else translated


def ngettext(one: str, many: str, count: int, /, **values: object) -> str:
    """Return the translation of a text for a number, which replaces {count}."""
    return _catalogue(_current.get()).ngettext(one, many, count).format(count=count, **values)


def gettext_noop(text: str) -> str:
    """Return a text unchanged: marks it for the catalogues where it is not translated yet."""
    return text


def html(text: str, /, **values: object) -> Html:
    """Return the translation of a text with HTML elements. Values are escaped, except those of type Html."""
    escaped = {
        name: value if isinstance(value, Html) else escaping.escape(str(value)) for name, value in values.items()
    }
    return Html(_catalogue(_current.get()).gettext(text).format(**escaped))


@functools.cache
def _catalogue(language: str) -> catalogues.NullTranslations:
    """Return the catalogue of a language: compiled by the build, or in a checkout when it is first needed."""
    if language == SOURCE:
        return catalogues.NullTranslations()
    compiled = FOLDER / f"{language}.mo"
    content = compiled.read_bytes() if compiled.exists() else compile_catalogue(language)
    return catalogues.GNUTranslations(io.BytesIO(content))


def compile_catalogue(language: str) -> bytes:
    """Return a catalogue in the format of `gettext` (MO). Needs Babel, which the executable does not contain."""
    from babel.messages import mofile, pofile  # noqa: PLC0415

    with (FOLDER / f"{language}.po").open("rb") as source:
        catalogue = pofile.read_po(source, locale=language.replace("-", "_"))
    catalogue.creation_date = catalogue.revision_date = datetime.fromtimestamp(0, UTC)  # the same bytes at any time
    compiled = io.BytesIO()
    mofile.write_mo(compiled, catalogue)
    return compiled.getvalue()
