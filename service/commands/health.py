"""`healthcheck`: whether the service that runs here is ready, for containers without curl."""

import argparse
import contextlib
import http.client

from service.commands import Stop
from service.settings import Settings

PATIENCE = 5.0  # seconds
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where to ask whoever listens everywhere


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)


def run(_: argparse.Namespace, settings: Settings) -> int:
    """Ask `/readyz`. Raises Stop unless the answer is yes."""
    host = ANY.get(settings.host, settings.host)
    with contextlib.closing(http.client.HTTPConnection(host, settings.port, timeout=PATIENCE)) as connection:
        try:
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise Stop(f"nobody answers at {host}:{settings.port}: {error}") from None
    if status != 200:
        raise Stop(f"the service at {host}:{settings.port} is not ready: status {status}")
    return 0
