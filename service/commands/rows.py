"""Reading and printing rows: shared by the commands that manage apps, bots and canned answers."""

import argparse
from typing import TypeVar

import msgspec

from service.api.schemas import BodyColumns
from service.clock import read_uuid
from service.commands import Stop
from service.db import Table
from service.errors import InvalidBody
from service.escape import clean
from service.fields import SqlValue
from service.settings import Settings
from service.types import JsonObject

Row = TypeVar("Row", bound=Table)


def read_columns(flags: argparse.Namespace, columns: BodyColumns) -> dict[str, SqlValue]:
    """Return the columns that the flags set, by the same rules as the API."""
    try:
        return columns.read({name: getattr(flags, name) for name in columns.columns if hasattr(flags, name)})
    except InvalidBody as error:
        raise Stop(str(error).removeprefix("$.")) from None


def open_database(settings: Settings, *, create: bool = False) -> None:
    import app

    app.prepare(settings, create=create)


def existing(table: type[Row], id: str) -> Row:
    row = table.find(read_uuid(id))
    if row is None:
        kind = table._meta.table_name.replace("_", " ")
        raise Stop(f"no such {kind}: {id}")
    return row


def id_of(rendered: msgspec.Raw) -> str:
    return str(msgspec.json.decode(rendered)["id"])


def print_row(flags: argparse.Namespace, row: JsonObject, text: str) -> None:
    print(msgspec.json.encode(row).decode() if flags.json else f"{row['id']}  {clean(text)}")
