"""The kinds of columns: each stores, renders and refuses as it says, and a rendered row is its values as JSON."""

import json

import msgspec
import peewee
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from service import clock, db
from service.db import Table
from service.fields import (
    EXPORT,
    NEVER,
    Boolean,
    Document,
    Flag,
    Identifier,
    Integer,
    Integers,
    JsonAsBytes,
    Number,
    OptionalText,
    Sortable,
    Strings,
    Text,
    Timestamp,
    Word,
    as_bytes,
    compact_json,
    members,
)
from service.shapes import shape

AWKWARD = "\"' \\ / \n\r\t\b\f \x01\x1f\x7f é \u2028\u2029 \U0001f35e \ufeff %s ,\n{} </script> \\u0041"


class Everything(peewee.Model):
    """A table with a column of each kind, outside the service's schema."""

    id = Identifier(primary_key=True, default=clock.uuid)
    text = Text(10)
    nothing = Text(null=True, default=None)
    optional = OptionalText(64)
    word = Word("first", "second")
    sortable = Sortable(null=True)
    at = Timestamp(null=True)
    is_at = Flag("at")
    truth = Boolean(default=False)
    integer = Integer(default=0)
    no_integer = Integer(null=True)
    number = Number(default=0.0)
    integers = Integers()
    strings = Strings()
    document = Document()
    content = JsonAsBytes()
    secret = Text(leaves=NEVER)
    exported = Text(leaves=EXPORT)


@pytest.fixture(scope="module", autouse=True)
def memory():
    """A database of its own, in memory."""
    usual, database = db.database.obj, db.FleetingSqlite()
    db.database.initialize(database)
    with database.bind_ctx([Everything]):
        database.create_tables([Everything])
        yield database
    db.database.initialize(usual)
    database.disconnect()


def rendered(export=False, **values):
    """A row as the database renders it."""
    made = Everything.create(**values)
    query = Everything.select(peewee.SQL(db.row_json(Everything, export=export))).where(Everything.id == made.id)
    return query.tuples().get()[0]


def sent(**values):
    return json.loads(rendered(**values))


COLUMNS = {column.name: column for column in Everything._meta.sorted_fields}


class TestARowThatWasNeverFilled:
    def test_has_every_member_in_the_order_of_declaration(self):
        row = sent()
        assert list(row) == list(members(Everything))
        assert not {"secret", "exported"} & set(row)
        assert list(row).index("is_at") == list(row).index("at") + 1

    def test_has_null_for_unset_references_and_timestamps_and_empty_values_otherwise(self):
        row = sent()
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

    def test_has_the_shape_that_is_declared(self):
        msgspec.convert(sent(), shape(Everything), strict=True)

    def test_exports_more_than_it_shows_but_no_secrets(self):
        assert set(json.loads(rendered(export=True, exported="x", secret="y"))) == {*members(Everything), "exported"}


class TestRenderingIsExact:
    @pytest.mark.parametrize("name", ["text", "nothing", "optional"])
    def test_for_awkward_text(self, name):
        text = rendered(**{name: AWKWARD})
        assert json.loads(text)[name] == AWKWARD
        assert "\n" not in text

    @pytest.mark.parametrize("number", [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)])
    def test_for_integers(self, number):
        assert sent(integer=number, no_integer=number)["integer"] == number
        assert sent(integers=compact_json([number]))["integers"] == [number]

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
        """To the letter, since the bytes of an answer tell nobody which database is behind it."""
        assert f'"number":{text},' in f"{rendered(number=number).rstrip('}')},"
        assert sent(number=number)["number"] == COLUMNS["number"].adapt(number) == float(text)

    def test_for_booleans_and_flags(self):
        row = sent(truth=True, at="2026-11-20T10:00:00.000Z")
        assert (row["truth"], row["is_at"], row["at"]) == (True, True, "2026-11-20T10:00:00.000Z")

    def test_for_stored_json(self):
        row = {"a": [AWKWARD, None, True, 1.5, {"": []}]}
        assert sent(document=COLUMNS["document"].store(row))["document"] == row
        assert sent(strings=COLUMNS["strings"].store([AWKWARD]))["strings"] == [AWKWARD]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        text=some.text(some.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30),
        integer=some.integers(-(2**63), 2**63 - 1),
        number=some.floats(allow_nan=False, allow_infinity=False),
        strings=some.lists(some.text(some.characters(exclude_categories=("Cs",)), max_size=5), max_size=3),
    )
    def test_for_whatever_comes(self, text, integer, number, strings):
        line = rendered(
            text=text, nothing=text, integer=integer, number=number, strings=COLUMNS["strings"].store(strings)
        )
        row = json.loads(line)
        assert "\n" not in line
        assert (row["text"], row["nothing"], row["integer"]) == (text, text, integer)
        assert row["number"] == COLUMNS["number"].adapt(number)
        assert row["strings"] == strings
        msgspec.json.decode(line, type=shape(Everything))


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
    def test_takes(self, name, given, stored):
        assert COLUMNS[name].store(given) == stored

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
    def test_refuses(self, name, given):
        with pytest.raises(ValueError, match=r"\w"):
            COLUMNS[name].store(given)

    def test_content_is_the_bytes_of_its_json(self):
        value = {"text": "Grüße \U0001f35e"}
        assert json.loads(bytes(as_bytes(value)).decode()) == value
        assert " " not in bytes(as_bytes({"a": [1, 2]})).decode()
        assert as_bytes([1, 300, -1]) == [1, 300, -1]


class TestShapes:
    def test_say_what_is_on_the_wire(self):
        schema = msgspec.json.schema(shape(Everything))["$defs"]["Everything"]
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
        assert schema["required"] == list(members(Everything))

    @pytest.mark.parametrize(
        "change",
        [{"secret": "x"}, {"word": "third"}, {"id": "x"}, {"at": "2026"}, {"truth": 1}, {"integers": [2**63]}],
    )
    def test_refuse_other_rows(self, change):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(sent() | change, shape(Everything), strict=True)

    def test_are_made_once(self):
        assert shape(Everything) is shape(Everything)

    def test_of_the_services_tables_never_hold_secrets(self):
        for table in db.Table.__subclasses__():
            assert issubclass(table, Table)
            assert not {"password_hash", "secret", "fingerprint"} & set(shape(table).__struct_fields__)
