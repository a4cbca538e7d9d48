"""`migrate` and `purge`: looking after the database."""

import argparse

from service import db, migrations
from service.clock import read_ulid, read_uuid
from service.commands import Stop
from service.settings import Settings


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=migrate if name == "migrate" else purge)
    if name == "migrate":
        parser.add_argument("--no-copy", action="store_true", help="do not keep the file as it was beside it")
    if name == "purge":
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--message", metavar="ID", help="one message")
        which.add_argument("--session", metavar="ID", help="all messages of a chat session")
        which.add_argument("--user", metavar="EMAIL", help="all messages in the chat sessions of a user")


def migrate(flags: argparse.Namespace, settings: Settings) -> None:
    """Bring the schema up to date."""
    db.open_database(settings.data, settings.database, create=True)
    steps = migrations.migrate(keeping=not flags.no_copy)
    print(f"schema {migrations.version()}: {f'{steps} steps taken' if steps else 'up to date'}")


def purge(flags: argparse.Namespace, settings: Settings) -> None:
    """Empty messages for good: tombstones stay, the bytes leave the files."""
    import app
    from service.models import ChatSession, Ledger, Message, User
    from service.models.ledger import OPERATOR

    app.prepare(settings)
    if flags.message:
        subject_id = read_ulid(flags.message)
        which = Message.id == subject_id
    elif flags.session:
        subject_id = read_uuid(flags.session)
        which = Message.chat_session_id == subject_id
    else:
        user = User.by_email(flags.user)
        if user is None:
            raise Stop(f"there is no user {flags.user}")
        subject_id = user.id
        which = Message.chat_session_id.in_(ChatSession.select(ChatSession.id).where(ChatSession.user_id == user.id))
    if not Message.select().where(which).exists():
        raise Stop("there is no such message")
    with db.write():
        purged = Message.purge(which)
        if purged:
            Ledger.record("purged", OPERATOR, subject_id, messages=purged)
    db.rewrite_files()
    print(f"{purged} messages purged")
    kept = db.kept_copies(settings.data) if not settings.database else []
    if kept:
        raise Stop(f"what was purged is still in {', '.join(map(str, kept))}: delete what you need no longer")
