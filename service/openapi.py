"""The OpenAPI 3.1 document, derived from what the operations declare."""

from collections.abc import Iterable
from typing import Any

import msgspec

from service.db import Position
from service.errors import Refusal
from service.operations import KIB, Operation
from service.shapes import hints_of, may_be_empty, resolve, shape
from service.signature import Html, LowerBound, Media, UpperBound

REFERENCE = "#/components/schemas/{name}"
VERSION = "1.0.0"


def document(operations: Iterable[Operation], server: str = "") -> dict[str, Any]:
    """The description of some operations, ready to be encoded as JSON."""
    operations = list(operations)
    kinds = [kind for o in operations for kind in (resolve(o.body), o.data) if kind not in (None, Html, Media)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    rendered = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, rendered.get)
        links = dict(_links(operation, operations))
        if links:
            described["responses"][str(operation.status)]["links"] = links
        paths.setdefault(operation.full_path, {})[operation.method.lower()] = described
    error = {"type": "object", "required": ["code", "message"], "properties": {"code": _TEXT, "message": _TEXT}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Conversational Customer-Experience Service", "version": VERSION},
        "servers": [{"url": server or "/"}],
        "paths": paths,
        "components": {
            "schemas": components | {"Failure": _object(success={"const": False}, error=error)},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


_TEXT = {"type": "string"}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


def _operation(operation: Operation, rendered: Any) -> dict[str, Any]:
    meta = {name: {"type": "string" if name == "next_cursor" else "integer"} for name in operation.meta}
    envelope = {"success": {"const": True}, "data": rendered(id(operation.data)) or {}}
    success = _object(**envelope, **({"meta": _object(**meta)} if meta else {}))
    is_bytes = operation.data in (Html, Media)
    answer = {operation.produces: {"schema": _TEXT}} if is_bytes else {operation.produces: {"schema": success}}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_identifiers(operation), *_query(operation), *_headers(operation)],
        "responses": {str(operation.status): {"description": "Success.", "content": answer}}
        | {str(status): _refusal(status, operation) for status in sorted(operation.statuses - {operation.status})},
        "security": [] if operation.public else [{"bearer": []}],
    }
    if operation.body:
        kind = "multipart/form-data" if operation.takes_form else "application/json"
        described["requestBody"] = {
            "required": not may_be_empty(resolve(operation.body)),
            "content": {kind: {"schema": rendered(id(resolve(operation.body)))}},
            "description": f"At most {operation.most // KIB} KiB.",
        }
    if operation.scope:
        described["x-scope"] = operation.needed_scope
    if operation.extension:
        described["x-extension"] = True
    return described


def _refusal(status: int, operation: Operation) -> dict[str, Any]:
    """An answer in the envelope of failure; the codes are those of all refusals with that status."""
    if status == 304:
        return {"description": "What the client has is still right."}
    kinds = list(Refusal.kinds(status))
    codes = ", ".join(sorted({kind.code for kind in kinds}))
    failure = {"application/json": {"schema": {"$ref": REFERENCE.format(name="Failure")}}}
    page = {"text/html": {"schema": _TEXT}}
    shown = page if operation.data is Html and status == 400 else failure
    return {"description": f"{kinds[0].sentence()} Codes: {codes}.", "content": shown}


def _links(operation: Operation, operations: Iterable[Operation]) -> Iterable[tuple[str, dict[str, Any]]]:
    """What can be asked next about the row that an operation answers with, or the first of its rows."""
    known = {table: f"$request.path.{identifier}" for identifier, _, table in operation.loads}
    for other in operations:
        tables: list[Any] = [table for *_, table in other.loads] or [None]
        *above, target = tables
        place = {target and shape(target): "id", target and list[shape(target)]: "0/id"}.get(operation.data)  # type: ignore[misc]
        if place and set(above) <= set(known):
            found = known | {target: f"$response.body#/data/{place}"}
            parameters = {identifier: found[table] for identifier, _, table in other.loads}
            yield other.name, {"operationId": other.name, "parameters": parameters}


def _identifiers(operation: Operation) -> Iterable[dict[str, Any]]:
    for identifier, _, table in operation.loads:
        schema = msgspec.json.schema(table.path_column().wire)
        yield {"name": identifier, "in": "path", "required": True, "schema": schema}


def _query(operation: Operation) -> Iterable[dict[str, Any]]:
    if not operation.query:
        return
    hints = hints_of(operation.query)
    for member in msgspec.structs.fields(operation.query):
        hint = hints[member.name]
        schema = dict(_TEXT) if hint is Position else msgspec.json.schema(hint)
        if hint not in (LowerBound, UpperBound) and member.default not in (msgspec.NODEFAULT, None, Position()):
            schema["default"] = member.default
        yield {"name": member.encode_name, "in": "query", "required": member.required, "schema": schema}


def _headers(operation: Operation) -> Iterable[dict[str, Any]]:
    if operation.status == 201:
        about = "Repeats within 24 hours get the first answer again."
        yield {"name": "Idempotency-Key", "in": "header", "schema": {**_TEXT, "maxLength": 255}, "description": about}
