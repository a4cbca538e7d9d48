"""From a request to an answer: one order of steps for every operation, and one envelope for whatever comes out.

The only importer of Bottle, which routes. 404, 405 and OPTIONS never reach an operation; they leave through the same
`refuse`.
"""

import functools
import logging
import re
from collections.abc import Iterable
from typing import Any

import bottle

from service import assets, cursors, db, decoding, forms, keeping, metrics, replies
from service.auth import sign_in
from service.auth.tokens import authenticate
from service.edge import Edge, Route
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
from service.models.people import Caller
from service.operations import Operation
from service.origins import read_origin
from service.replies import JSON, Reply, refuse
from service.settings import Settings
from service.signature import Html, Media, Moved, Origin

log = logging.getLogger("cx.requests")

_TEMPLATES = [str(assets.folder("templates"))]  # one list for all, by which Bottle knows what it has compiled
_PARTS = assets.parts()
_UNSENDABLE = re.compile(r"[^\x20-\x7e]")  # in a header


class Door:
    """Carries requests to one operation and its answers back."""

    def __init__(self, operation: Operation, settings: Settings, operations: Iterable[Operation]) -> None:
        self.operation, self.settings, self.operations = operation, settings, operations

    def __call__(self, environ: dict[str, Any], identifiers: dict[str, str]) -> Reply:
        origin = read_origin(environ, self.settings)
        environ |= {"cx.operation": self.operation.name, "cx.client": origin.address}  # for the log
        try:
            reply = replies.admit(environ, self.answer(environ, identifiers.copy(), origin))
        except Refusal as refusal:
            reply = self.refuse(refusal, origin)
        except Exception as error:
            db.after_failure(error)
            if db.is_unavailable(error):
                log.error("the database is unavailable: %s", error)
                reply = self.refuse(StorageUnavailable(), origin)
            else:
                log.exception("request %s failed", environ["cx.request_id"])
                reply = self.refuse(InternalError(), origin)
        if self.settings.verify_answers:
            replies.verify(self.operation, reply)
        return reply

    def answer(self, environ: dict[str, Any], identifiers: dict[str, str], origin: Origin) -> Reply:
        """The steps of a request, in the order of the contract: caller, identifiers, things, query and body, act."""
        operation = self.operation
        if environ.get("cx.is_refused"):  # what it was told before was not committed
            raise StorageUnavailable
        caller = None if operation.public else self.identify(environ.get("HTTP_AUTHORIZATION", ""), origin)
        environ["cx.user"] = caller.id if caller else ""
        found = self.look_up(identifiers, caller)
        bound_to = [caller and caller.id, *identifiers.values()]
        query, faults = self.read_query(environ.get("QUERY_STRING", ""), bound_to)
        raw, body, more_faults = self.read_body(environ)
        given = {"caller": caller, "query": query, "body": body, "origin": origin}
        given |= {"settings": self.settings, "operations": self.operations}
        chosen = {name: given[name] for name in operation.wants}
        handle = functools.partial(db.settled, functools.partial(operation.handler, **found, **chosen))
        if operation.is_page:
            page = handle()
            if isinstance(page, Html) and page.page:
                walk = (query, query.cursor.number + 1, page.page.next_key) if query else (None, 0, ())
                page.values["next_cursor"] = cursors.make(operation, bound_to, *walk)
            return self.show(operation.status, page)
        known = environ.get("HTTP_IF_NONE_MATCH", "")
        if operation.data is Media:
            return replies.send(handle(), operation.produces, known)
        headers = {**JSON, "Cache-Control": "no-store" if operation.public else "private, no-cache"}
        if faults or more_faults:
            headers["X-Request-Warning"] = _UNSENDABLE.sub(" ", "; ".join(faults + more_faults))
        tag = ""
        if operation.revision:
            tag = replies.tag_of(operation.name, bound_to, query, operation.revision(caller, *found.values()))
            reply = replies.unless_known(Reply(operation.status, headers=headers), known, tag)
            if reply.status == 304:
                return reply

        def act() -> bytes:
            return replies.succeed(operation, bound_to, query, handle())

        key = environ.get("HTTP_IDEMPOTENCY_KEY", "")
        if not (key and caller and operation.status == 201):
            reply = Reply(operation.status, act(), headers)
            return replies.unless_known(reply, known, tag) if 304 in operation.statuses else reply
        asked = keeping.Asked(caller.id, operation.name, key, repr(bound_to).encode() + raw)
        answer, replayed = db.settled(functools.partial(keeping.once, asked, act))
        return Reply(operation.status, answer, headers | ({"Idempotency-Replayed": "true"} if replayed else {}))

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
        kind = self.operation.body
        if not kind:
            return b"", None, []
        read, content_type = environ["wsgi.input"].read, environ.get("CONTENT_TYPE", "")
        length = int(environ.get("CONTENT_LENGTH") or 0)  # the server has counted it
        if length > self.operation.most:
            raise BodyTooLarge(f"The body is larger than {self.operation.most} bytes.")
        if self.operation.accepts == "multipart/form-data":
            return b"", forms.read_upload(read, length, content_type, kind), []
        raw: bytes = read(length)
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

    def show(self, status: int, page: Html | Moved) -> Reply:
        """A page made of its template, or the way to another."""
        if isinstance(page, Moved):
            return replies.move(page)
        html = bottle.template(page.template, template_lookup=_TEMPLATES, **page.values)
        return replies.page(page.status or status, html, page.scripted, page.cookie)

    def refuse(self, refusal: Refusal, origin: Origin) -> Reply:
        """The envelope of failure; on pages people read of their mistakes, and are asked to sign in."""
        if self.operation.is_bare:
            return replies.refuse_bare(refusal)
        if self.operation.is_page and (origin.is_navigation or isinstance(refusal, BadRequest)):
            page = self.tell(refusal, origin)
            reply = self.show(refusal.within(self.operation.statuses).status, page)
            reply.headers |= refusal.headers
            return reply
        return refuse(refusal, self.operation.statuses)

    def tell(self, refusal: Refusal, origin: Origin) -> Html:
        """The page that tells a person of a refusal: the one to sign in, where that helps."""
        if isinstance(refusal, Unauthenticated | RateLimited) and not self.settings.documented_only:
            return sign_in.ask(origin, refusal)
        here = origin.path.partition("?")[0] if self.operation.scope == "console" else ""
        told = {"faults": getattr(refusal, "faults", ()), "told": str(refusal), "here": here}
        return Html("faults.html", told)


