"""The OpenAPI 3.1 document, derived from what the operations declare."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from service.db import Position
from service.errors import Refusal
from service.fields import primary_key
from service.operations import KIB, Html, Operation, hints_of, may_be_empty

REFERENCE = "#/components/schemas/{name}"
VERSION = "1.0.0"


def document(operations: Iterable[Operation], server: str = "") -> dict[str, Any]:
    """The description of some operations, ready to be encoded as JSON."""
    operations = list(operations)
    kinds = [kind for operation in operations for kind in (operation.body, operation.data) if kind not in (None, Html)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    rendered = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, rendered.get)
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
    answer = {"text/html": {"schema": _TEXT}} if operation.data is Html else _json(success)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_identifiers(operation), *_query(operation), *_headers(operation)],
        "responses": {str(operation.status): {"description": "Success.", "content": answer}}
        | {str(status): _refusal(status) for status in sorted(operation.statuses - {operation.status})},
        "security": [] if operation.public else [{"bearer": []}],
    }
    if operation.body:
        described["requestBody"] = {
            "required": not may_be_empty(operation.body),
            "content": _json(rendered(id(operation.body))),
            "description": f"At most {operation.most // KIB} KiB.",
        }
    if operation.scope:
        described["x-scope"] = operation.needed_scope
    if operation.extension:
        described["x-extension"] = True
    return described


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _refusal(status: int) -> dict[str, Any]:
    """An answer in the envelope of failure; the codes are those of all refusals with that status."""
    kinds = list(Refusal.kinds(status))
    codes = ", ".join(sorted({kind.code for kind in kinds}))
    failure = _json({"$ref": REFERENCE.format(name="Failure")})
    return {"description": f"{kinds[0].sentence()} Codes: {codes}.", "content": failure}


def _identifiers(operation: Operation) -> Iterable[dict[str, Any]]:
    for identifier, _, table in operation.loads:
        schema = msgspec.json.schema(primary_key(table).wire)
        yield {"name": identifier, "in": "path", "required": True, "schema": schema}


def _query(operation: Operation) -> Iterable[dict[str, Any]]:
    if not operation.query:
        return
    hints = hints_of(operation.query)
    for member in msgspec.structs.fields(operation.query):
        hint = hints[member.name]
        schema = dict(_TEXT) if hint is Position else msgspec.json.schema(hint)
        if member.default not in (msgspec.NODEFAULT, None, Position()):
            schema["default"] = member.default
        yield {"name": member.encode_name, "in": "query", "required": member.required, "schema": schema}


def _headers(operation: Operation) -> Iterable[dict[str, Any]]:
    if operation.status == 201:
        about = "Repeats within 24 hours get the first answer again."
        yield {"name": "Idempotency-Key", "in": "header", "schema": {**_TEXT, "maxLength": 255}, "description": about}


def listing(operations: Iterable[Operation]) -> str:
    """Method, path, authentication and summary of every operation, a line each."""
    rows = [
        (o.method, o.full_path, "none" if o.public else o.needed_scope or "any token", o.summary) for o in operations
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        re.sub(r" +$", "", "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))) + "\n"
        for row in rows
    )
