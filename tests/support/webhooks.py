"""A receiver of webhooks on loopback. It verifies every request with the package `standardwebhooks`."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from standardwebhooks import Webhook

from tests.support.fake_ai import Behaviour, FakeServer, fake_server, sends

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
FORMER_SECRET = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
ACCEPTS = sends({}, 204)


class Receiver(FakeServer):
    """What it has received, in order of arrival, also what it did not accept."""

    def __init__(self, behave: Behaviour = ACCEPTS) -> None:
        super().__init__()
        self.behave = behave

    @property
    def target(self) -> str:
        """The URL of the webhook."""
        return f"http://127.0.0.1:{self.server_port}/hook"

    def events(self, secret: str = SECRET) -> list[dict[str, Any]]:
        """The verified events. Raises WebhookVerificationError."""
        return [dict(Webhook(secret).verify(request.content, request.headers)) for request in self.requests]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events()]

    @property
    def ids(self) -> list[str]:
        """The identifiers of the events, by which receivers recognise repetitions."""
        return [request.headers["webhook-id"] for request in self.requests]


@contextmanager
def receiving(behave: Behaviour = ACCEPTS) -> Iterator[Receiver]:
    """Run a receiver during the block."""
    with fake_server(Receiver(behave)) as server:
        assert isinstance(server, Receiver)
        yield server
