"""What a page of messages costs in a long session against a short one: `python -m tests.page_cost`.

Two databases of each kind hold a session each, of the same texts, between sessions of others that are older and newer.
They are asked in turn, through the WSGI application of this process; the medians are told in milliseconds, of CPU time,
that of PostgreSQL's process included, and of the time that passed, in which others may have had the CPU as well. Ends
with 1 if a page of the long session takes more than GOAL times the CPU time of one of the short.
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
from service import clock, db
from service.auth import signing, tokens
from service.fields import as_bytes, compact_json
from service.models import App, ChatSession, Message, SigningKey, User
from service.models.settling import settle
from service.settings import Settings
from tests import postgres
from tests.conftest import Client
from tests.watching import statements

GOAL = 1.3
PAGE = 25
OTHERS = 0.1  # as many messages, for each of the session, are older, and as many newer
START = clock.milliseconds("2020-01-01T00:00:00.000Z")
WORDS = "the parcel you ordered leaves today and Zoë asks whether plans for 東京 still hold, please tell us"
KEY = {"id": clock.ulid(START), "created_at": START, "secret": "one key for all, so that none has to be read anew" * 2}


class Chat(NamedTuple):
    """A session in a database of its own, and what asks for its pages."""

    engine: Any
    client: Client
    pages: dict[str, str]  # their addresses by name

    def ask(self, page: str) -> Any:
        return self.client.get(self.pages[page])

    def cpu(self) -> int:
        """Nanoseconds that this process has worked, and PostgreSQL's for the open connection."""
        served = 0
        if self.engine.kind == "postgresql":
            process = self.engine.connection().info.backend_pid
            served = int(Path(f"/proc/{process}/schedstat").read_text().split()[0])
        return time.process_time_ns() + served


def contents() -> list[str]:
    """A text for each place of a page, as stored: with the rest of its row, a message takes about 1 kB."""
    return [compact_json(as_bytes({"text": f"{place}: {WORDS[: 20 + place * 3]}. {WORDS}"})) for place in range(PAGE)]


def rows(session: ChatSession, number: int, begun: int) -> Iterator[list[Any]]:
    """The columns of the messages of a session, in the order of the table, a second apart."""
    values = Message(chat_session_id=session.id, conversation_id=session.conversation_id).__data__
    texts = contents()
    for place in range(number):
        at = begun + place * clock.SECOND
        stamp = clock.timestamp(at)
        values |= {"id": clock.ulid(at), "content": texts[place % PAGE], "created_at": stamp, "updated_at": stamp}
        yield [field.db_value(values.get(field.name)) for field in Message._meta.sorted_fields]


def insert(found: Iterator[list[Any]]) -> None:
    """Write messages the quickest way that the database knows."""
    columns = ", ".join(f'"{field.column_name}"' for field in Message._meta.sorted_fields)
    connection = db.database.connection()
    if db.database.kind == "postgresql":
        with connection.cursor().copy(f"COPY message ({columns}) FROM STDIN") as copy:
            for row in found:
                copy.write_row(row)
        connection.execute("VACUUM ANALYZE")
    else:
        marks = ", ".join("?" * len(Message._meta.sorted_fields))
        with db.write():
            connection.cursor().executemany(f"INSERT INTO message ({columns}) VALUES ({marks})", found)


def fill(settings: Settings, number: int) -> Chat:
    """A chat of so many messages in a new database."""
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
    settle([part[0].id for part in parts])
    with db.write():
        client = Client(application, tokens.begin(alice.id, settings).access_token)
    path = f"/chats/{session.id}/messages"
    pages = {
        f"{direction} {name}": page_at(client, session, f"{path}?direction={direction}", place)
        for direction in ("forward", "backward")
        for name, place in (("first", 0), ("middle", number // 2), ("last", number - PAGE))
    }
    return Chat(db.database.obj, client, pages)


def page_at(client: Client, session: ChatSession, path: str, place: int) -> str:
    """The address of the page that begins with the message in a place, as a client that walked there knows it."""
    if not place:
        return f"{path}&limit={PAGE}"
    backward = "backward" in path
    order = Message.id.desc() if backward else Message.id.asc()
    own = Message.select(Message.id).where(Message.chat_session_id == session.id)
    before = own.order_by(order).limit(1).offset(place - 2).scalar()
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
    """What a page costs in each of the chats, asked in turn; the first tenth of the rounds does not count."""
    found: list[list[tuple[int, int]]] = [[] for _ in chats]
    gc.collect()
    gc.disable()
    for _ in range(rounds + rounds // 10):
        for chat, taken in zip(chats, found, strict=True):
            db.database.initialize(chat.engine)
            cpu_begun, begun = chat.cpu(), time.perf_counter_ns()
            chat.ask(name)
            passed = time.perf_counter_ns() - begun
            taken.append((chat.cpu() - cpu_begun, passed))
    gc.enable()
    return [Cost(*(statistics.median(part[-rounds:]) / 1e6 for part in zip(*taken, strict=True))) for taken in found]


@contextlib.contextmanager
def addresses(kind: str) -> Iterator[tuple[str, str]]:
    """Where the two databases of a kind are; empty for files."""
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
    """Print the table of a kind of database; whether every page keeps to the goal."""
    kept = True
    with tempfile.TemporaryDirectory() as folder, addresses(kind) as urls:
        places = zip(sizes, urls, strict=True)
        chats = [fill(Settings(data=Path(folder, str(size)), database=url), size) for size, url in places]
        with statements() as executed:
            page = chats[-1].ask("forward middle").raw
        print(f"\n{kind}: a page of {PAGE} messages has {len(page):,} bytes and takes {len(executed)} statements.")
        print(f"{'':16}{'CPU: short':>12}{'long':>8}{'ratio':>7}{'passed: short':>16}{'long':>8}{'ratio':>7}")
        for name in chats[0].pages:
            short, long = measure(chats, name, rounds)
            ratio = Cost(long.cpu / short.cpu, long.passed / short.passed)
            kept = kept and ratio.cpu <= GOAL
            print(f"{name:16}{short.cpu:12.3f}{long.cpu:8.3f}{ratio.cpu:7.2f}", end="")
            print(f"{short.passed:16.3f}{long.passed:8.3f}{ratio.passed:7.2f}", flush=True)
        for chat in chats:
            chat.engine.disconnect()
    return kept


def main() -> None:
    """Measure on SQLite, and on PostgreSQL where there is one."""
    parser = argparse.ArgumentParser(description="Measure what a page costs in a long session against a short one.")
    parser.add_argument("--short", type=int, default=1_000, help="messages of the short session")
    parser.add_argument("--long", type=int, default=1_000_000, help="messages of the long one")
    parser.add_argument("--rounds", type=int, default=400, help="how often each page is asked for")
    options = parser.parse_args()
    kinds = ["SQLite", *(["PostgreSQL"] if postgres.programs() else [])]
    kept = [compare(kind, (options.short, options.long), options.rounds) for kind in kinds]
    if len(kinds) == 1:
        print("\nNOT MEASURED: there is no PostgreSQL here")
    sys.exit(
        0 if all(kept) else f"a page of the long session takes more than {GOAL} times the CPU time of one of the short"
    )


if __name__ == "__main__":
    main()
