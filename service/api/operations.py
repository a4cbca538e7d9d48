"""The declaration of operations.

    routes = Routes("Chat sessions", scope="chats")

    @routes.post("/chats/{id}/archive", statuses=(200, 400, 403, 404))
    def archive_chat_session(caller: Caller, session: ChatSession) -> StatusNow:
        "Archive a chat session."

The decorator declares the path, the statuses, and the errors that do not follow from the rest. The handler's signature
declares the rest: a parameter annotated with a table takes the next `{identifier}` of the path, and gets the row from
the table's `get_for`; `caller`, `request_info`, `query` and `body` are passed by name; the return annotation is the
`data` of the response. The docstring is the summary.

Routing, authentication, decoding, the envelope, error responses and the OpenAPI document are derived from this.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, get_origin, get_type_hints

from service.api.parameter_types import BareBody, Cursor, Download, Form, HtmlPage, OAuthBody, Redirect, Upload
from service.api.schemas import hints_of, may_be_empty, wire_type
from service.db import Page, Table
from service.errors import ApiError
from service.fields import WireType

PREFIX = "/api/v1"
KIB = 1024
MAX_FORM = 64 * KIB  # bytes of a form of unauthenticated clients: decoding thousands of fields takes long

Handler = TypeVar("Handler", bound=Callable[..., object])
Option: TypeAlias = Any  # a member of Operation; dataclasses give no type for these

Runs = Literal["read", "write", "slow"]
"""How an operation runs.

