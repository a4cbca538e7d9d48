"""The client of a request: its address, also behind a proxy, and the headers that handlers use."""

import functools
import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple
from wsgiref.types import WSGIEnvironment

from service.api.long_poll import LongPoll
from service.api.parameter_types import RequestInfo
from service.settings import Settings

_ADDRESS = re.compile(r"(?:\[([^]]+)]|([\d.]+))(?::\d+)?", re.ASCII)  # some proxies add the port

# Headers that proxies add, by custom or by RFC 7239 and RFC 9110, section 7.6.3
_PROXY_HEADERS = {
    *("HTTP_FORWARDED", "HTTP_VIA", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PROTO"),
    *("HTTP_X_FORWARDED_PORT", "HTTP_X_FORWARDED_SERVER", "HTTP_X_FORWARDED_BY", "HTTP_X_REAL_IP", "HTTP_CLIENT_IP"),
    *("HTTP_X_CLIENT_IP", "HTTP_TRUE_CLIENT_IP", "HTTP_CF_CONNECTING_IP", "HTTP_X_ENVOY_EXTERNAL_ADDRESS"),
}

UNIX = "unix"  # the address of clients of a Unix socket, and the trusted proxy that connects to it

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1"))


def read_request_info(environ: WSGIEnvironment, settings: Settings) -> RequestInfo:
    """Return the client's address and browser, the target of the request, and its cookies."""
    client = _read_client(environ, settings)
    return RequestInfo(
        client.address,
        environ.get("HTTP_USER_AGENT", ""),
        settings.public_url.rstrip("/") or f"{client.scheme}://{environ.get('HTTP_HOST', '')}",
        (environ["PATH_INFO"], environ.get("QUERY_STRING", "")),
        environ.get("HTTP_COOKIE", ""),
        environ.get("HTTP_ACCEPT_LANGUAGE", ""),
        is_navigation(environ),
        not client.is_from_proxy and not _PROXY_HEADERS.isdisjoint(environ),
        environ.get("cx.long_poll", LongPoll()),
        environ.get("HTTP_LAST_EVENT_ID", ""),
        environ.get("HTTP_AUTHORIZATION", ""),
    )


def address_of(environ: WSGIEnvironment, settings: Settings) -> str:
    """Return the client's address, without the rest of `read_request_info`."""
    return _read_client(environ, settings).address


def is_navigation(environ: WSGIEnvironment) -> bool:
    """Return whether a browser loads a page (Fetch Metadata; Upgrade Insecure Requests)."""
    wants_page = environ.get("HTTP_ACCEPT", "").startswith("text/html")
    upgrades = environ.get("HTTP_UPGRADE_INSECURE_REQUESTS") == "1" and wants_page
    return environ.get("HTTP_SEC_FETCH_MODE") == "navigate" or upgrades


@functools.cache
def proxy_network(text: str) -> Network | None:
    """Return the network of the trusted proxy; None if empty or UNIX.

    Raises ValueError with a message for the operator.
    """
    return _read_network("--trusted-proxy", text) if text and text != UNIX else None


@functools.cache
def metrics_networks(text: str) -> tuple[Network, ...]:
    """Return the networks that may read the metrics; loopback if empty.

    Raises ValueError with a message for the operator.
    """
    return (_read_network("--metrics-network", text),) if text else LOOPBACK


def is_among(networks: Iterable[Network], request_info: RequestInfo) -> bool:
    """Return whether a request comes from one of the networks. False if the address of the client is unknown.

    A client of the Unix socket is on this host.
    """
    if request_info.address == UNIX and not request_info.is_proxied:
        return networks is LOOPBACK
    address = None if request_info.is_proxied else _read_address(request_info.address)
    return address is not None and any(address in network for network in networks)


def _read_network(flag: str, text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{flag} must be an address or a network such as 10.0.0.0/24, not {text!r}") from None


class _Client(NamedTuple):
    address: str
    scheme: str
    is_from_proxy: bool = False  # the trusted proxy sent the address


def _read_client(environ: WSGIEnvironment, settings: Settings) -> _Client:
    """Return the client's address and scheme: from the headers of the trusted proxy, otherwise from the connection.

    The proxy appends the last element of each header; the elements before it come from the client and may be forged.
    Without a valid address in the header, the client has the address of the proxy.
    """
    address, scheme = environ.get("REMOTE_ADDR", ""), environ["wsgi.url_scheme"]
    network = proxy_network(settings.trusted_proxy)
    peer = _read_address(address) if network else None
    is_proxy = peer in network if network and peer else address == settings.trusted_proxy == UNIX
    if not is_proxy:
        return _Client(address, scheme)
    client, proto = (
        environ.get(name, "").rpartition(",")[2].strip(" \t")
        for name in ("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO")
    )
    forwarded = _read_address(client)
    scheme = proto.lower() if proto.lower() in ("http", "https") else scheme
    return _Client(str(forwarded or address), scheme, forwarded is not None)


def _read_address(text: str) -> Address | None:
    """Return an IP address, with or without a port; None for anything else."""
    found = _ADDRESS.fullmatch(text)
    try:
        ip = ipaddress.ip_address((found[1] or found[2]) if found else text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip
