"""The OpenAPI 3.1 document, derived from what the operations declare."""

from collections.abc import Callable, Iterable

from service.api.declared_errors import declared_errors, oauth_code
from service.api.event_stream import EventStream
from service.api.json_schemas import REFERENCE, TEXT, Schema, content_of, object_of, parameters_of, schemas_of
from service.api.operations import KIB, Operation
from service.api.parameter_types import Download, HtmlPage, Media, Redirect
from service.api.schemas import may_be_left_out, row_schema, wire_type
from service.db import Table
from service.errors import COMMON_ERRORS, ApiError
from service.types import JsonObject
from service.version import VERSION

DESCRIPTION = """\
Customers chat with bots and with staff. Every JSON response has an envelope: `{"success": true, "data": …}`, with
`meta` for lists, or `{"success": false, "error": {"code": …, "message": …}}`. Codes are stable; messages may change.

- **Authentication.** Send `Authorization: Bearer` with the `access_token` of a login. The tokens of command-line
  clients are limited to scopes: `x-scope` is the scope of an operation, and `chats` includes `chats:read`. An
  operation with `x-resource` needs a token for this resource, which no other operation accepts.
- **Lists.** `meta.next_cursor` is the `cursor` of the next page, and empty on the last page. Keep the other parameters.
- **Timestamps.** RFC 3339, in UTC. Parameters also accept a date.
- **Repeated requests.** `POST` operations that return 201 accept an `Idempotency-Key`.
- **Caching.** Responses with an `ETag` return 304 for a matching `If-None-Match`.
- **Errors.** Every operation may also return the errors of its `default` response. After 429 and 503, wait for the
  number of seconds in `Retry-After`.
"""

HEADERS = {
    "ETag": "Changes when the response does.",
    "Idempotency-Replayed": "`true` if this is the stored response of an earlier request.",
    "Retry-After": "Seconds to wait before the request is repeated.",
    "WWW-Authenticate": "The challenge (RFC 6750).",
    "X-Request-Warning": "Malformed input that was ignored.",
}

BODILESS = {202: "The message needs no answer.", 304: "The client's copy is current."}

# Without an envelope.
OTHER_SCHEMAS: dict[object, Schema] = {HtmlPage: TEXT, Redirect: TEXT, EventStream: TEXT, Media: {}, Download: {}}
_FALSE, _TRUE = ({"type": "boolean", "const": value} for value in (False, True))
_OAUTH_ERROR = object_of(error=TEXT, error_description=TEXT)
_BASIC = {"type": "http", "scheme": "basic", "description": "The identifier and the secret of a client."}
_BEARER = {"type": "http", "scheme": "bearer", "description": "The `access_token` of a login."}


def document(operations: Iterable[Operation], server: str = "", *, pages: bool = False) -> JsonObject:
    """Return the document for some operations, ready to be encoded as JSON.

    The pages of the console are omitted unless `pages` is set, because clients do not call them. A page that is not an
    extension is always included.
    """
    operations = [
        operation for operation in operations if pages or not (operation.accepts_cookie and operation.extension)
    ]
    types = [found for one in operations for found in (wire_type(one.body), one.data)]
    kinds = [found for found in types if found not in (None, *OTHER_SCHEMAS)]
    schemas, components = schemas_of(kinds)
    rendered = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, JsonObject] = {}
    for operation in operations:
        described = _operation(operation, rendered.get, dict(_links(operation, operations)))
        paths.setdefault(operation.full_path, {})[operation.method.lower()] = described
    failure = object_of(success=_FALSE, error=object_of(code=TEXT, message=TEXT))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Conversational Customer-Experience Service", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": server or "/"}],
        "paths": paths,
        "components": {
            "schemas": components | {"Failure": failure},
            "responses": {
                "Otherwise": _failure(COMMON_ERRORS, "A limit was exceeded, the server failed, or a scope is missing.")
            },
            "securitySchemes": {"bearer": _BEARER} | dict([("basic", _BASIC)] * any(one.basic for one in operations)),
        },
    }


