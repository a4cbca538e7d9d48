"""The errors that an operation may return: those that it declares, and those that follow from its declaration."""

from collections.abc import Iterator

from service.api.operations import Operation
from service.api.parameter_types import Cursor
from service.api.schemas import hints_of
from service.errors import (
    ApiError,
    BadRequest,
    BodyTooLarge,
    ErrorInfo,
    FileMissing,
    FileTooLarge,
    Forbidden,
    IdempotencyKeyReused,
    InvalidBody,
    InvalidCursor,
    InvalidId,
    InvalidJson,
    InvalidParameter,
    InvalidToken,
    StorageUnavailable,
    Unauthenticated,
)
from service.fields import Text

Errors = tuple[type[ApiError], ...]

OAUTH_CODES = (
    *("invalid_grant", "unsupported_grant_type", "invalid_client", "invalid_target", "invalid_redirect_uri"),
    *("authorization_pending", "slow_down", "access_denied", "expired_token"),  # RFC 8628, section 3.5
)

_BODY_ERRORS: dict[str, Errors] = {
    "application/json": (InvalidJson, InvalidBody),
    "application/x-www-form-urlencoded": (InvalidBody, InvalidParameter),
    "multipart/form-data": (InvalidBody, FileMissing, FileTooLarge),
}


def declared_errors(operation: Operation) -> dict[int, Errors]:
    """Return the errors of an operation by status. Any operation may also return one of `errors.COMMON_ERRORS`."""
    found: dict[int, Errors] = {}
    for error in dict.fromkeys((*implied_errors(operation), *operation.errors)):
        status = error.status_for(operation.all_statuses)
        if status:
            found[status] = (*found.get(status, ()), error)
    return found


def implied_errors(operation: Operation) -> Iterator[type[ApiError]]:
    """Return the errors of the steps before the handler."""
    if not operation.public:
        yield from (Unauthenticated, InvalidToken)
    if operation.admin_only:
        yield Forbidden
    for _, _, table in operation.path_rows:
        yield from [InvalidId] * (not isinstance(table.path_column(), Text))
        yield from table.get_for_errors
    if operation.query and not operation.is_lenient:
        yield InvalidParameter
        yield from [InvalidCursor] * (Cursor in hints_of(operation.query).values())
    if operation.body and not operation.is_lenient:
        yield from _BODY_ERRORS[operation.accepts]
    if operation.is_repeatable:
        yield from (BadRequest, IdempotencyKeyReused)  # a malformed or reused Idempotency-Key
    yield from [error for error in (BodyTooLarge, StorageUnavailable) if error.status in operation.statuses]


def oauth_code(error: ErrorInfo | type[ApiError]) -> str:
    """Return the code of an error for OAuth clients (RFC 6749, section 5.2)."""
    return error.code if error.code in OAUTH_CODES or error.status != 400 else "invalid_request"
