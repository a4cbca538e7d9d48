"""Answers on their way out, and the one function that puts a refusal into the envelope."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from service import cursors, db
from service.declared_errors import declared_errors
from service.errors import ANY_OPERATION, ANYWHERE, Busy, Refusal, Told
from service.operations import Operation
from service.signature import Media, Moved

JSON = {"Content-Type": "application/json", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
PAGE = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
SCRIPTS = "; script-src 'self'; connect-src 'self'"
OAUTH = ("invalid_grant", "unsupported_grant_type", "invalid_client")
LARGE = 256 * 1024  # bytes of a response for which there has to be room, unless its request has changed something
MEDIA = {"Content-Security-Policy": "default-src 'none'; sandbox"}


@dataclass
class Reply:
    """An answer before it goes out."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    code: str = ""  # of the error, where it is one


def refuse(refusal: Refusal, statuses: Collection[int] = ()) -> Reply:
    """The envelope of failure, told as an operation with these `statuses` tells it."""
    told = refusal.within(statuses or {refusal.status})
    error = {"code": told.code, "message": told.message}
    headers = {**JSON, "Cache-Control": "no-store", **told.headers}
    return Reply(told.status, msgspec.json.encode({"success": False, "error": error}), headers, told.code)


def refuse_bare(refusal: Refusal) -> Reply:
    """A refusal as OAuth clients read it (RFC 6749, section 5.2)."""
    told = refusal.within({refusal.status})
    code = bare_code(told)
    description = told.message.replace('"', "'").replace("\\", "/").encode("ascii", "replace").decode()
    body = msgspec.json.encode({"error": code, "error_description": description})
    return Reply(told.status, body, {**JSON, "Cache-Control": "no-store", **told.headers}, told.code)


def bare_code(told: Told | type[Refusal]) -> str:
    """The code of an error as OAuth clients know it."""
    return told.code if told.code in OAUTH or told.status != 400 else "invalid_request"


def succeed(operation: Operation, bound_to: list[Any], query: Any, result: Any) -> bytes:
    """A handler's result in the envelope, with what is told of a page; bare where the operation says so."""
    if operation.is_bare:
        return msgspec.json.encode(result)
    if not isinstance(result, db.Page):
        return msgspec.json.encode({"success": True, "data": result})
    meta = cursors.meta(operation, bound_to, query, result)
    return msgspec.json.encode({"success": True, "data": result.rows, "meta": meta})


def page(status: int, html: str, scripted: bool = False, cookie: str = "") -> Reply:
    """A page, which nobody may keep, frame or make load anything from elsewhere."""
    headers = {**PAGE, "Content-Security-Policy": POLICY + (SCRIPTS if scripted else "")}
    return Reply(status, html.encode(), headers | ({"Set-Cookie": cookie} if cookie else {}))


def move(moved: Moved) -> Reply:
    """On to another page of ours."""
    headers = {**PAGE, "Location": moved.location} | ({"Set-Cookie": moved.cookie} if moved.cookie else {})
    return Reply(303, b"", headers)


def send(media: Media, content_type: str, if_none_match: str) -> Reply:
    """Bytes that may be kept, or 304 for a client that has them."""
    cached = "public, max-age=31536000, immutable" if media.lasting else "no-cache"
    headers = {"Content-Type": content_type, "Cache-Control": f"private, {cached}" if media.personal else cached}
    return unless_known(Reply(200, media.content, MEDIA | headers), if_none_match, media.tag)


def admit(environ: dict[str, Any], reply: Reply) -> Reply:
    """A reply, with room taken for a large one, which waits in memory until its client has read it. Raises Busy."""
    size = len(reply.body)
    if size > LARGE and environ["REQUEST_METHOD"] == "GET" and not environ.get("cx.take_room", bool)(size):
        raise Busy("Too many large responses wait for clients to read them; try again in a moment.")
    return reply


def tag_of(*what: Any) -> str:
    """The tag of an answer that follows from `what`."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def unless_known(reply: Reply, if_none_match: str, tag: str = "") -> Reply:
    """An answer with its tag, or 304 for a client that has it (RFC 9110, section 13.1.2)."""
    reply.headers["ETag"] = f'"{tag or hashlib.sha256(reply.body).hexdigest()[:16]}"'
    known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")} if if_none_match else set()
    if known & {"*", reply.headers["ETag"]}:
        return Reply(304, headers={name: reply.headers[name] for name in ("ETag", "Cache-Control")})
    return reply


def verify(operation: Operation, reply: Reply) -> None:
    """Fail on an answer that the operation does not declare: a wrong status or error, or data of another shape."""
    errors = declared_errors(operation).get(reply.status, ())
    declared = {(kind.status, kind.code) for kind in ANYWHERE} | {(reply.status, kind.code) for kind in errors}
    if not reply.code:
        assert reply.status in operation.statuses | ANY_OPERATION, f"{operation.name} answered {reply.status}"
    elif (reply.status, reply.code) not in declared:
        raise AssertionError(f"{operation.name} answered {reply.status} {reply.code}")
    if reply.status == operation.status and reply.headers.get("Content-Type") == "application/json":
        answer = msgspec.json.decode(reply.body)
        msgspec.convert(answer if operation.is_bare else answer["data"], operation.data, strict=True)
