"""The tests' own ways: what a run on PostgreSQL says, leaves out and leaves behind."""

import os
from types import SimpleNamespace

import psycopg
import pytest

from service.models import User
from tests import conftest, postgres

on_postgresql = pytest.mark.skipif(f"'{postgres.SERVER}' not in os.environ", reason="a matter of PostgreSQL alone")


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_without_a_postgresql_nobody_can_think_that_it_was_tested(ci, status, monkeypatch):
    """Where it must not pass unnoticed, it fails."""
    monkeypatch.delenv(postgres.SERVER, raising=False)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(postgres, "programs", lambda: None)
    with pytest.raises(pytest.exit.Exception, match="NOT TESTED: there is no PostgreSQL here") as leaving:
        conftest.pytest_configure(SimpleNamespace(getoption=lambda name: name == "--postgresql"))  # type: ignore[arg-type]
    assert leaving.value.returncode == status


def test_without_the_option_no_server_is_started(monkeypatch):
    monkeypatch.delenv(postgres.SERVER, raising=False)
    conftest.pytest_configure(SimpleNamespace(getoption=lambda _: False))  # type: ignore[arg-type]
    assert not postgres.is_chosen()


@pytest.mark.parametrize(
    ("names", "fixtures", "meets"),
    [
        ({}, [], False),
        ({"User": User}, ["tmp_path", "host_clock"], False),  # and finds no database open
        ({"Path": os}, ["shop", "application", "empty_data"], True),
        ({}, ["shipped"], True),
        ({"postgres": postgres}, [], True),
        ({"database_of": postgres.database_of}, [], True),
        ({"at": conftest.at}, [], True),
        ({"PASSWORD": conftest.PASSWORD, "Client": conftest.Client}, [], False),
    ],
)
def test_who_may_meet_a_database_takes_part_on_postgresql(names, fixtures, meets):
    assert conftest.meets_a_database(SimpleNamespace(module=SimpleNamespace(**names), fixturenames=fixtures)) is meets


@on_postgresql
def test_no_database_is_left(tmp_path):
    with postgres.swept():
        url = postgres.database_of(tmp_path)
        assert postgres.database_of(tmp_path) == url != postgres.database_of(tmp_path / "another")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_on_sqlite_a_data_folder_has_no_address(tmp_path, monkeypatch):
    monkeypatch.delenv(postgres.SERVER, raising=False)
    assert postgres.database_of(tmp_path) == ""
