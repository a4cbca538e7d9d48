"""The executable against thousands of requests that Schemathesis makes up from the OpenAPI document it serves.

tests/schemathesis.toml says how, and which of its checks are left out, each with the reason.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from service import openapi
from service.routes import operations
from tests import household
from tests.browsing import Browser, remote
from tests.conftest import PASSWORD
from tests.executable import PYTHON, clean_environment
from tests.executable import shipped_fixture as shipped_fixture
from tests.serving import Served, json_lines, where
from tests.test_cli_login import VERIFIER
from tests.test_consent import GOOD
from tests.test_consent import path as consent_page

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).with_name("schemathesis.toml")
NAMES = {
    **{name: value for name, value in vars(household).items() if isinstance(value, str)},
    "EMAIL": household.EMAILS["alice"],
    "PASSWORD": PASSWORD,
}
UNLIMITED = ("--login-failures", "--login-failures-account", "--login-failures-network")


@pytest.fixture
def server(shipped: Path, tmp_path: Path) -> Iterator[Served]:
    """The executable, serving the household, with Alice in charge; it checks its answers and bears failed logins."""
    data = tmp_path / "data"
    settings = clean_environment(SHIV_ROOT=tmp_path / "unpacked", CX_DATA=data, **where(data))
    command = [PYTHON, shipped]
    household_lines = json_lines(household.records(role="admin"))
    subprocess.run([*command, "import", "-"], input=household_lines, env=settings, check=True)
    limits = [word for flag in UNLIMITED for word in (flag, "1000000")]
    output, errors = tmp_path / "out", tmp_path / "err"
    with output.open("wb") as out, errors.open("wb") as err:
        serve = [*command, "serve", "--port", "0", "--verify-answers", *limits]
        process = subprocess.Popen(serve, env=settings, stdout=out, stderr=err)
    try:
        yield Served(process, output, errors)
    finally:
        process.terminate()
        process.wait(30)


def let_a_client_in(server: Served) -> str:
    """The identifier of the login of a command-line client."""
    browser = Browser(remote(server), server.url)
    browser.open(f"/api/v1{consent_page()}")
    browser.send(email=NAMES["EMAIL"], password=PASSWORD)
    browser.send(answer="approve")
    code = parse_qs(urlsplit(browser.onward).query)["code"][0]
    form = {"grant_type": "authorization_code", "client_id": "service-cli", "code": code, "code_verifier": VERIFIER}
    form |= {"redirect_uri": GOOD["redirect_uri"]}
    assert browser.ask("POST", "/api/v1/auth/cli/token", form).status == 200
    token = server.log_in(NAMES["EMAIL"])
    [install] = server.call("GET", "/api/v1/users/me/installs", token=token).data
    return str(install["id"])


def bound_integers(part: Any) -> None:
    """Give every 64-bit integer of a document its bounds, which Schemathesis does not take from the format."""
    if isinstance(part, dict) and part.get("format") == "int64":
        part |= {"minimum": -(2**63), "maximum": 2**63 - 1}
    for inside in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        bound_integers(inside)


@pytest.fixture
def run(server: Served, tmp_path: Path) -> Callable[..., tuple[str, dict[str, Any]]]:
    """Runs Schemathesis on the document that the server serves; what it printed, and its report."""

    def carry_out(*arguments: str) -> tuple[str, dict[str, Any]]:
        described = json.loads(msgspec.json.encode(openapi.document(operations(), server.url, pages=True)))
        bound_integers(described)
        for path in described["paths"].values():
            for operation in path.values():
                del operation["responses"]["default"]  # it allows every status; those that stand beside it shall do
                operation["responses"]["431"] = {"description": "The address is too long for the server."}
        document, config, report = (tmp_path / name for name in ("openapi.json", "schemathesis.toml", "report.json"))
        document.write_text(json.dumps(described))
        config.write_text(Template(CONFIG.read_text()).substitute(NAMES, INSTALL=let_a_client_in(server)))
        line = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run", document, "--url", server.url]
        line += ["--report-json-path", report, *arguments]
        done = subprocess.run(line, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout, json.loads(report.read_text())

    return carry_out


def test_no_request_gets_an_answer_that_the_document_does_not_promise(
    run: Callable[..., tuple[str, dict[str, Any]]], server: Served
) -> None:
    _, report = run("--phases", "coverage,fuzzing")
    assert report["operations"]["tested"] == report["operations"]["total"] == len(list(operations()))
    assert report["test_cases"]["generated"] > 1000
    assert "Traceback" not in server.errors
    answered = Counter(re.findall(r" (\d{3}) [\d.]+ms ", server.errors))
    assert answered["200"] > 300, answered  # it got past the door
    assert not {status for status in answered if status >= "500"}


# Apart, since it begins where nothing has to be known, and what it can list by itself never leads into a chat.
@pytest.mark.parametrize("choice", ["--include-tag", "--exclude-tag"])
def test_no_walk_along_the_links_does_either(
    choice: str, run: Callable[..., tuple[str, dict[str, Any]]], server: Served
) -> None:
    printed, _ = run("--phases", "stateful", choice, "Chat sessions and messages")
    found = re.search(r"API Links: +(\d+) covered / (\d+) selected", printed)
    assert found, printed
    covered, selected = map(int, found.groups())
    assert selected >= 6
    assert covered >= selected / 2, printed
    assert "Traceback" not in server.errors
