"""JSON Schemas of declared types, in a form that client generators and JavaScript programs read correctly.

Every `enum` and `const` has a type. Bounds that JavaScript cannot represent are omitted; `format: int64` implies them.
The default of a body's member is part of its description: some generators treat members with a default as required.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from service.api.operations import Operation
from service.api.parameter_types import LowerBound, UpperBound
from service.api.schemas import hints_of
from service.db import Position
from service.fields import WireType
from service.types import JsonObject, JsonValue

REFERENCE = "#/components/schemas/{name}"
TEXT = {"type": "string"}
LARGEST_EXACT = 2**53 - 1  # in JavaScript; RFC 8259, section 6

Schema: TypeAlias = JsonObject

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schemas_of(types: Iterable[object], reference: str = REFERENCE) -> tuple[list[Schema], dict[str, Schema]]:
    """Return the schemas of some types, in their order, and the components that they reference."""
    schemas, components = msgspec.json.schema_components(types, ref_template=reference)
    return [refined(schema) for schema in schemas], {name: refined(schema) for name, schema in components.items()}


def object_of(**members: object) -> Schema:
    """Return the schema of an object with exactly these members, all required."""
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


def refined(schema: JsonValue) -> JsonValue:
    """Return a schema of msgspec, and the schemas in it, in the form that this module describes."""
    if isinstance(schema, list):
        return [refined(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: refined(part) for name, part in schema.items() if name != "default"}
    if schema.get("default") not in (None, ""):
        found["description"] = (
            f"{found.get('description', '')} Default: {msgspec.json.encode(schema['default']).decode()}.".strip()
        )
    values = [found["const"]] if "const" in found else found.get("enum", [])
    if isinstance(values, list) and values and "type" not in found:
        (found["type"],) = {_TYPES[type(value)] for value in values}
    if found.get("type") == "integer":
        bounds = {name: found.get(name, 0) for name in ("minimum", "maximum")}
        if any(abs(bound) > LARGEST_EXACT for bound in bounds.values()):
            found = {name: part for name, part in found.items() if name not in bounds} | {"format": "int64"}
    return found


def content_of(operation: Operation, data: Schema) -> dict[str, Schema]:
    """Return the schemas of the members `data` and `meta` of a response."""
    meta = {name: {"type": "string" if name == "next_cursor" else "integer"} for name in operation.meta}
    return {"data": data, **({"meta": object_of(**meta)} if meta else {})}


def parameters_of(operation: Operation) -> Iterable[JsonObject]:
    """Return the path, query and header parameters of an operation."""
    for identifier, _, table in operation.path_rows:
        schema = refined(msgspec.json.schema(table.path_column().wire))
        yield {"name": identifier, "in": "path", "required": True, "schema": schema}
    hints = hints_of(operation.query)
    for member in msgspec.structs.fields(operation.query) if operation.query else ():
        schema = _of_parameter(hints[member.name], member.default)
        yield {"name": member.encode_name, "in": "query", "required": member.required, "schema": schema}
    if operation.is_repeatable:
        about = "Makes the request safe to repeat: for 24 hours, repetitions return the first response."
        schema = {**TEXT, "maxLength": 255}
        yield {"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema, "description": about}


def _of_parameter(hint: WireType, default: object) -> Schema:
    """Return the schema of a query parameter. Omitted parameters mean `null`, and an empty default is no default."""
    if hint is Position:
        return TEXT | {"description": "The `next_cursor` of the previous page."}
    schema: Schema = refined(msgspec.json.schema(hint))
    values = [part for part in schema.get("anyOf", []) if part != {"type": "null"}]
    if len(values) == 1:
        schema = {name: part for name, part in schema.items() if name != "anyOf"} | values[0]
    if hint not in (LowerBound, UpperBound) and default not in (msgspec.NODEFAULT, None, ""):
        schema["default"] = default
    return schema
