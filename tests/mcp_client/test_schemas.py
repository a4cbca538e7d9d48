"""The check of arguments against the schema of a tool: what it finds, and its limits."""

import time

import pytest

from service.mcp_client.schemas import SchemaError, check

NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 2}
TREE = {
    "type": "object",
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["id"]}},
    "properties": {"root": {"$ref": "#/$defs/node"}},
}
VALID = [
    ({}, {}),
    ({"a": 1}, True),
    ({"a": 1, "b": 1.0}, {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}),
    ({"a": None}, {"properties": {"a": {"type": ["string", "null"]}}}),
    ({"a": ["x", "y"]}, {"properties": {"a": NAMES}}),
    ({"a": 5}, {"properties": {"a": {"minimum": 5, "exclusiveMaximum": 6, "minLength": 9}}}),
    ({"a": 1}, {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}),
    ({"a": 1}, {"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}),
    ({"a": {"b": [1]}}, {"properties": {"a": {"const": {"b": [1]}}}}),
    ({"x1": 1}, {"patternProperties": {"^x": {}}, "additionalProperties": False}),
    ({"b": 1}, {"additionalProperties": {"type": "integer"}}),
    ({"root": {"id": 1, "next": {"id": 2}}}, TREE),
    ({"a": "(" * 30}, {"properties": {"a": {"pattern": "(a+)+$", "format": "uri"}}}),  # left to the server
    ({"a": 1}, {"properties": [], "required": "a", "type": 3, "enum": 5}),  # keywords of other types have no effect
]
INVALID = [
    ({}, {"required": ["a"]}, "$ lacks the member a"),
    ({"a": True}, {"properties": {"a": {"type": "integer"}}}, "$.a must be of the type integer"),
    ({"a": 1.5}, {"properties": {"a": {"type": "integer"}}}, "$.a must be of the type integer"),
    ({"a": 1}, {"properties": {"a": {"type": ["string", "null"]}}}, "$.a must be of the type string or null"),
    ({"a": 1}, {"properties": {"a": {"type": "unknown"}}}, "$.a must be of the type unknown"),
    ({"a": [""]}, {"properties": {"a": NAMES}}, "$.a[0] violates minLength 1"),
    ({"a": ["x"] * 3}, {"properties": {"a": NAMES}}, "$.a violates maxItems 2"),
    ({"a": 6}, {"properties": {"a": {"exclusiveMaximum": 6}}}, "$.a violates exclusiveMaximum 6"),
    ({"a": 1}, {"maxProperties": 0}, "$ violates maxProperties 0"),
    ({"a": True}, {"properties": {"a": {"enum": [1, "x"]}}}, "$.a is not one of the expected values"),
    ({"a": 2}, {"properties": {"a": {"const": 1}}}, "$.a is not the expected value"),
    ({"a": 1}, {"properties": {"a": False}}, "$.a is not expected"),
    ({"b": 1}, {"properties": {"a": {}}, "additionalProperties": False}, "$.b is not expected"),
    ({"a": 1}, {"properties": {"a": {"anyOf": [{"type": "string"}]}}}, "$.a does not match anyOf"),
    ({"a": 1}, {"properties": {"a": {"oneOf": [{}, {"type": "integer"}]}}}, "$.a does not match oneOf"),
    ({"a": 1}, {"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, "$ lacks the member b"),
    ({"root": {"id": 1, "next": {}}}, TREE, "$.root.next lacks the member id"),
    ({}, {"$ref": "https://elsewhere.example/schema"}, "the schema has a reference to another document"),
    ({}, {"$ref": "#/$defs/missing"}, "the schema has a reference to nothing"),
    ({}, {"$ref": "#"}, "the schema is too complex"),
]


@pytest.mark.parametrize(("arguments", "schema"), VALID)
def test_valid_arguments_are_accepted(arguments, schema):
    check(arguments, schema)


@pytest.mark.parametrize(("arguments", "schema", "error"), INVALID)
def test_invalid_arguments_are_an_error_that_says_why(arguments, schema, error):
    with pytest.raises(SchemaError) as caught:
        check(arguments, schema)
    assert str(caught.value) == error


def test_work_is_bounded_also_for_hostile_schemas():
    hostile = {"type": "string"}
    for _ in range(25):
        hostile = {"anyOf": [hostile, hostile, hostile, hostile]}
    started = time.process_time()
    with pytest.raises(SchemaError, match="^the schema is too complex$"):
        check({"a": 1}, {"properties": {"a": hostile}})
    assert time.process_time() - started < 2
