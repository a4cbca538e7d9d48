"""Reading what clients send: JSON bodies and query strings, with the place of the fault in every complaint.

Where the document lists no 400 for an operation, garbage becomes a value that selects nothing (contract, section 2).
"""

import copy
import functools
import inspect
import json
import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from service.db import Position
from service.errors import BadRequest, InvalidBody, InvalidCursor, InvalidJson, InvalidParameter
from service.remembering import remembered
from service.shapes import Writes, convert, hints_of, may_be_left_out, readers
from service.signature import MOST_PARAMETERS, LowerBound, UpperBound

DEEPEST = 100
AFTER_ALL, BEFORE_ALL = "~", ""  # as a lower and an upper bound, these select nothing

_Place = tuple[()] | tuple[Any, str | int]  # inside another: that one, and the name or index of the step

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def read_json(raw: bytes) -> dict[str, Any]:
    """The JSON object in a body. Raises InvalidJson or InvalidBody with the place of the fault."""
    if not raw.strip():
        raise InvalidBody("$: expected object, got nothing")
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"The body is not UTF-8: byte {error.start}.") from None
    except RecursionError:
        raise InvalidJson(f"The body is nested deeper than {DEEPEST} levels.") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except ValueError:  # of Python's own limit
        raise InvalidJson("The body holds an integer of thousands of digits.") from None
    _check(value)
    if not isinstance(value, dict):
        raise InvalidBody("$: expected object")
    return value


