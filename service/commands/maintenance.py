"""`migrate` and `purge`: database maintenance."""

import argparse

from service import db
from service.clock import read_ulid, read_uuid
from service.commands import Stop
from service.db import migrations
from service.db.files import stored_backups
from service.settings import Settings


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=migrate if name == "migrate" else purge)
    if name == "migrate":
        parser.add_argument("--no-copy", action="store_true", help="do not save a copy of the database file before")
    if name == "purge":
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument("--message", metavar="ID", help="purge one message")
        target.add_argument("--session", metavar="ID", help="purge all messages of a chat session")
        target.add_argument("--user", metavar="EMAIL", help="purge all messages in the chat sessions of a user")


def migrate(flags: argparse.Namespace, settings: Settings) -> None:
    """Update the database schema."""
    db.open_database(settings.data, settings.database, create=True)
    steps = migrations.migrate(save_copy=not flags.no_copy)
    migrations.rewrite_after(steps)
    done = f"{steps} migration{'s' * (steps > 1)} applied" if steps else ""
    print(f"schema {migrations.version()}: {done or 'up to date'}")


def purge(flags: argparse.Namespace, settings: Settings) -> None:
    """Erase the content of messages permanently. The rows stay as tombstones; no bytes remain in the files.

    With --session and --user, also erases the comments of ratings; with --user, also the screenshots in the feedback of
    the user. Deletes the e-mails of a demo, which have texts of messages.
    """
    import app
    from service.models import AuditLog, ChatSession, FeedbackScreenshot, Message, MessageImage, StoredMail, User
    from service.models.audit_log import OPERATOR
    from service.models.ratings import count_comments, erase_comments

    app.prepare(settings)
    sessions = None
    if flags.message:
        subject_id = read_ulid(flags.message)
        condition = Message.id == subject_id
    elif flags.session:
        subject_id = read_uuid(flags.session)
        condition = Message.chat_session_id == subject_id
        sessions = ChatSession.id == subject_id
    else:
        user = User.by_email(flags.user)
        if user is None:
            raise Stop(f"no such user: {flags.user}")
        subject_id = user.id
        sessions = ChatSession.user_id == user.id
        condition = Message.chat_session_id.in_(ChatSession.select(ChatSession.id).where(sessions))
    screenshots = FeedbackScreenshot.count_of(subject_id) if flags.user else 0
    if (
        not screenshots
        and not (sessions and count_comments(sessions))
        and not Message.select().where(condition).exists()
    ):
        raise Stop("no such message")
    with db.write():
        purged = Message.purge(condition)
        StoredMail.delete().execute()
        comments = erase_comments(sessions) if sessions else 0
        if flags.user:
            MessageImage.remove_unsent(subject_id)
            screenshots = FeedbackScreenshot.purge(subject_id)
        if purged or screenshots or comments:
            more = {"screenshots": screenshots, "comments": comments}
            counts = {"messages": purged} | {name: number for name, number in more.items() if number}
            AuditLog.record("purged", OPERATOR, subject_id, **counts)
    db.rewrite_files()
    print(f"{purged} messages purged" + (f", {screenshots} screenshots of feedback" if screenshots else ""))
    copies = (db.saved_copies(settings.data) if not settings.database else []) + stored_backups(settings.data)
    if copies:
        names = ", ".join(map(str, copies))
        raise Stop(
            f"the purged content is still in these copies of the database: {names}; delete those you do not need"
        )
