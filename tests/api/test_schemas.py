"""Schemas: columns of request bodies, conversion of values, and the types of annotations."""

from functools import partial
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
import peewee
import pytest
from msgspec import UNSET, Meta, Raw, Struct

from service import clock
from service.api.schemas import (
    BodyColumns,
    convert,
    hints_of,
    may_be_empty,
    may_be_left_out,
    row_schema,
    validators_of,
    wire_type,
    with_members,
)
from service.db import Page
from service.errors import InvalidBody
from service.fields import (
    INTERNAL,
    Boolean,
    Choice,
    Document,
    Identifier,
    Int64,
    Integer,
    Integers,
    JsonAsBytes,
    Strings,
    Text,
    Timestamp,
)
from service.models import TABLES, App


def shout(text: str) -> str:
    """A validator that changes the value."""
    if not text.isalpha():
        raise ValueError("expected letters")
    return text.upper()


class Thing(peewee.Model):
    """A table outside the schema of the service, which is never created."""

    id = Identifier(primary_key=True, default=clock.uuid)
    name = Text(5, default=None)
    note = Text(5)
    loud = Text(5, validator=shout)
    kind = Choice("soft", "hard")
    seen_at = Timestamp(null=True)
    owner = Identifier(null=True)
    is_open = Boolean(default=True)
    size = Integer(default=7)
    places = Integers()
    tags = Strings()
    anything = JsonAsBytes(20)
    document = Document()
    secret = Text(visibility=INTERNAL)


EVERYTHING = [column.name for column in Thing._meta.sorted_fields if column.name != "secret"]
DEFAULTS: dict[str, Any] = {
    "note": "",
    "loud": "",
    "kind": "soft",
    "seen_at": None,
    "owner": None,
    "is_open": True,
    "size": 7,
    "places": "[]",
    "tags": "[]",
    "anything": "[]",
    "document": "{}",
}
NEW, CHANGES = BodyColumns(Thing, *EVERYTHING), BodyColumns(Thing, *EVERYTHING, partial=True)
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def error_of(action: Any, *arguments: Any) -> str:
    """Return the message of the error that a call raises."""
    with pytest.raises(InvalidBody) as raised:
        action(*arguments)
    return str(raised.value)


class TestBodyColumns:
    def test_return_columns_as_they_are_stored(self):
        body = {
            "name": "n",
            "loud": "aha",
            "kind": "hard",
            "seen_at": "2026-11-20T12:00:00+02:00",
            "owner": UUID.upper(),
            "is_open": False,
            "size": 0,
            "places": [-1, 2**63 - 1],
            "tags": ["é"],
            "anything": {"a": "é"},
            "document": {"b": [1.0, None]},
        }
        assert NEW.read(body) == {
            "name": "n",
            "loud": "AHA",
            "kind": "hard",
            "seen_at": "2026-11-20T10:00:00.000Z",
            "owner": UUID,
            "is_open": False,
            "size": 0,
            "places": "[-1,9223372036854775807]",
            "tags": '["é"]',
            "anything": "[123,34,97,34,58,34,195,169,34,125]",
            "document": '{"b":[1.0,null]}',
        }

    def test_return_only_the_members_of_the_body(self):
        assert NEW.read({"name": "n"}) == {"name": "n"}
        assert CHANGES.read({}) == {}
        assert CHANGES.read({"size": 1}) == {"size": 1}

    def test_require_columns_without_a_default_for_a_new_row(self):
        assert error_of(NEW.read, {"note": "x"}) == "$: object missing required field name"
        assert CHANGES.read({"note": "x"}) == {"note": "x"}

    @pytest.mark.parametrize("columns", [NEW, CHANGES])
    def test_null_sets_the_default(self, columns):
        assert columns.read({"name": "n", **dict.fromkeys(DEFAULTS)}) == {"name": "n", **DEFAULTS}
        assert error_of(columns.read, {"name": None}) == "$.name: expected str"

    def test_call_the_function_of_a_default_each_time(self):
        first, second = (CHANGES.read({"id": None})["id"] for _ in range(2))
        assert clock.read_uuid(first) != clock.read_uuid(second)

    @pytest.mark.parametrize("name", ["note", "loud", "seen_at", "owner", "anything"])
    def test_empty_text_sets_the_default(self, name):
        assert CHANGES.read({name: ""}) == {name: DEFAULTS[name]}

    def test_empty_text_is_stored_without_a_default(self):
        assert CHANGES.read({"name": ""}) == {"name": ""}

    @pytest.mark.parametrize("name", ["kind", "is_open", "size", "places", "tags", "document"])
    def test_refuse_empty_text_for_other_types(self, name):
        assert error_of(CHANGES.read, {name: ""}).startswith(f"$.{name}: ")

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"note": 5}, "$.note: expected str | null"),
            ({"note": "123456"}, "$.note: expected str of length <= 5"),
            ({"loud": "a1"}, "$.loud: expected letters"),
            ({"seen_at": "x"}, "$.seen_at: expected an RFC 3339 timestamp such as 2026-11-20T10:00:00Z"),
            ({"owner": UUID.replace("-", "")}, "$.owner: expected a UUID"),
            ({"is_open": 1}, "$.is_open: expected bool | null"),
            ({"size": 2**63}, "$.size: expected int <= 9223372036854775807"),
            ({"places": [1, True]}, "$.places[1]: expected int"),
            ({"tags": ["x", ""]}, "$.tags[1]: expected str of length >= 1"),
            ({"anything": "x" * 20}, "$.anything: expected at most 20 bytes of JSON"),
            ({"anything": [2**63]}, "$.anything: expected signed 64-bit integers"),
            ({"document": []}, "$.document: expected object | null"),
            ([], "$: expected object"),
            (None, "$: expected object"),
        ],
    )
    def test_errors_have_the_path_of_the_value(self, body, message):
        assert error_of(CHANGES.read, body) == message

    def test_ignore_columns_that_are_not_listed(self):
        only = BodyColumns(Thing, "note", partial=True)
        assert only.read({"note": "x", "size": "wrong", "secret": "y", "absent": 1}) == {"note": "x"}

    def test_refuse_names_that_are_not_columns(self):
        with pytest.raises(KeyError, match="absent"):
            BodyColumns(Thing, "note", "absent")

    def test_can_restrict_the_type_of_a_column(self):
        narrower = BodyColumns(Thing, "note", anything=dict[str, int], kind=Literal["hard"])
        assert narrower.read({"anything": {}, "kind": "hard"}) == {"anything": "[123,125]", "kind": "hard"}
        assert narrower.read({"anything": None, "kind": None}) == {"anything": "[]", "kind": "soft"}
        assert error_of(narrower.read, {"anything": [1]}) == "$.anything: expected object | null"
        assert error_of(narrower.read, {"kind": "soft"}).startswith("$.kind: ")

    def test_types_are_named_after_the_table(self):
        assert (NEW.type.__name__, CHANGES.type.__name__) == ("NewThing", "ThingChanges")

    def test_do_not_change_the_body(self):
        body = {"loud": "aha", "places": [1], "document": {"a": {}}}
        CHANGES.read(body)
        assert body == {"loud": "aha", "places": [1], "document": {"a": {}}}


