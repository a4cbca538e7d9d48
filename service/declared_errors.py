"""The errors that an operation may answer with: its own, and those that follow from what it declares."""

from collections.abc import Iterator

from service.errors import (
    BadRequest,
    BodyTooLarge,
    FileMissing,
    FileTooLarge,
    IdempotencyKeyReused,
    InvalidBody,
    InvalidCursor,
    InvalidId,
    InvalidJson,
    InvalidParameter,
    InvalidToken,
    Refusal,
    StorageUnavailable,
    Unauthenticated,
)
from service.fields import Text
from service.operations import Operation
from service.shapes import hints_of
from service.signature import Cursor

Errors = tuple[type[Refusal], ...]

_OF_A_BODY: dict[str, Errors] = {
    "application/json": (InvalidJson, InvalidBody),
    "application/x-www-form-urlencoded": (InvalidBody, InvalidParameter),
    "multipart/form-data": (InvalidBody, FileMissing, FileTooLarge),
}


def declared_errors(operation: Operation) -> dict[int, Errors]:
    """The errors of an operation by status. Any operation may also answer with one of `errors.ANYWHERE`."""
    found: dict[int, Errors] = {}
    for kind in dict.fromkeys((*implied_errors(operation), *operation.raises)):
        status = kind.status_within(operation.statuses)
        if status:
            found[status] = (*found.get(status, ()), kind)
    return found


def implied_errors(operation: Operation) -> Iterator[type[Refusal]]:
    """The errors of the steps around the handler."""
    if not operation.public:
        yield from (Unauthenticated, InvalidToken)
    for _, _, table in operation.loads:
        yield from [InvalidId] * (not isinstance(table.path_column(), Text))
        yield from table.reach_raises
    if operation.query and not operation.is_lenient:
        yield InvalidParameter
        yield from [InvalidCursor] * (Cursor in hints_of(operation.query).values())
    if operation.body and not operation.is_lenient:
        yield from _OF_A_BODY[operation.accepts]
    if operation.status == 201:
        yield from (BadRequest, IdempotencyKeyReused)  # an Idempotency-Key that is malformed, or used
    yield from [kind for kind in (BodyTooLarge, StorageUnavailable) if kind.status in operation.answers]
