"""`delivery` and `announcement`: the outbox, and messages to the customers of an app."""

import argparse
from typing import get_args

import msgspec

from service.commands import Stop, add_actions
from service.commands.rows import existing, id_of, open_database, read_columns
from service.db import Position
from service.errors import DeliveryNotFound
from service.escape import clean
from service.models import Announcement, App, Delivery
from service.models.announcements import NEW_ANNOUNCEMENT
from service.models.audit_log import OPERATOR
from service.models.deliveries import Channel, DeliveryInfo, State
from service.settings import Settings


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser, "data", "database")
    if name == "announcement":
        add = add_action("add", "notify the customers of an app who accept marketing", add_announcement)
        add.add_argument("--app", metavar="ID", required=True, help="identifier of the app")
        add.add_argument("title")
        add.add_argument("body", nargs="?", default="")
        listing = add_action("list", "list the announcements of an app, newest first", list_announcements)
        listing.add_argument("--app", metavar="ID", required=True, help="identifier of the app")
    else:
        listing = add_action("list", "list deliveries that are pending or have failed, newest first", list_deliveries)
        listing.add_argument("--channel", choices=get_args(Channel))
        listing.add_argument("--state", choices=get_args(State))
        showing = add_action("show", "print a delivery with the error of its last attempt", show_delivery)
        retrying = add_action("retry", "try a delivery again at once, for another three days", retry_delivery)
        for action in (showing, retrying):
            action.add_argument("id", metavar="ID")
        showing.add_argument("--json", action="store_true", help="print a JSON object")
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="maximum number of rows [100]")
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")


def add_announcement(flags: argparse.Namespace, settings: Settings) -> None:
    """Add an announcement, which a running service sends, and print its identifier."""
    columns = read_columns(flags, NEW_ANNOUNCEMENT)
    open_database(settings)
    print(id_of(Announcement.add(existing(App, flags.app).id, columns, OPERATOR)))


def list_announcements(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per announcement."""
    open_database(settings)
    page = Announcement.page_of(existing(App, flags.app).id, Position(), max(flags.limit, 0))
    for row in msgspec.json.decode(page.rows):
        state = "finished" if row["finished_at"] else "unfinished"
        line = f"{row['created_at']}  {state}  {row['recipients']} recipients  {row['title']}"
        print(msgspec.json.encode(row).decode() if flags.json else clean(line))


def list_deliveries(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per delivery."""
    open_database(settings)
    page = Delivery.list_page(Position(), max(flags.limit, 0), channel=flags.channel, state=flags.state)
    for delivery in msgspec.json.decode(page.rows, type=list[DeliveryInfo]):
        to = delivery.user_id or delivery.target
        line = f"{delivery.id}  {delivery.state:7}  {delivery.channel:7}  {delivery.kind}  {to}  {delivery.error}"
        print(msgspec.json.encode(delivery).decode() if flags.json else clean(line.rstrip()))


def show_delivery(flags: argparse.Namespace, settings: Settings) -> None:
    """Print the members of a delivery."""
    open_database(settings)
    info = _existing(flags.id).info
    if flags.json:
        print(msgspec.json.encode(info).decode())
        return
    for name, value in msgspec.structs.asdict(info).items():
        print(clean(f"{name:12} {'' if value is None else value}".rstrip()))


def retry_delivery(flags: argparse.Namespace, settings: Settings) -> None:
    """Make a delivery due now."""
    open_database(settings)
    try:
        _existing(flags.id).try_again(OPERATOR)
    except DeliveryNotFound:  # delivered in the meantime
        raise Stop(f"no such delivery: {flags.id}") from None


def _existing(id: str) -> Delivery:
    delivery = Delivery.find(id.upper())
    if delivery is None:
        raise Stop(f"no such delivery: {id}; it was delivered, or was not needed any more")
    return delivery
