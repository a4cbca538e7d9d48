"""The tools of the demo: the consent of a customer in a browser, and the process of their server."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from service.commands.demo import MCP_SERVER, PASSWORD, QUIZ
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, sign_in, visit_fixture  # noqa: F401
from tests.support.client import text_of
from tests.support.fake_ai import fake_server
from tests.support.rules import for_each
from tests.support.server_process import TIMEOUT, Served, chat, command, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

ALICE = "alice@demo.example"
CHAT = f"/console/chats/{QUIZ}"
WINDOWS = [(LIGHT, WIDE), (DARK, NARROW)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    with serving(data, "--demo", "--verify-answers") as running:
        yield running
        assert "Traceback" not in running.errors


# The consent of a customer


def ask(page: Page, text: str) -> None:
    """Send a message, and wait until the page shows it."""
    page.get_by_label("Your message").fill(text)
    page.get_by_label("Your message").press("Enter")
    expect(page.locator(".message .text").get_by_text(text, exact=True).last).to_be_visible()


def tool_entries(data: Path) -> list[tuple[str, str]]:
    """The kinds and the MCP servers of the entries about tools in the audit log."""
    done = command("audit", "list", "--json", "--data", data)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    return [(entry["kind"], entry["details"]["server"]) for entry in entries if entry["kind"].startswith("tool_")]


def test_customer_grants_a_tool_revokes_it_and_refuses_it(visit: Callable[..., Visit], data: Path) -> None:
    visitor = visit()
    visitor.expected = ("401",)  # the sign-in page
    page = visitor.open(CHAT)
    sign_in(page, ALICE, PASSWORD)
    newest = page.locator(".message .text").last

    ask(page, "What is the weather in Lisbon?")
    expect(newest).to_contain_text(f'“get_forecast” of “{MCP_SERVER}” with exactly this data?\n{{"city": "Lisbon"}}')
    assert tool_entries(data) == []
    visitor.check_accessibility(WINDOWS)
    page.get_by_role("button", name="In this chat").click()
    expect(newest).to_contain_text("The forecast for Lisbon: ")

    ask(page, "What is the weather in Oslo?")
    expect(newest).to_contain_text("The forecast for Oslo: ")  # without a question
    visitor.check_accessibility(WINDOWS)

    visitor.open("/console/shares")
    page.get_by_role("button", name=f"Revoke {MCP_SERVER}").click()
    expect(page.get_by_text("Access revoked.")).to_be_visible()
    expect(page.get_by_text(MCP_SERVER)).to_have_count(0)

    visitor.open(CHAT)
    ask(page, "What is the weather in Bern?")
    expect(newest).to_contain_text('{"city": "Bern"}')
    page.get_by_role("button", name="No", exact=True).click()
    expect(newest).to_have_text("I have not looked it up, because you did not allow it.")
    kinds = ("tool_permitted", "tool_called", "tool_called", "tool_refused")
    assert tool_entries(data) == [(kind, MCP_SERVER) for kind in kinds]


# The process of the server


def tool_servers(server: Served) -> list[int]:
    """The processes of the demo's server among those that the service has started: they have their own group."""
    return [process for process in server.workers if os.getpgid(process) == process]


def wait_for_end(process: int) -> None:
    """Wait until a process has ended. It stays as a zombie until another process waits for it."""
    begun = time.monotonic()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() - begun < TIMEOUT, "the server of the demo has not ended"
            time.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_server_ends_with_the_service(number: signal.Signals, workers: int, tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--demo", "--workers", str(workers)) as running:
        assert running.call("GET", "/healthz").status == 200  # it handles signals from now on
        (process,) = tool_servers(running)
        assert running.stop(number) == (0 if number == signal.SIGTERM else -number)
        wait_for_end(process)
        assert "Traceback" not in running.errors


def test_ctrl_c_ends_both_without_an_error(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--demo") as running:
        assert running.call("GET", "/healthz").status == 200  # it handles signals from now on
        (process,) = tool_servers(running)
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.process.wait(TIMEOUT) == 0
        wait_for_end(process)
        assert "Traceback" not in running.errors


NAMED = ("--demo", "--assistant-url", "http://127.0.0.1:9/v1", "--mcp", f"{MCP_SERVER}=http://127.0.0.1:9/mcp")
FLAGS = {"no demo": (), "other data": ("--demo",), "no console": ("--demo", "--documented-only"), "own server": NAMED}


@for_each("case", {case: case for case in FLAGS})
def test_server_is_not_started_without_need(case: str, tmp_path: Path) -> None:
    if case == "other data":
        fill(tmp_path / case, chat())
    with serving(tmp_path / case, *FLAGS[case]) as running:
        assert running.call("GET", "/healthz").status == 200
        assert running.workers == []


def test_own_assistant_gets_the_tools_of_the_demo(tmp_path: Path) -> None:
    with fake_server() as ai, serving(tmp_path / "data", "--demo", "--assistant-url", ai.url) as running:
        token = running.log_in(ALICE, PASSWORD)
        path = f"/api/v1/chats/{QUIZ}/messages"
        assert running.call("POST", path, {"content": {"text": "Hello"}}, token).status == 201
        begun, newest = time.monotonic(), "Hello"
        while newest == "Hello":
            assert time.monotonic() - begun < TIMEOUT
            time.sleep(0.05)
            newest = text_of(running.call("GET", f"{path}?direction=backward&limit=1", token=token).data[0])
        assert newest == "I am the assistant."
        described = [tool["function"]["description"] for tool in ai.requests[0].body["tools"][1:]]
        assert [text.partition(":")[0] for text in described] == [MCP_SERVER, MCP_SERVER]