def expect_json(content_type: str) -> None:
    """Refuse a body that says it is something else. Raises InvalidJson."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not re.fullmatch(r"application/[\w.-]+\+json", kind, re.ASCII):
        raise InvalidJson(f"Content-Type: expected application/json, got {kind[:100]!a}.")


def read_body(raw: bytes, content_type: str, kind: Any, lenient: bool) -> tuple[Any, list[str]]:
    """A body as the type that an operation declares, and the warnings of a lenient one.

    A struct without required members may be left out; `null` is not an object and never stands for one. On a lenient
    operation an unreadable body becomes what the type's `nothing` makes.
    """
    try:
        text = raw.strip(b" \t\r\n")  # the blanks of JSON
        if text:
            expect_json(content_type)
        elif may_be_left_out(kind):
            return kind(), []
        return _convert(read_json(raw), kind), []
    except BadRequest as fault:
        if not lenient:
            raise
        return kind.nothing(), [f"body: {fault}"]


def read_form(raw: bytes, content_type: str, kind: type[Struct]) -> Any:
    """A form of texts (application/x-www-form-urlencoded) as declared. Raises InvalidBody or InvalidParameter."""
    if content_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise InvalidBody("Content-Type: expected application/x-www-form-urlencoded.")
    form, *_ = inspect.unwrap(_read_parameters)(raw.decode("latin-1"), kind, False)  # not kept: it may be a password
    return form


def _convert(value: dict[str, Any], kind: Any) -> Any:
    """A JSON object as declared: a struct, the columns that it writes, or the object itself where it is open."""
    if get_origin(kind) is not Annotated:
        return convert(value, kind)
    about = get_args(kind)[1]
    return about.read(value) if isinstance(about, Writes) else value


def read_query(
    text: str, kind: type[Struct], lenient: bool, locate: Callable[[str, Struct], Position]
) -> tuple[Any, list[str]]:
    """A query string as the type that an operation declares, and the warnings of a lenient one.

    `locate` turns the text of a cursor into a position, given the query without it. Raises InvalidParameter or
    InvalidCursor, which name the parameter, unless the operation is lenient.
    """
    known, cursor, found = _read_parameters(text, kind, lenient)
    query, faults = copy.copy(known), [*found]
    if cursor:
        try:
            query.cursor = locate(cursor[0] if len(cursor) == 1 else "", query)
        except ValueError:
            if not lenient:
                raise InvalidCursor from None
            faults.append(("cursor", InvalidCursor()))
            query.cursor = Position(nowhere=True)
    return query, [f"{name}: {str(fault).removeprefix(name + ': ')}" for name, fault in faults]


@remembered(200)
def _read_parameters(
    text: str, kind: type[Struct], lenient: bool
) -> tuple[Any, list[str], list[tuple[str, Exception]]]:
    """The query as far as its text alone tells, what stands for its cursor, and the faults. Raises InvalidParameter."""
    if text.count("&") >= MOST_PARAMETERS:
        return _select_nothing(kind, lenient)
    given, faults = _parameters(text), list[tuple[str, Exception]]()
    values: dict[str, Any] = {}
    cursor: list[str] = []
    for wire_name, name, hint, required, default in _members(kind):
        if wire_name not in given:
            if required:
                faults.append((wire_name, InvalidParameter(f"{wire_name}: required.")))
            continue
        if hint is Position:
            cursor = given[wire_name]
            continue
        if given[wire_name] == [default] and hint not in (LowerBound, UpperBound):
            continue  # an empty filter, which is none
        try:
            values[name] = _read(given[wire_name], hint)
        except ValueError as error:
            faults.append((wire_name, InvalidParameter(f"{wire_name}: {error}.")))
            if hint in (LowerBound, UpperBound):
                values[name] = AFTER_ALL if hint is LowerBound else BEFORE_ALL
    if faults and not lenient:
        raise InvalidParameter(*(str(fault) for _, fault in faults))
    return kind(**values), [] if cursor == [""] else cursor, faults  # empty as at the end of a walk: no cursor


def _select_nothing(kind: type[Struct], lenient: bool) -> tuple[Any, list[str], list[tuple[str, Exception]]]:
    """The result of `_read_parameters` for too many of them, of which none is unescaped. Raises InvalidParameter."""
    if not lenient:
        raise InvalidParameter(f"There are more than {MOST_PARAMETERS} parameters.")
    hints = {name: hint for _, name, hint, *_ in _members(kind) if hint in (LowerBound, UpperBound, Position)}
    cursor = ["", ""] if Position in hints.values() else []  # given twice, which leads nowhere
    bounds = {
        name: AFTER_ALL if hint is LowerBound else BEFORE_ALL for name, hint in hints.items() if hint is not Position
    }
    return kind(**bounds), cursor, [("query", InvalidParameter(f"query: more than {MOST_PARAMETERS} parameters."))]


@functools.cache
def _members(kind: type[Struct]) -> list[tuple[str, str, Any, bool, Any]]:
    hints = hints_of(kind)
    found = msgspec.structs.fields(kind)
    return [(field.encode_name, field.name, hints[field.name], field.required, field.default) for field in found]


def _parameters(text: str) -> dict[str, list[str]]:
    """All values of each parameter; undecodable text stays undecodable, so that only a known parameter suffers."""
    given: dict[str, list[str]] = {}
    unescaped = text.encode("latin-1").decode("utf-8", "surrogateescape")  # WSGI hands bytes over as Latin-1
    for name, value in parse_qsl(unescaped, keep_blank_values=True, errors="surrogateescape"):
        given.setdefault(name, []).append(value)
    return given


def _read(values: list[str], hint: Any) -> Any:
    """One parameter. Raises ValueError with the reason."""
    if len(values) > 1:
        raise ValueError("given more than once")
    text = values[0]
    if any("\ud800" <= character <= "\udfff" or character == "\0" for character in text):
        raise ValueError("expected readable UTF-8")
    kind = hint.__origin__ if hasattr(hint, "__metadata__") else hint
    for reader in readers(hint):
        text = reader(text)
    if kind is bool:
        if text.lower() not in _BOOLEANS:
            raise ValueError("expected true or false")
        return _BOOLEANS[text.lower()]
    if kind is int:  # a page size
        if not re.fullmatch(r"-?[0-9]{1,1000}", text, re.ASCII):
            raise ValueError("expected a whole number")
        bounds = hint.__metadata__[0]
        return min(max(int(text), bounds.ge), bounds.le)
    try:
        return msgspec.convert(text, hint)
    except msgspec.ValidationError as error:
        allowed = ", ".join(filter(None, _words(hint)))
        raise ValueError(f"expected one of {allowed}" if allowed else str(error).replace("`", "")) from None


def _words(hint: Any) -> list[str]:
    """The words of a Literal, also inside an Annotated or beside None."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [word for part in get_args(hint) for word in _words(part)]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidJson(f"The member {json.dumps(twice)} stands twice in one object.")
    return members


def _refuse_constant(word: str) -> None:
    raise InvalidJson(f"The body is not JSON: {word}.")


def _check(value: Any, place: _Place = (), depth: int = 0) -> None:
    """Refuse what JSON can spell and nothing else can hold: lone surrogates, NUL, infinite numbers, abysses.

    Places are spelt where there is a fault: a text for each would cost as much as the names above it are long.
    """
    if depth >= DEEPEST and isinstance(value, dict | list):
        raise InvalidJson(f"The body is nested deeper than {DEEPEST} levels.")
    if isinstance(value, str):
        if "\0" in value:
            raise InvalidJson(f"{_spell(place)}: NUL characters are not taken")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise InvalidJson(f"{_spell(place)}: lone surrogate")
    elif isinstance(value, dict):
        for name, member in value.items():
            _check(name, place, depth)
            _check(member, (place, name), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) is not int:
                _check(item, (place, index), depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidJson(f"{_spell(place)}: number out of range")


def _spell(place: _Place) -> str:
    """A place as people read it: `$.location[2]`."""
    if not place:
        return "$"
    above, step = place
    return f"{_spell(above)}[{step}]" if isinstance(step, int) else f"{_spell(above)}.{step}"
