"""Responses: JSON in the envelope, OAuth, media, ETags, and errors."""

import gzip
import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from wsgiref.types import WSGIEnvironment

import msgspec

from service import db
from service.api.declared_errors import declared_errors, oauth_code
from service.api.event_stream import EventStream
from service.api.operations import Operation
from service.api.parameter_types import Download, Media
from service.errors import COMMON_ERRORS, COMMON_STATUSES, ApiError, Busy
from service.http import pagination

JSON = {"Content-Type": "application/json", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
LARGE = 256 * 1024  # bytes of a response from which on memory is reserved for it
MEDIA = {"Content-Security-Policy": "default-src 'none'; sandbox"}
DOCUMENT = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"}


@dataclass(slots=True)
class Response:
    """A response without the headers that the middleware adds."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    code: str = ""  # of an error
    download: Download | None = None  # in place of a body
    stream: EventStream | None = None  # after the body

    @property
    def length(self) -> int:
        """The number of bytes of the body."""
        return self.download.size if self.download else len(self.body)


def error_response(error: ApiError, statuses: Collection[int] = ()) -> Response:
    """Return an error in the envelope, as an operation that declares `statuses` reports it."""
    info = error.info(statuses or {error.status})
    body = {"success": False, "error": {"code": info.code, "message": info.message}}
    headers = {**JSON, "Cache-Control": "no-store", **info.headers}
    return Response(info.status, msgspec.json.encode(body), headers, info.code)


def oauth_error_response(error: ApiError) -> Response:
    """Return an error for OAuth clients (RFC 6749, section 5.2)."""
    info = error.info({error.status})
    code = oauth_code(info)
    description = info.message.replace('"', "'").replace("\\", "/").encode("ascii", "replace").decode()
    body = msgspec.json.encode({"error": code, "error_description": description})
    return Response(info.status, body, {**JSON, "Cache-Control": "no-store", **info.headers}, info.code)


def success_body(operation: Operation, bound_to: list[object], query: object, result: object) -> bytes:
    """Return what a handler returned, in the envelope; `meta` describes the page of a list."""
    if not isinstance(result, db.Page):
        return msgspec.json.encode({"success": True, "data": result})
    meta = pagination.meta(operation, bound_to, query, result)
    return msgspec.json.encode({"success": True, "data": result.rows, "meta": meta})


def media_response(media: Media, content_type: str, if_none_match: str) -> Response:
    """Return media with its caching headers, or 304 if the client's copy is current."""
    cached = "public, max-age=31536000, immutable" if media.lasting else "no-cache"
    headers = {"Content-Type": content_type, "Cache-Control": f"private, {cached}" if media.personal else cached}
    if media.file_name:
        headers["Content-Disposition"] = f'inline; filename="{media.file_name}"'
    if media.personal:
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
    policy = DOCUMENT if content_type.startswith("text/html") else MEDIA
    return conditional_response(Response(200, media.content, policy | headers), if_none_match, media.tag)


def download_response(download: Download, content_type: str) -> Response:
    """Return a file that the client saves. It is not stored by caches."""
    headers = {
        "Content-Type": content_type,
        "Content-Disposition": f'attachment; filename="{download.name}"',
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return Response(200, headers=MEDIA | headers, download=download)


def stream_response(stream: EventStream, content_type: str) -> Response:
    """Return an event stream, which nginx passes on at once by its header; other proxies recognize the type."""
    headers = {"Content-Type": content_type, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Response(200, stream.first, MEDIA | headers, stream=stream)


def reserve_memory(environ: WSGIEnvironment, response: Response) -> Response:
    """Return the response, after memory is reserved for it until the client has read it. Raises Busy.

    Requests other than GET are not refused: they have changed something.
    """
    if environ["REQUEST_METHOD"] == "GET" and not environ.get("cx.reserve_memory", bool)(len(response.body)):
        raise Busy("Too many large responses wait for clients to read them; try again in a moment.")
    return response


def etag_of(*values: object) -> str:
    """Return the ETag of a response that is determined by some values."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def conditional_response(response: Response, if_none_match: str, etag: str = "") -> Response:
    """Return the response with its ETag, or 304 if the client's copy is current (RFC 9110, section 13.1.2)."""
    response.headers["ETag"] = f'"{etag or hashlib.sha256(response.body).hexdigest()[:16]}"'
    known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")} if if_none_match else set()
    if known & {"*", response.headers["ETag"]}:
        return Response(304, headers={name: response.headers[name] for name in ("ETag", "Cache-Control")})
    return response


def verify_declared(operation: Operation, response: Response) -> None:
    """Raise AssertionError if the operation does not declare the status, the error code or the data of a response."""
    errors = declared_errors(operation).get(response.status, ())
    declared = {(error.status, error.code) for error in COMMON_ERRORS}
    declared |= {(response.status, error.code) for error in errors}
    if not response.code:
        assert response.status in operation.all_statuses | COMMON_STATUSES, (
            f"{operation.name} returned {response.status}"
        )
    elif (response.status, response.code) not in declared:
        raise AssertionError(f"{operation.name} returned {response.status} {response.code}")
    if response.status == operation.status and response.headers.get("Content-Type") == "application/json":
        body = msgspec.json.decode(
            gzip.decompress(response.body) if "Content-Encoding" in response.headers else response.body
        )
        msgspec.convert(body if operation.is_bare else body["data"], operation.data, strict=True)
