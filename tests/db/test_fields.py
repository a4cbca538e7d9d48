"""Column types: each stores, renders and rejects values as declared, and a rendered row is its values as JSON."""

import json

import msgspec
import peewee
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service import clock, db
from service.api.schemas import row_schema
from service.db import Table
from service.fields import (
    EXPORT_ONLY,
    INTERNAL,
    Boolean,
    Choice,
    Document,
    Identifier,
    Integer,
    Integers,
    JsonAsBytes,
    Number,
    OptionalText,
    Strings,
    Text,
    Timestamp,
    TimestampFlag,
    UlidIdentifier,
    as_bytes,
    compact_json,
    members,
)

pytestmark = pytest.mark.database


SPECIAL_CHARACTERS = "\"' \\ / \n\r\t\b\f \x01\x1f\x7f é \u2028\u2029 \U0001f35e \ufeff %s ,\n{} </script> \\u0041"


class AllTypes(peewee.Model):
    """A table with a column of each type, outside the schema of the service."""

    id = Identifier(primary_key=True, default=clock.uuid)
    text = Text(10)
    nothing = Text(null=True, default=None)
    optional = OptionalText(64)
    word = Choice("first", "second")
    sortable = UlidIdentifier(null=True)
    at = Timestamp(null=True)
    is_at = TimestampFlag("at")
    truth = Boolean(default=False)
    integer = Integer(default=0)
    no_integer = Integer(null=True)
    number = Number(default=0.0)
    integers = Integers()
    strings = Strings()
    document = Document()
    content = JsonAsBytes()
    secret = Text(visibility=INTERNAL)
    exported = Text(visibility=EXPORT_ONLY)


@pytest.fixture(scope="module", autouse=True)
def memory():
    """A separate database in memory."""
    previous, database = db.database.obj, db.InMemorySqlite()
    db.database.initialize(database)
    with database.bind_ctx([AllTypes]):
        database.create_tables([AllTypes])
        yield database
    db.database.initialize(previous)
    database.disconnect()


def rendered(export=False, **values):
    """The JSON of a new row, rendered by the database."""
    row = AllTypes.create(**values)
    query = AllTypes.select(peewee.SQL(db.row_json(AllTypes, export=export))).where(AllTypes.id == row.id)
    return query.tuples().get()[0]


def rendered_row(**values):
    """The members of a new row, decoded."""
    return json.loads(rendered(**values))


COLUMNS = {column.name: column for column in AllTypes._meta.sorted_fields}


class TestDefaultRow:
    def test_has_every_member_in_the_order_of_declaration(self):
        row = rendered_row()
        assert list(row) == list(members(AllTypes))
        assert not {"secret", "exported"} & set(row)
        assert list(row).index("is_at") == list(row).index("at") + 1

    def test_has_null_for_unset_references_and_timestamps_and_empty_values_otherwise(self):
        row = rendered_row()
        del row["id"]
        assert row == {
            "text": "",
            "nothing": None,
            "optional": "",
            "word": "first",
            "sortable": None,
            "at": None,
            "is_at": False,
            "truth": False,
            "integer": 0,
            "no_integer": None,
            "number": 0.0,
            "integers": [],
            "strings": [],
            "document": {},
            "content": [],
        }

    def test_matches_its_schema(self):
        msgspec.convert(rendered_row(), row_schema(AllTypes), strict=True)

    def test_export_adds_export_only_columns_but_no_secrets(self):
        assert set(json.loads(rendered(export=True, exported="x", secret="y"))) == {*members(AllTypes), "exported"}


class TestRenderingIsExact:
    @pytest.mark.parametrize("name", ["text", "nothing", "optional"])
    def test_for_special_characters(self, name):
        text = rendered(**{name: SPECIAL_CHARACTERS})
        assert json.loads(text)[name] == SPECIAL_CHARACTERS
        assert "\n" not in text

    @pytest.mark.parametrize("number", [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)])
    def test_for_integers(self, number):
        assert rendered_row(integer=number, no_integer=number)["integer"] == number
        assert rendered_row(integers=compact_json([number]))["integers"] == [number]

    @pytest.mark.parametrize(
        ("number", "text"),
        [
            *((0.0, "0.0"), (-0.0, "0.0"), (3, "3.0"), (4.5, "4.5"), (-0.5, "-0.5"), (0.1 + 0.2, "0.3")),
            *((1 / 3, "0.333333333333333"), (2 / 3, "0.666666666666667"), (123456789012345, "123456789012345.0")),
            *((999999999999999, "999999999999999.0"), (1e15, "1.0e+15"), (1.25e22, "1.25e+22"), (-1e300, "-1.0e+300")),
            *((0.0001, "0.0001"), (0.00001, "1.0e-05"), (2.5e-308, "2.5e-308"), (5e-324, "0.0")),
            *((1.7976931348623157e308, "1.79769313486231e+308"), (-1.7976931348623157e308, "-1.79769313486231e+308")),
        ],
    )
    def test_for_numbers_of_15_digits(self, number, text):
        """Responses must be identical on all databases."""
        assert f'"number":{text},' in f"{rendered(number=number).rstrip('}')},"
        assert rendered_row(number=number)["number"] == COLUMNS["number"].adapt(number) == float(text)

    def test_for_booleans_and_flags(self):
        row = rendered_row(truth=True, at="2026-11-20T10:00:00.000Z")
        assert (row["truth"], row["is_at"], row["at"]) == (True, True, "2026-11-20T10:00:00.000Z")

    def test_for_stored_json(self):
        row = {"a": [SPECIAL_CHARACTERS, None, True, 1.5, {"": []}]}
        assert rendered_row(document=COLUMNS["document"].to_stored(row))["document"] == row
        assert rendered_row(strings=COLUMNS["strings"].to_stored([SPECIAL_CHARACTERS]))["strings"] == [
            SPECIAL_CHARACTERS
        ]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        text=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30),
        integer=st.integers(-(2**63), 2**63 - 1),
        number=st.floats(allow_nan=False, allow_infinity=False),
        strings=st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=5), max_size=3),
    )
    def test_for_generated_values(self, text, integer, number, strings):
        line = rendered(
            text=text, nothing=text, integer=integer, number=number, strings=COLUMNS["strings"].to_stored(strings)
        )
        row = json.loads(line)
        assert "\n" not in line
        assert (row["text"], row["nothing"], row["integer"]) == (text, text, integer)
        assert row["number"] == COLUMNS["number"].adapt(number)
        assert row["strings"] == strings
        msgspec.json.decode(line, type=row_schema(AllTypes))


