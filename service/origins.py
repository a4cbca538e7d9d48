"""Where a request comes from, read from its WSGI environ."""

import functools
import ipaddress
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from service.settings import Settings
from service.signature import Origin
from service.waiting import Patience

_HOP = re.compile(r"(?:\[([^]]+)]|([\d.]+))(?::\d+)?", re.ASCII)  # an address with a port, which some proxies tell

# What those send who pass requests on; some of it by habit, some by RFC 7239 and RFC 9110, section 7.6.3.
_RELAYS = {
    *("HTTP_FORWARDED", "HTTP_VIA", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PROTO"),
    *("HTTP_X_FORWARDED_PORT", "HTTP_X_FORWARDED_SERVER", "HTTP_X_FORWARDED_BY", "HTTP_X_REAL_IP", "HTTP_CLIENT_IP"),
    *("HTTP_X_CLIENT_IP", "HTTP_TRUE_CLIENT_IP", "HTTP_CF_CONNECTING_IP", "HTTP_X_ENVOY_EXTERNAL_ADDRESS"),
}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1"))


def read_origin(environ: dict[str, Any], settings: Settings) -> Origin:
    """The client's address and browser, the site and path it asked for, its cookies."""
    seen = _seen_by_proxy(environ, settings)
    return Origin(
        seen.address,
        environ.get("HTTP_USER_AGENT", ""),
        settings.public_url.rstrip("/") or f"{seen.scheme}://{environ.get('HTTP_HOST', '')}",
        (environ["PATH_INFO"], environ.get("QUERY_STRING", "")),
        environ.get("HTTP_COOKIE", ""),
        environ.get("HTTP_ACCEPT_LANGUAGE", ""),
        is_navigation(environ),
        not seen.is_told and not _RELAYS.isdisjoint(environ),
        environ.get("cx.patience", Patience()),
    )


def address_of(environ: dict[str, Any], settings: Settings) -> str:
    """The client's address, where nothing else of its origin is asked for."""
    return _seen_by_proxy(environ, settings).address


def is_navigation(environ: dict[str, Any]) -> bool:
    """Whether a browser asks for something to show to a person (Fetch Metadata; Upgrade Insecure Requests)."""
    wants_page = environ.get("HTTP_ACCEPT", "").startswith("text/html")
    upgrades = environ.get("HTTP_UPGRADE_INSECURE_REQUESTS") == "1" and wants_page
    return environ.get("HTTP_SEC_FETCH_MODE") == "navigate" or upgrades


@functools.cache
def proxy_network(text: str) -> Network | None:
    """The network of the trusted proxy, often of one address; None without one. Raises ValueError with a sentence."""
    return _read_network("--trusted-proxy", text) if text else None


@functools.cache
def metrics_networks(text: str) -> tuple[Network, ...]:
    """Who may read the metrics: a network, or without one this host. Raises ValueError with a sentence."""
    return (_read_network("--metrics-network", text),) if text else LOOPBACK


def is_among(networks: Iterable[Network], origin: Origin) -> bool:
    """Whether a request comes from one of some networks, as far as we can know."""
    address = None if origin.is_hidden else _read_address(origin.address)
    return address is not None and any(address in network for network in networks)


def _read_network(flag: str, text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{flag} must be an address or a network such as 10.0.0.0/24, not {text!r}") from None


class _Seen(NamedTuple):
    address: str
    scheme: str
    is_told: bool = False  # by the trusted proxy


def _seen_by_proxy(environ: dict[str, Any], settings: Settings) -> _Seen:
    """The client's address and scheme: as the trusted proxy tells them, else as the connection has them.

    The last word of each header is the proxy's own; those before it came from its client, who may have made them up.
    What is no address or scheme tells nothing, so that the client counts as the proxy.
    """
    address, scheme = environ.get("REMOTE_ADDR", ""), environ["wsgi.url_scheme"]
    network = proxy_network(settings.trusted_proxy)
    peer = _read_address(address) if network else None
    if network is None or peer is None or peer not in network:
        return _Seen(address, scheme)
    client, proto = (
        environ.get(name, "").rpartition(",")[2].strip(" \t")
        for name in ("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO")
    )
    told = _read_address(client)
    return _Seen(
        str(told or address), proto.lower() if proto.lower() in ("http", "https") else scheme, told is not None
    )


def _read_address(text: str) -> Address | None:
    """An IP address, with or without a port; None for anything else."""
    hop = _HOP.fullmatch(text)
    try:
        ip = ipaddress.ip_address((hop[1] or hop[2]) if hop else text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip
