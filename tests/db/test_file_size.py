"""The size of the file of SQLite: `docs/performance.md` has the bytes by table and index."""

from pathlib import Path

import pytest

import app
from service import db
from service.operate import import_export
from tests.bench import small
from tests.bench.dataset import json_lines
from tests.support.installation import settings_at

pytestmark = [pytest.mark.database, pytest.mark.sqlite_only, pytest.mark.slow]

MESSAGES = 10_000
GOAL = 1_100  # bytes of a message with its share of the indexes, after the file was rewritten
IMPORTED = 1_120  # the same after an import, whose pages are not as full

SIZE = "SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name = 'message')"


def bytes_per_message() -> float:
    ((size,),) = db.database.execute_sql(SIZE)
    ((messages,),) = db.database.execute_sql("SELECT count(*) FROM message")
    assert messages > MESSAGES
    return float(size / messages)


def test_message_takes_at_most_1100_bytes_with_its_indexes(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.write_bytes(b"".join(json_lines(small.records(MESSAGES))))
    app.prepare(settings_at(tmp_path / "data"), create=True)
    assert import_export.import_files([records]) == []
    assert bytes_per_message() <= IMPORTED
    db.rewrite_files()
    assert bytes_per_message() <= GOAL
    db.close_database()
