"""The users of the tests, their databases, and clients that check every response against its operation."""

import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import app
from service import clock, db
from service.auth import tokens
from service.db.write_lock import write_lock
from service.fields import as_bytes, compact_json
from service.models import TABLES, App, Bot, ChatSession, Message, User
from service.models.recompute import recompute
from service.settings import Settings
from tests.support import open_sockets, postgres, sqlite
from tests.support.client import Client
from tests.support.host_clock import Clock
from tests.support.installation import settings_at
from tests.support.passwords import PASSWORD_HASH


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--postgresql", action="store_true", help="run the tests on PostgreSQL, in place of SQLite")
    parser.addoption("--one-case", action="store_true", help="run one case of each test that has several")


def pytest_configure(config: pytest.Config) -> None:
    """Start the PostgreSQL server that all test processes share, in the main process."""
    sqlite.disable_synchronous_commits()
    open_sockets.record()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # true for background jobs of a shell script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--postgresql") or postgres.is_chosen():
        return
    if not postgres.programs():
        status = 1 if os.environ.get("CI") else 0
        pytest.exit("NOT TESTED: there is no PostgreSQL here; apt-get install postgresql", returncode=status)
    server = postgres.running(**postgres.QUICK)
    os.environ[postgres.SERVER] = server.__enter__().url
    config.add_cleanup(lambda: server.__exit__(None, None, None))


def pytest_unconfigure() -> None:
    write_lock.close()


@pytest.fixture
def host_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that only tests advance."""
    frozen = Clock()
    monkeypatch.setattr(clock, "host_time", lambda: frozen.now)
    monkeypatch.setattr(clock, "monotonic_time", lambda: frozen.monotonic)
    monkeypatch.setattr(clock, "synchronize", lambda milliseconds: None)
    clock.reset()
    return frozen


@pytest.fixture(autouse=True)
def _fresh_clock() -> Iterator[None]:
    yield
    clock.reset()


# Fixtures that open a database, or start an executable that does.
DATABASE_FIXTURES = {"empty_data", "sample_service", "shipped"}


def uses_database(item: Any) -> bool:
    """Whether a test has a database: by one of these fixtures, or by the marker `database`."""
    return bool(DATABASE_FIXTURES.intersection(item.fixturenames) or item.get_closest_marker("database"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of a run on PostgreSQL: those with a database, except those in a browser.

    Pages in a browser depend on the responses alone, and these are tested on both databases.
    With `--one-case`, the first case of each parametrized test is selected.
    """
    selected = items
    if postgres.is_chosen():
        selected = [item for item in selected if uses_database(item) and "chromium" not in item.fixturenames]
    if config.getoption("--one-case"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(selected)}
        selected = [item for item in selected if first[item.nodeid.partition("[")[0]] is item]
    if len(selected) < len(items):
        config.hook.pytest_deselected(items=[*set(items).difference(selected)])
        items[:] = selected


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of the other database; refuse a database to tests that do not declare one (see `uses_database`)."""
    marker = item.get_closest_marker("sqlite_only" if postgres.is_chosen() else "postgresql_only")
    if marker:
        pytest.skip(*marker.args or ["a test of the other database"])
    postgres.is_forbidden = not uses_database(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a report of an unclosed socket where it was opened: often in an earlier test."""
    report = yield
    if report.failed:
        report.sections += [("unclosed socket", opening) for opening in open_sockets.openings(report.longreprtext)]
    return report


@pytest.fixture(autouse=True)
def _own_databases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Drop the databases that a test created, and leave none open to a test that does not declare one."""
    if not uses_database(request.node):
        monkeypatch.setattr(db.database, "obj", None)
    with postgres.dropping_databases():
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A Chromium that all tests of this process share."""
    from tests.support.chromium import launched

    with launched() as browser:
        yield browser


@pytest.fixture
def settings(tmp_path: Path, empty_data: Path) -> Settings:
    return Settings(data=tmp_path / "data", database=postgres.database_of(empty_data), verify_answers=True)


