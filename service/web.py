"""From a request to an answer: one order of steps for every operation, and one envelope for whatever comes out.

The only importer of Bottle, which routes. 404, 405 and OPTIONS never reach an operation; they leave through the same
`refuse`.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import bottle

from service import assets, cursors, db, decoding, forms, keeping, metrics, replies
from service.auth import sign_in
from service.auth.tokens import authenticate
from service.console import frame
from service.edge import Edge, Route, Steps
from service.errors import (
    BadRequest,
    BodyTooLarge,
    InsufficientScope,
    InternalError,
    InvalidId,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    Refusal,
    StorageUnavailable,
    Unauthenticated,
)
from service.formats import byte_size
from service.models.people import Caller
from service.operations import Operation
from service.origins import is_navigation, read_origin
from service.replies import JSON, Reply, refuse
from service.settings import Settings
from service.signature import Html, Media, Moved, Origin

log = logging.getLogger("cx.requests")

_TEMPLATES = [str(assets.folder("templates"))]  # one list for all, by which Bottle knows what it has compiled
_PARTS = assets.parts()
_UNSENDABLE = re.compile(r"[^\x20-\x7e]")  # in a header


@dataclass(slots=True)
class Call:
    """A request that is ready for its handler: all is read, and the caller is known."""

    bound_to: list[Any]  # what its cursors are valid for: the caller and the identifiers of the path
    query: Any
    if_none_match: str
    headers: dict[str, str] = field(default_factory=dict)
    tag: str = ""  # the ETag that its revision makes
    run: Callable[[], Any] = lambda: None  # the handler


class Door:
    """Carries requests to one operation and its answers back."""

    def __init__(self, operation: Operation, settings: Settings, operations: Iterable[Operation]) -> None:
        self.operation, self.settings, self.operations = operation, settings, operations

    def __call__(self, environ: dict[str, Any], identifiers: dict[str, str]) -> Steps[Reply]:
        """The steps of a request: what comes before the transaction, the handler, what comes after the commit."""
        origin = read_origin(environ, self.settings)
        environ |= {"cx.operation": self.operation.name, "cx.client": origin.address}  # for the log
        call = outcome = _attempt(self.prepare, environ, identifiers.copy(), origin)
        if isinstance(call, Call):
            yield
            outcome = _attempt(call.run)
            failure = yield
            outcome = failure or outcome
            if not isinstance(outcome, Exception):
                outcome = _attempt(self.finish, call, outcome)
        if isinstance(outcome, Reply):
            outcome = _attempt(replies.admit, environ, outcome)
        reply = outcome if isinstance(outcome, Reply) else self.fail(outcome, environ["cx.request_id"], origin)
        if self.settings.verify_answers:
            replies.verify(self.operation, reply)
        return reply

    def prepare(self, environ: dict[str, Any], identifiers: dict[str, str], origin: Origin) -> Call | Reply:
        """Find out who calls, what the path names, and what query and body say, in this order.

        A reply if that is enough: the client has the page already.
        """
        operation = self.operation
        caller = None if operation.public else self.identify(environ.get("HTTP_AUTHORIZATION", ""), origin)
        environ["cx.user"] = caller.id if caller else ""
        found = self.look_up(identifiers, caller)
        bound_to = [caller and caller.id, *identifiers.values()]
        query, faults = self.read_query(environ.get("QUERY_STRING", ""), bound_to)
        raw, body, more_faults = self.read_body(environ)
        call = Call(bound_to, query, environ.get("HTTP_IF_NONE_MATCH", ""))
        call.headers = {**JSON, "Cache-Control": "no-store" if operation.public else "private, no-cache"}
        if faults or more_faults:
            call.headers["X-Request-Warning"] = _UNSENDABLE.sub(" ", "; ".join(faults + more_faults))
        if operation.revision:
            call.tag = replies.tag_of(operation.name, bound_to, query, operation.revision(caller, *found.values()))
            reply = replies.unless_known(Reply(operation.status, headers=call.headers), call.if_none_match, call.tag)
            if reply.status == 304:
                return reply
        given = {"caller": caller, "query": query, "body": body, "origin": origin}
        given |= {"settings": self.settings, "operations": self.operations}
        if operation.prepare:
            known = given | found
            given["prepared"] = operation.prepare(**{name: known[name] for name in operation.prepare_wants})
        handle = functools.partial(operation.handler, **found, **{name: given[name] for name in operation.wants})
        call.run = functools.partial(db.settled, handle)
        key = environ.get("HTTP_IDEMPOTENCY_KEY", "")
        if key and caller and operation.status == 201:
            asked = keeping.Asked(caller.id, operation.name, key, repr(bound_to).encode() + raw)
            act = functools.partial(keeping.once, asked, lambda: self.body_of(call, handle()))
            call.run = functools.partial(db.settled, act)
        return call

    def body_of(self, call: Call, result: Any) -> bytes:
        """The body of the response to what a handler has returned."""
        return replies.succeed(self.operation, call.bound_to, call.query, result)

    def finish(self, call: Call, result: Any) -> Reply:
        """The reply to what a handler has returned."""
        operation = self.operation
        if operation.is_page:
            return self.show_result(call, result)
        if operation.data is Media:
            return replies.send(result, operation.produces, call.if_none_match)
        if isinstance(result, keeping.Once):
            replayed = {"Idempotency-Replayed": "true"} if result.is_replayed else {}
            return Reply(operation.status, result.body, call.headers | replayed)
        reply = Reply(operation.status, self.body_of(call, result), call.headers)
        return replies.unless_known(reply, call.if_none_match, call.tag) if 304 in operation.statuses else reply

    def show_result(self, call: Call, page: Html | Moved) -> Reply:
        """The page that a handler has returned, with the cursor of the list that it shows."""
        if isinstance(page, Html) and page.page:
            query = call.query
            walk = (query, query.cursor.number + 1, page.page.next_key) if query else (None, 0, ())
            page.values["next_cursor"] = cursors.make(self.operation, call.bound_to, *walk)
        return show(self.operation.status, page)

    def fail(self, error: Exception, request_id: str, origin: Origin) -> Reply:
        """The reply to a request that was refused or failed."""
        if isinstance(error, Refusal):
            return self.refuse(error, origin)
        db.after_failure(error)
        if db.is_unavailable(error):
            log.error("the database is unavailable: %s", error)
            return self.refuse(StorageUnavailable(), origin)
        log.error("request %s failed", request_id, exc_info=error)
        return self.refuse(InternalError(), origin)

    def identify(self, authorization: str, origin: Origin) -> Caller:
        """The caller, if its token reaches as far as the operation. Raises Unauthenticated or InsufficientScope."""
        if self.operation.is_page and not authorization:
            return sign_in.caller_of(origin)
        caller = authenticate(authorization)
        if self.operation.scope and not caller.may(self.operation.needed_scope):
            raise InsufficientScope(self.operation.needed_scope)
        return caller

    def read_query(self, text: str, bound_to: list[Any]) -> tuple[Any, list[str]]:
        """The query as declared, its cursor as a position, and the faults that a lenient operation only warns of."""
        if not self.operation.query:
            return None, []
        locate = functools.partial(cursors.read, self.operation, bound_to)
        return decoding.read_query(text, self.operation.query, self.operation.is_lenient, locate)

    def read_body(self, environ: dict[str, Any]) -> tuple[bytes, Any, list[str]]:
        """The body as it came, unless it is files, and as declared; the faults that a lenient operation only warns of.

        Raises BodyTooLarge, and what reading it raises.
        """
        kind, content_type = self.operation.body, environ.get("CONTENT_TYPE", "")
        length = int(environ.get("CONTENT_LENGTH") or 0)  # counted by the server, which takes in no body over the limit
        if length > self.operation.most:
            raise BodyTooLarge(f"The body is larger than {byte_size(self.operation.most)}.")
        if not kind:
            return b"", None, []
        if self.operation.accepts == "multipart/form-data":
            return b"", forms.read_upload(environ["wsgi.input"].read, length, content_type, kind), []
        raw: bytes = environ["wsgi.input"].read(length)
        if self.operation.accepts == "application/x-www-form-urlencoded":
            return raw, decoding.read_form(raw, content_type, kind), []
        return raw, *decoding.read_body(raw, content_type, kind, self.operation.is_lenient)

    def look_up(self, identifiers: dict[str, str], caller: Caller | None) -> dict[str, Any]:
        """The rows that the path names, if the caller may reach them; all identifiers are read before the first."""
        for identifier, _, table in self.operation.loads:
            try:
                identifiers[identifier] = table.path_column().store(identifiers[identifier])
            except ValueError as error:
                raise InvalidId(f"{identifier}: {error}.") from None
        found: dict[str, Any] = {}
        for identifier, parameter, table in self.operation.loads:
            found[parameter] = table.reach(caller, identifiers[identifier], *found.values())
        return found

    def refuse(self, refusal: Refusal, origin: Origin) -> Reply:
        """The envelope of failure; on pages people read of their mistakes, and are asked to sign in."""
        if self.operation.is_bare:
            return replies.refuse_bare(refusal)
        if self.operation.is_page and (origin.is_navigation or isinstance(refusal, BadRequest)):
            page = self.tell(refusal, origin)
            told = refusal.within(self.operation.statuses)
            reply = show(told.status, page)
            reply.headers |= refusal.headers
            reply.code = told.code
            return reply
        return refuse(refusal, self.operation.statuses)

    def tell(self, refusal: Refusal, origin: Origin) -> Html:
        """The page that tells a person of a refusal: the one to sign in, where that helps."""
        if isinstance(refusal, Unauthenticated | RateLimited) and not self.settings.documented_only:
            return sign_in.ask(origin, refusal)
        if self.operation.scope == "console":
            return frame.error_page(refusal.within(self.operation.statuses), origin)
        return Html("faults.html", {"faults": getattr(refusal, "faults", ()), "told": str(refusal)})


def show(status: int, page: Html | Moved) -> Reply:
    """A page made of its template, or the way to another."""
    if isinstance(page, Moved):
        return replies.move(page)
    html = bottle.template(page.template, template_lookup=_TEMPLATES, **page.values)
    return replies.page(page.status or status, html, page.scripted, page.cookie)


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or the exception that it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


def build_app(operations: Iterable[Operation], settings: Settings) -> Edge:
    """The WSGI application of some operations. Raises TypeError where two of them claim one address or name."""
    router = bottle.Router()
    router.add(
        r"/static/<name:path><:re:\Z>",
        "GET",
        functools.partial(at_once, functools.partial(send_static, settings=settings)),
    )
    operations, taken = tuple(operations), set[object]()
    metrics.board.name_operations(operation.name for operation in operations)
    for operation in operations:
        claims = {operation.name, (operation.method, re.sub(r"{\w+}", "{}", operation.full_path))}
        if taken & claims:
            raise TypeError(f"{operation.method} {operation.full_path} ({operation.name}) is declared twice")
        taken |= claims
        rule = re.sub(r"{(\w+)}", r"<\1>", operation.full_path)
        end = r"<:re:\Z>" if "<" in rule else ""  # Bottle's own end of a rule lets a newline follow
        router.add(rule + end, operation.method, Door(operation, settings, operations))

    def find(method: str, path: str) -> Route:
        try:
            answer, identifiers = router.match({"REQUEST_METHOD": method, "PATH_INFO": path})
        except bottle.HTTPError as error:
            return Route(
                path, functools.partial(at_once, functools.partial(not_routed, error=error, settings=settings))
            )
        return Route(path, functools.partial(answer, identifiers=identifiers), getattr(answer, "operation", None))

    return Edge(find, settings)


def at_once(answer: Callable[..., Reply], environ: dict[str, Any], **named: Any) -> Steps[Reply]:
    """The steps to a reply for which nothing is written."""
    return answer(environ, **named)
    yield


def send_static(environ: dict[str, Any], identifiers: dict[str, str], settings: Settings) -> Reply:
    """A part of the pages, which a browser may keep but asks about each time, so that no two versions meet."""
    file = _PARTS.get(identifiers["name"])
    if file is None:
        return refuse_unrouted(environ, NotFound(), settings)
    return replies.send(Media(file.read_bytes()), assets.type_of(file), environ.get("HTTP_IF_NONE_MATCH", ""))


def not_routed(environ: dict[str, Any], error: bottle.HTTPError, settings: Settings) -> Reply:
    """Answer what Bottle's router refuses: 404, 405, and OPTIONS wherever some method is known."""
    if error.status_code == 404:
        return refuse_unrouted(environ, NotFound(), settings)
    known = {*error.get_header("Allow").split(","), "OPTIONS"} - {"PROXY"}
    allow = {"Allow": ", ".join(sorted(known | ({"HEAD"} if "GET" in known else set())))}
    if environ["REQUEST_METHOD"] == "OPTIONS":
        return Reply(204, headers=allow)
    return refuse_unrouted(environ, MethodNotAllowed(headers=allow), settings)


def refuse_unrouted(environ: dict[str, Any], refusal: Refusal, settings: Settings) -> Reply:
    """The envelope of failure where no operation is found; a page where a browser asks for one to show."""
    if settings.documented_only or not is_navigation(environ):
        return refuse(refusal)
    told = refusal.within({refusal.status})
    reply = show(told.status, frame.error_page(told, read_origin(environ, settings)))
    reply.headers |= told.headers
    reply.code = told.code
    return reply
