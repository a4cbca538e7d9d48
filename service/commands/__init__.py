"""The command line: every command in one table; its module is imported when it is asked for."""

import argparse
import difflib
import importlib
import re
import sys
from typing import Any

from service import interrupts
from service.settings import add_flags, read_settings
from service.terminal import clean
from service.version import VERSION

COMMANDS = {
    "serve": ("serve", "bring the schema up to date, then serve"),
    "import": ("transfer", "take in JSON Lines: all of it, or with any fault nothing"),
    "export": ("transfer", "write everything as JSON Lines"),
    "user": ("people", "add, list, disable, enable users and set passwords"),
    "copy": ("copy", "move everything to another database, between SQLite and PostgreSQL or not"),
    "ledger": ("ledger", "list who did what, and prove that nothing of it was altered"),
    "backup": ("backups", "write everything into one checked file, while the service runs"),
    "restore": ("backups", "put a backup in place of what is there, which is kept"),
    "doctor": ("doctor", "look for what is wrong, and change nothing"),
    "migrate": ("care", "bring the schema up to date"),
    "purge": ("care", "empty messages for good, and their bytes out of the files"),
    "client": ("client", "use a service from the command line, signed in through a browser"),
    "healthcheck": ("health", "ask a running service whether it is ready; the exit status says"),
    "routes": ("describe", "list every operation"),
    "openapi": ("describe", "print the OpenAPI 3.1 document"),
}

SETTINGS = {
    "serve": (),
    "doctor": (),
    "copy": ("log_level",),
    "healthcheck": ("host", "port", "log_level"),
}  # of commands whose flags are other ones than most have

VISIBLE = "everybody on this machine can read the password on this command line: put it into ~/.pgpass or CX_DATABASE"

_PASSWORD = re.compile(r"://[^/?#]*:[^/?#]+@|[?&]password=.")  # in an address


class Parser(argparse.ArgumentParser):
    """Reports an unknown argument with the usage of the command that it was given to, and the flag that is nearest."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        flags, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            nearest = difflib.get_close_matches(flag, re.findall(r"--[a-z][a-z-]*", self.format_usage()), n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return flags, unknown


class Stop(Exception):
    """A command cannot go on; the text is told to the operator, and the exit status is 1."""


def run(argv: list[str] | None = None) -> int:
    """Run the command that the arguments name; the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = Parser(prog="cx-service", description="A customer-experience backend in one file.")
    parser.add_argument("--version", action="version", version=f"cx-service {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        if name in arguments[:1]:
            importlib.import_module(f"service.commands.{module}").add_arguments(name, command)
            add_flags(command, *SETTINGS.get(name, ("data", "database", "log_level")))
    flags = parser.parse_args(arguments)
    if any(map(_PASSWORD.search, arguments)):
        print(f"cx-service: careful: {VISIBLE}", file=sys.stderr)
    import peewee

    from service import logs
    from service.db import Unusable, reason

    try:
        settings = read_settings(flags)
        logs.set_up(settings.log_level, settings.log_format)
        interrupts.raise_error()
        return int(flags.run(flags, settings) or 0)
    except (Stop, Unusable, ValueError) as error:
        print(f"cx-service: {clean(str(error))}", file=sys.stderr)
        return 1
    except peewee.DatabaseError as error:  # locked, full, not a database
        print(f"cx-service: the database cannot be used: {clean(reason(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupts.STATUS