@pytest.fixture(scope="session")
def empty_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty data folder to copy, which is faster than creating one. On PostgreSQL, a database is reused."""
    data = tmp_path_factory.mktemp("empty") / "data"
    app.prepare(settings_at(data), create=True)
    db.close_database()
    return data


@pytest.fixture(scope="session")
def sample_data_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the sample data, to copy."""
    from tests.support import sample_data

    data = tmp_path_factory.mktemp("sample_data_template") / "data"
    sample_data.create_installation(settings_at(data))
    return data


@pytest.fixture
def sample_data_folder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The data folder of a stopped installation: the sample data, with a login session of Alice."""
    from tests.support import sample_data

    settings = settings_at(tmp_path / "data")
    if settings.database:
        sample_data.create_installation(settings)
    else:
        shutil.copytree(request.getfixturevalue("sample_data_template"), settings.data)
    db.release_database()
    yield settings.data
    db.release_database()


@pytest.fixture
def application(settings: Settings, empty_data: Path) -> Iterator[Any]:
    """The service with an empty database."""
    if settings.database and settings.database == postgres.database_of(empty_data):
        db.open_database(settings.data, settings.database)
        db.database.execute_sql("; ".join(f'DELETE FROM "{table._meta.table_name}"' for table in reversed(TABLES)))
        db.close_database()
    elif not settings.database and not settings.data.exists():
        shutil.copytree(empty_data, settings.data)
    yield app.build(settings)
    db.close_database()


@pytest.fixture
def shop(application: Any) -> App:
    return App.create(name="Shop")


@pytest.fixture
def other_shop(application: Any) -> App:
    return App.create(name="Other shop")


@pytest.fixture
def bot(shop: App) -> Bot:
    return Bot.create(app_id=shop.id, name="Hilda", kind="bot", status="published")


@pytest.fixture
def person(application: Any, settings: Settings) -> Callable[..., Client]:
    """Return a function that creates a user who is logged in."""

    def make(name: str, **columns: Any) -> Client:
        user = User.create(email=f"{name}@example.com", first_name=name.title(), password_hash=PASSWORD_HASH, **columns)
        with db.write():
            pair = tokens.log_in(user.id, settings)
        return Client(application, pair.access_token, user)

    return make


@pytest.fixture
def anyone(application: Any) -> Client:
    """A client without credentials."""
    return Client(application)


@pytest.fixture
def alice(person: Callable[..., Client]) -> Client:
    """A customer, who owns `session`."""
    return person("alice")


@pytest.fixture
def bob(person: Callable[..., Client]) -> Client:
    """Another customer, who has no access to the data of Alice."""
    return person("bob")


@pytest.fixture
def agent(person: Callable[..., Client], shop: App) -> Client:
    """An agent of the shop."""
    return person("agnes", role="agent", app_id=shop.id)


@pytest.fixture
def other_agent(person: Callable[..., Client], other_shop: App) -> Client:
    """An agent of another shop."""
    return person("otto", role="agent", app_id=other_shop.id)


@pytest.fixture
def admin(person: Callable[..., Client]) -> Client:
    return person("ada", role="admin")


@pytest.fixture
def session(alice: Client, shop: App, bot: Bot) -> ChatSession:
    """Alice's chat session with the shop's bot, without messages."""
    return ChatSession.create(app_id=shop.id, user_id=alice.user.id, bot_id=bot.id)


@pytest.fixture
def say(session: ChatSession) -> Callable[..., Message]:
    """Return a function that creates a message, by default in the chat session of Alice."""

    def make(text: str = "Hello", in_session: ChatSession = session, **columns: Any) -> Message:
        columns.setdefault("conversation_id", in_session.conversation_id)
        content = compact_json(as_bytes({"text": text}))
        message = Message.create(id=clock.ulid(), chat_session_id=in_session.id, content=content, **columns)
        recompute([in_session.id])
        return message

    return make
