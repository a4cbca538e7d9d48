"""Answers on their way out, and the one function that puts a refusal into the envelope."""

from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from service.errors import Refusal

JSON = {"Content-Type": "application/json"}
PAGE = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


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
