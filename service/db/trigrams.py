"""Substring search on SQLite by an FTS5 index of trigrams (sequences of three characters).

The index has neither positions nor texts (sqlite.org/fts5.html, section 4.3.5), so the rows that it finds are
candidates: they contain the trigrams of the search text, but not necessarily the text. Triggers update the index
together with its table; see migration step 5.

The number of candidates only decides whether a query uses the index; the query itself selects the candidates again.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import peewee

from service.fields import primary_key

Result = TypeVar("Result")

INDEXED = {"bot": "search_text"}  # the indexed column by table; TABLE_number maps the numbers in TABLE_trigrams to rows

TRIGRAM_LENGTH = 3  # characters
MAX_TRIGRAMS = 4  # looked up for a search text: each costs the same, and a few exclude nearly all other rows
MAX_CANDIDATES = 1_000  # each is read, rendered and sorted, which takes about 5 µs
# With m candidates among n rows, reading the rows in the order of the list fills a page of 26 after 26 * n / m of them.
# So it is faster from about sqrt(26 * n * c) candidates on, where c is the time to read a row of the list compared with
# a candidate: a sixth if an index in the order of the list contains the text, half if the row has to be read.
COVERED, NOT_COVERED = 4, 12  # 26 * c
# Limit of reading the list while there may be fewer than MAX_CANDIDATES, which may all be at its end: some 6,000 rows.
MAX_STEPS = 40_000


def read_matches(
    read: Callable[[str], Result],
    read_within: Callable[[int], Result | None],
    database: peewee.Database,
    column: peewee.Field,
    text: str,
    *,
    covered: bool,
) -> Result:
    """Read a page of the rows that contain a text, in the way that is expected to be the fastest.

    `read` gets the FTS5 query to use, or "" to read the list in its order. `read_within` reads the list, too, and
    returns None after a number of steps of SQLite. `covered` tells whether an index in the order of the list contains
    the column.
    """
    expression = match_expression(column, text)
    if not expression:
        return read("")
    table = column.model._meta.table_name

    def has_candidates(number: int) -> bool:
        found = f"SELECT 1 FROM {table}_trigrams WHERE {table}_trigrams MATCH ? LIMIT ?"
        return bool(
            database.execute_sql(f"SELECT count(*) FROM ({found})", (expression, number)).fetchone()[0] == number
        )

    (rows,) = database.execute_sql(f'SELECT max(number) FROM "{table}_number"').fetchone()  # including deleted ones
    few = min(math.isqrt((rows or 0) * (COVERED if covered else NOT_COVERED)), MAX_CANDIDATES)
    if not has_candidates(few + 1):
        return read(expression)
    found = read_within(MAX_STEPS)
    if found is None:
        found = read("" if has_candidates(MAX_CANDIDATES + 1) else expression)
    return found


def match_expression(column: peewee.Field, text: str) -> str:
    """Return the FTS5 query for rows that may contain a text; empty for a short text or a column without an index."""
    starts = range(len(text) - TRIGRAM_LENGTH + 1)
    trigrams = list(dict.fromkeys(text[start : start + TRIGRAM_LENGTH] for start in starts))
    chosen = trigrams[:: max(1, math.ceil(len(trigrams) / MAX_TRIGRAMS))]
    expression = " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in chosen)
    return expression if INDEXED.get(column.model._meta.table_name) == column.name else ""


def is_match(table: type[peewee.Model], expression: object) -> peewee.NodeList:
    """Return the condition that a row of a table is a candidate for a match expression."""
    name = table._meta.table_name
    numbers = f"SELECT rowid FROM {name}_trigrams WHERE {name}_trigrams MATCH "
    rows = f'IN (SELECT {name}_id FROM "{name}_number" WHERE number IN ({numbers}'
    return peewee.NodeList((primary_key(table), peewee.SQL(rows), expression, peewee.SQL("))")))
