"""Decodes JSON bodies, forms and query strings. Error messages name the member or parameter that is invalid.

A lenient operation declares no 400: malformed input becomes a value that selects nothing, and the response has a
warning (docs/decisions.md).
"""

import binascii
import copy
import functools
import inspect
import json
import math
import re
from collections.abc import Callable
from typing import Annotated, Literal, get_args, get_origin
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from service.api.parameter_types import MAX_PARAMETERS, LowerBound, UpperBound
from service.api.schemas import BodyColumns, convert, hints_of, may_be_left_out, validators_of
from service.db import Position
from service.errors import BadRequest, InvalidBody, InvalidCursor, InvalidJson, InvalidParameter
from service.fields import Decoded, WireType
from service.memoize import memoized
from service.types import JsonObject, JsonValue

MAX_DEPTH = 100  # levels of nested arrays and objects
AFTER_ALL, BEFORE_ALL = "~", ""  # a lower and an upper bound that select nothing

_Path = tuple[()] | tuple["_Path", str | int]  # the path of the parent, and the name or index in it

_INVALID_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def read_json(raw: bytes) -> JsonObject:
    """Return the JSON object in a body. Raises InvalidJson, or InvalidBody with the path of the invalid member."""
    if not raw.strip():
        raise InvalidBody("$: expected object, got nothing")
    value = read_value(raw)
    if not isinstance(value, dict):
        raise InvalidBody("$: expected object")
    return value


def read_value(raw: bytes) -> JsonValue:
    """Return the value of a JSON text. Raises InvalidJson."""
    try:
        value: JsonValue = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"The body is not UTF-8: byte {error.start}.") from None
    except RecursionError:
        raise InvalidJson(f"The body is nested deeper than {MAX_DEPTH} levels.") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except ValueError:  # Python limits the digits of an integer
        raise InvalidJson("The body contains an integer with thousands of digits.") from None
    _check(value)
    return value


