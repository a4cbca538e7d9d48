"""Substring search on SQLite by an FTS5 index of trigrams (sequences of three characters).

The index has neither positions nor texts (sqlite.org/fts5.html, section 4.3.5), so the rows that it finds are
candidates: they contain the trigrams of the search text, but not necessarily the text. Triggers update the index
together with its table; see migration step 5.

The number of candidates only decides whether a query uses the index; the query itself selects the candidates again.
"""

import math

import peewee

from service.fields import primary_key

INDEXED = {"bot": "search_text"}  # the indexed column by table; TABLE_number maps the numbers in TABLE_trigrams to rows

TRIGRAM_LENGTH = 3  # characters
MAX_TRIGRAMS = 4  # looked up for a search text: each costs the same, and a few exclude nearly all other rows
MAX_CANDIDATES = 1_000  # beyond that, reading all rows in the order of the list until a page is full is faster


def match_expression(database: peewee.Database, column: peewee.Field, text: str) -> str:
    """The FTS5 query for rows that may contain a text; empty if there are too many, or if the text is too short."""
    table = column.model._meta.table_name
    starts = range(len(text) - TRIGRAM_LENGTH + 1)
    trigrams = list(dict.fromkeys(text[start : start + TRIGRAM_LENGTH] for start in starts))
    chosen = trigrams[:: max(1, math.ceil(len(trigrams) / MAX_TRIGRAMS))]
    expression = " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in chosen)
    if not expression or INDEXED.get(table) != column.name:
        return ""
    candidates = f"SELECT 1 FROM {table}_trigrams WHERE {table}_trigrams MATCH ? LIMIT {MAX_CANDIDATES + 1}"
    count = database.execute_sql(f"SELECT count(*) FROM ({candidates})", (expression,)).fetchone()[0]
    return "" if count > MAX_CANDIDATES else expression


def is_match(table: type[peewee.Model], expression: object) -> peewee.NodeList:
    """The condition that a row of a table is a candidate for a match expression."""
    name = table._meta.table_name
    numbers = f"SELECT rowid FROM {name}_trigrams WHERE {name}_trigrams MATCH "
    rows = f"IN (SELECT {name}_id FROM {name}_number WHERE number IN ({numbers}"
    return peewee.NodeList((primary_key(table), peewee.SQL(rows), expression, peewee.SQL("))")))
