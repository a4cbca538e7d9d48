"""`user`: manages users."""

import argparse
import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from service import db, validators
from service.api.schemas import BodyColumns
from service.auth.passwords import hash_password
from service.clock import read_uuid
from service.commands import Stop, add_actions
from service.db import Position
from service.db.files import stored_backups
from service.errors import ApiError
from service.escape import clean
from service.fields import SqlValue
from service.models import App, User
from service.models.audit_log import OPERATOR
from service.models.user_deletion import delete_user
from service.models.users import ROLES, Account
from service.settings import Settings, add_flags

NAMES = BodyColumns(User, "first_name", "last_name", "display_name", partial=True)
PAGE_SIZE = 500  # users of a list that are read at once


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser, "data", "database")
    add = add_action("add", "add a user; prompts for the password, or reads it from standard input", add_user)
    add.add_argument("email")
    add.add_argument("--role", choices=ROLES, default="user")
    invitation = add_action("invite", "add a user, who gets an e-mail with a link to choose a password", invite_user)
    invitation.add_argument("email")
    invitation.add_argument("--role", choices=ROLES, default="user")
    again = add_action("reinvite", "send the invitation of a user without a password again", reinvite_user)
    for action in (invitation, again):
        add_flags(action, "smtp", "mail_from", "public_url")
    listing = add_action("list", "list the users", list_users)
    listing.add_argument("--search", metavar="TEXT", default="", help="text to find in e-mail address and names")
    listing.add_argument("--role", choices=ROLES)
    show = add_action("show", "show a user", show_user)
    edit = add_action("edit", "change the names of a user, or the app of an agent", edit_user)
    role = add_action("role", "change the role of a user", change_role)
    for name, summary, run in (
        ("password", "change the password of a user; ends all login sessions", change_password),
        ("disable", "disable a user; ends all login sessions", disable),
        ("enable", "enable a user", enable),
        ("delete", "delete a user, with the user's chats and all other data", delete),
    ):
        add_action(name, summary, run).add_argument("email")
    for action in (again, show, edit, role):
        action.add_argument("email")
    role.add_argument("role", choices=ROLES)
    listing.add_argument("--app", metavar="ID", default="", help="identifier of the app of agents")
    for action in (add, invitation, edit, role):
        action.add_argument("--app", metavar="ID", help="identifier of the app that an agent works for")
    for action in (add, invitation, edit):
        for name in NAMES.columns:
            action.add_argument(f"--{name.replace('_', '-')}", metavar="TEXT", default=argparse.SUPPRESS)
    for action in (listing, show):
        action.add_argument("--json", action="store_true", help="print one JSON object per line")


def add_user(flags: argparse.Namespace, settings: Settings) -> None:
    """Add a user, and print the identifier."""
    with _errors_of_models():
        columns = _read_new_user(flags, settings)
        user = User.add(OPERATOR, password_hash=_read_password_hash(), **columns)
    print(user.id)


def invite_user(flags: argparse.Namespace, settings: Settings) -> None:
    """Add a user without a password, queue an e-mail, and print the identifier."""
    from service.auth import account_mail

    if not settings.smtp:
        raise Stop("e-mail is not configured: --smtp is not set")
    with _errors_of_models():
        user = account_mail.invite(OPERATOR, **_read_new_user(flags, settings))
    print(user.id)


def reinvite_user(flags: argparse.Namespace, settings: Settings) -> None:
    """Queue the e-mail of an invitation again."""
    from service.auth import account_mail

    if not settings.smtp:
        raise Stop("e-mail is not configured: --smtp is not set")
    with _errors_of_models():
        account_mail.invite_again(_existing(flags, settings))


def _read_new_user(flags: argparse.Namespace, settings: Settings) -> dict[str, SqlValue]:
    """Return the columns of a user to add, and opens the database."""
    email, names = validators.email_address(flags.email), _read_names(flags)
    _prepare(settings, create=True)
    if User.by_email(email):
        raise Stop(f"the user {email} already exists")
    app_id = _read_app(flags)
    if flags.role == "agent" and not app_id:
        raise Stop("an agent needs an app: use --app ID")
    return {"email": email, "role": flags.role, "app_id": app_id, **names}


