"""Reads canned answers from a CSV file or JSON Lines.

CSV (RFC 4180) has a header with the columns `question`, `answer` and optionally `language` and `buttons` (their labels,
one a line), separated by commas, semicolons or tabs. A line of JSON Lines is an object with the members of a canned
answer in the API: `question`, `answer`, `language` and `actions`. A file that begins with `{` is JSON Lines.
"""

import csv
import io
from collections.abc import Iterator

from msgspec import to_builtins

from service.api.schemas import BodyColumns
from service.errors import BadRequest
from service.fields import SqlValue
from service.http.decoding import read_json
from service.models.actions import labelled, labels_in
from service.types import JsonObject

MAX_ERRORS = 20
REQUIRED, OPTIONAL = ("question", "answer"), ("language", "buttons")


class AnswerErrors(ValueError):
    """The file is invalid. The text has one line for each of the first MAX_ERRORS errors: `LINE: reason`."""


def read_answers(text: str, columns: BodyColumns) -> list[dict[str, SqlValue]]:
    """Return the columns of all canned answers in a file, as stored; without actions if it has no such column.

    Raises AnswerErrors.
    """
    text = text.removeprefix("\ufeff")
    found, errors = list[dict[str, SqlValue]](), list[str]()
    for line, record in _json_lines(text) if text.lstrip().startswith("{") else _csv_rows(text):
        try:
            found.append(columns.read(read_json(record) if isinstance(record, bytes) else _members(record)))
        except BadRequest as error:
            errors.append(f"{line}: {str(error).removeprefix('$.')}")
    if errors:
        more = [f"and {len(errors) - MAX_ERRORS} more errors"] if len(errors) > MAX_ERRORS else []
        raise AnswerErrors("\n".join(errors[:MAX_ERRORS] + more))
    return found


def _json_lines(text: str) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.encode()


def _members(row: dict[str, str]) -> JsonObject:
    """Return a row as a canned answer in the API. Raises InvalidBody for its buttons."""
    texts: JsonObject = {name: value for name, value in row.items() if name != "buttons"}
    return texts | {"actions": to_builtins(labelled(labels_in(row["buttons"])))} if "buttons" in row else texts


def _csv_rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row by column, with the number of its last line. Raises AnswerErrors."""
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [name.strip().lower() for name in next(rows, [])]
        if sorted(name for name in names if name not in OPTIONAL) != sorted(REQUIRED) or len(set(names)) != len(names):
            raise AnswerErrors(f"1: expected a header with the columns {', '.join(REQUIRED + OPTIONAL)}")
        for row in rows:
            if row and len(row) != len(names):
                raise AnswerErrors(f"{rows.line_num}: expected {len(names)} values, got {len(row)}")
            if row:
                yield rows.line_num, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise AnswerErrors(f"{rows.line_num}: {error}") from None
