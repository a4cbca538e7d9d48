"""Texts that hold another one, found on SQLite by an index of all that is three characters long.

FTS5 keeps it (sqlite.org/fts5.html, 4.3.5), without positions and without the texts, so what it finds is a candidate:
a row that may hold the text, since it holds pieces of it. Triggers keep it in step with its table; see step 5.

How many candidates there are only decides which way a page goes: its own statement asks for them again.
"""

import math
from typing import Any

import peewee

INDEXED = {"bot": "search_text"}  # by table; TABLE_number tells which rows TABLE_trigrams means by its numbers

LENGTH = 3  # characters of a piece
PIECES = 4  # that are looked up, at most: each costs as much as the first, and a few tell nearly all rows apart
CANDIDATES = 1_000  # of more it is quicker to read all rows in the order of their list, until a page is full


def clue(database: Any, column: Any, text: str) -> str:
    """What FTS5 is asked for to find rows that may hold a text; empty where they are many, or it is too short."""
    table = column.model._meta.table_name
    pieces = list(dict.fromkeys(text[place : place + LENGTH] for place in range(len(text) - LENGTH + 1)))
    chosen = pieces[:: max(1, math.ceil(len(pieces) / PIECES))]
    asked = " AND ".join('"' + piece.replace('"', '""') + '"' for piece in chosen)
    if not asked or INDEXED.get(table) != column.name:
        return ""
    some = f"SELECT 1 FROM {table}_trigrams WHERE {table}_trigrams MATCH ? LIMIT {CANDIDATES + 1}"
    found = database.execute_sql(f"SELECT count(*) FROM ({some})", (asked,)).fetchone()[0]
    return "" if found > CANDIDATES else asked


def among(table: Any, clue: Any) -> Any:
    """The condition that a row of a table is among those that a clue leads to."""
    name = table._meta.table_name
    numbers = f"SELECT rowid FROM {name}_trigrams WHERE {name}_trigrams MATCH "
    rows = f"IN (SELECT {name}_id FROM {name}_number WHERE number IN ({numbers}"
    return peewee.NodeList((table.id, peewee.SQL(rows), clue, peewee.SQL("))")))