def list_users(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per user."""
    _prepare(settings)
    apps = {app.id: app.name for app in App.select()}
    for account in _accounts(flags.search, flags.role, read_uuid(flags.app) if flags.app else ""):
        print(_as_json(account) if flags.json else clean(_as_line(account, apps)))


def show_user(flags: argparse.Namespace, settings: Settings) -> None:
    """Print the members of a user, one per line."""
    account = _existing(flags, settings).account
    if flags.json:
        print(_as_json(account))
        return
    for name, value in msgspec.to_builtins(account).items():
        print(f"{name + ':':<15} {clean(str('' if value is None else value))}".rstrip())


def edit_user(flags: argparse.Namespace, settings: Settings) -> None:
    """Change the names of a user, or the app of an agent."""
    with _errors_of_models():
        columns = _read_names(flags)
        user = _existing(flags, settings)
        user.change(OPERATOR, {**columns, **({"app_id": _read_app(flags)} if flags.app else {})})


def change_role(flags: argparse.Namespace, settings: Settings) -> None:
    """Change the role of a user."""
    user = _existing(flags, settings)
    if flags.role == "agent" and not (flags.app or user.app_id):
        raise Stop("an agent needs an app: use --app ID")
    with _errors_of_models():
        user.change(OPERATOR, {"role": flags.role, **({"app_id": _read_app(flags)} if flags.app else {})})


def delete(flags: argparse.Namespace, settings: Settings) -> None:
    """Delete a user and the user's data, from the database files too."""
    with _errors_of_models():
        delete_user(_existing(flags, settings), OPERATOR)
    db.rewrite_files()
    copies = (db.saved_copies(settings.data) if not settings.database else []) + stored_backups(settings.data)
    if copies:
        names = ", ".join(map(str, copies))
        raise Stop(f"the deleted data is still in these copies of the database: {names}; delete those you do not need")


def change_password(flags: argparse.Namespace, settings: Settings) -> None:
    """Change the password of a user."""
    _existing(flags, settings).change_password(_read_password_hash())


def disable(flags: argparse.Namespace, settings: Settings) -> None:
    """Disable a user."""
    _existing(flags, settings).disable()


def enable(flags: argparse.Namespace, settings: Settings) -> None:
    """Enable a user."""
    _existing(flags, settings).enable()


def _prepare(settings: Settings, *, create: bool = False) -> None:
    import app

    app.prepare(settings, create=create)


def _existing(flags: argparse.Namespace, settings: Settings) -> User:
    _prepare(settings)
    user = User.by_email(flags.email)
    if user is None:
        raise Stop(f"no such user: {flags.email}")
    return user


@contextmanager
def _errors_of_models() -> Iterator[None]:
    """Report the errors of models as errors of the command."""
    try:
        yield
    except ApiError as error:
        text = str(error).removeprefix("$.").removesuffix(".")
        raise Stop(text[:1].lower() + text[1:]) from None


def _read_names(flags: argparse.Namespace) -> dict[str, SqlValue]:
    """Return the names that the flags set, by the same rules as the API."""
    return NAMES.read({name: getattr(flags, name) for name in NAMES.columns if hasattr(flags, name)})


def _read_app(flags: argparse.Namespace) -> str | None:
    """Return the identifier of an existing app, or None without one."""
    app_id = read_uuid(flags.app) if flags.app else None
    if app_id and App.find(app_id) is None:
        raise Stop(f"no such app: {app_id}")
    return app_id


def _accounts(search: str, role: str | None, app_id: str) -> Iterator[Account]:
    """Yield the users in pages, so that a list of any length needs little memory."""
    after = Position()
    while True:
        page = User.list_page(after, PAGE_SIZE, search=search, role=role, app_id=app_id)
        yield from msgspec.json.decode(page.rows, type=list[Account])
        if not page.next_key:
            return
        after = Position(key=page.next_key)


def _as_json(account: Account) -> str:
    return msgspec.json.encode(account).decode()


def _as_line(account: Account, apps: dict[str, str]) -> str:
    """Return a user as one line: identifier, role, state, e-mail address, app, name, last login."""
    state = "disabled" if account.is_disabled else "enabled"
    name = account.display_name or f"{account.first_name} {account.last_name}".strip()
    first = f"{account.id}  {account.role:<5}  {state:<8}  {account.email:<30}"
    last_login = account.last_login_at or ""
    return f"{first}  {apps.get(account.app_id or '', ''):<20}  {name:<20}  {last_login}".rstrip()


def _read_password_hash() -> str:
    """Return the hash of a password, typed twice on a terminal, otherwise read as one line of standard input.

    A password is never an argument, since other users of the host can read command lines.
    """
    if sys.stdin.isatty():
        try:
            password = getpass.getpass("Password: ")
            if getpass.getpass("Password again: ") != password:
                raise Stop("the passwords do not match")
        except EOFError:  # Ctrl-D; it leaves the cursor after the prompt
            print(file=sys.stderr)
            raise Stop("no password was entered") from None
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    return hash_password(password)
