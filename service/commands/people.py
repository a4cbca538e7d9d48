"""`user`: the people who may log in."""

import argparse
import getpass
import sys

import peewee

from service import formats
from service.auth.passwords import hash_password
from service.clock import read_uuid
from service.commands import Stop
from service.db import write
from service.models import App, Ledger, User
from service.models.ledger import OPERATOR
from service.settings import Settings, add_flags
from service.terminal import clean


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, about: str, run: object) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=about, description=about)
        add_flags(added, "data", "database")
        added.set_defaults(run=run)
        return added

    add = action("add", "add a user; the password is asked for, or read from standard input", add_user)
    add.add_argument("email")
    add.add_argument("--role", choices=("user", "agent", "admin"), default="user")
    add.add_argument("--app", metavar="ID", help="the app that an agent works for")
    action("list", "list the users", list_users)
    for name, about, run in (
        ("password", "set another password, which ends every login", change_password),
        ("disable", "shut a user out", lambda flags, settings: _existing(flags, settings).disable()),
        ("enable", "let a user log in again", lambda flags, settings: _existing(flags, settings).enable()),
    ):
        action(name, about, run).add_argument("email")


def add_user(flags: argparse.Namespace, settings: Settings) -> None:
    """Add a user."""
    email = formats.email_address(flags.email)
    _prepare(settings, create=True)
    if User.by_email(email):
        raise Stop(f"there is a user {email} already")
    app_id = read_uuid(flags.app) if flags.app else None
    if app_id and not App.get_or_none(App.id == app_id):
        raise Stop(f"there is no app {app_id}")
    if flags.role == "agent" and not app_id:
        raise Stop("an agent works for an app: name it with --app")
    kind = "customer" if flags.role == "user" else "staff"
    user = User(email=email, role=flags.role, user_type=kind, app_id=app_id, password_hash=_ask_for_hash())
    try:
        with write(user.id):
            user.save(force_insert=True)
            Ledger.record("user_added", OPERATOR, user.id, role=user.role, app=app_id)
    except peewee.IntegrityError:  # somebody else was faster
        raise Stop(f"there is a user {email} already") from None
    print(user.id)


def list_users(_: argparse.Namespace, settings: Settings) -> None:
    """List the users."""
    _prepare(settings)
    for user in User.select().order_by(User.email):
        print(f"{user.id}  {user.role:<5}  {'disabled' if user.is_disabled else 'enabled ':<8}  {clean(user.email)}")


def change_password(flags: argparse.Namespace, settings: Settings) -> None:
    """Set another password."""
    _existing(flags, settings).change_password(_ask_for_hash())


def _prepare(settings: Settings, *, create: bool = False) -> None:
    import app

    app.prepare(settings, create=create)


def _existing(flags: argparse.Namespace, settings: Settings) -> User:
    _prepare(settings)
    user = User.by_email(flags.email)
    if user is None:
        raise Stop(f"there is no user {flags.email}")
    return user


def _ask_for_hash() -> str:
    """A password that is typed twice on a terminal, else one line of standard input; never an argument."""
    if sys.stdin.isatty():
        try:
            password = getpass.getpass("Password: ")
            if getpass.getpass("Once more: ") != password:
                raise Stop("the two passwords differ")
        except EOFError:  # Ctrl-D, which leaves the cursor behind the prompt
            print(file=sys.stderr)
            raise Stop("no password was typed") from None
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    return hash_password(password)