`read`: on the event loop, within a time budget. `write`: in the thread of the group commits; its handler runs in a
transaction that it may share with other requests, so it only executes statements. `slow`: in a thread of the pool."""

HANDLER_PARAMETERS = frozenset({"caller", "request_info", "settings", "operations", "query", "body", "mcp"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """An operation, as declared."""

    method: str
    path: str  # with {identifiers}
    handler: Callable[..., object]
    statuses: tuple[int, ...]  # success first; 401 and 304 are added where they follow from the rest
    tag: str
    prefix: str = PREFIX
    scope: str = ""  # that a token needs; empty: none
    resource: str = ""  # that a token must be for (RFC 8707); empty: the API
    public: bool = False  # needs no credentials
    basic: Callable[[str], Option] | None = None  # beside tokens: of a header `Basic …`, returns the `caller`
    admin_only: bool = False  # other callers get 403
    extension: bool = False  # omitted with --documented-only
    always_served: bool = False  # an extension that is served with --documented-only, too
    meta: tuple[str, ...] = ()  # members of `meta`
    revision: Callable[..., object] | None = None  # of the caller and the rows of the path; the ETag is derived from it
    produces: str = "application/json"  # the media type of a success
    max_body: int = 1024 * KIB  # bytes; 16 KiB for operations without a body
    runs: Runs | None = None  # by default `slow` for pages, `read` for other GETs, otherwise `write`
    endpoint: Callable[..., Option] | None = None  # serves it; by default chosen by the kind of its response
    calls: tuple[str, ...] = ()  # what a request may call, such as tools; the log and the metrics name it
    prepare: Callable[..., object] | None = None  # called before the transaction; its result is passed as `prepared`
    example: object = None  # a body that is valid for the demo's data
    errors: tuple[type[ApiError], ...] = ()  # of the handler; `declared_errors` adds those that follow from the rest
    # Derived from the handler:
    name: str = field(init=False)
    summary: str = field(init=False)
    path_rows: tuple[tuple[str, str, type[Table]], ...] = field(init=False)  # identifier, parameter, table
    parameters: frozenset[str] = field(init=False)  # that are passed by name
    query: WireType = field(init=False)
    body: WireType = field(init=False)
    data: WireType = field(init=False)  # the type of the response's `data`
    prepare_parameters: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(self.handler, include_extras=True)
        returns = hints.pop("return", None)
        identifiers = re.findall(r"{(\w+)}", self.path)
        tables = [(name, kind) for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, Table)]
        parameters = frozenset(hints) - {name for name, _ in tables}
        before = get_type_hints(self.prepare, include_extras=True) if self.prepare else {}
        prepare_parameters = frozenset(before) - {"return"}
        summary = inspect.cleandoc(self.handler.__doc__ or "").partition("\n")[0]
        errors = {
            "needs a docstring": not summary,
            "does not look up every identifier of its path": len(identifiers) != len(tables),
            "has an unknown parameter": not parameters <= HANDLER_PARAMETERS | ({"prepared"} if self.prepare else set())
            or not prepare_parameters <= HANDLER_PARAMETERS | set(hints),
            "has a caller but is public": self.public and "caller" in parameters,
            "has no return annotation": returns is None,
            "declares meta but returns no page": bool(self.meta) != (get_origin(returns) is Page),
            "returns a page but has no cursor": bool(self.meta)
            and hints_of(hints.get("query")).get("cursor") != Cursor,
            "requires a parameter but declares no 400": 400 not in self.statuses
            and not may_be_empty(hints.get("query")),
            "creates a row but is public": self.public and self.status == 201 and not _is_oauth(returns),
            "is for admins but declares no 403": self.admin_only and 403 not in self.statuses,
        }
        for error, occurs in errors.items():
            if occurs:
                raise TypeError(f"{self.method} {self.path}: {self.handler.__name__} {error}")
        derived = {
            "name": self.handler.__name__,
            "summary": summary,
            "path_rows": tuple((identifier, *table) for identifier, table in zip(identifiers, tables, strict=True)),
            "parameters": parameters,
            "query": hints.get("query"),
            "body": hints.get("body", before.get("body")),
            "max_body": self.max_body if "body" in {*hints, *before} else 16 * KIB,
            "data": wire_type(returns),
            "prepare_parameters": prepare_parameters,
            "runs": self.runs
            or ("slow" if returns in (HtmlPage, Redirect, Download) else "read" if self.method == "GET" else "write"),
        }
        for name, value in derived.items():  # the class is frozen
            object.__setattr__(self, name, value)

    @cached_property
    def full_path(self) -> str:
        return self.prefix + self.path

    @cached_property
    def status(self) -> int:
        """The status of success."""
        return min(self.statuses)

    @cached_property
    def accepts(self) -> str:
        """The media type of the body."""
        kinds = {Upload: "multipart/form-data", Form: "application/x-www-form-urlencoded"}
        own = self.body.__mro__ if isinstance(self.body, type) else ()
        return next((kinds[kind] for kind in own if kind in kinds), "application/json")

    @cached_property
    def is_page(self) -> bool:
        """Whether the response is an HTML page, a redirect or a download from a page; errors are pages as well."""
        return self.data in (HtmlPage, Redirect, Download)

    @cached_property
    def accepts_cookie(self) -> bool:
        """Whether the sign-in cookie gives access in place of a token: for pages, and the media on them."""
        return self.is_page or self.scope == "console"

    @cached_property
    def is_bare(self) -> bool:
        """Whether responses have no envelope."""
        return isinstance(self.data, type) and issubclass(self.data, BareBody)

    @cached_property
    def is_oauth(self) -> bool:
        """Whether errors have no envelope either (RFC 6749, section 5.2)."""
        return _is_oauth(self.data)

    @cached_property
    def all_statuses(self) -> frozenset[int]:
        """The declared statuses, 401 unless the operation is public, and 304 if it has a revision."""
        return frozenset((*self.statuses, *[401] * (not self.public), *[304] * bool(self.revision)))

    @cached_property
    def is_lenient(self) -> bool:
        """Whether malformed input is ignored with a warning, and selects nothing: the operation declares no 400."""
        return 400 not in self.statuses

    @cached_property
    def is_repeatable(self) -> bool:
        """Whether an `Idempotency-Key` makes it safe to repeat the request."""
        return self.status == 201 and not self.public

    @cached_property
    def labels(self) -> dict[str, str]:
        """The names of the operation in the log and the metrics, by what a request calls; empty: none of `calls`."""
        return {"": self.name, **{call: f"{self.name}:{call}" for call in self.calls}}

    @cached_property
    def needed_scope(self) -> str:
        """The scope that a token must have; empty: any."""
        return f"{self.scope}:read" if self.scope and self.method == "GET" else self.scope


def _is_oauth(kind: WireType) -> bool:
    return isinstance(kind, type) and issubclass(kind, OAuthBody)


class Routes:
    """The operations of a module, and the decorators that declare them."""

    def __init__(self, tag: str, **defaults: Option) -> None:
        self.tag, self.defaults = tag, defaults
        self.operations: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def declare(self, method: str, path: str, **options: Option) -> Callable[[Handler], Handler]:
        """Return a decorator for any method. Raises TypeError for options that Operation does not have."""

        def register(handler: Handler) -> Handler:
            declared = {"tag": self.tag, **self.defaults, **options}
            self.operations.append(Operation(method=method, path=path, handler=handler, **declared))
            return handler

        return register

    def get(self, path: str, **options: Option) -> Callable[[Handler], Handler]:
        return self.declare("GET", path, **options)

    def post(self, path: str, **options: Option) -> Callable[[Handler], Handler]:
        return self.declare("POST", path, **options)

    def put(self, path: str, **options: Option) -> Callable[[Handler], Handler]:
        return self.declare("PUT", path, **options)

    def patch(self, path: str, **options: Option) -> Callable[[Handler], Handler]:
        return self.declare("PATCH", path, **options)

    def delete(self, path: str, **options: Option) -> Callable[[Handler], Handler]:
        return self.declare("DELETE", path, **options)
