"""What an operation declares. Everything else about it is derived from that one declaration.

    routes = Routes("Chat sessions", scope="chats")

    @routes.post("/chats/{id}/archive", answers=(200, 400, 403, 404))
    def archive_chat_session(caller: Caller, session: ChatSession) -> StatusNow:
        "Put a chat session away."

The path, the statuses and the rare words stand in the decorator; the rest is the handler's signature. A parameter
annotated with a table takes the next `{identifier}` of the path and is looked up with the table's `reach`;
`caller`, `origin`, `query` and `body` are handed in when asked for; the return annotation is the `data` of the answer.
The docstring is the summary.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from service.db import Page, Position, Table
from service.fields import shape

PREFIX = "/api/v1"
KIB = 1024

Handler = TypeVar("Handler", bound=Callable[..., Any])

LowerBound = Annotated[str, Meta(description="An RFC 3339 timestamp, or a date for the start of that day.")]
UpperBound = Annotated[str, Meta(description="An RFC 3339 timestamp, or a date for the end of that day.")]
Cursor = Position
"""The type of a `cursor` parameter: handed in as the position that its text stands for."""


class Origin(Struct, frozen=True):
    """Where a request comes from."""

    address: str
    user_agent: str


class Html(NamedTuple):
    """A page for people: a template in templates/ and what it shows."""

    template: str
    values: dict[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation, as declared."""

    method: str
    path: str  # as in the document, with {identifiers}
    handler: Callable[..., Any]
    answers: tuple[int, ...]  # the statuses that the document lists
    tag: str
    prefix: str = PREFIX
    scope: str = ""  # what a narrow token needs; empty: any token
    public: bool = False  # needs no credentials
    extension: bool = False  # not in the document
    vital: bool = False  # an extension that is served with --documented-only too
    meta: tuple[str, ...] = ()
    most: int = 1024 * KIB  # bytes of the body
    # Read from the handler:
    name: str = field(init=False)
    summary: str = field(init=False)
    loads: tuple[tuple[str, str, type[Table]], ...] = field(init=False)  # identifier, parameter, table
    wants: frozenset[str] = field(init=False)
    query: Any = field(init=False)
    body: Any = field(init=False)
    data: Any = field(init=False)  # the type of the answer's `data` on the wire

    def __post_init__(self) -> None:
        hints = get_type_hints(self.handler, include_extras=True)
        returns = hints.pop("return", None)
        identifiers = re.findall(r"{(\w+)}", self.path)
        tables = [(name, kind) for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, Table)]
        wants = frozenset(hints) - {name for name, _ in tables}
        summary = inspect.cleandoc(self.handler.__doc__ or "").partition("\n")[0]
        faults = {
            "needs a docstring": not summary,
            "does not look up every identifier of its path": len(identifiers) != len(tables),
            "asks for something unknown": not wants <= {"caller", "origin", "settings", "query", "body"},
            "asks for a caller but is public": self.public and "caller" in wants,
            "does not say what it returns": returns is None,
            "fills meta but returns no page": bool(self.meta) != (get_origin(returns) is Page),
            "returns a page but takes no cursor": bool(self.meta)
            and hints_of(hints.get("query")).get("cursor") != Cursor,
            "requires a parameter but lists no 400": 400 not in self.answers and not may_be_empty(hints.get("query")),
            "creates something for nobody": self.public and self.status == 201,
        }
        for fault, holds in faults.items():
            if holds:
                raise TypeError(f"{self.method} {self.path}: {self.handler.__name__} {fault}")
        derived = {
            "name": self.handler.__name__,
            "summary": summary,
            "loads": tuple((identifier, *table) for identifier, table in zip(identifiers, tables, strict=True)),
            "wants": wants,
            "query": hints.get("query"),
            "body": hints.get("body"),
            "data": resolve(returns),
        }
        for name, value in derived.items():  # frozen from here on
            object.__setattr__(self, name, value)

    @property
    def full_path(self) -> str:
        return self.prefix + self.path

    @property
    def status(self) -> int:
        """The status of success."""
        return min(self.answers)

    @property
    def statuses(self) -> frozenset[int]:
        """What a client has to expect: the document's statuses, and 401 wherever credentials are needed."""
        return frozenset(self.answers) | (frozenset() if self.public else {401})

    @property
    def is_lenient(self) -> bool:
        """The document lists no 400: garbage is never answered with an error, and never widens what is selected."""
        return 400 not in self.answers

    @property
    def needed_scope(self) -> str:
        """The scope that a narrow token must have."""
        return f"{self.scope}:read" if self.scope and self.method == "GET" else self.scope


def resolve(kind: Any) -> Any:
    """The wire type behind an annotation: tables become their shapes, rendered rows what they were rendered from."""
    if isinstance(kind, type) and issubclass(kind, Table):
        return shape(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Page:
        return list[resolve(arguments[0])]  # type: ignore[misc]
    if origin is Annotated and arguments[0] is msgspec.Raw:
        return resolve(arguments[1])
    if origin is list:
        return list[resolve(arguments[0])]  # type: ignore[misc]
    if isinstance(kind, type) and issubclass(kind, Struct):
        members = {name: (hint, resolve(hint)) for name, hint in get_type_hints(kind, include_extras=True).items()}
        if any(given != wire for given, wire in members.values()):
            return msgspec.defstruct(kind.__name__, [(name, wire) for name, (_, wire) in members.items()])
    return kind


def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of a query or body, by name; of none where there is none."""
    return get_type_hints(kind, include_extras=True) if kind else {}


def may_be_empty(kind: Any) -> bool:
    """Whether a query or body may be left out: there is none, or none of its members is required."""
    return not kind or not any(member.required for member in msgspec.structs.fields(kind))


class Routes:
    """The operations of one part of the service; the only decorators with which operations are declared."""

    def __init__(self, tag: str, **common: Any) -> None:
        self.tag, self.common = tag, common
        self.operations: list[Operation] = []

    def __iter__(self) -> Any:
        return iter(self.operations)

    def declare(self, method: str, path: str, **words: Any) -> Callable[[Handler], Handler]:
        """The decorator for any method; words that an Operation does not know are refused at once."""

        def register(handler: Handler) -> Handler:
            declared = {"tag": self.tag, **self.common, **words}
            self.operations.append(Operation(method=method, path=path, handler=handler, **declared))
            return handler

        return register

    def get(self, path: str, **words: Any) -> Callable[[Handler], Handler]:
        return self.declare("GET", path, **words)

    def post(self, path: str, **words: Any) -> Callable[[Handler], Handler]:
        return self.declare("POST", path, **words)

    def put(self, path: str, **words: Any) -> Callable[[Handler], Handler]:
        return self.declare("PUT", path, **words)

    def patch(self, path: str, **words: Any) -> Callable[[Handler], Handler]:
        return self.declare("PATCH", path, **words)

    def delete(self, path: str, **words: Any) -> Callable[[Handler], Handler]:
        return self.declare("DELETE", path, **words)
