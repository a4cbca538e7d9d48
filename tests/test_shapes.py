"""Tables and declarations as types: what a request may write, how a value is read, what an annotation stands for."""

from functools import partial
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
import peewee
import pytest
from msgspec import UNSET, Meta, Raw, Struct

from service import clock
from service.db import Page
from service.errors import InvalidBody
from service.fields import (
    NEVER,
    Boolean,
    Document,
    Identifier,
    Int64,
    Integer,
    Integers,
    JsonAsBytes,
    Strings,
    Text,
    Timestamp,
    Word,
)
from service.models import TABLES, App
from service.shapes import Writes, convert, hints_of, may_be_empty, may_be_left_out, readers, resolve, shape, variant


def shout(text: str) -> str:
    """A form that changes what it reads."""
    if not text.isalpha():
        raise ValueError("expected letters")
    return text.upper()


class Thing(peewee.Model):
    """A table that is never created, outside the service's schema."""

    id = Identifier(primary_key=True, default=clock.uuid)
    name = Text(5, default=None)
    note = Text(5)
    cry = Text(5, form=shout)
    kind = Word("soft", "hard")
    seen_at = Timestamp(null=True)
    owner = Identifier(null=True)
    is_open = Boolean(default=True)
    size = Integer(default=7)
    places = Integers()
    tags = Strings()
    anything = JsonAsBytes(20)
    document = Document()
    secret = Text(leaves=NEVER)


