"""What an operation declares. Everything else about it is derived from that one declaration.

    routes = Routes("Chat sessions", scope="chats")

    @routes.post("/chats/{id}/archive", answers=(200, 400, 403, 404))
    def archive_chat_session(caller: Caller, session: ChatSession) -> StatusNow:
        "Put a chat session away."

The path, the statuses and the rare words stand in the decorator, as do the errors that do not follow from the rest
(`raises`); the rest is the handler's signature. A parameter
annotated with a table takes the next `{identifier}` of the path and is looked up with the table's `reach`;
`caller`, `origin`, `query` and `body` are handed in when asked for; the return annotation is the `data` of the answer.
The docstring is the summary.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar, get_origin, get_type_hints

from service.db import Page, Table
from service.errors import Refusal
from service.shapes import hints_of, may_be_empty, resolve
from service.signature import Bare, Cursor, Form, Html, Moved, Upload

PREFIX = "/api/v1"
KIB = 1024
FORM = 64 * KIB  # bytes of a form that anybody may send: thousands of fields take long to read

Handler = TypeVar("Handler", bound=Callable[..., Any])

Runs = Literal["read", "write", "slow"]
"""Where an operation runs. `read`: on the event loop, within a time budget. `write`: in the thread of the group
commits; its handler runs in a transaction that it may share with other requests, so it does nothing but statements.
`slow`: in a thread of the pool."""

GIVEN = frozenset(("caller", "origin", "settings", "operations", "query", "body"))  # parameters of a handler


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
    revision: Callable[..., Any] | None = None  # of the caller and the rows of the path: other whenever the answer is
    produces: str = "application/json"  # the type of a success
    most: int = 1024 * KIB  # bytes of the body; of one that the operation does not read, 16 KiB
    runs: Runs | None = None  # by default, pages are slow, other GETs read, and everything else writes
    prepare: Callable[..., Any] | None = None  # called before the transaction; its result is the handler's `prepared`
    example: Any = None  # a body that the demo takes as it stands
    raises: tuple[type[Refusal], ...] = ()  # the handler's own errors; `declared_errors` adds those that follow
    # Read from the handler:
    name: str = field(init=False)
    summary: str = field(init=False)
    loads: tuple[tuple[str, str, type[Table]], ...] = field(init=False)  # identifier, parameter, table
    wants: frozenset[str] = field(init=False)
    query: Any = field(init=False)
    body: Any = field(init=False)
    data: Any = field(init=False)  # the type of the answer's `data` on the wire
    prepare_wants: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(self.handler, include_extras=True)
        returns = hints.pop("return", None)
        identifiers = re.findall(r"{(\w+)}", self.path)
        tables = [(name, kind) for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, Table)]
        wants = frozenset(hints) - {name for name, _ in tables}
        before = get_type_hints(self.prepare, include_extras=True) if self.prepare else {}
        prepare_wants = frozenset(before) - {"return"}
        summary = inspect.cleandoc(self.handler.__doc__ or "").partition("\n")[0]
        faults = {
            "needs a docstring": not summary,
            "does not look up every identifier of its path": len(identifiers) != len(tables),
            "asks for something unknown": not wants <= GIVEN | ({"prepared"} if self.prepare else set())
            or not prepare_wants <= GIVEN | set(hints),
            "asks for a caller but is public": self.public and "caller" in wants,
            "does not say what it returns": returns is None,
            "fills meta but returns no page": bool(self.meta) != (get_origin(returns) is Page),
            "returns a page, takes no cursor": bool(self.meta) and hints_of(hints.get("query")).get("cursor") != Cursor,
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
            "body": hints.get("body", before.get("body")),
            "most": self.most if "body" in {*hints, *before} else 16 * KIB,
            "data": resolve(returns),
            "prepare_wants": prepare_wants,
            "runs": self.runs or ("slow" if returns in (Html, Moved) else "read" if self.method == "GET" else "write"),
        }
        for name, value in derived.items():  # frozen from here on
            object.__setattr__(self, name, value)

    @cached_property
    def full_path(self) -> str:
        return self.prefix + self.path

    @cached_property
    def status(self) -> int:
        """The status of success."""
        return min(self.answers)

    @cached_property
    def accepts(self) -> str:
        """The type of the body."""
        kinds = {Upload: "multipart/form-data", Form: "application/x-www-form-urlencoded"}
        own = self.body.__mro__ if isinstance(self.body, type) else ()
        return next((kinds[kind] for kind in own if kind in kinds), "application/json")

    @cached_property
    def is_page(self) -> bool:
        """Whether people meet this in a browser; the sign-in cookie counts, and refusals are pages."""
        return self.data in (Html, Moved)

    @cached_property
    def is_bare(self) -> bool:
        """Whether answers come without the envelope."""
        return isinstance(self.data, type) and issubclass(self.data, Bare)

    @cached_property
    def statuses(self) -> frozenset[int]:
        """What a client has to expect: the document's statuses, 401 wherever credentials are needed, 304 if it asks."""
        return frozenset((*self.answers, *[401] * (not self.public), *[304] * bool(self.revision)))

    @cached_property
    def is_lenient(self) -> bool:
        """The document lists no 400: garbage is never answered with an error, and never widens what is selected."""
        return 400 not in self.answers

    @cached_property
    def needed_scope(self) -> str:
        """The scope that a narrow token must have."""
        return f"{self.scope}:read" if self.scope and self.method == "GET" else self.scope


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
