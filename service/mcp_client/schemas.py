"""Checks arguments against the JSON schema of a tool, with bounded work: the schema comes from another server.

The keywords of the structure of values are checked, and references inside the schema. Others, such as `pattern`, whose
cost has no bound, are left to the server, which checks its arguments itself. A library would check more than is needed
here, without such bounds.
"""

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from service.types import JsonObject

MAX_STEPS = 10_000
MAX_DEPTH = 32

Schema: TypeAlias = Any  # of another server: any JSON

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_LIMITS: dict[str, tuple[Callable[[Any, Any], bool], bool]] = {  # how the value, or its size, compares with the limit
    "minimum": (operator.ge, False),
    "maximum": (operator.le, False),
    "exclusiveMinimum": (operator.gt, False),
    "exclusiveMaximum": (operator.lt, False),
    "minLength": (operator.ge, True),
    "maxLength": (operator.le, True),
    "minItems": (operator.ge, True),
    "maxItems": (operator.le, True),
    "minProperties": (operator.ge, True),
    "maxProperties": (operator.le, True),
}
_LIMITED: dict[str, tuple[type, ...]] = {
    "Length": (str,),
    "Items": (list,),
    "Properties": (dict,),
    "imum": (int, float),
}


class SchemaError(Exception):
    """Arguments do not have the schema of the tool, or it needs too much work. The text is for the assistant."""


def check(arguments: JsonObject, schema: JsonObject) -> None:
    """Raise SchemaError."""
    _Check(schema).value(arguments, schema, "$", 0)


class _Check:
    def __init__(self, root: JsonObject) -> None:
        self._root, self._steps = root, 0

    def value(self, value: object, schema: Schema, path: str, depth: int) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS or depth > MAX_DEPTH:
            raise SchemaError("the schema is too complex")
        if schema is False:
            raise SchemaError(f"{path} is not expected")
        if not isinstance(schema, dict):
            return
        if "$ref" in schema:
            self.value(value, self._referenced(schema["$ref"]), path, depth + 1)
        self._simple(value, schema, path)
        for keyword in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                self._alternatives(value, keyword, schema[keyword], path, depth + 1)
        if isinstance(value, dict):
            self._members(value, schema, path, depth + 1)
        if isinstance(value, list) and "items" in schema:
            for number, item in enumerate(value):
                self.value(item, schema["items"], f"{path}[{number}]", depth + 1)

    def _referenced(self, reference: object) -> Schema:
        """Return the schema that a JSON pointer names, inside the root."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaError("the schema has a reference to another document")
        parts = [part.replace("~1", "/").replace("~0", "~") for part in reference.split("/")[1:]]
        try:
            return functools.reduce(operator.getitem, parts, self._root)
        except (KeyError, TypeError, IndexError):
            raise SchemaError("the schema has a reference to nothing") from None

    def _simple(self, value: object, schema: JsonObject, path: str) -> None:
        types = schema.get("type", [])
        named = [types] if isinstance(types, str) else types
        if isinstance(named, list) and named and not any(_is(value, name) for name in named):
            raise SchemaError(f"{path} must be of the type {' or '.join(map(str, named))[:100]}")
        if isinstance(schema.get("enum"), list) and not any(_equal(value, one) for one in schema["enum"]):
            raise SchemaError(f"{path} is not one of the expected values")
        if "const" in schema and not _equal(value, schema["const"]):
            raise SchemaError(f"{path} is not the expected value")
        for keyword in _LIMITS.keys() & schema.keys():
            if not _is_within(value, keyword, schema[keyword]):
                raise SchemaError(f"{path} violates {keyword} {str(schema[keyword])[:20]}")

    def _alternatives(self, value: object, keyword: str, schemas: list[Schema], path: str, depth: int) -> None:
        if keyword == "allOf":
            for schema in schemas:
                self.value(value, schema, path, depth)
            return
        matching = sum(self._matches(value, schema, path, depth) for schema in schemas)
        if matching == 0 or (keyword == "oneOf" and matching > 1):
            raise SchemaError(f"{path} does not match {keyword}")

    def _matches(self, value: object, schema: Schema, path: str, depth: int) -> bool:
        try:
            self.value(value, schema, path, depth)
        except SchemaError:
            if self._steps > MAX_STEPS:
                raise
            return False
        return True

    def _members(self, value: JsonObject, schema: JsonObject, path: str, depth: int) -> None:
        required, properties = schema.get("required", []), schema.get("properties", {})
        for name in required if isinstance(required, list) else ():
            if name not in value:
                raise SchemaError(f"{path} lacks the member {str(name)[:100]}")
        known = properties if isinstance(properties, dict) else {}
        for name, member, expected in _expected(value, schema, known):
            self.value(member, expected, f"{path}.{name[:100]}", depth)


def _expected(value: JsonObject, schema: JsonObject, known: JsonObject) -> Iterator[tuple[str, object, Schema]]:
    """Yield the members of an object with their schemas."""
    others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
    yield from ((name, member, known.get(name, others)) for name, member in value.items())


def _is(value: object, name: object) -> bool:
    if name == "integer" and isinstance(value, float) and value.is_integer():
        return True
    is_truth = isinstance(value, bool) and name != "boolean"  # in Python, a boolean is a number
    return isinstance(name, str) and not is_truth and isinstance(value, _TYPES.get(name, ()))


def _equal(value: object, other: object) -> bool:
    return isinstance(value, bool) is isinstance(other, bool) and value == other


def _is_within(value: Any, keyword: str, limit: object) -> bool:
    """Return whether a value is within a limit. One for other values, or without a number, has no effect."""
    compare, of_size = _LIMITS[keyword]
    types = next(types for ending, types in _LIMITED.items() if keyword.endswith(ending))
    is_limited: bool = isinstance(value, types) and not isinstance(value, bool) and isinstance(limit, int | float)
    return not is_limited or compare(len(value) if of_size else value, limit)
