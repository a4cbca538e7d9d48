"""The configuration of the tests: selection of tests, databases on PostgreSQL, and their removal."""

import inspect
from types import SimpleNamespace

import psycopg
import pytest

from tests import conftest
from tests.support import postgres
from tests.support.installation import settings_at
from tests.support.rules import for_each

pytestmark = pytest.mark.database


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_missing_postgresql_is_reported(ci, status, monkeypatch):
    """In CI, the run fails."""
    monkeypatch.delenv(postgres.SERVER, raising=False)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(postgres, "programs", lambda: None)
    with pytest.raises(pytest.exit.Exception, match="NOT TESTED: there is no PostgreSQL here") as raised:
        conftest.pytest_configure(SimpleNamespace(getoption=lambda name: name == "--postgresql"))  # type: ignore[arg-type]
    assert raised.value.returncode == status


def test_without_the_option_no_server_is_started(monkeypatch):
    monkeypatch.delenv(postgres.SERVER, raising=False)
    conftest.pytest_configure(SimpleNamespace(getoption=lambda _: False))  # type: ignore[arg-type]
    assert not postgres.is_chosen()


def declared(fixtures=(), markers=()):
    return SimpleNamespace(fixturenames=fixtures, get_closest_marker=lambda name: name in markers)


@pytest.mark.parametrize(
    ("fixtures", "markers", "uses"),
    [
        ([], [], False),
        (["tmp_path", "host_clock"], ["slow"], False),
        (["shop", "application", "empty_data"], [], True),
        (["shipped"], [], True),
        ([], ["database"], True),
    ],
)
def test_tests_that_declare_a_database_run_on_postgresql(fixtures, markers, uses):
    assert conftest.uses_database(declared(fixtures, markers)) is uses


@pytest.fixture
def undeclared(monkeypatch):
    """Mark the running test as one without a database."""
    monkeypatch.setattr(postgres, "is_forbidden", True)


def test_without_a_declared_database_gets_none(undeclared, tmp_path):
    with pytest.raises(AssertionError, match="pytest.mark.database"):
        settings_at(tmp_path)


@pytest.mark.postgresql_only
def test_databases_are_dropped(tmp_path):
    with postgres.dropping_databases():
        url = postgres.database_of(tmp_path)
        assert postgres.database_of(tmp_path) == url != postgres.database_of(tmp_path / "another")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_data_folder_has_no_database_url_on_sqlite(tmp_path, monkeypatch):
    monkeypatch.delenv(postgres.SERVER, raising=False)
    assert postgres.database_of(tmp_path) == ""


def test_rule_lists_all_values_that_fail():
    @for_each("number", {"one": 1, "two": 2, "three": 3})
    def is_odd(fixture, number):
        assert number % 2 == fixture, f"{number} is even"

    assert [*inspect.signature(is_odd).parameters] == ["fixture"]
    with pytest.raises(AssertionError, match=r"(?s)fails for 2 of 3:\none: .*\nthree: "):
        is_odd(fixture=0)
    with pytest.raises(AssertionError, match="no value for number"):
        for_each("number", {})
