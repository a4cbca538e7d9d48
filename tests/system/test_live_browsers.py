"""A live conversation in three windows, one as small as a phone's: through proxies, workers and instances."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from playwright.sync_api import Browser, expect

from tests.support import cluster, postgres, sample_data
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, open_chat, type_until_shown, windows
from tests.support.fake_ai import DONE, FakeServer, fake_server, piece, streams
from tests.support.server_process import Served, fill, serving

pytestmark = [*cluster.MARKS, pytest.mark.database]

CHAT = sample_data.SESSION  # with a bot
TOPOLOGIES = ("two workers behind Caddy", "two workers behind nginx", "three instances behind nginx, on PostgreSQL")


class Address(NamedTuple):
    """Where browsers find the service."""

    url: str


@pytest.fixture(scope="module")
def ai() -> Iterator[FakeServer]:
    with fake_server() as server:
        yield server


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URL of a database with the sample data."""
    cluster.find_postgresql()
    with postgres.running() as server:
        with psycopg.connect(f"{server.url}/postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE live TEMPLATE template0")
        cluster.import_records(f"{server.url}/live", sample_data.records())
        yield f"{server.url}/live"


@pytest.fixture(scope="module", params=TOPOLOGIES)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ai: FakeServer) -> Iterator[str]:
    """The URL of a proxy of the service, in each topology."""
    folder, proxied = tmp_path_factory.mktemp("live"), {"CX_TRUSTED_PROXY": "127.0.0.1", "CX_ASSISTANT_URL": ai.url}
    with contextlib.ExitStack() as stack:

        def start(data: Path, *flags: str) -> Served:
            return stack.enter_context(serving(data, "--workers", "2", *flags, **proxied))

        if "PostgreSQL" in request.param:
            database = request.getfixturevalue("database")
            instances = [start(folder / str(number), "--database", database) for number in range(3)]
        else:
            fill(folder / "data", sample_data.records())
            instances = [start(folder / "data")] * 3
        if "Caddy" in request.param:
            yield f"http://127.0.0.1:{stack.enter_context(cluster.caddy(instances[0]))}"
        else:
            yield stack.enter_context(cluster.nginx([instance.port for instance in instances])).url


@pytest.fixture
def visits(chromium: Browser, address: str) -> Iterator[tuple[Visit, Visit, Visit]]:
    """The windows of an agent, and of a customer at a desk and on a phone."""
    with windows(chromium) as begin:

        def visit(*options: object) -> Visit:
            return begin(Address(address), *options, ignore_https_errors=True)

        yield (
            open_chat(visit, "agent", session=CHAT),
            open_chat(visit, "alice", LIGHT, WIDE, session=CHAT),
            open_chat(visit, "alice", DARK, NARROW, session=CHAT),
        )


def write(visitor: Visit, text: str) -> None:
    visitor.page.locator("textarea[name=text]").fill(text)
    visitor.page.locator("textarea[name=text]").press("Enter")


def test_conversation_is_live_in_all_windows(visits: tuple[Visit, Visit, Visit], ai: FakeServer) -> None:
    staff, desk, phone = visits

    def everywhere(selector: str, text: str) -> None:
        for one in visits:
            expect(one.page.locator(selector).last).to_contain_text(text)

    type_until_shown(phone, staff.page.locator("[data-typing-indicator]"))
    written = threading.Event()
    ai.behave = streams(piece("We are open from"), piece(" 9 to 5", finish="stop") + DONE, wait=written)
    write(phone, "When is the shop open?")
    everywhere(".message.draft .text", "We are open from")
    written.set()
    everywhere(".message.bot:not(.draft) .text", "We are open from 9 to 5")
    for one in visits:
        expect(one.page.locator(".message.draft")).to_have_count(0)
        expect(one.page.locator(".message", has_text="We are open from")).to_have_count(1)
        expect(one.page.locator(".message", has_text="When is the shop open?")).to_have_count(1)
    expect(phone.page.locator(".message.own .message-time").last).to_contain_text("Read")  # the agent has seen it

    type_until_shown(staff, desk.page.locator("[data-typing-indicator]"))
    expect(phone.page.locator("[data-typing-indicator]")).to_be_visible()
    staff.page.locator(".options > summary").click()
    staff.page.get_by_label("Buttons, one a line").fill("Yes\nNo")
    write(staff, "Shall I reserve a table?")
    for customer in (desk, phone):
        expect(customer.page.get_by_role("button", name="Yes")).to_be_visible()
    expect(staff.page.locator(".message.own .message-time").last).to_contain_text("Read")
    phone.page.get_by_role("button", name="Yes").click()
    everywhere(".offered .chosen", "Yes (chosen)")
    everywhere(".message:not(.bot) .text", "Yes")
    expect(desk.page.get_by_role("button", name="Yes")).to_have_count(0)
