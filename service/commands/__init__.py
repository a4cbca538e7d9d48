"""The command line. `COMMANDS` lists all commands; only the module of the chosen command is imported."""

import argparse
import difflib
import gc
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from service import interrupts, version
from service.escape import clean
from service.settings import add_flags, exposed_files, read_settings

COMMANDS = {
    "serve": ("serve", "update the database schema, then serve requests"),
    "import": ("import_export", "import JSON Lines; with any error, nothing is imported"),
    "export": ("import_export", "export all records as JSON Lines"),
    "app": ("apps", "add, list and edit apps"),
    "bot": ("apps", "add, list and edit bots"),
    "answer": ("canned_answers", "add, list, import and delete canned answers of bots"),
    "user": ("users", "add, list, disable and enable users, and set passwords"),
    "announcement": ("deliveries", "notify the customers of an app, and list what was announced"),
    "delivery": ("deliveries", "list e-mails, push notifications and webhooks that wait, and try them again"),
    "copy": ("database_copy", "copy everything to another database, SQLite or PostgreSQL"),
    "audit": ("audit", "list and verify the audit log"),
    "backup": ("backups", "write a checked backup to one file, while the service runs"),
    "restore": ("backups", "replace the database by a backup, and keep the former database"),
    "doctor": ("doctor", "check the installation, without changing anything"),
    "webhook": ("webhooks", "test, list and enable webhooks"),
    "mcp": ("mcp", "list and test the MCP servers whose tools the assistant may use"),
    "upgrade": ("upgrade", "check a downloaded executable: its file, this host and the database"),
    "config": ("config", "show every setting and its source; secrets are hidden"),
    "migrate": ("maintenance", "update the database schema"),
    "purge": ("maintenance", "erase message content permanently, also from the database file"),
    "client": ("client", "use a service from the command line, signed in through a browser"),
    "mail": ("mail", "send a test e-mail"),
    "healthcheck": ("health", "check that a running service is ready; exit status 0 means ready"),
    "routes": ("describe", "list all operations"),
    "openapi": ("describe", "print the OpenAPI 3.1 document"),
    "completion": ("manual", "print the completion script for bash, zsh or fish"),
    "man": ("manual", "print the manual page, for `man -l`"),
}

# The settings that a command accepts as flags; an empty tuple means all of them.
SETTINGS: dict[str, tuple[str, ...]] = {
    "serve": (),
    "doctor": (),
    "config": (),
    "client": ("log_level",),
    "completion": ("log_level",),
    "man": ("log_level",),
    "copy": ("log_level",),
    "mail": ("smtp", "mail_from", "public_url", "log_level"),
    "mcp": ("log_level",),
    "healthcheck": ("host", "port", "listen", "log_level"),
}  # of the commands that do not use DEFAULT_SETTINGS

DEFAULT_SETTINGS = ("data", "database", "log_level")

VISIBLE_PASSWORD = (
    "warning: other users of this machine can read the password on this command line;"
    " use ~/.pgpass, CX_DATABASE or CX_DATABASE_FILE instead"
)

_URL_PASSWORD = re.compile(r"://[^/?#]*:[^/?#]+@|[?&]password=.")

CommandParser = TypeVar("CommandParser", bound=argparse.ArgumentParser)
Namespace: TypeAlias = Any  # an object of any class, as in argparse


class Parser(argparse.ArgumentParser):
    """Reports an unknown argument with the usage of the command that received it, and suggests the closest flag."""

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Namespace = None
    ) -> tuple[Namespace, list[str]]:
        flags, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            nearest = difflib.get_close_matches(flag, re.findall(r"--[a-z][a-z-]*", self.format_usage()), n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return flags, unknown


class ShowVersion(argparse.Action):
    """Prints version, commit, host and SQLite, and exits. The database is imported only for this."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from service.db import SQLITE_VERSION

        commit = [f"commit {version.COMMIT}"] if version.COMMIT else []
        print(f"cx-service {version.VERSION}", *commit, version.HOST, f"SQLite {SQLITE_VERSION}", sep=", ")
        parser.exit()


class Stop(Exception):
    """Ends a command with exit status 1. The text is printed as its error message."""


def add_command(commands: "argparse._SubParsersAction[CommandParser]", name: str, summary: str) -> CommandParser:
    """Add a command, or an action of a command. Returns its parser."""
    return commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")


def add_actions(
    parser: argparse.ArgumentParser, *settings: str
) -> Callable[[str, str, Callable[..., int | None]], argparse.ArgumentParser]:
    """Make a command require an action, such as `add` in `user add`.

    Returns a function that adds an action (name, summary, function to run) and returns its parser. Every action has the
    flags of the named settings.
    """
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add_action(name: str, summary: str, run: Callable[..., int | None]) -> argparse.ArgumentParser:
        action = add_command(actions, name, summary)
        if settings:
            add_flags(action, *settings)
        action.set_defaults(run=run)
        return action

    return add_action


def make_parser(*names: str) -> Parser:
    """Return the parser of the command line, with the arguments of the named commands only."""
    parser = Parser(prog="cx-service", description="A self-hosted chat backend in one file.")
    parser.add_argument("--version", action=ShowVersion, help="print version, commit, host and SQLite, and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = add_command(commands, name, summary)
        if name in names:
            importlib.import_module(f"service.commands.{module}").add_arguments(name, command)
            add_flags(command, *SETTINGS.get(name, DEFAULT_SETTINGS))
    return parser


def run(argv: list[str] | None = None) -> int:
    """Run the command that the arguments name. Returns the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    flags = make_parser(*arguments[:1]).parse_args(arguments)
    if any(map(_URL_PASSWORD.search, arguments)):
        print(f"cx-service: {VISIBLE_PASSWORD}", file=sys.stderr)
    import peewee

    from service import logs
    from service.db import DatabaseUnusable, reason

    try:
        settings = read_settings(flags)
        logs.configure(settings.log_level, settings.log_format)
        for path in exposed_files():
            print(f"cx-service: warning: all users of this machine can read {clean(str(path))}", file=sys.stderr)
        interrupts.raise_error()
        if not gc.isenabled():  # see `app.main`
            gc.freeze()  # never look for garbage among what is loaded; so workers share its memory, too
            gc.enable()
        return int(flags.run(flags, settings) or 0)
    except (Stop, DatabaseUnusable, ValueError) as error:
        print(f"cx-service: {clean(str(error))}", file=sys.stderr)
        return 1
    except peewee.DatabaseError as error:  # locked, full, not a database
        print(f"cx-service: the database cannot be used: {clean(reason(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupts.STATUS
