"""Sends events to webhooks, by the Standard Webhooks specification (https://www.standardwebhooks.com)."""

import base64
import contextlib
import hmac
import json
from collections.abc import Sequence

import msgspec

from service import clock
from service.http_client import HttpServer
from service.models import Delivery, Notification
from service.models.deliveries import Channel
from service.models.webhooks import WEBHOOK, EndedWebhook
from service.outbox.requests import post
from service.outbox.transport import DeliveryError, Transport
from service.settings import Settings

PREFIX = "whsec_"
MIN_SECRET, MAX_SECRET = 24, 64  # bytes
MAX_SECRETS = 2  # the new one and the former one, during a rotation
GONE = 410  # the status by which a receiver asks for no further events
PING = "ping"


class WebhookTransport(Transport):
    """Sends events to one webhook. Raises ValueError with a sentence for the operator for an invalid URL."""

    channel: Channel = WEBHOOK

    def __init__(self, url: str, secrets: Sequence[bytes]) -> None:
        try:
            self._server = HttpServer(url, allow_query=True, allow_plain=False, keeps_connection=True)
        except ValueError:
            expected = "https://hooks.example/chat, or http:// with a private address; without user and password"
            raise ValueError(f"the URL of a webhook must have the form {expected}") from None
        self.target, self._secrets = url, secrets

    def deliver(self, delivery: Delivery, notifications: Sequence[Notification] = ()) -> None:
        """Send an event. A webhook that answers 410 ends. Raises DeliveryError."""
        try:
            self.send(delivery.id, delivery.kind, json.loads(delivery.payload))
        except DeliveryError as error:
            if error.is_final:
                EndedWebhook.end(self.target)
            raise

    def close(self) -> None:
        self._server.close()

    def ping(self) -> None:
        """Send an event of the type `ping`, which has no data. Raises DeliveryError."""
        with contextlib.closing(self):
            self.send(clock.ulid(), PING, {})

    def send(self, id: str, type: str, data: dict[str, object]) -> None:
        """Send an event, with the time of its identifier: all attempts have the same body. Raises DeliveryError."""
        time = clock.timestamp(clock.ulid_time(id))
        body = msgspec.json.encode({"type": type, "timestamp": time, "data": data})
        post(self._server, self._server.path, body, self._signature(id, body), final=(GONE,))

    def _signature(self, id: str, body: bytes) -> dict[str, str]:
        attempted_at = str(clock.host_time() // clock.SECOND)  # receivers compare it with their own clocks
        signed = f"{id}.{attempted_at}.".encode() + body
        digests = [base64.b64encode(hmac.digest(secret, signed, "sha256")).decode() for secret in self._secrets]
        signatures = " ".join(f"v1,{digest}" for digest in digests)
        return {"webhook-id": id, "webhook-timestamp": attempted_at, "webhook-signature": signatures}


def secrets_in(text: str) -> list[bytes]:
    """Return the keys of the setting `webhook_secret`. Raises ValueError, without the text."""
    try:
        keys = [_key(secret) for secret in text.split()]
        if not 1 <= len(keys) <= MAX_SECRETS:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"CX_WEBHOOK_SECRET must be {PREFIX} and the base64 of {MIN_SECRET} to {MAX_SECRET} bytes;"
            " during a rotation, the new secret, a space and the former one"
        ) from None
    return keys


def _key(secret: str) -> bytes:
    encoded = secret.removeprefix(PREFIX)
    key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    if encoded == secret or not MIN_SECRET <= len(key) <= MAX_SECRET:
        raise ValueError
    return key


def webhook_of(settings: Settings, url: str) -> WebhookTransport:
    """Return the transport to a webhook. Raises ValueError with a sentence for the operator."""
    if not settings.webhook_secret:
        raise ValueError("--webhook needs a secret in CX_WEBHOOK_SECRET or CX_WEBHOOK_SECRET_FILE")
    return WebhookTransport(url, secrets_in(settings.webhook_secret))