def expect_json(content_type: str) -> None:
    """Raise InvalidJson if a Content-Type is not JSON. None is accepted."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not re.fullmatch(r"application/[\w.-]+\+json", kind, re.ASCII):
        raise InvalidJson(f"Content-Type: expected application/json, got {kind[:100]!a}.")


def read_body(raw: bytes, content_type: str, kind: WireType, lenient: bool) -> tuple[Decoded, list[str]]:
    """Return a body as the type `kind`, and the warnings of a lenient operation.

    The body may be omitted if `kind` is a struct without required members; `null` is not accepted. If it is malformed,
    lenient operations get `kind.nothing()`; others raise InvalidJson or InvalidBody.
    """
    try:
        text = raw.strip(b" \t\r\n")  # the white space of JSON
        if text:
            expect_json(content_type)
        elif may_be_left_out(kind):
            return kind(), []
        return _convert(read_json(raw), kind), []
    except BadRequest as error:
        if not lenient:
            raise
        return kind.nothing(), [f"body: {error}"]


def read_form(raw: bytes, content_type: str, kind: type[Struct]) -> Decoded:
    """Return a form (application/x-www-form-urlencoded) as the type `kind`. Raises InvalidBody or InvalidParameter."""
    if content_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise InvalidBody("Content-Type: expected application/x-www-form-urlencoded.")
    form, *_ = inspect.unwrap(_read_parameters)(
        raw.decode("latin-1"), kind, False
    )  # not memoized: it may contain a password
    return form


def _convert(value: JsonObject, kind: WireType) -> Decoded:
    """Return a JSON object as a type: a struct, the columns of BodyColumns, or the object itself."""
    origin: object = get_origin(kind)
    if origin is not Annotated:
        return convert(value, kind)
    content = get_args(kind)[1]
    return content.read(value) if isinstance(content, BodyColumns) else value


def read_query(
    text: str, kind: type[Struct], lenient: bool, locate: Callable[[str, Struct], Position]
) -> tuple[Decoded, list[str]]:
    """Return a query string as the type `kind`, and the warnings of a lenient operation.

    `locate` returns the position of a cursor, given its text and the query without it. Raises InvalidParameter or
    InvalidCursor, unless the operation is lenient.
    """
    parameters, cursor, found = _read_parameters(text, kind, lenient)
    query, errors = copy.copy(parameters), [*found]
    if cursor:
        try:
            query.cursor = locate(cursor[0] if len(cursor) == 1 else "", query)
        except ValueError:
            if not lenient:
                raise InvalidCursor from None
            errors.append(("cursor", InvalidCursor()))
            query.cursor = Position(past_end=True)
    return query, [f"{name}: {str(error).removeprefix(name + ': ')}" for name, error in errors]


@memoized(200)
def _read_parameters(
    text: str, kind: type[Struct], lenient: bool
) -> tuple[Decoded, list[str], list[tuple[str, Exception]]]:
    """Return the query without its cursor, the values of the cursor, and the errors by parameter.

    Raises InvalidParameter.
    """
    if text.count("&") >= MAX_PARAMETERS:
        return _select_nothing(kind, lenient)
    given, errors = read_parameters(text), list[tuple[str, Exception]]()
    values: dict[str, object] = {}
    cursor: list[str] = []
    for wire_name, name, hint, required, default in _members(kind):
        if wire_name not in given:
            if required:
                errors.append((wire_name, InvalidParameter(f"{wire_name}: required.")))
            continue
        if hint is Position:
            cursor = given[wire_name]
            continue
        if given[wire_name] == [default] and hint not in (LowerBound, UpperBound):
            continue  # an empty filter
        try:
            values[name] = _read(given[wire_name], hint)
        except ValueError as error:
            errors.append((wire_name, InvalidParameter(f"{wire_name}: {error}.")))
            if hint in (LowerBound, UpperBound):
                values[name] = AFTER_ALL if hint is LowerBound else BEFORE_ALL
    if errors and not lenient:
        raise InvalidParameter(*(str(error) for _, error in errors))
    return kind(**values), [] if cursor == [""] else cursor, errors  # an empty cursor is none


def _select_nothing(kind: type[Struct], lenient: bool) -> tuple[Decoded, list[str], list[tuple[str, Exception]]]:
    """Return the result of `_read_parameters` for too many parameters. Raises InvalidParameter."""
    if not lenient:
        raise InvalidParameter(f"There are more than {MAX_PARAMETERS} parameters.")
    hints = {name: hint for _, name, hint, *_ in _members(kind) if hint in (LowerBound, UpperBound, Position)}
    cursor = ["", ""] if Position in hints.values() else []  # two values, which are invalid
    bounds = {
        name: AFTER_ALL if hint is LowerBound else BEFORE_ALL for name, hint in hints.items() if hint is not Position
    }
    return kind(**bounds), cursor, [("query", InvalidParameter(f"query: more than {MAX_PARAMETERS} parameters."))]


@functools.cache
def _members(kind: type[Struct]) -> list[tuple[str, str, WireType, bool, object]]:
    hints = hints_of(kind)
    found = msgspec.structs.fields(kind)
    return [(field.encode_name, field.name, hints[field.name], field.required, field.default) for field in found]


def read_parameters(text: str) -> dict[str, list[str]]:
    """Return all values of each parameter of a query or form (URL Standard, section 5.1).

    Invalid UTF-8 becomes surrogates, which are an error of that parameter only.
    """
    given: dict[str, list[str]] = {}
    for pair in text.encode("latin-1").split(b"&"):  # WSGI strings hold bytes as Latin-1
        name, _, value = pair.partition(b"=")
        if pair:
            given.setdefault(unescape(name), []).append(unescape(value))
    return given


def unescape(data: bytes) -> str:
    """Return the text of an escaped name or value; its invalid UTF-8 becomes surrogates."""
    data = data.replace(b"+", b" ")
    if _INVALID_ESCAPE.search(data):
        data = unquote_to_bytes(data)
    elif b"%" in data:  # as quoted-printable, which is decoded in C, in a tenth of the time
        data = binascii.a2b_qp(data.replace(b"=", b"=3D").replace(b"%", b"="))
    return data.decode("utf-8", "surrogateescape")


def _read(values: list[str], hint: WireType) -> Decoded:
    """Return the value of a parameter. Raises ValueError with the reason."""
    if len(values) > 1:
        raise ValueError("given more than once")
    text = values[0]
    if "\0" in text or has_surrogates(text):
        raise ValueError("expected valid UTF-8 without NUL")
    kind = hint.__origin__ if hasattr(hint, "__metadata__") else hint
    for validate in validators_of(hint):
        text = validate(text)
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
        allowed = ", ".join(filter(None, _literals(hint)))
        raise ValueError(f"expected one of {allowed}" if allowed else str(error).replace("`", "")) from None


def _literals(hint: object) -> list[str]:
    """Return the values of a Literal, also in an Annotated or a union."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for part in get_args(hint) for value in _literals(part)]


def _unique(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidJson(f"The member {json.dumps(twice)} occurs twice in one object.")
    return members


def _refuse_constant(constant: str) -> None:
    raise InvalidJson(f"The body is not JSON: {constant}.")


def _check(value: object, path: _Path = (), depth: int = 0) -> None:
    """Refuse valid JSON that cannot be stored: lone surrogates, NUL, numbers out of range, deep nesting.

    Paths are formatted only for errors: a text for each value would take memory quadratic in the depth.
    """
    if depth >= MAX_DEPTH and isinstance(value, dict | list):
        raise InvalidJson(f"The body is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, str):
        if "\0" in value:
            raise InvalidJson(f"{_format(path)}: NUL characters are not accepted")
        if has_surrogates(value):
            raise InvalidJson(f"{_format(path)}: lone surrogate")
    elif isinstance(value, dict):
        for name, member in value.items():
            _check(name, path, depth)
            _check(member, (path, name), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) is not int:
                _check(item, (path, index), depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidJson(f"{_format(path)}: number out of range")


def has_surrogates(text: str) -> bool:
    """Return whether a text contains surrogates, which UTF-8 does not have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _format(path: _Path) -> str:
    """Return a path as text: `$.location[2]`."""
    if not path:
        return "$"
    parent, step = path
    return f"{_format(parent)}[{step}]" if isinstance(step, int) else f"{_format(parent)}.{step}"