def _operation(operation: Operation, rendered: Callable[[int], Schema | None], links: JsonObject) -> JsonObject:
    envelope = {"success": _TRUE, **content_of(operation, rendered(id(operation.data)) or {})}
    success = envelope["data"] if operation.is_bare else object_of(**envelope)
    content = {operation.produces: {"schema": OTHER_SCHEMAS.get(operation.data, success)}}
    optional = {
        "Idempotency-Replayed": operation.is_repeatable,
        "ETag": 304 in operation.all_statuses,
        "X-Request-Warning": operation.is_lenient and (operation.query or operation.body),
    }
    more = _headers([name for name, holds in optional.items() if holds], required=False)
    more |= {"links": links} if links else {}
    described: JsonObject = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*parameters_of(operation)],
        "responses": {str(operation.status): {"description": "Success.", "content": content} | more}
        | {
            str(status): _error_response(status, operation, content)
            for status in sorted(operation.all_statuses - {operation.status})
        }
        | {"default": {"$ref": "#/components/responses/Otherwise"}},
        "security": [] if operation.public else [{"bearer": []}, *[{"basic": []}] * bool(operation.basic)],
    }
    if operation.body:
        described["requestBody"] = {
            "required": not may_be_left_out(operation.body),
            "content": {operation.accepts: {"schema": rendered(id(wire_type(operation.body)))} | _example(operation)},
            "description": f"At most {operation.max_body // KIB} KiB.",
        }
    special = {"x-scope": operation.needed_scope, "x-resource": operation.resource, "x-extension": operation.extension}
    return described | {name: value for name, value in special.items() if value}


def _example(operation: Operation) -> JsonObject:
    """Return the example of a body, if the operation declares one."""
    return {} if operation.example is None else {"example": operation.example}


def _error_response(status: int, operation: Operation, content: JsonObject) -> JsonObject:
    """Return the response with a status other than success, and its headers."""
    if status in BODILESS:
        return {"description": BODILESS[status]}
    errors = declared_errors(operation).get(status, ())
    headers = _headers({401: ["WWW-Authenticate"], 503: ["Retry-After"]}.get(status, []), required=True)
    if operation.is_oauth:
        codes = ", ".join(f"`{code}`" for code in sorted({oauth_code(error) for error in errors}))
        description = f"See RFC 6749, section 5.2: {codes}."
        return {"description": description, "content": {"application/json": {"schema": _OAUTH_ERROR}}} | headers
    if operation.is_bare and status in (400, 404):
        return {"description": "An error of the protocol.", "content": content}
    page = {"content": {"text/html": {"schema": TEXT}}} if operation.is_page and status == 400 else {}
    description = next(ApiError.with_status(status)).default_message()
    return _failure(errors, description) | headers | page


def _failure(errors: Iterable[type[ApiError]], description: str) -> JsonObject:
    """Return an error response in the envelope: a description, and the code and message of each error."""
    codes = sorted(f"- `{error.code}`: {error.default_message()}" for error in errors)
    failure = {"application/json": {"schema": {"$ref": REFERENCE.format(name="Failure")}}}
    return {"description": "\n".join([description, *[""] * bool(codes), *codes]), "content": failure}


def _headers(names: list[str], *, required: bool) -> JsonObject:
    """Return the headers of a response, all required or all optional."""
    headers = {name: {"required": required, "schema": TEXT, "description": HEADERS[name]} for name in names}
    return {"headers": headers} if names else {}


def _links(operation: Operation, operations: Iterable[Operation]) -> Iterable[tuple[str, JsonObject]]:
    """Return operations on the row that an operation returns, or on the first of its rows."""
    known = {table: f"$request.path.{identifier}" for identifier, _, table in operation.path_rows}
    for other in operations:
        tables: list[type[Table] | None] = [table for *_, table in other.path_rows] or [None]
        *above, target = tables
        place = {target and row_schema(target): "id", target and list[row_schema(target)]: "0/id"}.get(operation.data)  # type: ignore[misc]
        if place and set(above) <= set(known):
            found = known | {target: f"$response.body#/data/{place}"}
            parameters = {identifier: found[table] for identifier, _, table in other.path_rows}
            yield other.name, {"operationId": other.name, "parameters": parameters}
