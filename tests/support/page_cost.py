"""Compares the cost of a page of messages in a long and in a short session: `python -m tests.support.page_cost`.

Two databases of each kind have one session each, with the same texts, between older and newer sessions of other users.
The pages are requested alternately through the WSGI application of this process. The medians are in milliseconds of CPU
time, including that of PostgreSQL's process, and of wall-clock time. The exit status is 1 if a page of the long session
takes more than GOAL times the CPU time of a page of the short one.
"""

import argparse
import contextlib
import gc
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

import app
from service import clock, db, signing
from service.auth import tokens
from service.fields import as_bytes, compact_json
from service.models import App, ChatSession, Message, SigningKey, User
from service.models.recompute import recompute
from service.settings import Settings
from tests.support import postgres
from tests.support.client import Client
from tests.support.observe import statements

GOAL = 1.3
PAGE = 25
OTHERS = 0.1  # older messages for each message of the session, and as many newer ones
START = clock.milliseconds("2020-01-01T00:00:00.000Z")
WORDS = "the parcel you ordered leaves today and Zoë asks whether plans for 東京 still hold, please tell us"
KEY = {
    "id": clock.ulid(START),
    "created_at": START,
    "secret": "one key for all databases, so that no key is reloaded" * 2,
}


class Chat(NamedTuple):
    """A session in its own database, and a client for its pages."""

    engine: Any
    client: Client
    pages: dict[str, str]  # paths by name

    def request(self, page: str) -> Any:
        return self.client.get(self.pages[page])

    def cpu(self) -> int:
        """Return the CPU time in nanoseconds of this process and of PostgreSQL's process for the connection."""
        backend = 0
        if self.engine.kind == "postgresql":
            process = self.engine.connection().info.backend_pid
            backend = int(Path(f"/proc/{process}/schedstat").read_text().split()[0])
        return time.process_time_ns() + backend


def contents() -> list[str]:
    """Return a content for each row of a page, as stored; the row of a message has about 1 kB."""
    return [compact_json(as_bytes({"text": f"{index}: {WORDS[: 20 + index * 3]}. {WORDS}"})) for index in range(PAGE)]


def rows(session: ChatSession, number: int, start: int) -> Iterator[list[Any]]:
    """Yield the columns of messages one second apart, in the order of the table."""
    values = Message(chat_session_id=session.id, conversation_id=session.conversation_id).__data__
    texts = contents()
    for index in range(number):
        at = start + index * clock.SECOND
        stamp = clock.timestamp(at)
        values |= {"id": clock.ulid(at), "content": texts[index % PAGE], "created_at": stamp, "updated_at": stamp}
        yield [field.db_value(values.get(field.name)) for field in Message._meta.sorted_fields]


def insert(found: Iterator[list[Any]]) -> None:
    """Insert messages in the fastest way of the database."""
    columns = ", ".join(f'"{field.column_name}"' for field in Message._meta.sorted_fields)
    connection = db.database.connection()
    if db.database.kind == "postgresql":
        with connection.cursor().copy(f"COPY message ({columns}) FROM STDIN") as copy:
            for row in found:
                copy.write_row(row)
        connection.execute("VACUUM ANALYZE")
    else:
        parameters = ", ".join("?" * len(Message._meta.sorted_fields))
        with db.write():
            connection.cursor().executemany(f"INSERT INTO message ({columns}) VALUES ({parameters})", found)


