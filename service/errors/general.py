"""What a refusal is, and the refusals that any operation may meet."""

from collections.abc import Collection, Iterator
from typing import ClassVar, NamedTuple

LONGEST = 500  # characters of a sentence, in which something that the client sent may stand


class Told(NamedTuple):
    """What the client is told of a refusal."""

    status: int
    code: str
    message: str
    headers: dict[str, str]


class Refusal(Exception):
    """A request that is answered with an error; `detail` replaces the sentence, `headers` go into the answer."""

    status: ClassVar[int]
    code: ClassVar[str]

    def __init__(self, detail: str = "", *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail[:LONGEST] or self.sentence())
        self.headers = headers or {}
        self.given: dict[str, str] = {}  # what a form that is shown again is filled with

    @classmethod
    def sentence(cls) -> str:
        """What people are told, unless there is more to say."""
        return " ".join((cls.__doc__ or "").split())

    @classmethod
    def kinds(cls, status: int) -> "Iterator[type[Refusal]]":
        """The refusals with a status, the general one first."""
        for kind in cls.__subclasses__():
            if kind.status == status:
                yield kind
            yield from kind.kinds(status)

    @classmethod
    def status_within(cls, statuses: Collection[int]) -> int | None:
        """The status of this error where an operation may answer `statuses`; None if it always hides behind another."""
        return cls.status

    def within(self, statuses: Collection[int]) -> Told:
        """How an operation that may answer `statuses` tells this refusal."""
        return Told(self.status_within(statuses) or self.status, self.code, str(self), self.headers)


# 400: the request cannot be understood or carried out as it stands.


class BadRequest(Refusal):
    """The request cannot be understood."""

    status = 400
    code = "bad_request"


class InvalidJson(BadRequest):
    """The body is not readable JSON."""

    code = "invalid_json"


class InvalidBody(BadRequest):
    """The body does not have the form that this operation takes."""

    code = "invalid_body"


class InvalidParameter(BadRequest):
    """A query parameter is malformed."""

    code = "invalid_parameter"

    def __init__(self, *faults: str) -> None:
        """`faults` each name a parameter and what is wrong with it."""
        super().__init__(" ".join(faults))
        self.faults = faults


class InvalidId(BadRequest):
    """An identifier in the path is malformed."""

    code = "invalid_id"


class InvalidCursor(BadRequest):
    """The cursor was altered, or comes from another list."""

    code = "invalid_cursor"


class IdempotencyKeyReused(BadRequest):
    """This Idempotency-Key was used with another request."""

    code = "idempotency_key_reused"


# 401: the caller is not known.


class Unauthenticated(Refusal):
    """Missing credentials: send `Authorization: Bearer` with an access token."""

    status = 401
    code = "missing_credentials"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail, headers={"WWW-Authenticate": self.challenge})

    challenge: ClassVar[str] = "Bearer"


class InvalidToken(Unauthenticated):
    """The token is not valid, has expired or was revoked."""

    code = "invalid_token"
    challenge = 'Bearer error="invalid_token"'


class InvalidCredentials(Unauthenticated):
    """The e-mail address or the password is wrong."""

    code = "invalid_credentials"


# 403 and 404: a known caller who may not, a thing that is not there.


class NotFound(Refusal):
    """There is nothing at this address."""

    status = 404
    code = "not_found"

    @classmethod
    def status_within(cls, statuses: Collection[int]) -> int | None:
        return 404 if 404 in statuses else 400


class Forbidden(Refusal):
    """You may not do this."""

    status = 403
    code = "forbidden"

    def __init__(self, concealed: type[NotFound]) -> None:
        """`concealed` is told instead where the operation lists no 403, so that foreign and unknown look the same."""
        super().__init__()
        self.concealed = concealed

    @classmethod
    def status_within(cls, statuses: Collection[int]) -> int | None:
        return 403 if 403 in statuses else None

    def within(self, statuses: Collection[int]) -> Told:
        return super().within(statuses) if 403 in statuses else self.concealed().within(statuses)


class InsufficientScope(Refusal):
    """The token does not reach this far."""

    status = 403
    code = "insufficient_scope"

    def __init__(self, scope: str) -> None:
        challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
        super().__init__(f"The token lacks the scope {scope}.", headers={"WWW-Authenticate": challenge})


# What any operation may answer.


class MethodNotAllowed(Refusal):
    """This address does not take that method."""

    status = 405
    code = "method_not_allowed"


class BodyTooLarge(Refusal):
    """The body is larger than this operation takes."""

    status = 413
    code = "body_too_large"


class RateLimited(Refusal):
    """Too many failed attempts; try again later."""

    status = 429
    code = "rate_limited"

    def __init__(self, seconds: int) -> None:
        super().__init__(headers={"Retry-After": str(max(1, seconds))})


class InternalError(Refusal):
    """Something went wrong on our side; the log has the details under this request's identifier."""

    status = 500
    code = "internal_error"


class StorageUnavailable(Refusal):
    """The database cannot take this right now; nothing was changed. Try again in a moment."""

    status = 503
    code = "storage_unavailable"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail, headers={"Retry-After": "2"})


class Busy(StorageUnavailable):
    """Too much of this is under way; try again in a moment."""

    code = "busy"


ANY_OPERATION = frozenset({413, 429, 500, 503})
"""Statuses that limits and faults may add to those an operation lists (and 403 `insufficient_scope`)."""

ANYWHERE = (InsufficientScope, BodyTooLarge, RateLimited, InternalError, StorageUnavailable, Busy)
"""The errors that any operation may answer with, whatever it declares."""
