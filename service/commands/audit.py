"""`audit`: lists and verifies the audit log."""

import argparse
import time
from typing import Any, TypeAlias

import msgspec

from service import db
from service.commands import Stop, add_actions
from service.db import migrations
from service.escape import clean
from service.models import AuditLog, User
from service.models.audit_log import BEGINNING, KINDS, BrokenChain, Head
from service.settings import Settings

Entry: TypeAlias = Any  # an AuditLog with e-mail addresses: Peewee gives no types for the columns of a join


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser, "data", "database")
    listing = add_action("list", "print entries, newest last", list_entries)
    listing.add_argument("--user", metavar="EMAIL", help="only entries in which this user is the actor or the subject")
    listing.add_argument("--kind", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)}")
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="maximum number of entries [100]")
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    verifying = add_action("verify", "verify the hash of every entry, and report the first that is wrong", verify)
    verifying.add_argument(
        "--head",
        metavar="NUMBER:HASH",
        help="output of an earlier run; also verify that no entry up to this one was removed or rewritten",
    )


def list_entries(flags: argparse.Namespace, settings: Settings) -> None:
    """Print the newest entries, the newest last."""
    _open(settings)
    actor, subject = User.alias(), User.alias()
    names = (actor.email.alias("actor"), subject.email.alias("subject"))
    entries = AuditLog.select(AuditLog, *names).order_by(AuditLog.position.desc()).limit(max(flags.limit, 0))
    entries = entries.left_outer_join(actor, on=(actor.id == AuditLog.actor_id)).switch(AuditLog)
    entries = entries.left_outer_join(subject, on=(subject.id == AuditLog.subject_id))
    if flags.kind:
        entries = entries.where(AuditLog.kind == flags.kind)
    if flags.user:
        user = User.by_email(flags.user)
        if user is None:
            raise Stop(f"no such user: {flags.user}")
        entries = entries.where((AuditLog.actor_id == user.id) | (AuditLog.subject_id == user.id))
    for entry in reversed(list(entries.objects())):
        print(_as_json(entry) if flags.json else clean(_as_line(entry)))


def _as_json(entry: AuditLog) -> str:
    return msgspec.json.encode({**entry.__data__, "details": msgspec.Raw(entry.details.encode())}).decode()


def _as_line(entry: Entry) -> str:
    """Return an entry as one line of text, with e-mail addresses in place of identifiers."""
    actor, subject = entry.actor or entry.actor_id, entry.subject or entry.subject_id
    who = actor if subject in ("", actor) else f"{actor} > {subject}"
    details = "" if entry.details == "{}" else f"  {entry.details}"
    return f"{entry.position:>6}  {entry.created_at}  {entry.kind:<21}  {who}{details}"


def verify(flags: argparse.Namespace, settings: Settings) -> None:
    """Verify all entries. Prints their number and the head, which can be passed as `--head` later."""
    _open(settings)
    start = time.perf_counter()
    try:
        head = AuditLog.verify(Head.read(flags.head) if flags.head else BEGINNING)
    except BrokenChain as broken:
        raise Stop(str(broken)) from None
    seconds = time.perf_counter() - start
    rate = f", {head.position / seconds:,.0f} per second" if head.position else ""
    print(f"entries verified: {head.position:,}{rate}\n{head}")


def _open(settings: Settings) -> None:
    """Open the database without migrating it: verification must not change anything first."""
    db.open_database(settings.data, settings.database)
    found, expected = migrations.version(), len(migrations.STEPS)
    if found != expected:
        raise Stop(
            f"{db.database.name} has schema {found}, but this program needs schema {expected}:"
            " run `cx-service migrate` first"
        )
