"""`webhook`: tests, lists and enables webhooks."""

import argparse
import json
import sys

from service.commands import Stop, add_actions
from service.commands.rows import open_database
from service.escape import clean, escape
from service.models import Delivery, EndedWebhook
from service.models.webhooks import WEBHOOK
from service.outbox.transport import DeliveryError
from service.outbox.webhooks import webhook_of
from service.settings import Settings


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser, "data", "database", "webhook")
    listing = add_action("list", "list the webhooks of the settings, and those that have ended", list_webhooks)
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    testing = add_action("test", "send the event ping to every webhook of the settings, or to a URL", test_webhooks)
    testing.add_argument("url", nargs="?", metavar="URL")
    enabling = add_action("enable", "send events again to a webhook that has ended", enable_webhook)
    enabling.add_argument("url", metavar="URL")


def list_webhooks(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per webhook: its state, the number of its events that wait or failed, and its URL."""
    open_database(settings)
    ended, counts = EndedWebhook.times(), Delivery.counts_by_target(WEBHOOK)
    for url in dict.fromkeys((*settings.webhook, *ended)):
        pending, failed = counts.get(url, (0, 0))
        row = {"url": url, "ended_at": ended.get(url), "pending": pending, "failed": failed}
        state = f"ended {ended[url]}" if url in ended else "active"
        line = f"{state}, {pending} pending, {failed} failed  {url}"
        print(escape(json.dumps(row)) if flags.json else clean(line))


def test_webhooks(flags: argparse.Namespace, settings: Settings) -> int:
    """Send a `ping`, without the outbox, and print the result for each webhook. Returns 1 if one failed."""
    urls = [flags.url] if flags.url else settings.webhook
    if not urls:
        raise Stop("there is no webhook: pass a URL, or set --webhook")
    transports, failed = [webhook_of(settings, url) for url in urls], 0
    for transport in transports:
        try:
            transport.ping()
            print(f"{clean(transport.target)}: delivered")
        except DeliveryError as error:
            failed = 1
            print(f"cx-service: {clean(transport.target)}: {error}", file=sys.stderr)
    return failed


def enable_webhook(flags: argparse.Namespace, settings: Settings) -> None:
    """Send events to a webhook again, from now on."""
    open_database(settings)
    if not EndedWebhook.enable(flags.url):
        raise Stop(f"this webhook has not ended: {flags.url}")
