"""`healthcheck`: checks whether the service on this host is ready, for containers without curl."""

import argparse
import contextlib
import http.client
import socket

from service.commands import Stop
from service.settings import ListenAddress, Settings

TIMEOUT = 5.0  # seconds
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # the address to connect to, for a wildcard


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)


def run(_: argparse.Namespace, settings: Settings) -> int:
    """Request `/readyz`. Raises Stop unless the status is 200."""
    address = settings.address
    address = address._replace(host=LOOPBACK.get(address.host, address.host))
    with contextlib.closing(connection_to(address)) as connection:
        try:
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise Stop(f"no response from {address}: {error}") from None
    if status != 200:
        raise Stop(f"the service at {address} is not ready: status {status}")
    return 0


class UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self.path)


def connection_to(address: ListenAddress) -> http.client.HTTPConnection:
    """Return a connection to an address, which opens with the first request."""
    if address.path:
        return UnixConnection(address.path)
    return http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT)
