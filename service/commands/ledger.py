"""`ledger`: who did what, and the proof that nothing of it was altered."""

import argparse
import time
from typing import Any

import msgspec

from service import db, migrations
from service.commands import Stop
from service.models import Ledger, User
from service.models.ledger import BEGINNING, KINDS, Broken, Head
from service.settings import Settings, add_flags
from service.terminal import clean


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, about: str, run: object) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        add_flags(added, "data", "database")
        added.set_defaults(run=run)
        return added

    listing = action("list", "print entries, the newest last", list_entries)
    listing.add_argument("--user", metavar="EMAIL", help="what a user did, and what was done to them")
    listing.add_argument("--kind", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)}")
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="how many at most [100]")
    listing.add_argument("--json", action="store_true", help="a JSON object a line, for programs")
    proof = action("verify", "read every entry, and name the first that does not fit", verify)
    proof.add_argument(
        "--head", metavar="NUMBER:HASH", help="as printed before: that nothing was cut off or written anew"
    )


def list_entries(flags: argparse.Namespace, settings: Settings) -> None:
    """List entries."""
    _open(settings)
    actor, subject = User.alias(), User.alias()
    names = (actor.email.alias("actor"), subject.email.alias("subject"))
    entries: Any = Ledger.select(Ledger, *names).order_by(Ledger.position.desc()).limit(max(flags.limit, 0))
    entries = entries.left_outer_join(actor, on=(actor.id == Ledger.actor_id)).switch(Ledger)
    entries = entries.left_outer_join(subject, on=(subject.id == Ledger.subject_id))
    if flags.kind:
        entries = entries.where(Ledger.kind == flags.kind)
    if flags.user:
        user = User.by_email(flags.user)
        if user is None:
            raise Stop(f"there is no user {flags.user}")
        entries = entries.where((Ledger.actor_id == user.id) | (Ledger.subject_id == user.id))
    for entry in reversed(list(entries.objects())):
        print(_as_json(entry) if flags.json else clean(_as_line(entry)))


def _as_json(entry: Ledger) -> str:
    return msgspec.json.encode({**entry.__data__, "details": msgspec.Raw(entry.details.encode())}).decode()


def _as_line(entry: Any) -> str:
    """An entry for people, who know each other by their addresses."""
    actor, subject = entry.actor or entry.actor_id, entry.subject or entry.subject_id
    who = actor if subject in ("", actor) else f"{actor} > {subject}"
    told = "" if entry.details == "{}" else f"  {entry.details}"
    return f"{entry.position:>6}  {entry.created_at}  {entry.kind:<21}  {who}{told}"


def verify(flags: argparse.Namespace, settings: Settings) -> None:
    """Read every entry; how many there are, and the head for somebody to note."""
    _open(settings)
    begun = time.perf_counter()
    try:
        head = Ledger.verify(Head.read(flags.head) if flags.head else BEGINNING)
    except Broken as broken:
        raise Stop(str(broken)) from None
    taken = time.perf_counter() - begun
    rate = f"{head.position / taken:,.0f} a second" if head.position else "nothing to read"
    print(f"{head.position:,} entries as they were written, {rate}\n{head}")


def _open(settings: Settings) -> None:
    """The database as it is: what is to be proved is not changed before."""
    db.open_database(settings.data, settings.database)
    found, today = migrations.version(), len(migrations.STEPS)
    if found != today:
        raise Stop(f"{db.database.name} has schema {found}, and this program {today}: run `cx-service migrate` first")
