"""The OpenAPI 3.1 document, derived from what the operations declare."""

from collections.abc import Iterable
from typing import Any

from service.declared_errors import declared_errors
from service.errors import ANYWHERE, Refusal
from service.json_schemas import REFERENCE, TEXT, object_of, parameters_of, schemas_of
from service.operations import KIB, Operation
from service.replies import bare_code
from service.shapes import may_be_left_out, resolve, shape
from service.signature import Html, Media, Moved
from service.version import VERSION

_FALSE, _TRUE = ({"type": "boolean", "const": told} for told in (False, True))


def document(operations: Iterable[Operation], server: str = "", *, pages: bool = False) -> dict[str, Any]:
    """The description of some operations, ready to be encoded as JSON.

    The console and the other pages for people are left out unless `pages` is set: no program asks for them. A page
    that is not an extension stays.
    """
    operations = [operation for operation in operations if pages or not (operation.is_page and operation.extension)]
    kinds = [kind for o in operations for kind in (resolve(o.body), o.data) if kind not in (None, Html, Media, Moved)]
    schemas, components = schemas_of(kinds)
    rendered = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, rendered.get, dict(_links(operation, operations)))
        paths.setdefault(operation.full_path, {})[operation.method.lower()] = described
    failure = object_of(success=_FALSE, error=object_of(code=TEXT, message=TEXT))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Conversational Customer-Experience Service", "version": VERSION},
        "servers": [{"url": server or "/"}],
        "paths": paths,
        "components": {
            "schemas": components | {"Failure": failure},
            "responses": {"Otherwise": _failure(ANYWHERE, "A limit, a fault, or too narrow a token.")},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


_BARE_FAILURE = object_of(error=TEXT, error_description=TEXT)


def _operation(operation: Operation, rendered: Any, links: dict[str, Any]) -> dict[str, Any]:
    meta = {name: {"type": "string" if name == "next_cursor" else "integer"} for name in operation.meta}
    envelope = {"success": _TRUE, "data": rendered(id(operation.data)) or {}}
    envelope |= {"meta": object_of(**meta)} if meta else {}
    success = envelope["data"] if operation.is_bare else object_of(**envelope)
    content = {operation.produces: {"schema": {Html: TEXT, Moved: TEXT, Media: {}}.get(operation.data, success)}}
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
        "parameters": [*parameters_of(operation)],
        "responses": {str(operation.status): {"description": "Success.", "content": content} | more}
        | {str(status): _refusal(status, operation) for status in sorted(operation.statuses - {operation.status})}
        | {"default": {"$ref": "#/components/responses/Otherwise"}},
        "security": [] if operation.public else [{"bearer": []}],
    }
    if operation.body:
        described["requestBody"] = {
            "required": not may_be_left_out(operation.body),
            "content": {operation.accepts: {"schema": rendered(id(resolve(operation.body)))} | _example(operation)},
            "description": f"At most {operation.most // KIB} KiB.",
        }
    special = {"x-scope": operation.needed_scope, "x-extension": operation.extension}
    return described | {name: value for name, value in special.items() if value}


def _example(operation: Operation) -> dict[str, Any]:
    """The example of a body, if the operation has one."""
    return {} if operation.example is None else {"example": operation.example}


def _refusal(status: int, operation: Operation) -> dict[str, Any]:
    """An answer with a status of refusal, and the headers that it has."""
    if status == 304:
        return {"description": "What the client has is still right."}
    kinds = declared_errors(operation).get(status, ())
    if operation.is_bare:
        codes = ", ".join(f"`{code}`" for code in sorted({bare_code(kind) for kind in kinds}))
        about = f"See RFC 6749, section 5.2: {codes}."
        return {"description": about, "content": {"application/json": {"schema": _BARE_FAILURE}}}
    headers = {401: ["WWW-Authenticate"], 503: ["Retry-After"]}.get(status, [])
    page = {"content": {"text/html": {"schema": TEXT}}} if operation.is_page and status == 400 else {}
    return _failure(kinds, next(Refusal.kinds(status)).sentence()) | _headers(headers, required=True) | page


def _failure(kinds: Iterable[type[Refusal]], about: str) -> dict[str, Any]:
    """An answer in the envelope of failure: what it is about, and the code and sentence of each error."""
    codes = sorted(f"- `{kind.code}`: {kind.sentence()}" for kind in kinds)
    failure = {"application/json": {"schema": {"$ref": REFERENCE.format(name="Failure")}}}
    return {"description": "\n".join([about, *[""] * bool(codes), *codes]), "content": failure}


def _headers(names: list[str], *, required: bool) -> dict[str, Any]:
    """The headers that an answer has, or may have."""
    return {"headers": {name: {"required": required, "schema": TEXT} for name in names}} if names else {}


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
