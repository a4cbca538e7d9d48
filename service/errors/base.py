"""The base class of all errors."""

from collections.abc import Collection, Iterator
from typing import ClassVar, NamedTuple

MAX_MESSAGE = 500  # characters; a message may quote what the client sent


class ErrorInfo(NamedTuple):
    """An error as a client gets it."""

    status: int
    code: str
    message: str
    headers: dict[str, str]


class ApiError(Exception):
    """Ends a request with an error; `detail` replaces the default message, `headers` are added to the response."""

    status: ClassVar[int]
    code: ClassVar[str]

    def __init__(self, detail: str = "", *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail[:MAX_MESSAGE] or self.default_message())
        self.headers = headers or {}
        self.form_values: dict[str, str] = {}  # for a form that is shown again

    @classmethod
    def default_message(cls) -> str:
        """Return the message of errors without a detail: the docstring."""
        return " ".join((cls.__doc__ or "").split())

    @classmethod
    def with_status(cls, status: int) -> "Iterator[type[ApiError]]":
        """Return the errors with a status, the general one first."""
        for error in cls.__subclasses__():
            if error.status == status:
                yield error
            yield from error.with_status(status)

    @classmethod
    def status_for(cls, statuses: Collection[int]) -> int | None:
        """Return the status of this error for an operation that declares `statuses`; None if another replaces it."""
        return cls.status

    def info(self, statuses: Collection[int]) -> ErrorInfo:
        """Return the error as an operation that declares `statuses` reports it."""
        return ErrorInfo(self.status_for(statuses) or self.status, self.code, str(self), self.headers)
