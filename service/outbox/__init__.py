"""Delivers what waits in the outbox (`models/deliveries.py`) to the servers that the operator names.

This module does not import the transports, because every command imports it, and most deliver nothing.
"""

from collections.abc import Iterator

from service.models import Delivery, PushKey, push_subscriptions, push_topics, stored_mails
from service.models.deliveries import Channel
from service.models.push_topics import PUSH
from service.models.webhooks import WEBHOOK
from service.settings import Settings


def configure(settings: Settings) -> None:
    """Queue deliveries for the configured transports from now on. The database is open."""
    if settings.web_push:
        PushKey.ensure()
    Delivery.configure(_targets(settings))


def _targets(settings: Settings) -> Iterator[tuple[Channel, str]]:
    """Yield channel and target of `transports.transports_of`, which also validates the settings."""
    if settings.smtp:
        yield "email", ""
    elif settings.store_mails:
        yield "email", stored_mails.TARGET
    if settings.ntfy:
        yield PUSH, push_topics.TARGET
    if settings.web_push:
        yield PUSH, push_subscriptions.TARGET
    for url in settings.webhook:
        yield WEBHOOK, url