def fill(settings: Settings, number: int) -> Chat:
    """Create a chat with a number of messages in a new database."""
    application = app.build(settings)
    SigningKey.delete().execute()
    SigningKey.create(**KEY)
    signing.forget_keys()
    shop = App.create(name="Shop")
    alice = User.create(email="alice@example.com")
    older, session, newer = (ChatSession.create(app_id=shop.id, user_id=alice.id) for _ in range(3))
    others = int(number * OTHERS)
    end = START + number * clock.SECOND
    parts = (older, others, START - others * clock.SECOND), (session, number, START), (newer, others, end)
    insert(itertools.chain.from_iterable(rows(*part) for part in parts))
    recompute([part[0].id for part in parts])
    with db.write():
        client = Client(application, tokens.log_in(alice.id, settings).access_token)
    path = f"/chats/{session.id}/messages"
    pages = {
        f"{direction} {name}": page_at(client, session, f"{path}?direction={direction}", index)
        for direction in ("forward", "backward")
        for name, index in (("first", 0), ("middle", number // 2), ("last", number - PAGE))
    }
    return Chat(db.database.obj, client, pages)


def page_at(client: Client, session: ChatSession, path: str, index: int) -> str:
    """Return the path of the page that begins at an index, with the cursor that a client would have there."""
    if not index:
        return f"{path}&limit={PAGE}"
    backward = "backward" in path
    order = Message.id.desc() if backward else Message.id.asc()
    own = Message.select(Message.id).where(Message.chat_session_id == session.id)
    before = own.order_by(order).limit(1).offset(index - 2).scalar()
    cursor = client.get(f"{path}&limit=1&cursor={before}").meta["next_cursor"]
    address = f"{path}&limit={PAGE}&cursor={cursor}"
    found = client.get(address)
    assert len(found.data) == PAGE
    return address


class Cost(NamedTuple):
    """Medians in milliseconds."""

    cpu: float
    passed: float


def measure(chats: Sequence[Chat], name: str, rounds: int) -> list[Cost]:
    """Return the cost of a page in each chat, requested alternately; the first tenth of the rounds does not count."""
    found: list[list[tuple[int, int]]] = [[] for _ in chats]
    gc.collect()
    gc.disable()
    for _ in range(rounds + rounds // 10):
        for chat, taken in zip(chats, found, strict=True):
            db.database.initialize(chat.engine)
            cpu_start, start = chat.cpu(), time.perf_counter_ns()
            chat.request(name)
            passed = time.perf_counter_ns() - start
            taken.append((chat.cpu() - cpu_start, passed))
    gc.enable()
    return [Cost(*(statistics.median(part[-rounds:]) / 1e6 for part in zip(*taken, strict=True))) for taken in found]


@contextlib.contextmanager
def addresses(kind: str) -> Iterator[tuple[str, str]]:
    """Give the addresses of the two databases of a kind; empty for files."""
    if kind == "SQLite":
        yield "", ""
        return
    names = "short", "long"
    with postgres.running(**postgres.QUICK) as server:
        with psycopg.connect(f"{server.url}/postgres", autocommit=True) as connection:
            for name in names:
                connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield f"{server.url}/{names[0]}", f"{server.url}/{names[1]}"


def compare(kind: str, sizes: tuple[int, int], rounds: int) -> bool:
    """Print the table of a kind of database; return whether every page reaches the goal."""
    is_reached = True
    with tempfile.TemporaryDirectory() as folder, addresses(kind) as urls:
        places = zip(sizes, urls, strict=True)
        chats = [fill(Settings(data=Path(folder, str(size)), database=url), size) for size, url in places]
        with statements() as executed:
            page = chats[-1].request("forward middle").raw
        print(f"\n{kind}: a page of {PAGE} messages has {len(page):,} bytes and takes {len(executed)} statements.")
        print(f"{'':16}{'CPU: short':>12}{'long':>8}{'ratio':>7}{'passed: short':>16}{'long':>8}{'ratio':>7}")
        for name in chats[0].pages:
            short, long = measure(chats, name, rounds)
            ratio = Cost(long.cpu / short.cpu, long.passed / short.passed)
            is_reached = is_reached and ratio.cpu <= GOAL
            print(f"{name:16}{short.cpu:12.3f}{long.cpu:8.3f}{ratio.cpu:7.2f}", end="")
            print(f"{short.passed:16.3f}{long.passed:8.3f}{ratio.passed:7.2f}", flush=True)
        for chat in chats:
            chat.engine.disconnect()
    return is_reached


def main() -> None:
    """Measure on SQLite, and on PostgreSQL if installed."""
    parser = argparse.ArgumentParser(description="Compare the cost of a page in a long and in a short session.")
    parser.add_argument("--short", type=int, default=1_000, help="messages of the short session")
    parser.add_argument("--long", type=int, default=1_000_000, help="messages of the long session")
    parser.add_argument("--rounds", type=int, default=400, help="number of requests of each page")
    options = parser.parse_args()
    kinds = ["SQLite", *(["PostgreSQL"] if postgres.programs() else [])]
    results = [compare(kind, (options.short, options.long), options.rounds) for kind in kinds]
    if len(kinds) == 1:
        print("\nNOT MEASURED: PostgreSQL is not installed")
    sys.exit(
        0
        if all(results)
        else f"a page of the long session takes more than {GOAL} times the CPU time of one of the short session"
    )


if __name__ == "__main__":
    main()
