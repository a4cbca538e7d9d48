"""Column types: how a value is stored, its type on the wire, and how the database renders it as JSON.

A column is declared once, in a table of `service.models`. Responses, OpenAPI schemas, import and export are derived
from the declaration. Only this module and `service.db` contain SQL and types that differ between databases.
"""

import json
import math
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import peewee
from msgspec import Meta

from service import clock
from service.types import JsonObject, JsonValue

# Peewee gives no types for these, and no type describes an annotation (PEP 747).
SqlValue: TypeAlias = Any  # the value of a column in Python or SQL, or the SQL expression of one
FieldOption: TypeAlias = Any  # a keyword argument of a field
WireType: TypeAlias = Any  # an annotation that msgspec reads
Decoded: TypeAlias = Any  # a value of the type that an annotation describes

# The visibility of a column.
PUBLIC = "public"  # in all responses with the row, and in exports
OWNER = "owner"  # in responses to the user that the row belongs to, and in exports
EXPORT_ONLY = "export"  # in exports only
INTERNAL = "internal"  # in no response and no export: secrets of the installation, and derived data

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
MAX_ITEMS = 1000  # items of a list in a column that clients write; such lists are not paginated

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
DateTime = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", description="RFC 3339, UTC.", extra_json_schema=DATE_TIME
    ),
]
JsonBytes = Annotated[list[Int64], Meta(description="The UTF-8 bytes of a compact JSON text; empty when unset.")]


class Column(peewee.Field):
    """A column. `wire` is the type of its values in responses, `visibility` one of the constants above."""

    field_type = "TEXT"
    wire: WireType = str
    accepts: WireType = str  # the type of its values in requests and imports, before `to_stored`

    def __init__(self, *, visibility: str = PUBLIC, refers_to: str = "", **options: FieldOption) -> None:
        super().__init__(**options)
        self.visibility = visibility
        self.refers_to = refers_to  # the table whose rows the column refers to
        if self.null:
            self.wire, self.accepts = self.wire | None, self.accepts | None

    def to_stored(self, value: SqlValue) -> SqlValue:
        """Return the stored form of a value from a request or import.

        Raises ValueError with the reason if it is invalid.
        """
        return value

    def json(self) -> tuple[str, str]:
        """Return a template of the column's JSON text, and the SQL, never NULL, of the value for its `%s`."""
        return ("%s", f"coalesce('\"' || {self.sql} || '\"', 'null')") if self.null else ('"%s"', self.sql)

    @property
    def sql(self) -> str:
        """The quoted name, without the table, because a rendered row comes from one table."""
        return f'"{self.column_name}"'


class Text(Column):
    """A text of `min_length` to `max_length` characters; 0 means no limit. The empty string means unset.

    The `validator` is called for texts that are not empty. It returns the text to store, or raises ValueError.
    """

    json_of_null = "null"

    def __init__(
        self,
        max_length: int = 0,
        *,
        min_length: int = 0,
        validator: Callable[[str], str] | None = None,
        **options: FieldOption,
    ) -> None:
        options.setdefault("default", "")
        self.accepts = Annotated[str, Meta(min_length=min_length or None, max_length=max_length or None)]
        super().__init__(**options)
        self.validator = validator

    def to_stored(self, value: SqlValue) -> SqlValue:
        return self.validator(value) if value and self.validator else value

    def json(self) -> tuple[str, str]:
        quoted = f"json_quote({self.sql})"
        if self.null:  # no function is called for NULL, which most rows have: a call takes longer than the comparison
            quoted = f"CASE WHEN {self.sql} IS NULL THEN '{self.json_of_null}' ELSE {quoted} END"
        return "%s", quoted


class OptionalText(Text):
    """A text that few rows have. Unset is NULL in the database, and the empty string on the wire."""

    json_of_null = '""'

    def __init__(self, max_length: int = 0, **options: FieldOption) -> None:
        super().__init__(max_length, null=True, default=None, **options)
        self.wire = str

    def to_stored(self, value: SqlValue) -> SqlValue:
        return super().to_stored(value) or None


class Choice(Column):
    """One word of a fixed list. The default is the first word."""

    def __init__(self, *words: str, **options: FieldOption) -> None:
        options.setdefault("default", words[0])
        super().__init__(**options)
        self.wire = self.accepts = Literal[words]


class Identifier(Column):
    """A UUID."""

    wire = Uuid
    accepts = Annotated[str, Meta(extra_json_schema=UUID)]

    def to_stored(self, value: SqlValue) -> SqlValue:
        return None if value is None else clock.read_uuid(value)


