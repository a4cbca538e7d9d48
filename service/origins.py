"""Where a request comes from, read from its WSGI environ."""

import string
from typing import Any
from urllib.parse import quote

from service.settings import Settings
from service.signature import Origin

_AS_ASKED = string.punctuation.replace("\\", "")  # of a query; browsers send backslashes, which paths of ours lack


def read_origin(environ: dict[str, Any], settings: Settings) -> Origin:
    """The client's address and browser, the site and path it asked for, its cookies."""
    # Only the blanks of HTTP: browsers guard names that begin with __Host-, not ones that begin with another blank.
    pairs = (pair.strip(" \t").partition("=") for pair in environ.get("HTTP_COOKIE", "").split(";"))
    path = quote(environ["PATH_INFO"])  # which Bottle has decoded
    if environ.get("QUERY_STRING"):
        path += "?" + quote(environ["QUERY_STRING"].encode("latin-1"), safe=_AS_ASKED)
    return Origin(
        environ.get("REMOTE_ADDR", ""),
        environ.get("HTTP_USER_AGENT", ""),
        settings.public_url.rstrip("/") or f"{environ['wsgi.url_scheme']}://{environ.get('HTTP_HOST', '')}",
        path,
        {name: value for name, _, value in pairs},
        is_navigation(environ),
    )


def is_navigation(environ: dict[str, Any]) -> bool:
    """Whether a browser asks for something to show to a person (Fetch Metadata; Upgrade Insecure Requests)."""
    wants_page = environ.get("HTTP_ACCEPT", "").startswith("text/html")
    upgrades = environ.get("HTTP_UPGRADE_INSECURE_REQUESTS") == "1" and wants_page
    return environ.get("HTTP_SEC_FETCH_MODE") == "navigate" or upgrades
