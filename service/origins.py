"""Where a request comes from, read from its WSGI environ."""

import functools
import ipaddress
import re
import string
from typing import Any
from urllib.parse import quote

from service.settings import Settings
from service.signature import Origin
from service.waiting import Patience

_AS_ASKED = string.punctuation.replace("\\", "")  # of a query; browsers send backslashes, which paths of ours lack

_HOP = re.compile(r"(?:\[([^]]+)]|([\d.]+))(?::\d+)?", re.ASCII)  # an address with a port, which some proxies tell

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_origin(environ: dict[str, Any], settings: Settings) -> Origin:
    """The client's address and browser, the site and path it asked for, its cookies."""
    # Only the blanks of HTTP: browsers guard names that begin with __Host-, not ones that begin with another blank.
    pairs = (pair.strip(" \t").partition("=") for pair in environ.get("HTTP_COOKIE", "").split(";"))
    path = quote(environ["PATH_INFO"])  # which Bottle has decoded
    if environ.get("QUERY_STRING"):
        path += "?" + quote(environ["QUERY_STRING"].encode("latin-1"), safe=_AS_ASKED)
    address, scheme = _seen_by_proxy(environ, settings)
    return Origin(
        address,
        environ.get("HTTP_USER_AGENT", ""),
        settings.public_url.rstrip("/") or f"{scheme}://{environ.get('HTTP_HOST', '')}",
        path,
        {name: value for name, _, value in pairs},
        environ.get("HTTP_ACCEPT_LANGUAGE", ""),
        is_navigation(environ),
        environ.get("cx.patience", Patience()),
    )


def is_navigation(environ: dict[str, Any]) -> bool:
    """Whether a browser asks for something to show to a person (Fetch Metadata; Upgrade Insecure Requests)."""
    wants_page = environ.get("HTTP_ACCEPT", "").startswith("text/html")
    upgrades = environ.get("HTTP_UPGRADE_INSECURE_REQUESTS") == "1" and wants_page
    return environ.get("HTTP_SEC_FETCH_MODE") == "navigate" or upgrades


@functools.cache
def proxy_network(text: str) -> Network | None:
    """The network of the trusted proxy, often of one address; None without one. Raises ValueError with a sentence."""
    try:
        return ipaddress.ip_network(text) if text else None
    except ValueError:
        raise ValueError(f"--trusted-proxy must be an address or a network such as 10.0.0.0/24, not {text!r}") from None


def _seen_by_proxy(environ: dict[str, Any], settings: Settings) -> tuple[str, str]:
    """The client's address and scheme: as the trusted proxy tells them, else as the connection has them.

    The last word of each header is the proxy's own; those before it came from its client, who may have made them up.
    What is no address or scheme tells nothing, so that the client counts as the proxy.
    """
    address, scheme = environ.get("REMOTE_ADDR", ""), environ["wsgi.url_scheme"]
    network = proxy_network(settings.trusted_proxy)
    peer = _read_address(address) if network else None
    if network is None or peer is None or peer not in network:
        return address, scheme
    client, proto = (
        environ.get(name, "").rpartition(",")[2].strip(" \t")
        for name in ("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO")
    )
    return str(_read_address(client) or address), proto.lower() if proto.lower() in ("http", "https") else scheme


def _read_address(text: str) -> Address | None:
    """An IP address, with or without a port; None for anything else."""
    hop = _HOP.fullmatch(text)
    try:
        ip = ipaddress.ip_address((hop[1] or hop[2]) if hop else text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip
