"""A line of an import as the row to store.

A line is read twice as fast without the checks of `read_json`, so most lines are read without them: by `_read_quickly`,
which returns None unless it is certain that the other way gives the same members. All errors come from the other way.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from service.api.schemas import convert, validators_of
from service.auth.passwords import hash_password
from service.errors import BadRequest, InvalidBody
from service.fields import Column, Document, JsonAsBytes, SqlValue, Text, TimestampFlag, members
from service.http.decoding import MAX_DEPTH, read_json, read_value
from service.models import RECORDS

Members = dict[str, SqlValue]

_KIND = re.compile(rb'[ \t]*\{[ \t]*"([a-z_]+)"[ \t]*:')
_integers = msgspec.json.Decoder(list[int])


class Read(NamedTuple):
    """A record that was read."""

    kind: str
    values: Members
    stored: Members = {}  # columns that already have their stored form


class _Layout(NamedTuple):
    """How lines of a kind are read quickly."""

    decode: Callable[[bytes], msgspec.Struct]
    documents: Sequence[tuple[str, Column]]  # the columns whose JSON is read separately


def has_password(raw: bytes) -> bool:
    """Return whether a line is that of a user with a password."""
    match = _KIND.match(raw)
    return bool(match and match[1] == b"user" and b'"password"' in raw)


def read(raw: bytes) -> Read:
    """Return the record of a line. Raises BadRequest with the path of the error."""
    found = _read_quickly(raw)
    if found:
        return found
    try:
        record = read_json(raw)
    except BadRequest as error:
        reason = str(error).removeprefix("The body ")
        raise BadRequest(reason if reason.startswith("$") else f"$: {reason}") from None
    if len(record) != 1 or next(iter(record)) not in RECORDS:
        raise BadRequest(f"$: expected one member that names the kind of record: {', '.join(RECORDS)}")
    kind = next(iter(record))
    return Read(kind, _given(getattr(convert(record, line_type(kind)), kind)))


def row_of(record: Read) -> list[SqlValue]:
    """Return the columns of a record as stored. Raises ValueError with the path of the error."""
    kind, values, stored = record
    plan = plan_of(kind)
    row = stored | _stored(kind, {name: value for name, value in values.items() if name in plan.names}, plan)
    try:
        derived = RECORDS[kind].from_import(values | row)
    except ValueError as error:
        raise ValueError(f"$.{kind}: {error}") from None
    row |= _stored(kind, derived, plan)
    for name, column in plan.columns:
        if name not in row:
            if column.default is None and not column.null:
                raise ValueError(f"$.{kind}: missing required member {name}")
            row[name] = column.default() if callable(column.default) else column.default
    for flag in plan.flags:
        flag.fill_timestamp(values.get(flag.name), row)
    return [row[name] for name, _ in plan.columns]


@functools.cache
def line_type(kind: str) -> type[msgspec.Struct]:
    """Return the type of a line: one member, an object that accepts the members of the table and no others."""
    return _line_type(kind, _accepted(kind))


def _line_type(kind: str, types: dict[str, object]) -> type[msgspec.Struct]:
    fields = [(name, type_ | msgspec.UnsetType, msgspec.UNSET) for name, type_ in types.items()]
    return msgspec.defstruct("Line", [(kind, msgspec.defstruct(kind, fields, forbid_unknown_fields=True))])


def _accepted(kind: str) -> dict[str, object]:
    """Return the types of the members of a record."""
    table = RECORDS[kind]
    return {name: column.accepts for name, column in members(table, export=True).items()} | table.also_accepts


def _given(record: msgspec.Struct) -> Members:
    return {name: value for name, value in msgspec.structs.asdict(record).items() if value is not msgspec.UNSET}


@functools.cache
def _layout(name: bytes) -> _Layout | None:
    """Return None for a kind that has validators in its types, which only `convert` calls, and for other names."""
    kind = name.decode()
    table, types = RECORDS.get(kind), _accepted(kind) if kind in RECORDS else {}
    if table is None or any(map(validators_of, types.values())):
        return None
    documents = [
        (name, column)
        for name, column in members(table, export=True).items()
        if isinstance(column, JsonAsBytes | Document)
    ]
    types |= dict.fromkeys(dict(documents), msgspec.Raw)
    return _Layout(msgspec.json.Decoder(_line_type(kind, types)).decode, documents)


def _read_quickly(raw: bytes) -> Read | None:
    match = _KIND.match(raw)
    layout = match and _layout(match[1])
    if not match or not layout or _is_unusual(raw):
        return None
    kind, stored = match[1].decode(), {}
    try:
        values = _given(getattr(layout.decode(raw), kind))
        names = 1 + len(values)
        for name, column in layout.documents:
            if name in values:
                text = bytes(values[name])
                if isinstance(column, JsonAsBytes) and _is_array_of_bytes(text, column):
                    del values[name]
                    stored[name] = text.decode()
                else:
                    names += text.count(b'":')
                    values[name] = _document(text, column)
    except (msgspec.MsgspecError, BadRequest, ValueError, RecursionError):
        return None
    # Each member has a name that ends in `":`. If there are no more of these than names, none occurs twice.
    return Read(kind, values, stored) if raw.count(b'":') == names else None


def _is_unusual(raw: bytes) -> bool:
    """Return whether a line has what only `read_json` checks, or white space before a colon, where names end."""
    has_space = b" :" in raw or b"\t:" in raw or b"\n:" in raw or b"\r:" in raw
    has_escape = rb"\u0000" in raw or rb"\ud" in raw or rb"\uD" in raw  # NUL, or a surrogate
    return has_space or has_escape or raw.count(b"[") + raw.count(b"{") > MAX_DEPTH


def _is_array_of_bytes(text: bytes, column: JsonAsBytes) -> bool:
    """Return whether a JSON text is an array of bytes, as in exports, in its stored form. Raises ValueError."""
    if text == b"[]":
        return True
    if text.translate(None, b"[0123456789,]"):
        return False
    items = _integers.decode(text)
    bytes(items)  # raises ValueError for larger integers
    return not column.max_length or len(items) <= column.max_length


def _document(text: bytes, column: Column) -> SqlValue:
    value = read_value(text)
    if isinstance(column, Document) and not isinstance(value, dict):
        raise ValueError
    return value


class Plan(NamedTuple):
    """What the rows of a kind need, looked up once."""

    columns: list[tuple[str, Column]]
    names: set[str]  # of the columns, and `password`
    converted: dict[str, Callable[[SqlValue], SqlValue]]  # those whose stored form differs
    flags: list[TimestampFlag]


@functools.cache
def plan_of(kind: str) -> Plan:
    """Return the plan of the rows of a kind."""
    table = RECORDS[kind]
    columns = [(column.name, column) for column in table._meta.sorted_fields]
    converted = {name: column.to_stored for name, column in columns if _differs(column)}
    flags = [flag for flag in members(table).values() if isinstance(flag, TimestampFlag)]
    return Plan(columns, {*dict(columns), "password"}, {**converted, "password": hash_password}, flags)


def _differs(column: Column) -> bool:
    """Return whether the stored form of a value may differ from the value."""
    return type(column).to_stored not in (Column.to_stored, Text.to_stored) or bool(getattr(column, "validator", None))


def _stored(kind: str, values: Members, plan: Plan) -> Members:
    """Return columns as stored. Raises ValueError with the path of the error."""
    row = values.copy()
    try:
        for name in values:
            if name in plan.converted:
                row[name] = plan.converted[name](values[name])
    except ValueError as error:
        raise ValueError(f"$.{kind}.{name}: {error}") from None
    except InvalidBody as error:  # its text has a path inside the member
        raise ValueError(f"$.{kind}.{name}{str(error).removeprefix('$')}") from None
    return row
