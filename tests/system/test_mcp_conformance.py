"""The conformance suite of the Model Context Protocol, an npm package, runs the scenarios that the service claims."""

import http.client
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support import npm
from tests.support.client import Client
from tests.support.cluster import find
from tests.support.mcp import consent_path, register, request_tokens
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.server_process import Served, chat, fill, serving
from tests.support.web_client import Browser, remote

pytestmark = [pytest.mark.slow, pytest.mark.database]

SOURCES = ROOT / "tests" / "clients" / "conformance"
NOT_FORWARDED = ("connection", "content-length", "transfer-encoding", "host", "authorization")


def token_of(served: Served) -> str:
    """The access token of a new client that Alice approves."""
    application = remote(served)
    client, browser = Client(application), Browser(application, served.url)
    client_id = register(client)
    browser.open(consent_path(client_id, resource=f"{served.url}/mcp"))
    browser.send(email="alice@example.com", password=PASSWORD)
    browser.send(answer="approve")
    code = parse_qs(urlsplit(browser.redirect_url).query)["code"][0]
    return str(request_tokens(client, client_id=client_id, code=code).json["access_token"])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a proxy of the MCP server that adds a token, which the suite cannot send."""
    data = tmp_path_factory.mktemp("mcp") / "data"
    fill(data, chat())
    with serving(data) as served:
        token = token_of(served)

        class Proxy(http.server.BaseHTTPRequestHandler):
            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                sent = [(name, value) for name, value in self.headers.items() if name.lower() not in NOT_FORWARDED]
                connection = http.client.HTTPConnection(served.host, served.port, timeout=60)
                headers = {**dict(sent), "Host": self.headers["Host"], "Authorization": f"Bearer {token}"}
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                content = response.read()
                connection.close()
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in NOT_FORWARDED:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = forward

            def log_message(self, *_: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            yield f"http://localhost:{proxy.server_address[1]}/mcp"
            proxy.shutdown()


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the conformance suite."""
    return npm.install(SOURCES, tmp_path_factory.mktemp("conformance") / "suite")


def judge(suite: Path, address: str, scenario: str) -> tuple[int, str]:
    """Run a scenario. Returns the exit status and the output."""
    program = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    line = [find("node", "nodejs"), program, "server", "--url", address, "--scenario", scenario]
    done = subprocess.run(line, cwd=suite, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "scenario", ["server-initialize", "ping", "tools-list", "resources-list", "dns-rebinding-protection"]
)
def test_claimed_scenarios_pass(scenario: str, suite: Path, address: str) -> None:
    status, output = judge(suite, address, scenario)
    assert status == 0, output
    assert ", 0 failed, 0 warnings" in output


def test_a_scenario_that_is_not_claimed_fails(suite: Path, address: str) -> None:
    """The suite would notice: there are no prompts."""
    status, output = judge(suite, address, "prompts-list")
    assert status == 1, output
    assert "Method not found" in output or "-32601" in output
