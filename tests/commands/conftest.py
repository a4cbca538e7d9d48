"""Fixtures of the tests of commands."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service import commands, db
from tests.support.command_line import Outcome
from tests.support.installation import settings_at


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cx(data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run a command on the data folder with `typed` as standard input."""
    monkeypatch.setenv("CX_DATA", str(data))
    monkeypatch.setenv("CX_DATABASE", settings_at(data).database)

    def run(*arguments: str, typed: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
        capsys.readouterr()
        try:
            status = commands.run(list(arguments))
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        finally:
            db.close_database()
        return Outcome(status, *capsys.readouterr())

    return run