class ShortIdentifier(Identifier):
    """A UUID that is never rendered. SQLite stores its 16 bytes, PostgreSQL the text, as in earlier versions."""

    def adapt(self, value: SqlValue) -> SqlValue:
        return bytes.fromhex(value.replace("-", "")) if _is_sqlite(self) else value

    def python_value(self, value: SqlValue) -> SqlValue:
        if not isinstance(value, bytes) or len(value) != 16:
            return value
        digits = value.hex()  # `uuid.UUID` takes four times as long
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def stored(self, value: str | None) -> SqlValue:
        """Return the stored form of an identifier, for the values of compiled queries."""
        return value and self.adapt(value)

    def of_identifier(self, column: Column) -> SqlValue:
        """Return SQL for the stored form of the identifier in another column."""
        return peewee.fn.unhex(column, peewee.SQL("'-'")) if _is_sqlite(self) else column


class UlidIdentifier(Column):
    """A ULID, which sorts by the time of its creation."""

    wire = Ulid

    def to_stored(self, value: SqlValue) -> SqlValue:
        return None if value is None else clock.read_ulid(value)


def reference(table: str, *, null: bool = False, **options: FieldOption) -> Identifier:
    """Return a foreign key to `table`, checked at the end of the transaction: rows can be inserted in any order."""
    constraint = peewee.SQL(f'REFERENCES "{table}" ("id") DEFERRABLE INITIALLY DEFERRED')
    return Identifier(null=null, constraints=[constraint], refers_to=table, **options)


class Timestamp(Column):
    """An instant, stored as the same RFC 3339 text that is on the wire."""

    wire = DateTime
    accepts = Annotated[str, Meta(extra_json_schema=DATE_TIME)]

    def to_stored(self, value: SqlValue) -> SqlValue:
        return None if value is None else clock.read_timestamp(value)


class Boolean(Column):
    """True or false, never null."""

    field_type = "BOOL"
    wire = accepts = bool

    def adapt(self, value: SqlValue) -> bool:
        return bool(value)

    def json(self) -> tuple[str, str]:
        return "%s", f"CASE WHEN {self.sql} THEN 'true' ELSE 'false' END"


class Integer(Column):
    """A signed 64-bit integer. Internal instants are milliseconds since 1970."""

    field_type = "BIGINT"
    wire = accepts = Int64

    def json(self) -> tuple[str, str]:
        return "%s", f"json_quote({self.sql})"


class Number(Column):
    """A finite number of at most 15 digits, which all supported databases parse and render identically."""

    field_type = "REAL"
    wire = accepts = float
    max_value = 1.79769313486231e308

    def json(self) -> tuple[str, str]:
        """`printf('%!.15g', …)`, with a hexadecimal format: drivers read `%` as a placeholder."""
        return "%s", f"printf(CAST(x'{b'%!.15g'.hex()}' AS TEXT), {self.sql})"

    def adapt(self, value: SqlValue) -> float:
        rounded = float(f"{value:.15g}")
        if abs(rounded) < sys.float_info.min:
            return 0.0  # subnormal numbers have fewer digits, and -0.0 has a sign
        return rounded if math.isfinite(rounded) else math.copysign(self.max_value, rounded)

    def to_stored(self, value: SqlValue) -> SqlValue:
        if not math.isfinite(float(f"{value:.15g}")):
            raise ValueError("expected a finite number")
        return self.adapt(value)


class JsonText(Column):
    """A JSON array or object, stored as the same JSON text that is on the wire."""

    def __init__(self, **options: FieldOption) -> None:
        options.setdefault("default", "[]")
        super().__init__(**options)

    def to_stored(self, value: SqlValue) -> SqlValue:
        return compact_json(value)

    def json(self) -> tuple[str, str]:
        return "%s", self.sql


class Integers(JsonText):
    """Signed 64-bit integers, returned unchanged."""

    wire = list[Int64]
    accepts = Annotated[list[Int64], Meta(max_length=MAX_ITEMS)]


