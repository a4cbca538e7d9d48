"""The OpenAPI 3.1 document, derived from what the operations declare."""

from collections.abc import Iterable
from typing import Any

import msgspec

from service.db import Position
from service.errors import ANY_OPERATION, InsufficientScope, Refusal
from service.operations import KIB, Operation
from service.shapes import hints_of, may_be_left_out, resolve, shape
from service.signature import Html, LowerBound, Media, Moved, UpperBound
from service.version import VERSION

REFERENCE = "#/components/schemas/{name}"


def document(operations: Iterable[Operation], server: str = "") -> dict[str, Any]:
    """The description of some operations, ready to be encoded as JSON."""
    operations = list(operations)
    kinds = [kind for o in operations for kind in (resolve(o.body), o.data) if kind not in (None, Html, Media, Moved)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    rendered = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, rendered.get, dict(_links(operation, operations)))
        paths.setdefault(operation.full_path, {})[operation.method.lower()] = described
    failure = _object(success={"const": False}, error=_object(code=_TEXT, message=_TEXT))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Conversational Customer-Experience Service", "version": VERSION},
        "servers": [{"url": server or "/"}],
        "paths": paths,
        "components": {
            "schemas": components | {"Failure": failure},
            "responses": {"Otherwise": _failure(_ANYWHERE, "A limit, a fault, or too narrow a token.")},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


_TEXT = {"type": "string"}
_ANYWHERE: list[type[Refusal]] = [InsufficientScope, *(k for status in ANY_OPERATION for k in Refusal.kinds(status))]


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


_BARE_FAILURE = _object(error=_TEXT, error_description=_TEXT)


def _operation(operation: Operation, rendered: Any, links: dict[str, Any]) -> dict[str, Any]:
    meta = {name: {"type": "string" if name == "next_cursor" else "integer"} for name in operation.meta}
    envelope = {"success": {"const": True}, "data": rendered(id(operation.data)) or {}}
    success = (
        envelope["data"] if operation.is_bare else _object(**envelope, **({"meta": _object(**meta)} if meta else {}))
    )
    content = {operation.produces: {"schema": {Html: _TEXT, Moved: _TEXT, Media: {}}.get(operation.data, success)}}
    sometimes = {
        "Idempotency-Replayed": operation.status == 201,
        "ETag": 304 in operation.statuses,
        "X-Request-Warning": operation.is_lenient and (operation.query or operation.body),
    }
    more = _headers([name for name, holds in sometimes.items() if holds], required=False)
    more |= {"links": links} if links else {}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_parameters(operation)],
        "responses": {str(operation.status): {"description": "Success.", "content": content} | more}
        | {str(status): _refusal(status, operation) for status in sorted(operation.statuses - {operation.status})}
        | {"default": {"$ref": "#/components/responses/Otherwise"}},
        "security": [] if operation.public else [{"bearer": []}],
    }
    if operation.body:
        described["requestBody"] = {
            "required": not may_be_left_out(operation.body),
            "content": {operation.accepts: {"schema": rendered(id(resolve(operation.body)))}},
            "description": f"At most {operation.most // KIB} KiB.",
        }
    special = {"x-scope": operation.needed_scope, "x-extension": operation.extension}
    return described | {name: value for name, value in special.items() if value}


def _refusal(status: int, operation: Operation) -> dict[str, Any]:
    """An answer with a status of refusal, and the headers that it has."""
    if status == 304:
        return {"description": "What the client has is still right."}
    if operation.is_bare:
        return {"description": "See RFC 6749, section 5.2.", "content": {"application/json": {"schema": _BARE_FAILURE}}}
    headers = {401: ["WWW-Authenticate"], 503: ["Retry-After"]}.get(status, [])
    page = {"content": {"text/html": {"schema": _TEXT}}} if operation.is_page and status == 400 else {}
    return _failure(Refusal.kinds(status)) | _headers(headers, required=True) | page


def _failure(kinds: Iterable[type[Refusal]], about: str = "") -> dict[str, Any]:
    """An answer in the envelope of failure: what it is about, and the codes of some refusals."""
    first, *others = kinds
    codes = ", ".join(sorted({kind.code for kind in (first, *others)}))
    failure = {"application/json": {"schema": {"$ref": REFERENCE.format(name="Failure")}}}
    return {"description": f"{about or first.sentence()} Codes: {codes}.", "content": failure}


def _headers(names: list[str], *, required: bool) -> dict[str, Any]:
    """The headers that an answer has, or may have."""
    return {"headers": {name: {"required": required, "schema": _TEXT} for name in names}} if names else {}


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


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for identifier, _, table in operation.loads:
        schema = msgspec.json.schema(table.path_column().wire)
        yield {"name": identifier, "in": "path", "required": True, "schema": schema}
    hints = hints_of(operation.query)
    for member in msgspec.structs.fields(operation.query) if operation.query else ():
        hint = hints[member.name]
        schema = dict(_TEXT) if hint is Position else msgspec.json.schema(hint)
        if hint not in (LowerBound, UpperBound) and member.default not in (msgspec.NODEFAULT, None, Position()):
            schema["default"] = member.default
        yield {"name": member.encode_name, "in": "query", "required": member.required, "schema": schema}
    if operation.status == 201:
        about = "Repeats within 24 hours get the first answer again."
        yield {"name": "Idempotency-Key", "in": "header", "schema": {**_TEXT, "maxLength": 255}, "description": about}