class Inside(Struct):
    loud: Annotated[str, shout] = ""
    at: Annotated[str, clock.read_timestamp] | None = None


class Outside(Struct):
    inside: Inside = msgspec.field(default_factory=Inside)
    maybe: Inside | None = None
    loud: Annotated[str, Meta(max_length=5), shout] = ""
    unset: Annotated[str, shout] | msgspec.UnsetType = UNSET
    number: Int64 = 0


class TestConverting:
    def test_calls_validators_at_every_depth(self):
        found = convert({"loud": "a", "inside": {"loud": "b"}, "maybe": {"at": "2026-11-20T10:00:00Z"}}, Outside)
        assert (found.loud, found.inside.loud, found.maybe.at) == ("A", "B", "2026-11-20T10:00:00.000Z")
        assert found.unset is UNSET

    @pytest.mark.parametrize("value", [{}, {"loud": "a", "inside": {}, "maybe": None}, {"inside": {"at": None}}])
    def test_accepts_missing_and_null_members(self, value):
        found = convert(value, Outside)
        assert (found.inside, found.maybe) == (Inside(), None)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ({"loud": "1"}, "$.loud: expected letters"),
            ({"loud": "abcdef"}, "$.loud: expected str of length <= 5"),
            ({"unset": "1"}, "$.unset: expected letters"),
            ({"inside": {"loud": "1"}}, "$.inside.loud: expected letters"),
            (
                {"maybe": {"at": "x"}},
                "$.maybe.at: expected an RFC 3339 timestamp such as 2026-11-20T10:00:00Z",
            ),
            ({"maybe": {"at": 5}}, "$.maybe.at: expected str | null"),
            ({"inside": None}, "$.inside: expected object"),
            ({"number": 1.0}, "$.number: expected int"),
            ({"number": True}, "$.number: expected int"),
            ({"number": "1"}, "$.number: expected int"),
            (5, "$: expected object"),
        ],
    )
    def test_errors_have_the_path_of_the_value(self, value, message):
        assert error_of(convert, value, Outside) == message

    @pytest.mark.parametrize("sent", ["x", "` - at `$.other`", "a\n - at `$.other", "`", " - at `$.other"])
    def test_sent_text_cannot_change_the_path(self, sent):
        message = error_of(convert, {"kind": sent}, msgspec.defstruct("Kind", [("kind", Literal["a", "b"])]))
        assert message.startswith("$.kind: ")

    def test_accepts_values_that_are_not_objects(self):
        assert convert([1, 2], list[int]) == [1, 2]
        assert error_of(convert, [1, "2"], list[int]) == "$[1]: expected int"
        assert error_of(convert, {"a": "b"}, dict[str, int]) == "$[...]: expected int"