EVERYTHING = [column.name for column in Thing._meta.sorted_fields if column.name != "secret"]
DEFAULTS: dict[str, Any] = {
    "note": "",
    "cry": "",
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
NEW, CHANGES = Writes(Thing, *EVERYTHING), Writes(Thing, *EVERYTHING, partial=True)
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def fault(action: Any, *arguments: Any) -> str:
    """With what complaint a value is refused."""
    with pytest.raises(InvalidBody) as refusal:
        action(*arguments)
    return str(refusal.value)


class TestWrites:
    def test_give_columns_as_they_are_stored(self):
        given = {
            "name": "n",
            "cry": "aha",
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
        assert NEW.read(given) == {
            "name": "n",
            "cry": "AHA",
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

    def test_give_only_what_a_body_sets(self):
        assert NEW.read({"name": "n"}) == {"name": "n"}
        assert CHANGES.read({}) == {}
        assert CHANGES.read({"size": 1}) == {"size": 1}

    def test_require_what_has_no_default_where_nothing_is_stored_yet(self):
        assert fault(NEW.read, {"note": "x"}) == "$: object missing required field name"
        assert CHANGES.read({"note": "x"}) == {"note": "x"}

    @pytest.mark.parametrize("writes", [NEW, CHANGES])
    def test_take_null_for_the_default_of_what_has_one(self, writes):
        assert writes.read({"name": "n", **dict.fromkeys(DEFAULTS)}) == {"name": "n", **DEFAULTS}
        assert fault(writes.read, {"name": None}) == "$.name: expected str"

    def test_make_a_default_that_is_made_each_time(self):
        first, second = (CHANGES.read({"id": None})["id"] for _ in range(2))
        assert clock.read_uuid(first) != clock.read_uuid(second)

    @pytest.mark.parametrize("name", ["note", "cry", "seen_at", "owner", "anything"])
    def test_take_empty_texts_for_the_default(self, name):
        assert CHANGES.read({name: ""}) == {name: DEFAULTS[name]}

    def test_take_an_empty_text_as_it_is_where_there_is_no_default(self):
        assert CHANGES.read({"name": ""}) == {"name": ""}

    @pytest.mark.parametrize("name", ["kind", "is_open", "size", "places", "tags", "document"])
    def test_take_no_empty_texts_for_anything_else(self, name):
        assert fault(CHANGES.read, {name: ""}).startswith(f"$.{name}: ")

    @pytest.mark.parametrize(
        ("given", "complaint"),
        [
            ({"note": 5}, "$.note: expected str | null"),
            ({"note": "123456"}, "$.note: expected str of length <= 5"),
            ({"cry": "a1"}, "$.cry: expected letters"),
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
    def test_tell_the_place_of_a_fault(self, given, complaint):
        assert fault(CHANGES.read, given) == complaint

    def test_ignore_columns_that_were_not_named(self):
        only = Writes(Thing, "note", partial=True)
        assert only.read({"note": "x", "size": "wrong", "secret": "y", "absent": 1}) == {"note": "x"}

    def test_refuse_names_that_the_table_does_not_have(self):
        with pytest.raises(KeyError, match="absent"):
            Writes(Thing, "note", "absent")

    def test_may_take_less_than_the_columns_do(self):
        narrower = Writes(Thing, "note", anything=dict[str, int], kind=Literal["hard"])
        assert narrower.read({"anything": {}, "kind": "hard"}) == {"anything": "[123,125]", "kind": "hard"}
        assert narrower.read({"anything": None, "kind": None}) == {"anything": "[]", "kind": "soft"}
        assert fault(narrower.read, {"anything": [1]}) == "$.anything: expected object | null"
        assert fault(narrower.read, {"kind": "soft"}).startswith("$.kind: ")

    def test_are_called_after_their_table(self):
        assert (NEW.type.__name__, CHANGES.type.__name__) == ("NewThing", "ThingChanges")

    def test_leave_what_they_were_given_as_it_was(self):
        given = {"cry": "aha", "places": [1], "document": {"a": {}}}
        CHANGES.read(given)
        assert given == {"cry": "aha", "places": [1], "document": {"a": {}}}


class Inside(Struct):
    cry: Annotated[str, shout] = ""
    at: Annotated[str, clock.read_timestamp] | None = None


class Outside(Struct):
    inside: Inside = msgspec.field(default_factory=Inside)
    maybe: Inside | None = None
    cry: Annotated[str, Meta(max_length=5), shout] = ""
    unset: Annotated[str, shout] | msgspec.UnsetType = UNSET
    number: Int64 = 0


class TestConverting:
    def test_lets_readers_read_at_every_depth(self):
        found = convert({"cry": "a", "inside": {"cry": "b"}, "maybe": {"at": "2026-11-20T10:00:00Z"}}, Outside)
        assert (found.cry, found.inside.cry, found.maybe.at) == ("A", "B", "2026-11-20T10:00:00.000Z")
        assert found.unset is UNSET

    @pytest.mark.parametrize("nothing", [{}, {"cry": "a", "inside": {}, "maybe": None}, {"inside": {"at": None}}])
    def test_lets_nothing_be_nothing(self, nothing):
        found = convert(nothing, Outside)
        assert (found.inside, found.maybe) == (Inside(), None)

    @pytest.mark.parametrize(
        ("value", "complaint"),
        [
            ({"cry": "1"}, "$.cry: expected letters"),
            ({"cry": "abcdef"}, "$.cry: expected str of length <= 5"),
            ({"unset": "1"}, "$.unset: expected letters"),
            ({"inside": {"cry": "1"}}, "$.inside.cry: expected letters"),
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
    def test_tells_the_place_of_a_fault(self, value, complaint):
        assert fault(convert, value, Outside) == complaint

    @pytest.mark.parametrize("sent", ["x", "` - at `$.other`", "a\n - at `$.other", "`", " - at `$.other"])
    def test_does_not_let_what_was_sent_move_the_place(self, sent):
        complaint = fault(convert, {"kind": sent}, msgspec.defstruct("Kind", [("kind", Literal["a", "b"])]))
        assert complaint.startswith("$.kind: ")

    def test_works_on_what_is_no_object(self):
        assert convert([1, 2], list[int]) == [1, 2]
        assert fault(convert, [1, "2"], list[int]) == "$[1]: expected int"
        assert fault(convert, {"a": "b"}, dict[str, int]) == "$[...]: expected int"


class TestReaders:
    def test_are_the_functions_of_an_annotation(self):
        bound = partial(clock.read_timestamp, bare_date="start")
        assert readers(Annotated[str, Meta(max_length=5), shout]) == [shout]
        assert readers(Annotated[str, shout] | None) == [shout]
        assert readers(Annotated[str, shout, Meta(), bound]) == [shout, bound]

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
    def test_are_none_where_nothing_is_to_be_read(self, hint):
        assert readers(hint) == []

    def test_are_no_types(self):
        assert readers(Annotated[dict[str, Any], Inside]) == []


class Answer(Struct):
    app: App
    apps: list[App]
    text: str = ""


class TestResolving:
    def test_makes_tables_their_shapes(self):
        assert resolve(App) is shape(App)
        assert resolve(list[App]) == resolve(Page[App]) == list[shape(App)]
        assert resolve(Annotated[Raw, App]) is shape(App)
        assert resolve(Annotated[Raw, list[App]]) == list[shape(App)]

    def test_makes_objects_what_is_said_of_them(self):
        assert resolve(Annotated[dict[str, Any], Inside]) is Inside
        assert resolve(Annotated[dict[str, Any], NEW]) is NEW.type

    @pytest.mark.parametrize(
        "kind", [str, None, Inside, dict[str, Any], list[int], str | None, Int64, Annotated[str, shout]]
    )
    def test_leaves_everything_else(self, kind):
        assert resolve(kind) == kind

    def test_makes_tables_inside_of_structs_their_shapes(self):
        found = resolve(Answer)
        assert found.__name__ == "Answer"
        assert get_type_hints(found) == {"app": shape(App), "apps": list[shape(App)], "text": str}
        assert all(field.required for field in msgspec.structs.fields(found))

    def test_makes_every_table_of_the_service_something_that_has_a_schema(self):
        shapes = [resolve(table) for table in TABLES]
        schemas, components = msgspec.json.schema_components(shapes)
        assert len(schemas) == len(TABLES)
        for table, found in zip(TABLES, shapes, strict=True):
            assert components[found.__name__]["additionalProperties"] is False, table
            assert components[found.__name__].get("required", []) == [
                field.name for field in msgspec.structs.fields(found)
            ]


class Deep(Struct):
    """What variants are made of."""

    inside: Inside = msgspec.field(default_factory=Inside)
    text: Annotated[str, Meta(max_length=3)] = "abc"
    needed: int | None = None


class TestVariants:
    def test_that_are_complete_require_every_member_at_every_depth(self):
        complete = variant(Deep, required=True)
        whole = {"inside": {"cry": "a", "at": None}, "text": "x", "needed": None}
        found = convert(whole, complete)
        assert msgspec.to_builtins(found) == {**whole, "inside": {"cry": "A", "at": None}}
        for lacking in ("inside", "text", "needed"):
            rest = {name: value for name, value in whole.items() if name != lacking}
            assert fault(convert, rest, complete) == f"$: object missing required field {lacking}"
        assert fault(convert, {**whole, "inside": {"cry": ""}}, complete).endswith("missing required field at")
        assert fault(convert, {**whole, "inside": None}, complete) == "$.inside: expected object"

    def test_that_are_patches_require_nothing_and_take_null(self):
        changes = variant(Deep, required=False)
        for accepted in ({}, {"inside": {}}, {"inside": None, "text": None}, {"inside": {"cry": None}}, {"text": "x"}):
            assert msgspec.to_builtins(convert(accepted, changes)) == accepted
        assert may_be_empty(changes)

    def test_that_are_patches_keep_types_and_limits(self):
        changes = variant(Deep, required=False)
        assert fault(convert, {"text": "abcd"}, changes) == "$.text: expected str of length <= 3"
        assert fault(convert, {"inside": {"cry": 5}}, changes) == "$.inside.cry: expected str | null"
        assert fault(convert, {"inside": []}, changes) == "$.inside: expected object | null"

    def test_are_open(self):
        for required in (True, False):
            _, components = msgspec.json.schema_components([variant(Deep, required=required)])
            assert not any("additionalProperties" in schema for schema in components.values())

    def test_have_names_of_their_own(self):
        assert variant(Deep, required=True).__name__ == "Deep"
        assert variant(Deep, required=False).__name__ == "DeepChanges"
        assert variant(Deep, required=False) is variant(Deep, required=False)


class TestHints:
    def test_keep_what_an_annotation_says(self):
        assert hints_of(Inside)["cry"] == Annotated[str, shout]
        assert hints_of(None) == {}

    def test_what_may_be_empty_requires_nothing(self):
        assert may_be_empty(None)
        assert may_be_empty(Deep)
        assert may_be_empty(CHANGES.type)
        assert not may_be_empty(NEW.type)
        assert not may_be_empty(Answer)

    def test_a_patch_is_never_left_out(self):
        assert may_be_left_out(Deep)
        assert not may_be_left_out(Annotated[dict[str, Any], CHANGES])
        assert not may_be_left_out(Annotated[dict[str, Any], variant(Deep, required=False)])
        assert not may_be_left_out(Answer)
