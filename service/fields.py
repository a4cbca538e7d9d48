"""The kinds of columns: how each is stored, what it is on the wire, and how the database renders it as JSON.

A column is declared once, in a table of `service.models`. Answers, OpenAPI shapes, import and export follow from it.
Rendering and types that differ between databases belong here and in `service.db`, nowhere else.
"""

import json
import math
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import peewee
from msgspec import Meta

from service import clock

DOCUMENT = "document"  # the column is part of the resource in the document
OWN = "own"  # it leaves to the user whose it is, and in exports
EXPORT = "export"  # it leaves in exports only
NEVER = "never"  # it never leaves: secrets of this installation, and what is derived from other columns

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
MANY = 1000  # items of a list that a client may write; lists of rows that hold them are not cut into pages

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
DATE_TIME = {"format": "date-time"}
UUID = {"format": "uuid"}
Uuid = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", description="A UUID.", extra_json_schema=UUID)
]
AnyUuid = Annotated[str, Meta(extra_json_schema=UUID, description="A UUID, any case."), clock.read_uuid]
Ulid = Annotated[str, Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$", description="A ULID.")]
AnyUlid = Annotated[
    str,
    Meta(
        min_length=1,
        description="A ULID, any case.",
        extra_json_schema={"pattern": "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"},
    ),
    clock.read_ulid,
]
Stamp = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", description="RFC 3339, UTC.", extra_json_schema=DATE_TIME
    ),
]
JsonBytes = Annotated[list[Int64], Meta(description="The UTF-8 bytes of a compact JSON text; empty when unset.")]