class TestValidatorsOf:
    def test_returns_the_functions_of_an_annotation(self):
        bound = partial(clock.read_timestamp, bare_date="start")
        assert validators_of(Annotated[str, Meta(max_length=5), shout]) == [shout]
        assert validators_of(Annotated[str, shout] | None) == [shout]
        assert validators_of(Annotated[str, shout, Meta(), bound]) == [shout, bound]

    @pytest.mark.parametrize(
        "hint",
        [
            str,
            str | None,
            Any,
            Literal["a"],
            list[int],
            Int64,
            Annotated[str, Meta(extra_json_schema={"a": {"b": []}})],
        ],
    )
    def test_is_empty_without_functions(self, hint):
        assert validators_of(hint) == []

    def test_does_not_return_types(self):
        assert validators_of(Annotated[dict[str, Any], Inside]) == []


class Reply(Struct):
    app: App
    apps: list[App]
    text: str = ""


class TestWireType:
    def test_of_a_table_is_its_row_schema(self):
        assert wire_type(App) is row_schema(App)
        assert wire_type(list[App]) == wire_type(Page[App]) == list[row_schema(App)]
        assert wire_type(Annotated[Raw, App]) is row_schema(App)
        assert wire_type(Annotated[Raw, list[App]]) == list[row_schema(App)]

    def test_of_an_annotated_dict_is_the_annotation(self):
        assert wire_type(Annotated[dict[str, Any], Inside]) is Inside
        assert wire_type(Annotated[dict[str, Any], NEW]) is NEW.type

    @pytest.mark.parametrize(
        "kind", [str, None, Inside, dict[str, Any], list[int], str | None, Int64, Annotated[str, shout]]
    )
    def test_of_any_other_type_is_the_type(self, kind):
        assert wire_type(kind) == kind

    def test_of_a_struct_replaces_tables_in_its_members(self):
        found = wire_type(Reply)
        assert found.__name__ == "Reply"
        assert get_type_hints(found) == {"app": row_schema(App), "apps": list[row_schema(App)], "text": str}
        assert all(field.required for field in msgspec.structs.fields(found))

    def test_of_every_table_of_the_service_has_a_schema(self):
        types = [wire_type(table) for table in TABLES]
        schemas, components = msgspec.json.schema_components(types)
        assert len(schemas) == len(TABLES)
        for table, found in zip(TABLES, types, strict=True):
            assert components[found.__name__]["additionalProperties"] is False, table
            assert components[found.__name__].get("required", []) == [
                field.name for field in msgspec.structs.fields(found)
            ]


class Deep(Struct):
    """A struct for variants."""

    inside: Inside = msgspec.field(default_factory=Inside)
    text: Annotated[str, Meta(max_length=3)] = "abc"
    needed: int | None = None


class TestVariants:
    def test_complete_variant_requires_every_member_at_every_depth(self):
        complete = with_members(Deep, required=True)
        full = {"inside": {"loud": "a", "at": None}, "text": "x", "needed": None}
        found = convert(full, complete)
        assert msgspec.to_builtins(found) == {**full, "inside": {"loud": "A", "at": None}}
        for absent in ("inside", "text", "needed"):
            rest = {name: value for name, value in full.items() if name != absent}
            assert error_of(convert, rest, complete) == f"$: object missing required field {absent}"
        assert error_of(convert, {**full, "inside": {"loud": ""}}, complete).endswith("missing required field at")
        assert error_of(convert, {**full, "inside": None}, complete) == "$.inside: expected object"

    def test_partial_variant_requires_nothing_and_accepts_null(self):
        changes = with_members(Deep, required=False)
        for accepted in ({}, {"inside": {}}, {"inside": None, "text": None}, {"inside": {"loud": None}}, {"text": "x"}):
            assert msgspec.to_builtins(convert(accepted, changes)) == accepted
        assert may_be_empty(changes)

    def test_partial_variant_keeps_types_and_limits(self):
        changes = with_members(Deep, required=False)
        assert error_of(convert, {"text": "abcd"}, changes) == "$.text: expected str of length <= 3"
        assert error_of(convert, {"inside": {"loud": 5}}, changes) == "$.inside.loud: expected str | null"
        assert error_of(convert, {"inside": []}, changes) == "$.inside: expected object | null"

    def test_accept_unknown_members(self):
        for required in (True, False):
            _, components = msgspec.json.schema_components([with_members(Deep, required=required)])
            assert not any("additionalProperties" in schema for schema in components.values())

    def test_have_distinct_names(self):
        assert with_members(Deep, required=True).__name__ == "Deep"
        assert with_members(Deep, required=False).__name__ == "DeepChanges"
        assert with_members(Deep, required=False) is with_members(Deep, required=False)


class TestHints:
    def test_keep_annotations(self):
        assert hints_of(Inside)["loud"] == Annotated[str, shout]
        assert hints_of(None) == {}

    def test_type_without_required_members_may_be_empty(self):
        assert may_be_empty(None)
        assert may_be_empty(Deep)
        assert may_be_empty(CHANGES.type)
        assert not may_be_empty(NEW.type)
        assert not may_be_empty(Reply)

    def test_body_of_a_patch_is_required(self):
        assert may_be_left_out(Deep)
        assert not may_be_left_out(Annotated[dict[str, Any], CHANGES])
        assert not may_be_left_out(Annotated[dict[str, Any], with_members(Deep, required=False)])
        assert not may_be_left_out(Reply)
