"""Sends push notifications to browsers, through the push services that the operator allows (Web Push, RFC 8030)."""

import functools
import hashlib
import importlib.util
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from service import clock, translation
from service.errors import InvalidBody, PushUnavailable
from service.http_client import HttpServer
from service.models import Delivery, Notification, PushKey, PushSubscription
from service.models.callers import Caller
from service.models.deliveries import Channel
from service.models.push_subscriptions import TARGET
from service.models.push_topics import PUSH
from service.outbox import push_encryption as encryption
from service.outbox import push_messages
from service.outbox.requests import post
from service.outbox.transport import DeliveryError, Transport
from service.settings import Settings

GONE = (404, 410)  # the statuses for a subscription that has ended (RFC 8030, section 7.3)
INVALID = (400, 413)  # for a message that is not accepted at any time
TIME_TO_LIVE = clock.DAY // clock.SECOND  # for which a push service stores a message for a browser that is not running
TOKEN_LIFETIME = clock.HOUR  # of the signed header; at most a day
MAX_PLAINTEXT = 3993  # bytes; push services accept encrypted messages of 4096 bytes (RFC 8291, section 4)

_HOST = re.compile(r"(\*\.)?[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?(?::[1-9][0-9]{0,4})?", re.ASCII)


class WebPushTransport(Transport):
    """Sends notifications to the browsers of their users. Raises ValueError with a sentence for the operator."""

    channel: Channel = PUSH
    target = TARGET

    def __init__(self, settings: Settings) -> None:
        if not all(map(_HOST.fullmatch, settings.web_push)):
            raise ValueError("--web-push must be the host of a push service, such as push.example or *.push.example")
        if not settings.public_url or settings.documented_only:
            raise ValueError("--web-push needs --public-url and the pages of the console")
        if importlib.util.find_spec("Cryptodome") is None:
            raise ValueError("--web-push needs the library pycryptodomex, which cx-service-postgresql.pyz contains")
        self._settings = settings

    def deliver(self, delivery: Delivery, notifications: Sequence[Notification]) -> None:
        """Send one message to each browser of a user that has not got it yet. Raises DeliveryError."""
        with translation.use(push_messages.language_of(delivery.user_id)):
            content = self._content(delivery, notifications)
        errors = []
        for subscription in PushSubscription.open_of(delivery.user_id):
            if delivery.was_sent_to(subscription.id) or not is_allowed(subscription.endpoint, self._settings):
                continue
            try:
                self._send(subscription, content, delivery)
            except DeliveryError as error:
                if error.status in GONE:
                    subscription.remove()
                else:
                    errors.append(error)
            else:
                delivery.record_sent_to(subscription.id)
        if errors:
            raise min(errors, key=lambda error: error.is_final)  # a temporary one, so that it is tried again

    def _content(self, delivery: Delivery, notifications: Sequence[Notification]) -> bytes:
        message = {"title": push_messages.title(self._settings), "tag": _topic(delivery)}
        message["page"] = push_messages.page_of(notifications[-1])
        text = push_messages.text(self._settings, notifications)
        while len(content := msgspec.json.encode(message | {"body": text})) > MAX_PLAINTEXT:
            text = text[: len(text) * 3 // 4]
        return content

    def _send(self, subscription: PushSubscription, content: bytes, delivery: Delivery) -> None:
        parts = urlsplit(subscription.endpoint)
        origin = f"{parts.scheme}://{parts.netloc}"
        expires_at = (clock.host_time() + TOKEN_LIFETIME) // clock.SECOND
        key = encryption.private_key(PushKey.number())
        headers = {
            "Authorization": encryption.authorization(key, origin, self._settings.public_url, expires_at),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TIME_TO_LIVE),
            "Topic": _topic(delivery),  # replaces a message about the same that the browser has not got
            "Urgency": "high" if delivery.is_urgent else "normal",
        }
        path = subscription.endpoint.removeprefix(origin)
        body = encryption.encrypt(content, subscription.p256dh, subscription.auth)
        post(_server(origin), path, body, headers, final=INVALID)


def public_key() -> str:
    """Return the key that browsers bind their subscriptions to."""
    return encryption.encode(encryption.point_of(encryption.private_key(PushKey.number())))


def require_configured(settings: Settings) -> None:
    """Raise PushUnavailable if the service sends no messages to browsers."""
    if not settings.web_push:
        raise PushUnavailable


def subscribe(caller: Caller, endpoint: str, p256dh: str, auth: str, settings: Settings) -> None:
    """Store the subscription of the caller's browser. Raises PushUnavailable or InvalidBody."""
    require_configured(settings)
    if not is_allowed(endpoint, settings):
        raise InvalidBody("$.endpoint: this service does not send to the push service of this browser")
    try:
        encryption.read_public_key(p256dh)
        if len(encryption.decode(auth)) != encryption.AUTH_BYTES:
            raise ValueError
    except ValueError:
        raise InvalidBody("$.keys: expected the keys of a push subscription") from None
    PushSubscription.add(caller, endpoint, p256dh, auth)


def is_allowed(endpoint: str, settings: Settings) -> bool:
    """Return whether the host of an endpoint is one of the settings; without TLS, only a private address."""
    try:
        netloc = urlsplit(endpoint).netloc
        if not _HOST.fullmatch(netloc) or not any(_matches(netloc, host) for host in settings.web_push):
            return False
        HttpServer(endpoint, allow_query=True, allow_plain=False)
    except ValueError:
        return False
    return True


def _matches(netloc: str, host: str) -> bool:
    return netloc.endswith(host[1:]) if host.startswith("*.") else netloc == host


def _topic(delivery: Delivery) -> str:
    """Return an identifier of what a delivery is about (RFC 8030, section 5.4)."""
    return urlsafe_b64encode(hashlib.sha256(delivery.topic.encode()).digest()[:24]).decode()


@functools.lru_cache(maxsize=64)
def _server(origin: str) -> HttpServer:
    """Return a server, which reads the certificates of this host once."""
    return HttpServer(origin, allow_plain=False)
