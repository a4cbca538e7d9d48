"""A plugin of pytest: coverage.py records the lines of the service that each test executes, set-up included.

Used by tests/mutation.py with `-p tests.support.line_record`. Each process writes `lines.*`, coverage.py's data with
the tests' identifiers as contexts, and `*.json`, the seconds of each test, to the folder LINE_RECORD.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["LINE_RECORD"])

_lines = coverage.Coverage(
    data_file=str(FOLDER / "lines"), data_suffix=True, source=["service"], config_file=False, messages=False
)
_seconds: dict[str, float] = {}
_lines.start()  # before conftest.py imports the service


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _lines.switch_context(item.nodeid)
    start = time.monotonic()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = time.monotonic() - start
        _lines.switch_context("")


def pytest_sessionfinish() -> None:
    _lines.stop()
    _lines.save()
    (FOLDER / f"{os.getpid()}.json").write_text(json.dumps(_seconds))
