"""The people of the tests, and a client that fails on every answer that its operation does not declare."""

import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import app
from service import clock, db
from service.auth import passwords, tokens
from service.fields import as_bytes, compact_json
from service.models import TABLES, App, Bot, ChatSession, Message, User
from service.models.settling import settle
from service.settings import Settings
from tests import postgres

PASSWORD = "correct horse battery staple"
PASSWORD_HASH = passwords.hash_password(PASSWORD)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--postgresql", action="store_true", help="run the tests on PostgreSQL, in place of SQLite")


def pytest_configure(config: pytest.Config) -> None:
    """Start the server that all test processes share, in the process that begins them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of what a script runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--postgresql") or postgres.is_chosen():
        return
    if not postgres.programs():
        status = 1 if os.environ.get("CI") else 0
        pytest.exit("NOT TESTED: there is no PostgreSQL here; apt-get install postgresql", returncode=status)
    server = postgres.running(**postgres.QUICK)
    os.environ[postgres.SERVER] = server.__enter__().url
    config.add_cleanup(lambda: server.__exit__(None, None, None))


# What leads to a database, in a test's module.
DOORS = {
    *("app", "service.db", "service.commands", "service.commands.run", "tests.postgres", "tests.serving"),
    *("tests.postgres.database_of", "tests.conftest.at"),
    *(f"tests.serving.{name}" for name in ("command", "fill", "serving", "where")),
}


class Reply:
    """An answer: status, headers, body."""

    def __init__(self, status: int, headers: dict[str, str], raw: bytes) -> None:
        self.status, self.headers, self.raw = status, headers, raw

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def data(self) -> Any:
        """The payload of a success; fails on anything else."""
        assert self.json["success"] is True, self.json
        return self.json["data"]

    @property
    def meta(self) -> Any:
        return self.json["meta"]

    @property
    def error(self) -> tuple[int, str]:
        """Status and code of a failure, whose envelope holds nothing else."""
        assert set(self.json) == {"success", "error"}, self.json
        assert self.json["success"] is False
        assert set(self.json["error"]) == {"code", "message"}
        assert self.json["error"]["message"]
        return self.status, self.json["error"]["code"]

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


class Client:
    """Calls the application; `alice.get("/chats/…")` is relative to `/api/v1` and carries her token."""

    def __init__(self, application: Any, token: str = "", user: Any = None) -> None:
        self.application, self.token, self.user = application, token, user
        self.may_crash = False  # a 500, which is also what an undeclared answer becomes, fails every other test

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Reply:
        """One request; a header `content_type` is Content-Type. Absolute paths begin with two slashes."""
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        path = path[1:] if path.startswith("//") else f"/api/v1{path}"
        path, _, query = path.partition("?")
        if self.token:
            headers.setdefault("authorization", f"Bearer {self.token}")
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "SERVER_NAME": "test",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": headers.pop("address", "127.0.0.1"),
            "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content),
            "wsgi.errors": sys.stderr,
            "wsgi.url_scheme": "http",
        }
        for name, value in headers.items():
            environ["CONTENT_TYPE" if name == "content_type" else f"HTTP_{name.upper()}"] = value
        begun: list[Any] = []
        answer = b"".join(self.application(environ, lambda *arguments: begun.append(arguments)))
        status, sent = begun[-1][:2]
        reply = Reply(int(status[:3]), dict(sent), answer)
        assert reply.headers["X-Request-ID"]
        assert reply.status != 500 or self.may_crash, f"{method} {path} answered 500; the log says why"
        return reply

    def get(self, path: str, **headers: str) -> Reply:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.call("POST", path, body, **more)

    def put(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.call("PUT", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.call("PATCH", path, body, **more)

    def delete(self, path: str, **more: Any) -> Reply:
        return self.call("DELETE", path, **more)


class Clock:
    """The host's clock, which the test sets."""

    def __init__(self) -> None:
        self.now = clock.milliseconds("2026-11-20T10:00:00.000Z")
        self.steady = 0  # nanoseconds that have really passed

    def forward(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        self.now += int(seconds * clock.SECOND + minutes * clock.MINUTE + hours * clock.HOUR + days * clock.DAY)

    def back(self, **how: float) -> None:
        self.forward(**{unit: -amount for unit, amount in how.items()})


@pytest.fixture
def host_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still until it is moved."""
    standing = Clock()
    monkeypatch.setattr(clock, "host_time", lambda: standing.now)
    monkeypatch.setattr(clock, "steady_time", lambda: standing.steady)
    monkeypatch.setattr(clock, "follow", lambda milliseconds: None)
    clock.forget()
    return standing


@pytest.fixture(autouse=True)
def _fresh_clock() -> Iterator[None]:
    yield
    clock.forget()


def meets_a_database(item: Any) -> bool:
    """Whether a test may come near the database that the run is about: by a fixture, or by a name in its module."""
    if set(item.fixturenames) & {"empty_data", "place", "shipped"}:
        return True
    values = [value for name, value in vars(item.module).items() if not name.startswith("_")]
    names = {f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}".strip(".") for value in values}
    return bool(names & DOORS)


PROGRAMS = {f"tests.serving.{name}" for name in ("Served", "command", "serving")}


def starts_processes(item: Any) -> bool:
    """Whether a test may start the program, by a name in its module; browsers care for what it answers only."""
    values = vars(item.module).values()
    names = {f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}" for value in values}
    return bool(names & PROGRAMS) and "chromium" not in item.fixturenames


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that start processes, and choose those of a run on PostgreSQL.

    On PostgreSQL, leave out the tests that would be the same ones again: what has no database, and what is seen.

    What pages look like and do in a browser depends on the answers alone, and those are tested on both.
    """
    for item in items:
        if starts_processes(item):
            item.add_marker("processes")
    if postgres.is_chosen():
        others = [item for item in items if meets_a_database(item) and "chromium" not in item.fixturenames]
        config.hook.pytest_deselected(items=[*set(items).difference(others)])
        items[:] = others


@pytest.fixture(autouse=True)
def _own_databases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody finds the database of another test, and whoever is left out of a run on PostgreSQL needs none."""
    if not meets_a_database(request.node):
        monkeypatch.setattr(db.database, "obj", None)
    with postgres.swept():
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real browser, which all tests of this process share."""
    from tests.browser import launched

    with launched() as browser:
        yield browser


@pytest.fixture
def settings(tmp_path: Path, empty_data: Path) -> Settings:
    return Settings(data=tmp_path / "data", database=postgres.database_of(empty_data), verify_answers=True)


@pytest.fixture(scope="session")
def empty_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder without rows, to be copied: sooner done than making one. On PostgreSQL, one database is emptied."""
    data = tmp_path_factory.mktemp("empty") / "data"
    app.prepare(at(data), create=True)
    db.close_database()
    return data


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with Alice's household in it, to be copied."""
    from tests import household

    data = tmp_path_factory.mktemp("furnished") / "data"
    household.furnish(at(data))
    return data


@pytest.fixture
def household_data(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The data folder of an installation that nobody has open: Alice's household, and that she is logged in."""
    from tests import household

    settings = at(tmp_path / "data")
    if settings.database:
        household.furnish(settings)
    else:
        shutil.copytree(request.getfixturevalue("furnished"), settings.data)
    db.forget_database()
    yield settings.data
    db.forget_database()


@pytest.fixture
def application(settings: Settings, empty_data: Path) -> Iterator[Any]:
    """The service on an empty database of its own."""
    if settings.database and settings.database == postgres.database_of(empty_data):
        db.open_database(settings.data, settings.database)
        db.database.execute_sql("; ".join(f'DELETE FROM "{table._meta.table_name}"' for table in reversed(TABLES)))
        db.close_database()
    elif not settings.database and not settings.data.exists():
        shutil.copytree(empty_data, settings.data)
    yield app.build(settings)
    db.close_database()


def at(data: Path) -> Settings:
    """The settings of an installation of its own, at a data folder or the database that stands for it."""
    return Settings(data=data, database=postgres.database_of(data), verify_answers=True)


def flags_of(settings: Settings) -> list[str]:
    """What tells a command where the data of some settings are."""
    return ["--data", str(settings.data), *(["--database", settings.database] if settings.database else [])]


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
    """Makes a user who is logged in."""

    def make(name: str, **columns: Any) -> Client:
        user = User.create(email=f"{name}@example.com", first_name=name.title(), password_hash=PASSWORD_HASH, **columns)
        with db.write():
            pair = tokens.begin(user.id, settings)
        return Client(application, pair.access_token, user)

    return make


@pytest.fixture
def anyone(application: Any) -> Client:
    """A stranger without credentials."""
    return Client(application)


@pytest.fixture
def alice(person: Callable[..., Client]) -> Client:
    """A customer, who owns `session`."""
    return person("alice")


@pytest.fixture
def bob(person: Callable[..., Client]) -> Client:
    """Another customer, who has no business with Alice's things."""
    return person("bob")


@pytest.fixture
def agent(person: Callable[..., Client], shop: App) -> Client:
    """Works for the shop."""
    return person("agnes", role="agent", app_id=shop.id)


@pytest.fixture
def other_agent(person: Callable[..., Client], other_shop: App) -> Client:
    """Works for another shop."""
    return person("otto", role="agent", app_id=other_shop.id)


@pytest.fixture
def admin(person: Callable[..., Client]) -> Client:
    return person("ada", role="admin")


@pytest.fixture
def session(alice: Client, shop: App, bot: Bot) -> ChatSession:
    """Alice's chat session with the shop's bot, still without messages."""
    return ChatSession.create(app_id=shop.id, user_id=alice.user.id, bot_id=bot.id)


@pytest.fixture
def say(session: ChatSession) -> Callable[..., Message]:
    """Puts a message into a chat session, Alice's unless told otherwise."""

    def make(text: str = "Hello", in_session: ChatSession = session, **columns: Any) -> Message:
        columns.setdefault("conversation_id", in_session.conversation_id)
        content = compact_json(as_bytes({"text": text}))
        message = Message.create(id=clock.ulid(), chat_session_id=in_session.id, content=content, **columns)
        settle([in_session.id])
        return message

    return make


def text_of(message: dict[str, Any]) -> str:
    """The text of a message on the wire."""
    return str(json.loads(bytes(message["content"]))["text"])


def walk(client: Client, path: str, **query: Any) -> list[dict[str, Any]]:
    """All pages of a list, as a client walks them: follow `next_cursor` until it is empty."""
    found: list[dict[str, Any]] = []
    cursor, number = "", 0
    while True:
        asked = {**query, **({"cursor": cursor} if cursor else {})}
        reply = client.get(f"{path}?{'&'.join(f'{name}={value}' for name, value in asked.items())}")
        number += 1
        assert reply.status == 200, reply.json
        assert reply.meta.get("page", number) == number
        found += reply.data
        cursor = reply.meta["next_cursor"]
        if not cursor:
            return found
