"""The executable against thousands of requests that Schemathesis generates from its OpenAPI document.

tests/schemathesis.toml is the configuration. It lists the disabled checks with the reasons.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from service.api import openapi
from service.api.event_stream import EventStream
from service.routes import operations
from tests.support import sample_data
from tests.support.cli_login import VERIFIER
from tests.support.consent import VALID_PARAMETERS
from tests.support.consent import path as consent_page
from tests.support.executable import PYTHON, clean_environment
from tests.support.executable import shipped_fixture as shipped_fixture
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.server_process import Served, database_variables, json_lines
from tests.support.web_client import Browser, remote

pytestmark = pytest.mark.slow

CONFIG = ROOT / "tests" / "schemathesis.toml"
NAMES = {
    **{name: value for name, value in vars(sample_data).items() if isinstance(value, str)},
    "EMAIL": sample_data.EMAILS["alice"],
    "PASSWORD": PASSWORD,
}
# Streams do not end, and the token of a login is not for the MCP server.
TRIED = [operation for operation in operations() if operation.data is not EventStream and not operation.resource]
# Tags of the parts in which operations are tried, by several processes. Operations that need each other share a part.
PARTS = (["Console"], ["Chat sessions and messages"], ["Apps", "Bots", "Canned answers", "Canned replies"])
SEPARATE = ("change_user", "delete_user_data")  # could end the access of the user who sends the requests
UNLIMITED = ("--login-failures", "--login-failures-account", "--login-failures-network")


@pytest.fixture
def server(shipped: Path, tmp_path: Path) -> Iterator[Served]:
    """The executable with the sample data and Alice as an admin. It verifies responses; logins are not limited."""
    data = tmp_path / "data"
    settings = clean_environment(SHIV_ROOT=tmp_path / "unpacked", CX_DATA=data, **database_variables(data))
    command = [PYTHON, shipped]
    records = json_lines(sample_data.records(role="admin"))
    subprocess.run([*command, "import", "-"], input=records, env=settings, check=True)
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


def words(flag: str, values: Iterable[str]) -> list[str]:
    """Return a flag with each of some values."""
    return [word for value in values for word in (flag, value)]


def log_in_client(server: Served) -> str:
    """Log in a command-line client. Returns the identifier of its installation."""
    browser = Browser(remote(server), server.url)
    browser.open(f"/api/v1{consent_page()}")
    browser.send(email=NAMES["EMAIL"], password=PASSWORD)
    browser.send(answer="approve")
    code = parse_qs(urlsplit(browser.redirect_url).query)["code"][0]
    form = {"grant_type": "authorization_code", "client_id": "service-cli", "code": code, "code_verifier": VERIFIER}
    form |= {"redirect_uri": VALID_PARAMETERS["redirect_uri"]}
    assert browser.navigate("POST", "/api/v1/auth/cli/token", form).status == 200
    token = server.log_in(NAMES["EMAIL"])
    [install] = server.call("GET", "/api/v1/users/me/installs", token=token).data
    return str(install["id"])


def bound_integers(part: Any) -> None:
    """Add bounds to all 64-bit integers of a document; Schemathesis does not know the format."""
    if isinstance(part, dict) and part.get("format") == "int64":
        part |= {"minimum": -(2**63), "maximum": 2**63 - 1}
    for inside in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        bound_integers(inside)


@pytest.fixture
def run(server: Served, tmp_path: Path) -> Callable[..., tuple[str, dict[str, Any]]]:
    """Run Schemathesis on the document of the server. Returns its output and report."""

    def execute(*arguments: str) -> tuple[str, dict[str, Any]]:
        described = json.loads(msgspec.json.encode(openapi.document(TRIED, server.url, pages=True)))
        bound_integers(described)
        for path in described["paths"].values():
            for operation in path.values():
                del operation["responses"]["default"]  # it allows every status; test the others
                operation["responses"]["431"] = {"description": "The address is too long for the server."}
        document, config, report = (tmp_path / name for name in ("openapi.json", "schemathesis.toml", "report.json"))
        document.write_text(json.dumps(described))
        config.write_text(Template(CONFIG.read_text()).substitute(NAMES, INSTALL=log_in_client(server)))
        line = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run", document, "--url", server.url]
        line += ["--report-json-path", report, *arguments]
        done = subprocess.run(line, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout, json.loads(report.read_text())

    return execute


@pytest.mark.extended
@pytest.mark.parametrize("tags", [*PARTS, None], ids=lambda tags: tags[0] if tags else "others")
def test_all_responses_are_documented(
    tags: list[str] | None, run: Callable[..., tuple[str, dict[str, Any]]], server: Served
) -> None:
    tags = tags or sorted({operation.tag for operation in TRIED}.difference(*PARTS))
    _, report = run(
        "--phases", "coverage,fuzzing", *words("--include-tag", tags), *words("--exclude-operation-id", SEPARATE)
    )
    tested = {operation.name for operation in TRIED if operation.tag in tags}
    assert report["operations"]["tested"] == len(tested.difference(SEPARATE))
    assert report["test_cases"]["generated"] > 1000
    assert "Traceback" not in server.errors
    statuses = Counter(re.findall(r" (\d{3}) [\d.]+ms ", server.errors))
    assert statuses["200"] > 300, statuses  # enough requests were valid
    assert not {status for status in statuses if status >= "500"}


@pytest.mark.extended
def test_responses_to_changes_of_users_are_documented(
    run: Callable[..., tuple[str, dict[str, Any]]], server: Served
) -> None:
    _, report = run("--phases", "coverage,fuzzing", *words("--include-operation-id", SEPARATE))
    assert report["operations"]["tested"] == len(SEPARATE)
    assert report["test_cases"]["generated"] > 50
    assert "Traceback" not in server.errors
    statuses = Counter(re.findall(r" (\d{3}) [\d.]+ms ", server.errors))
    assert statuses["200"] > 5, statuses
    assert not {status for status in statuses if status >= "500"}


# A run for each group: a run with all operations would follow too few of the links.
GROUPS = (["Chat sessions and messages"], ["Apps", "Bots"], ["Canned answers", "Canned replies"])
OTHERS = sum(GROUPS, [])


@pytest.mark.parametrize(
    "selection",
    [
        # With the links of `reveal_message`, Schemathesis 4.32 follows no link of its group.
        *([*words("--include-tag", group), *words("--exclude-operation-id", ("reveal_message",))] for group in GROUPS),
        [*words("--exclude-tag", OTHERS), *words("--exclude-operation-id", SEPARATE)],
    ],
    ids=lambda selection: f"{selection[0].strip('-')} {selection[1]}",
)
def test_all_responses_along_links_are_documented(
    selection: list[str], run: Callable[..., tuple[str, dict[str, Any]]], server: Served
) -> None:
    printed, _ = run("--phases", "stateful", *selection)
    found = re.search(r"API Links: +(\d+) covered / (\d+) selected", printed)
    assert found, printed
    covered, selected = map(int, found.groups())
    assert selected >= 6
    assert covered >= selected / 2, printed
    assert "Traceback" not in server.errors
