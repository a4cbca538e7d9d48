"""Collects the texts of the pages into the catalogues service/translation/*.po; existing translations stay.

A text is an argument of the functions of `service.translation`, the message of an error, or the label of an
enumeration's value. A translation is removed when its text is. New texts are added without a translation: the tests
fail until there is one in every language.
"""

import ast
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import bottle
from babel.messages import extract, pofile
from babel.messages.catalog import Catalog

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from service import translation  # noqa: E402
from service.console.labels import VALUES, source_label  # noqa: E402
from service.errors import ApiError  # noqa: E402

KEYWORDS = {"_": None, "html": None, "gettext": None, "gettext_noop": None, "ngettext": (1, 2)}
RAISED = ("ApiError", "Busy", "InvalidBody", "ValueError")  # with a constant message
RAISING = ("clock.py", "validators.py", "console", "models", "routes/console")  # below service/
HEADER = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=utf-8\\n"
"Plural-Forms: {}\\n"

"""
_PATH = re.compile(r"^\$[\w.]*: ")  # of a member, before the message


def texts() -> Iterator[tuple[str, str | tuple[str, ...]]]:
    """Yield the place and the text of each message; a text that depends on a number is a pair."""
    for template in sorted((ROOT / "templates").glob("*.html")):
        code = bottle.SimpleTemplate(template.read_text(encoding="utf-8"), name=str(template)).code
        yield from _calls(code, f"templates/{template.name}")
    for module in sorted((ROOT / "service").rglob("*.py")):
        code, place = module.read_text(encoding="utf-8"), module.relative_to(ROOT).as_posix()
        yield from _calls(code, place)
        if place.removeprefix("service/").startswith(RAISING):
            yield from ((place, text) for text in _raised(code))
    for error in _errors(ApiError):
        yield f"{error.__module__.replace('.', '/')}.py", error.default_message()
    for value in VALUES:
        yield "service/console/labels.py", source_label(value)


def collect() -> Catalog:
    """Return a catalogue of all texts, without translations."""
    catalogue = Catalog(project="cx-service", charset="utf-8")
    for place, text in texts():
        if text:
            catalogue.add(text, locations=[(place, 0)])
    return catalogue


def update(language: str, source: Catalog) -> int:
    """Add new texts to the catalogue of a language, and remove others. Returns how many have no translation."""
    path = translation.FOLDER / f"{language}.po"
    if path.exists():
        with path.open("rb") as file:
            catalogue = pofile.read_po(file, locale=language.replace("-", "_"))
    else:
        catalogue = Catalog(locale=language.replace("-", "_"), project="cx-service")
    catalogue.update(source, no_fuzzy_matching=True, update_creation_date=False)
    catalogue.obsolete.clear()
    written = io.BytesIO()
    pofile.write_po(written, catalogue, width=120, sort_by_file=True, include_lineno=False, omit_header=True)
    path.write_bytes(HEADER.format(catalogue.plural_forms).encode() + written.getvalue())
    return sum(1 for message in catalogue if message.id and not _is_complete(message.string))


def _is_complete(string: str | tuple[str, ...] | list[str] | None) -> bool:
    return bool(string) if isinstance(string, str) else all(string or [""])


def _calls(code: str, place: str) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    """Yield the texts in the calls of a module."""
    for _, text, _, _ in extract.extract("python", io.BytesIO(code.encode()), KEYWORDS):
        yield place, text


def _raised(code: str) -> Iterator[str]:
    """Yield the constant messages of the errors that a module raises."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(text)), *_]) if name in RAISED:
                yield _PATH.sub("", text)


def _errors(kind: type[ApiError]) -> Iterator[type[ApiError]]:
    for error in kind.__subclasses__():
        yield error
        yield from _errors(error)


def main() -> None:
    """Update the catalogues of all languages."""
    source = collect()
    for language in translation.LANGUAGES:
        if language != translation.SOURCE:
            print(f"{language}: {update(language, source)} of {len(source)} texts have no translation")


if __name__ == "__main__":
    main()
