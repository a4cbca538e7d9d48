"""Answers on their way out, and the one function that puts a refusal into the envelope."""

from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from service.errors import Refusal
from service.signature import Media

JSON = {"Content-Type": "application/json"}
PAGE = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
SCRIPTS = "; script-src 'self'; connect-src 'self'"
MEDIA = {"Content-Security-Policy": "default-src 'none'; sandbox"}


@dataclass
class Reply:
    """An answer before it goes out."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def refuse(refusal: Refusal, statuses: Collection[int] = ()) -> Reply:
    """The envelope of failure, told as an operation with these `statuses` tells it."""
    told = refusal.within(statuses or {refusal.status})
    error = {"code": told.code, "message": told.message}
    headers = {**JSON, "Cache-Control": "no-store", **told.headers}
    return Reply(told.status, msgspec.json.encode({"success": False, "error": error}), headers)


def page(status: int, html: str, scripted: bool = False) -> Reply:
    """A page, which nobody may keep, frame or make load anything from elsewhere."""
    headers = {**PAGE, "Content-Security-Policy": POLICY + (SCRIPTS if scripted else "")}
    return Reply(status, html.encode(), headers)


def send(media: Media, content_type: str, if_none_match: str) -> Reply:
    """Bytes that may be kept, or 304 for a client that has them (RFC 9110, section 13.1.2)."""
    cached = "public, max-age=31536000, immutable" if media.lasting else "no-cache"
    headers = {"ETag": f'"{media.tag}"', "Cache-Control": cached}
    known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    if known & {"*", headers["ETag"]}:
        return Reply(304, headers=headers)
    return Reply(200, media.content, {**MEDIA, "Content-Type": content_type, **headers})