def build_app(operations: Iterable[Operation], settings: Settings) -> Edge:
    """The WSGI application of some operations. Raises TypeError where two of them claim one address or name."""
    router = bottle.Router()
    router.add(r"/static/<name:path><:re:\Z>", "GET", send_static)
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
            return Route(path, functools.partial(not_routed, error=error))
        return Route(path, functools.partial(answer, identifiers=identifiers), getattr(answer, "operation", None))

    return Edge(find, settings)


def send_static(environ: dict[str, Any], identifiers: dict[str, str]) -> Reply:
    """A part of the pages, which a browser may keep but asks about each time, so that no two versions meet."""
    file = _PARTS.get(identifiers["name"])
    if file is None:
        return refuse(NotFound())
    return replies.send(Media(file.read_bytes()), assets.type_of(file), environ.get("HTTP_IF_NONE_MATCH", ""))


def not_routed(environ: dict[str, Any], error: bottle.HTTPError) -> Reply:
    """Answer what Bottle's router refuses: 404, 405, and OPTIONS wherever some method is known."""
    if error.status_code == 404:
        return refuse(NotFound())
    known = {*error.get_header("Allow").split(","), "OPTIONS"} - {"PROXY"}
    allow = {"Allow": ", ".join(sorted(known | ({"HEAD"} if "GET" in known else set())))}
    is_options = environ["REQUEST_METHOD"] == "OPTIONS"
    return Reply(204, headers=allow) if is_options else refuse(MethodNotAllowed(headers=allow))
