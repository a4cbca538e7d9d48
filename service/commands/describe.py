"""`routes` and `openapi`: list the operations, from their declarations."""

import argparse
import re
import sys
from collections.abc import Iterable

import msgspec

from service.api import openapi
from service.api.operations import Operation
from service.routes import operations
from service.settings import DESTINATION, Settings


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--documented-only",
        dest=DESTINATION.format("documented_only"),
        action="store_true",
        default=None,
        help="omit the extensions",
    )
    parser.set_defaults(run=print_routes if name == "routes" else print_openapi)


def print_routes(_: argparse.Namespace, settings: Settings) -> None:
    sys.stdout.write(listing(operations(settings.documented_only)))


def print_openapi(_: argparse.Namespace, settings: Settings) -> None:
    described = openapi.document(operations(settings.documented_only), settings.public_url)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(described)).decode() + "\n")


def listing(operations: Iterable[Operation]) -> str:
    """Return one line per operation: method, path, authentication and summary."""
    rows = [(o.method, o.full_path, needed_token(o), o.summary) for o in operations]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        re.sub(r" +$", "", "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))) + "\n"
        for row in rows
    )


def needed_token(operation: Operation) -> str:
    """Return the scope that a token of an operation needs, or which token it needs."""
    if operation.public:
        return "none"
    return operation.needed_scope or (f"token for {operation.resource}" if operation.resource else "any token")