class TestStoring:
    @pytest.mark.parametrize(
        ("name", "given", "stored"),
        [
            ("text", "x" * 10, "x" * 10),
            ("nothing", None, None),
            ("nothing", "x" * 99, "x" * 99),
            ("optional", None, None),
            ("optional", "", None),
            ("optional", "x", "x"),
            ("id", "ABCDEF00-0000-4000-8000-000000000000", "abcdef00-0000-4000-8000-000000000000"),
            ("sortable", "01arz3ndektsv4rrffq69g5fav", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
            ("sortable", None, None),
            ("at", "2026-11-20T12:00:00+02:00", "2026-11-20T10:00:00.000Z"),
            ("at", "2026-11-20T10:00:00.1239Z", "2026-11-20T10:00:00.123Z"),
            ("at", None, None),
            ("number", 4.5, 4.5),
            ("integers", [1, -(2**63)], "[1,-9223372036854775808]"),
            ("strings", ["é", "\n"], '["é","\\n"]'),
            ("document", {"a": {"b": None}}, '{"a":{"b":null}}'),
            ("content", None, "[]"),
            ("content", [], "[]"),
            ("content", [1, 2], "[1,2]"),
            ("content", {"text": "é"}, compact_json(list('{"text":"é"}'.encode()))),
            ("content", "x", compact_json(list(b'"x"'))),
            ("content", [True], compact_json(list(b"[true]"))),
            ("content", [1, "a"], compact_json(list(b'[1,"a"]'))),
            ("content", False, compact_json(list(b"false"))),
        ],
    )
    def test_valid_value_is_stored(self, name, given, stored):
        assert COLUMNS[name].to_stored(given) == stored

    @pytest.mark.parametrize(
        ("name", "given"),
        [
            ("id", "x"),
            ("id", "{abcdef00-0000-4000-8000-000000000000}"),
            ("id", "abcdef00000040008000000000000000"),
            ("sortable", "01ARZ3NDEKTSV4RRFFQ69G5FA"),
            ("sortable", "01ARZ3NDEKTSV4RRFFQ69G5FAU"),
            ("at", "2026-11-20"),
            ("at", "2026-02-30T10:00:00Z"),
            ("at", "now"),
            ("number", float("nan")),
            ("number", float("inf")),
            ("content", [2**63]),
            ("content", {"a": float("nan")}),
            ("document", {"a": float("inf")}),
        ],
    )
    def test_invalid_value_is_refused(self, name, given):
        with pytest.raises(ValueError, match=r"\w"):
            COLUMNS[name].to_stored(given)

    def test_content_is_the_bytes_of_its_json(self):
        value = {"text": "Grüße \U0001f35e"}
        assert json.loads(bytes(as_bytes(value)).decode()) == value
        assert " " not in bytes(as_bytes({"a": [1, 2]})).decode()
        assert as_bytes([1, 300, -1]) == [1, 300, -1]


class TestSchemas:
    def test_describe_the_rendered_json(self):
        schema = msgspec.json.schema(row_schema(AllTypes))["$defs"]["AllTypes"]
        kinds = {
            name: member.get("type") or member.get("anyOf") or member.get("enum")
            for name, member in schema["properties"].items()
        }
        assert kinds["text"] == kinds["id"] == "string"
        assert {"type": "null"} in kinds["nothing"]
        assert {"type": "null"} in kinds["at"]
        assert kinds["word"] == ["first", "second"]
        assert (kinds["truth"], kinds["is_at"]) == ("boolean", "boolean")
        assert (kinds["integer"], kinds["number"]) == ("integer", "number")
        assert kinds["integers"] == kinds["strings"] == kinds["content"] == "array"
        assert kinds["document"] == "object"
        assert schema["required"] == list(members(AllTypes))

    @pytest.mark.parametrize(
        "change",
        [{"secret": "x"}, {"word": "third"}, {"id": "x"}, {"at": "2026"}, {"truth": 1}, {"integers": [2**63]}],
    )
    def test_reject_invalid_rows(self, change):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(rendered_row() | change, row_schema(AllTypes), strict=True)

    def test_are_cached(self):
        assert row_schema(AllTypes) is row_schema(AllTypes)

    def test_contain_no_secrets(self):
        for table in db.Table.__subclasses__():
            assert issubclass(table, Table)
            assert not {"password_hash", "secret", "fingerprint"} & set(row_schema(table).__struct_fields__)
