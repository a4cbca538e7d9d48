"""Compression of responses with gzip, where the client accepts it (RFC 9110, sections 8.4.1 and 12.5.3).

HTML pages are never compressed: they have a token against forged requests beside text that other users have written,
and an attacker who sees the sizes of compressed pages could guess it (the attack BREACH). The same holds for responses
that must not be stored, such as those with tokens.
"""

import re
import zlib
from pathlib import Path
from wsgiref.types import WSGIEnvironment

from service import assets
from service.api.parameter_types import Media
from service.http.responses import Response, media_response
from service.memoize import memoized

MIN_BYTES = 1024  # of a body: smaller ones fit into one packet
LEVEL = 1  # about ten times smaller than the arrays of bytes in messages, at a few microseconds per KiB

_COMPRESSED_TYPES = re.compile(r"application/(?:[\w.-]+\+)?json|text/(?!html)")
_CODING = re.compile(r"\s*(gzip|x-gzip|\*)\s*(?:;\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*)?", re.ASCII | re.IGNORECASE)


@memoized(200)
def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip.

    `gzip` takes precedence over `*`; a malformed part is ignored.
    """
    weights: dict[str, float] = {}
    for part in header.split(","):
        coding = _CODING.fullmatch(part)
        if coding:
            weights[coding[1].lower().removeprefix("x-")] = float(coding[2] or 1)
    return weights.get("gzip", weights.get("*", 0)) > 0


def compress(environ: WSGIEnvironment, response: Response) -> Response:
    """Return the response, compressed if that is worthwhile, safe and accepted.

    The entity tag becomes weak, because it is the same for both forms; comparisons in requests ignore the difference.
    """
    headers = response.headers
    is_large = len(response.body) >= MIN_BYTES and "no-store" not in headers.get("Cache-Control", "")
    if not is_large or not _COMPRESSED_TYPES.match(headers.get("Content-Type", "")):
        return response
    headers["Vary"] = "Accept-Encoding"
    if accepts_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")):
        encoder = zlib.compressobj(LEVEL, zlib.DEFLATED, zlib.MAX_WBITS + 16)  # with the header of gzip
        response.body = encoder.compress(response.body) + encoder.flush()
        headers["Content-Encoding"] = "gzip"
        if "ETag" in headers:
            headers["ETag"] = f"W/{headers['ETag']}"
    return response


def static_response(environ: WSGIEnvironment, file: Path) -> Response:
    """Return a static file, in its compressed form if that is accepted."""
    is_compressed = accepts_gzip(environ.get("HTTP_ACCEPT_ENCODING", ""))
    content = assets.compressed(file) if is_compressed else assets.content(file)
    response = media_response(Media(content), assets.media_type(file), environ.get("HTTP_IF_NONE_MATCH", ""))
    response.headers["Vary"] = "Accept-Encoding"
    if file.name == "push-worker.js":  # browsers may refuse a service worker with `sandbox` (CSP 3, section 6.3.2)
        response.headers["Content-Security-Policy"] = "default-src 'none'"
    if is_compressed and response.body:
        response.headers["Content-Encoding"] = "gzip"
    return response
