"""The declared operations and their addresses."""

import itertools
import re
from collections.abc import Callable

from service.api.operations import Operation
from service.fields import Text
from service.routes import operations
from tests.support.rules import Test, for_each

ALL = {operation.name: operation for operation in operations()}

DOCUMENTED = {  # the 25 operations of section 4 of the specification; section 4.7 lists no statuses
    "POST /auth/login": {200, 400, 401},
    "GET /chats/{id}/messages": {200, 400, 401},
    "DELETE /chats/{session_id}/messages/{message_id}": {200, 400, 403, 404},
    "POST /chats/{session_id}/messages/{message_id}/pin": {200, 400, 401},
    "DELETE /chats/{session_id}/messages/{message_id}/pin": {200, 400, 401},
    "GET /chats/{session_id}/pinned-messages": {200, 400, 401},
    "POST /chats/{id}/archive": {200, 400, 403, 404},
    "DELETE /chats/{id}": {200, 400, 403, 404},
    "POST /chats/{id}/end": {200, 400, 403, 404},
    "PUT /chats/{id}/status": {200, 400, 403, 404},
    "GET /bots": {200, 400, 401},
    "GET /bots/{id}": {200, 400, 401, 404},
    "PATCH /users/me": {200, 400, 401},
    "POST /users/me/avatar": {200, 400, 401, 413, 415, 503},
    "GET /users/me/settings": {200, 401},
    "PATCH /users/me/settings": {200, 400, 401},
    "POST /data-shares": {201, 400, 401, 404},
    "GET /data-shares": {200, 401},
    "GET /data-shares/{id}": {200, 400, 403, 404},
    "DELETE /data-shares/{id}": {200, 400, 403, 404},
    "POST /feedback": {201, 400, 401},
    "GET /events": {200, 401},
    "GET /notifications": {200, 401},
    "PATCH /notifications/read-all": {200, 401},
    "GET /auth/cli/authorize": {200, 400, 401},
}


def every(condition: Callable[[Operation], object] = lambda operation: True) -> Callable[[Test], Test]:
    """Decorate a test that takes an `operation`: it runs for all operations that meet a condition (see `for_each`)."""
    return for_each("operation", {name: operation for name, operation in ALL.items() if condition(operation)})


def address(operation: Operation, *identifiers: str) -> str:
    """Return the path of an operation in the form that the client of the tests expects. Missing identifiers are `x`."""
    values = itertools.chain(identifiers, itertools.repeat("x"))
    return "/" + re.sub(r"{\w+}", lambda _: next(values), operation.full_path)


def accepts_any_identifier(operation: Operation) -> bool:
    """Return whether all identifiers of the path accept any text."""
    return all(isinstance(table.path_column(), Text) for _, _, table in operation.path_rows)


def title(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"
