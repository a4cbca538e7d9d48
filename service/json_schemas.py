"""JSON Schemas of declared types, spelled so that generators of clients and programs in JavaScript read them rightly.

Every `enum` and `const` has a type. Integers that JavaScript cannot hold are no bounds: `format: int64` says as much.
The default of a member of a body is told in words: some generators take a member with a default for a required one.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from service.db import Position
from service.operations import Operation
from service.shapes import hints_of
from service.signature import LowerBound, UpperBound

REFERENCE = "#/components/schemas/{name}"
TEXT = {"type": "string"}
LARGEST_EXACT = 2**53 - 1  # in JavaScript; RFC 8259, section 6

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schemas_of(kinds: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schemas of some types in their order, and the components that they refer to."""
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    return [refined(schema) for schema in schemas], {name: refined(schema) for name, schema in components.items()}


def object_of(**members: Any) -> dict[str, Any]:
    """The schema of an object with these members, all of them required, and no other."""
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


def refined(schema: Any) -> Any:
    """A schema of msgspec's as the document has it, and so whatever is inside it."""
    if isinstance(schema, list):
        return [refined(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: refined(part) for name, part in schema.items() if name != "default"}
    if schema.get("default") not in (None, ""):
        found["description"] = (
            f"{found.get('description', '')} Default: {msgspec.json.encode(schema['default']).decode()}.".strip()
        )
    words = [found["const"]] if "const" in found else found.get("enum", [])
    if isinstance(words, list) and words and "type" not in found:
        (found["type"],) = {_TYPES[type(word)] for word in words}
    if found.get("type") == "integer":
        bounds = {name: found.get(name, 0) for name in ("minimum", "maximum")}
        if any(abs(bound) > LARGEST_EXACT for bound in bounds.values()):
            found = {name: part for name, part in found.items() if name not in bounds} | {"format": "int64"}
    return found


def parameters_of(operation: Operation) -> Iterable[dict[str, Any]]:
    """The parameters in the path, the query and the header of an operation."""
    for identifier, _, table in operation.loads:
        schema = refined(msgspec.json.schema(table.path_column().wire))
        yield {"name": identifier, "in": "path", "required": True, "schema": schema}
    hints = hints_of(operation.query)
    for member in msgspec.structs.fields(operation.query) if operation.query else ():
        schema = _of_parameter(hints[member.name], member.default)
        yield {"name": member.encode_name, "in": "query", "required": member.required, "schema": schema}
    if operation.status == 201:
        about = "Repeats within 24 hours get the first answer again."
        schema = {**TEXT, "maxLength": 255}
        yield {"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema, "description": about}


def _of_parameter(hint: Any, default: Any) -> dict[str, Any]:
    """A parameter is left out where a body would have `null`, so that is none of its values; nor is "" a default."""
    if hint is Position:
        return dict(TEXT)
    schema: dict[str, Any] = refined(msgspec.json.schema(hint))
    values = [part for part in schema.get("anyOf", []) if part != {"type": "null"}]
    if len(values) == 1:
        schema = {name: part for name, part in schema.items() if name != "anyOf"} | values[0]
    if hint not in (LowerBound, UpperBound) and default not in (msgspec.NODEFAULT, None, ""):
        schema["default"] = default
    return schema
