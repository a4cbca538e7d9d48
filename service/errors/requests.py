"""Errors of any request: malformed, not routed, too large, rate limited, failed."""

from collections.abc import Collection
from typing import ClassVar

from service.errors.base import ApiError


class BadRequest(ApiError):
    """The request is malformed."""

    status = 400
    code = "bad_request"


class InvalidJson(BadRequest):
    """The body is not valid JSON."""

    code = "invalid_json"


class InvalidBody(BadRequest):
    """The body does not match the schema of this operation."""

    code = "invalid_body"


class InvalidParameter(BadRequest):
    """A query parameter is malformed."""

    code = "invalid_parameter"

    def __init__(self, *problems: str) -> None:
        """Each of `problems` names a parameter and its error."""
        super().__init__(" ".join(problems))
        self.problems = problems


class InvalidId(BadRequest):
    """An identifier in the path is malformed."""

    code = "invalid_id"


class InvalidCursor(BadRequest):
    """The cursor was altered, or belongs to another list."""

    code = "invalid_cursor"


class IdempotencyKeyReused(BadRequest):
    """This Idempotency-Key was used with another request."""

    code = "idempotency_key_reused"


class NotFound(ApiError):
    """There is nothing at this address."""

    status = 404
    code = "not_found"

    @classmethod
    def status_for(cls, statuses: Collection[int]) -> int | None:
        return 404 if 404 in statuses else 400


class MethodNotAllowed(ApiError):
    """This address does not support this method."""

    status = 405
    code = "method_not_allowed"


class BodyTooLarge(ApiError):
    """The body is larger than this operation accepts."""

    status = 413
    code = "body_too_large"


class RateLimited(ApiError):
    """Too many failed attempts; try again later."""

    status = 429
    code = "rate_limited"

    def __init__(self, seconds: int, detail: str = "") -> None:
        """`seconds` until the next attempt is accepted."""
        super().__init__(detail, headers={"Retry-After": str(max(1, seconds))})


class AssistantLimitReached(ApiError):
    """This app has used the assistant as much as it may."""

    status = 429
    code = "assistant_limit_reached"


class HeadersTooLarge(ApiError):
    """The header of the request is too large."""

    status = 431
    code = "headers_too_large"


class InternalError(ApiError):
    """The server failed to process this request; its log has the details under the request's identifier."""

    status = 500
    code = "internal_error"


class StorageUnavailable(ApiError):
    """The database is unavailable; nothing was changed. Try again in a moment."""

    status = 503
    code = "storage_unavailable"
    retry_after: ClassVar[int] = 2  # seconds

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail, headers={"Retry-After": str(self.retry_after)})


class AssistantUnavailable(ApiError):
    """The assistant has not replied; try again."""

    status = 503
    code = "assistant_unavailable"


class Busy(StorageUnavailable):
    """Too many such requests are being processed; try again in a moment."""

    code = "busy"