class Strings(JsonText):
    """A list of strings."""

    wire = list[str]
    accepts = Annotated[list[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(max_length=MAX_ITEMS)]


class Document(JsonText):
    """A JSON object with any members. The `validator` returns the object to store, or raises ValueError."""

    wire = accepts = JsonObject

    def __init__(self, *, validator: Callable[[JsonObject], JsonObject] = dict, **options: FieldOption) -> None:
        super().__init__(default="{}", **options)
        self.validator = validator

    def to_stored(self, value: SqlValue) -> SqlValue:
        return super().to_stored(self.validator(value))


class JsonAsBytes(JsonText):
    """JSON that is on the wire as the array of its UTF-8 bytes. Requests may send such an array, too."""

    wire = JsonBytes
    accepts = JsonValue

    def __init__(self, max_length: int = 0, **options: FieldOption) -> None:
        super().__init__(**options)
        self.max_length = max_length  # in bytes; 0 means no limit

    def to_stored(self, value: SqlValue) -> SqlValue:
        items = [] if value is None else as_bytes(value)
        if self.max_length and len(items) > self.max_length:
            raise ValueError(f"expected at most {self.max_length} bytes of JSON")
        return json_of_integers(items)


class TimestampFlag:
    """A boolean member that tells whether a timestamp of the same row is set. It has no column."""

    visibility = PUBLIC
    wire = accepts = bool

    def __init__(self, timestamp: str) -> None:
        self.timestamp = timestamp
        self._order: int = vars(peewee.Field())["_order"]  # its position among the columns

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def json(self) -> tuple[str, str]:
        return "%s", f"CASE WHEN \"{self.timestamp}\" IS NULL THEN 'false' ELSE 'true' END"

    def fill_timestamp(self, given: bool | None, row: dict[str, SqlValue]) -> None:
        """Set the timestamp of an imported row that has only the flag."""
        if given and row[self.timestamp] is None:
            row[self.timestamp] = row["created_at"]


class ActiveFlag(TimestampFlag):
    """True while the timestamp is not set, and the timestamp `until` is not set or in the future."""

    def __init__(self, timestamp: str, *, since: str, until: str) -> None:
        super().__init__(timestamp)
        self.since, self.until = since, until

    def json(self) -> tuple[str, str]:
        unexpired = f'"{self.until}" IS NULL OR "{self.until}" > \'{clock.timestamp()}\''
        return "%s", f"CASE WHEN \"{self.timestamp}\" IS NULL AND ({unexpired}) THEN 'true' ELSE 'false' END"

    def fill_timestamp(self, given: bool | None, row: dict[str, SqlValue]) -> None:
        is_unexpired = row[self.until] is None or row[self.until] > clock.timestamp()
        if given is False and row[self.timestamp] is None and is_unexpired:
            row[self.timestamp] = row[self.since]


def compact_json(value: object) -> str:
    """Return JSON text without spaces, and without escapes of characters other than those that JSON requires."""
    return _compact.encode(value)


def as_bytes(value: JsonValue) -> list[int]:
    """Return the wire form of a JSON value: its UTF-8 bytes as integers. A list of integers is returned unchanged.

    Raises ValueError for integers beyond 64 bits.
    """
    if isinstance(value, list):
        try:
            return msgspec.convert(value, list[Int64])
        except msgspec.ValidationError:
            if {*map(type, value)} <= {int}:
                raise ValueError("expected signed 64-bit integers") from None
    return list(compact_json(value).encode())


def _is_sqlite(column: Column) -> bool:
    return bool(column.model._meta.database.obj.kind == "sqlite")


def json_of_integers(values: list[int]) -> str:
    """Return integers as the JSON text of `compact_json`, in a fifteenth of its time, in which no other thread runs."""
    return msgspec.json.encode(values).decode()


def json_of_bytes(value: JsonValue) -> str:
    """Return the wire form of a JSON value (see `as_bytes`) as JSON text."""
    return json_of_integers(as_bytes(value))


def primary_key(model: type[peewee.Model]) -> Column:
    """Return the primary key of a table whose key is one column."""
    column: Column = vars(model._meta)["primary_key"]
    return column


def members(model: type[peewee.Model], *, own: bool = False, export: bool = False) -> dict[str, Column | TimestampFlag]:
    """Return the visible columns and flags of a table by name, in the order of declaration.

    With `own` also those for the owner of a row, with `export` also those for exports.
    """
    flags = [value for value in vars(model).values() if isinstance(value, TimestampFlag)]
    columns = [*model._meta.sorted_fields, *flags]
    visible = (PUBLIC, *((OWNER, EXPORT_ONLY) if export else (OWNER,) if own else ()))
    return {column.name: column for column in sorted(columns, key=lambda c: c._order) if column.visibility in visible}


def row_template(model: type[peewee.Model], *, own: bool = False, export: bool = False) -> tuple[str, list[str]]:
    """Return a template of a row as a JSON object, and the SQL of the values for each `%s` in it."""
    rendered = {name: column.json() for name, column in members(model, own=own, export=export).items()}
    template = ",".join(f'"{name}":{value_template}' for name, (value_template, _) in rendered.items())
    return f"{{{template}}}", [value for _, value in rendered.values()]