class Column(peewee.Field):
    """A column; `leaves` says whether it is on the wire, in exports only, or never seen outside."""

    field_type = "TEXT"
    wire: Any = str
    accepts: Any = str  # what an import takes, before `store`

    def __init__(self, *, leaves: str = DOCUMENT, refers_to: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.leaves = leaves
        self.refers_to = refers_to  # the table that holds what the column names
        if self.null:
            self.wire, self.accepts = self.wire | None, self.accepts | None

    def store(self, value: Any) -> Any:
        """The stored form of a value from outside. Raises ValueError with the reason why it cannot be taken."""
        return value

    def json(self) -> tuple[str, str]:
        """The form of the column's JSON text, and SQL, never NULL, for what takes the place of its `%s`."""
        return ("%s", f"coalesce('\"' || {self.sql} || '\"', 'null')") if self.null else ('"%s"', self.sql)

    @property
    def sql(self) -> str:
        """The quoted name; unqualified, since rows are rendered from one table at a time."""
        return f'"{self.column_name}"'


class Text(Column):
    """A text of `least` to `most` characters, of a `form` unless it is empty; unset is the empty string."""

    def __init__(
        self, most: int = 0, *, least: int = 0, form: Callable[[str], str] | None = None, **options: Any
    ) -> None:
        options.setdefault("default", "")
        self.accepts = Annotated[str, Meta(min_length=least or None, max_length=most or None)]
        super().__init__(**options)
        self.form = form

    def store(self, value: Any) -> Any:
        return self.form(value) if value and self.form else value

    def json(self) -> tuple[str, str]:
        return "%s", f"json_quote({self.sql})"


class OptionalText(Text):
    """A text that few rows have: unset is NULL in the database, and the empty string wherever it is sent."""

    def __init__(self, most: int = 0, **options: Any) -> None:
        super().__init__(most, null=True, default=None, **options)
        self.wire = str

    def store(self, value: Any) -> Any:
        return super().store(value) or None

    def json(self) -> tuple[str, str]:
        return "%s", f"json_quote(coalesce({self.sql}, ''))"


class Word(Column):
    """One of a closed list of words, the first being the default."""

    def __init__(self, *words: str, **options: Any) -> None:
        options.setdefault("default", words[0])
        super().__init__(**options)
        self.wire = self.accepts = Literal[words]


class Identifier(Column):
    """A UUID."""

    wire = Uuid
    accepts = Annotated[str, Meta(extra_json_schema=UUID)]

    def store(self, value: Any) -> Any:
        return None if value is None else clock.read_uuid(value)


class Sortable(Column):
    """A ULID, which sorts by the time it was made."""

    wire = Ulid

    def store(self, value: Any) -> Any:
        return None if value is None else clock.read_ulid(value)


def reference(table: str, *, null: bool = False, **options: Any) -> Identifier:
    """A UUID that names a row of `table`; checked when the transaction ends, so that rows may come in any order."""
    rule = peewee.SQL(f'REFERENCES "{table}" ("id") DEFERRABLE INITIALLY DEFERRED')
    return Identifier(null=null, constraints=[rule], refers_to=table, **options)


class Timestamp(Column):
    """An instant, stored as the RFC 3339 text that is sent."""

    wire = Stamp
    accepts = Annotated[str, Meta(extra_json_schema=DATE_TIME)]

    def store(self, value: Any) -> Any:
        return None if value is None else clock.read_timestamp(value)


class Boolean(Column):
    """True or false, never null."""

    field_type = "BOOL"
    wire = accepts = bool

    def adapt(self, value: Any) -> bool:
        return bool(value)

    def json(self) -> tuple[str, str]:
        return "%s", f"CASE WHEN {self.sql} THEN 'true' ELSE 'false' END"


class Integer(Column):
    """A 64-bit integer; instants inside are milliseconds."""

    field_type = "BIGINT"
    wire = accepts = Int64

    def json(self) -> tuple[str, str]:
        return "%s", f"json_quote({self.sql})"


class Number(Column):
    """A finite number of at most 15 digits, as many as every database reads and renders alike."""

    field_type = "REAL"
    wire = accepts = float
    most = 1.79769313486231e308

    def json(self) -> tuple[str, str]:
        """`printf('%!.15g', …)`, spelt so that no driver takes the percent sign for a value's place."""
        return "%s", f"printf(CAST(x'{b'%!.15g'.hex()}' AS TEXT), {self.sql})"

    def adapt(self, value: Any) -> float:
        rounded = float(f"{value:.15g}")
        if abs(rounded) < sys.float_info.min:
            return 0.0  # smaller ones have fewer digits, and -0.0 a sign
        return rounded if math.isfinite(rounded) else math.copysign(self.most, rounded)

    def store(self, value: Any) -> Any:
        if not math.isfinite(float(f"{value:.15g}")):
            raise ValueError("expected a finite number")
        return self.adapt(value)


class Rendered(Column):
    """A JSON array or object, stored as the JSON text that is sent."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("default", "[]")
        super().__init__(**options)

    def store(self, value: Any) -> Any:
        return compact_json(value)

    def json(self) -> tuple[str, str]:
        return "%s", self.sql


class Integers(Rendered):
    """Signed 64-bit integers, returned unchanged."""

    wire = list[Int64]
    accepts = Annotated[list[Int64], Meta(max_length=MANY)]


class Strings(Rendered):
    """A list of strings."""

    wire = list[str]
    accepts = Annotated[list[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(max_length=MANY)]


class Document(Rendered):
    """An open JSON object, which a `form` may check and change."""

    wire = accepts = dict[str, Any]

    def __init__(self, *, form: Callable[[dict[str, Any]], dict[str, Any]] = dict, **options: Any) -> None:
        super().__init__(default="{}", **options)
        self.form = form

    def store(self, value: Any) -> Any:
        return super().store(self.form(value))


class JsonAsBytes(Rendered):
    """JSON that travels as the array of its UTF-8 bytes; an array of integers is taken as it is."""

    wire = JsonBytes
    accepts = Any

    def __init__(self, most: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.most = most

    def store(self, value: Any) -> Any:
        found = [] if value is None else as_bytes(value)
        if self.most and len(found) > self.most:
            raise ValueError(f"expected at most {self.most} bytes of JSON")
        return compact_json(found)


class Flag:
    """A boolean of the document that says only whether a timestamp beside it is set; no column of its own."""

    leaves = DOCUMENT
    wire = accepts = bool

    def __init__(self, timestamp: str) -> None:
        self.timestamp = timestamp
        self._order: int = vars(peewee.Field())["_order"]  # its place among the columns

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def json(self) -> tuple[str, str]:
        return "%s", f"CASE WHEN \"{self.timestamp}\" IS NULL THEN 'false' ELSE 'true' END"

    def imply(self, given: bool | None, row: dict[str, Any]) -> None:
        """Set the timestamp in an imported row that has only the flag."""
        if given and row[self.timestamp] is None:
            row[self.timestamp] = row["created_at"]


class Standing(Flag):
    """True as long as the timestamp beside it is not set and `until` is not set or still to come."""

    def __init__(self, timestamp: str, *, since: str, until: str) -> None:
        super().__init__(timestamp)
        self.since, self.until = since, until

    def json(self) -> tuple[str, str]:
        lasting = f'"{self.until}" IS NULL OR "{self.until}" > \'{clock.timestamp()}\''
        return "%s", f"CASE WHEN \"{self.timestamp}\" IS NULL AND ({lasting}) THEN 'true' ELSE 'false' END"

    def imply(self, given: bool | None, row: dict[str, Any]) -> None:
        lasts = row[self.until] is None or row[self.until] > clock.timestamp()
        if given is False and row[self.timestamp] is None and lasts:
            row[self.timestamp] = row[self.since]


def compact_json(value: Any) -> str:
    """JSON text without blanks, its text unescaped."""
    return _compact.encode(value)


def as_bytes(value: Any) -> list[int]:
    """The wire form of a JSON value: its bytes as integers; a list of integers stays as it is."""
    if isinstance(value, list) and all(type(item) is int for item in value):
        if any(not -(2**63) <= item < 2**63 for item in value):
            raise ValueError("expected signed 64-bit integers")
        return value
    return list(compact_json(value).encode())


def primary_key(model: type[peewee.Model]) -> Column:
    """The primary key of a table that has one column for it."""
    column: Column = vars(model._meta)["primary_key"]
    return column


def members(model: type[peewee.Model], *, own: bool = False, export: bool = False) -> dict[str, Column | Flag]:
    """What of a table leaves the house, by name, in the order of declaration: to anybody, its owner, or in exports."""
    flags = [value for value in vars(model).values() if isinstance(value, Flag)]
    columns = [*model._meta.sorted_fields, *flags]
    leaving = (DOCUMENT, *((OWN, EXPORT) if export else (OWN,) if own else ()))
    return {column.name: column for column in sorted(columns, key=lambda c: c._order) if column.leaves in leaving}


def row_form(model: type[peewee.Model], *, own: bool = False, export: bool = False) -> tuple[str, list[str]]:
    """A row of a table as a JSON object: its form, and SQL for what takes the place of each `%s` in it."""
    leaving = {name: column.json() for name, column in members(model, own=own, export=export).items()}
    form = ",".join(f'"{name}":{place}' for name, (place, _) in leaving.items())
    return f"{{{form}}}", [value for _, value in leaving.values()]
