"""`mcp` lists the MCP servers of the settings and their tools, calls a tool, and reports errors in one line."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Outcome, error_line
from tests.support.fake_ai import sends
from tests.support.fake_mcp import FORECAST, SCHEMA, FakeMcpServer, fake_mcp_server
from tests.support.paths import ROOT
from tests.support.server_process import environment

pytestmark = pytest.mark.database


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMcpServer]:
    with fake_mcp_server() as server:
        monkeypatch.setenv("CX_MCP", f"weather={server.url}")
        yield server


def test_list_shows_the_servers_without_tokens(
    cx: Callable[..., Outcome], fake: FakeMcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CX_MCP_WEATHER_TOKEN", "hush")
    monkeypatch.setenv("CX_MCP_TRUSTED", "weather")
    assert cx("mcp", "list") == (0, f"weather: trusted, token  {fake.url}\n", "")
    row = {"name": "weather", "url": fake.url, "trusted": True, "token": True}
    assert json.loads(cx("mcp", "list", "--json").output) == row
    assert fake.requests == []


def test_flag_replaces_the_variable(cx: Callable[..., Outcome], fake: FakeMcpServer) -> None:
    outcome = cx("mcp", "list", "--mcp", "a=https://a.example", "--mcp", "b=https://b.example")
    assert (
        outcome.output == "a: not trusted, no token  https://a.example\nb: not trusted, no token  https://b.example\n"
    )


def test_test_lists_the_tools(cx: Callable[..., Outcome], fake: FakeMcpServer) -> None:
    order = {"name": "order", "inputSchema": {"type": "object"}, "description": "Forged\nline \x1b[31m"}
    reading = FORECAST | {"annotations": {"readOnlyHint": True}}
    fake.results["tools/list"]["tools"] = [reading, order]
    assert cx("mcp", "test").output.splitlines() == [
        "weather: forecast(place), only reads: Forecasts the weather.",
        "weather: order(), may change data: Forged line  [31m",
    ]
    row = json.loads(cx("mcp", "test", "weather", "--json").output.splitlines()[0])
    assert (row["server"], row["tool"], row["only_reads"], row["schema"]) == ("weather", "forecast", True, SCHEMA)


def test_test_calls_a_tool(cx: Callable[..., Outcome], fake: FakeMcpServer) -> None:
    line = ("mcp", "test", "weather", "--call", "forecast", "--arguments", '{"place": "Bern"}')
    assert cx(*line) == (0, "Sunny.\n", "")
    called = next(request.body for request in fake.requests if request.body and request.body["method"] == "tools/call")
    assert called["params"] == {"name": "forecast", "arguments": {"place": "Bern"}}
    fake.results["tools/call"] = {"content": [{"type": "text", "text": "no\x1b[31m\nrain"}], "isError": True}
    assert cx(*line) == (1, "no [31m\nrain\n", "")


def test_test_reports_the_error_of_each_server(cx: Callable[..., Outcome], fake: FakeMcpServer) -> None:
    fake.behaviours["tools/list"] = sends(b"secret", 503)
    assert error_line(cx("mcp", "test")) == "weather: status 503"
    with fake_mcp_server() as other:
        outcome = cx("mcp", "test", "--mcp", f"weather={fake.url}", "--mcp", f"other={other.url}")
    assert outcome.status == 1
    assert outcome.output == "other: forecast(place), may change data: Forecasts the weather.\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("other",), "--mcp does not name this server: other"),
        (("--call", "forecast"), "--call needs the NAME of a server"),
        (("weather", "--call", "forecast", "--arguments", "[]"), "--arguments must be a JSON object"),
        (("weather", "--call", "forecast", "--arguments", "{"), "--arguments must be a JSON object"),
        (("--mcp-trusted", "other"), "--mcp-trusted names a server that --mcp does not name: other"),
    ],
)
def test_wrong_arguments_are_an_error(
    arguments: tuple[str, ...], line: str, cx: Callable[..., Outcome], fake: FakeMcpServer
) -> None:
    assert error_line(cx("mcp", "test", *arguments)) == line


def test_test_needs_a_server(cx: Callable[..., Outcome]) -> None:
    assert error_line(cx("mcp", "test")) == "there is no server: set --mcp"
    assert cx("mcp", "list") == (0, "", "")


@pytest.mark.parametrize(
    "text",
    ["weather", "=https://a.example", "We=https://a.example", "a=ftp://a.example", f"{'a' * 65}=https://a.example"],
)
def test_entry_without_a_valid_name_is_refused(text: str, cx: Callable[..., Outcome]) -> None:
    assert error_line(cx("mcp", "list", "--mcp", text)).startswith("--mcp must be NAME=URL, such as weather=https://")


def test_names_whose_variables_are_the_same_are_refused(cx: Callable[..., Outcome]) -> None:
    outcome = cx("mcp", "list", "--mcp", "a.b=https://a.example", "--mcp", "a-b=https://b.example")
    assert error_line(outcome) == "--mcp must be servers with different names, also if . and - are the same"


def test_token_file_that_all_users_can_read_causes_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("hush\n")
    path.chmod(0o644)
    line = [sys.executable, str(ROOT / "app.py"), "mcp", "list", "--mcp", "weather=https://weather.example/mcp"]
    done = subprocess.run(line, env=environment(CX_MCP_WEATHER_TOKEN_FILE=str(path)), capture_output=True, timeout=30)
    assert done.stdout == b"weather: not trusted, token  https://weather.example/mcp\n"
    assert done.stderr.decode() == f"cx-service: warning: all users of this machine can read {path}\n"


def test_client_is_loaded_only_if_it_is_used() -> None:
    """Without MCP servers, the service starts as fast as before, and needs no more memory."""
    program = "import app, sys, service.commands.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=30, check=True)
    loaded = set(done.stdout.decode().split())
    assert "service.assistant.reply_worker" in loaded
    names = ("service.mcp_client", "service.assistant.tool_worker", "service.assistant.toolbox")
    assert not loaded & {*names, "service.assistant.tool_texts"}
    assert {name for name in loaded if name.startswith("service.demo")} == {"service.demo"}
