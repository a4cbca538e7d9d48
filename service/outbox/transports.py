"""The configured transports, and the threads that deliver through them."""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

from service.outbox.email import EmailTransport
from service.outbox.mail_store import MailStore
from service.outbox.ntfy import NtfyTransport
from service.outbox.smtp import mail_server_of
from service.outbox.transport import Transport
from service.outbox.web_push import WebPushTransport
from service.outbox.webhooks import webhook_of
from service.outbox.worker import DeliveryWorker
from service.queue_worker import running
from service.settings import Settings


def transports_of(settings: Settings) -> Sequence[Transport]:
    """Return the configured transports. Raises ValueError with a sentence for the operator."""
    mail_server = mail_server_of(settings) or (MailStore() if settings.store_mails else None)
    mail = [EmailTransport(settings, mail_server)] if mail_server else []
    ntfy = [NtfyTransport(settings)] if settings.ntfy else []
    web_push = [WebPushTransport(settings)] if settings.web_push else []
    return [*mail, *ntfy, *web_push, *(webhook_of(settings, url) for url in dict.fromkeys(settings.webhook))]


def delivery_threads(
    settings: Settings, stop: threading.Event, *, is_prompt: bool = True
) -> AbstractContextManager[None]:
    """Run the worker threads during the block.

    Only those of one process should be prompt, because each commit of another process empties its page cache. The
    others help when the queue grows.
    """
    workers = [DeliveryWorker(transport, stop, is_prompt=is_prompt) for transport in transports_of(settings)]
    return running(workers, stop)
