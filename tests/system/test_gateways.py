"""The commands of docs/gateways.md, and an OAuth library that introspects grants."""

import base64
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from typing import Any

import pytest
from authlib.integrations.requests_client import OAuth2Session

from tests.support.paths import ROOT
from tests.support.server_process import chat, command, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

CURLS = re.findall(r"^curl .*$", (ROOT / "docs/gateways.md").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """The variables of the examples, for a server with a grant of Alice; and a function that revokes the grant."""
    data = tmp_path_factory.mktemp("gateways") / "data"
    fill(data, chat())
    added = command("client", "add", "Gateway of files", "--mcp-server", "files", "--data", data)
    values = dict(line.split() for line in added.stdout.decode().splitlines())
    with serving(data, "--workers", "2") as served:
        token = served.log_in()
        body = {"mcp_server_id": "files", "allowed_tools": ["read", "list"]}
        grant = served.call("POST", "/api/v1/data-shares", body, token=token).data["id"]
        variables = {"CLIENT_ID": values["client_id"], "CLIENT_SECRET": values["client_secret"], "GRANT": grant}
        yield (
            {**variables, "CX_URL": served.url, "DATA": str(data)},
            lambda: served.call("DELETE", f"/api/v1/data-shares/{grant}", token=token),
        )
        assert values["client_secret"] not in served.errors


def listed(variables: dict[str, str]) -> bytes:
    return command("client", "list", "--json", "--data", variables["DATA"]).stdout


def answers(variables: dict[str, str]) -> list[Any]:
    """Return what the commands of the documentation print, and what Authlib gets."""
    environment = {**os.environ, **variables}
    outputs = [subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=True) for line in CURLS]
    found = [json.loads(output.stdout) for output in outputs]
    for method in ("client_secret_basic", "client_secret_post"):
        with OAuth2Session(variables["CLIENT_ID"], variables["CLIENT_SECRET"], method) as session:
            url = f"{variables['CX_URL']}/api/v1/data-shares/introspect"
            found.append(session.introspect_token(url, token=variables["GRANT"]).json())
    return found


@pytest.mark.skipif(
    not shutil.which("curl") and not os.environ.get("CI"),
    reason="NOT TESTED: curl is missing; on Debian: apt-get install curl",
)
def test_documented_commands_and_a_library_ask_about_a_grant(gateway, monkeypatch):
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    variables, revoke = gateway
    found = answers(variables)
    assert len(CURLS) == 3
    checked = found.pop(2)
    assert checked["data"] == {"allowed": True, "grant_id": variables["GRANT"], "reason": "granted"}
    assert found == [{"active": True, "sub": found[0]["sub"], "scope": "read list"}] * 4
    assert revoke().status == 200
    found = answers(variables)
    assert found.pop(2)["data"] == {"allowed": False, "grant_id": None, "reason": "not_granted"}
    assert found == [{"active": False}] * 4


def test_running_service_stores_the_last_question(gateway):
    variables, _ = gateway
    basic = base64.b64encode(f"{variables['CLIENT_ID']}:{variables['CLIENT_SECRET']}".encode()).decode()
    url = f"{variables['CX_URL']}/api/v1/data-shares/introspect"
    question = urllib.request.Request(url, b"token=x", {"Authorization": f"Basic {basic}"})
    with urllib.request.urlopen(question) as response:
        assert json.load(response) == {"active": False}
    deadline = time.monotonic() + 60
    while not (asked := json.loads(listed(variables))["last_asked_at"]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert asked[:2] == "20"
