"""Python and TypeScript clients that public generators create from the OpenAPI document, against a running server."""

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin
from uuid import UUID

import pytest

from service.api.operations import Operation
from service.routes import operations
from tests.support import sample_data
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

SOURCES = ROOT / "tests" / "clients"
LISTS = [one for one in operations() if one.method == "GET" and get_origin(one.data) is list]
REQUIRED = {
    "app_id": UUID(sample_data.SHOP),
    "bot_id": UUID(sample_data.HILDA),
    "id": UUID(sample_data.SESSION),
    "session_id": UUID(sample_data.SESSION),
}
REQUIRED_TEXTS = {"q": "hello"}
MISSING = "NOT TESTED: {} is missing; on Debian: apt-get install nodejs npm"


def find_program(name: str) -> str:
    """The path of a program. Without it the test is skipped, or fails where CI is set."""
    found = shutil.which(name)
    if not found:
        reason = MISSING.format(name)
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return found


def run(*line: str | Path, cwd: Path) -> str:
    """Run a program. Returns its output and errors; fails if the program does."""
    printed = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(line, cwd=cwd, **printed, text=True, timeout=300)
    assert done.returncode == 0, f"{line[0]}: {done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The sample data, with Alice as an admin, who can read all lists."""
    data = tmp_path_factory.mktemp("clients") / "data"
    fill(data, sample_data.records(role="admin"))
    with serving(data, "--verify-answers") as running:
        yield running
        assert "Traceback" not in running.errors


@pytest.fixture(scope="module")
def document(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OpenAPI document of the server."""
    path = tmp_path_factory.mktemp("document") / "openapi.json"
    path.write_bytes(server.call("GET", "/docs/openapi.json").raw)
    return path


@pytest.fixture(scope="module")
def package(document: Path) -> Iterator[str]:
    """The name of an importable package with a Python client."""
    folder = document.with_name("generated_client")
    config = document.with_name("config.yml")
    config.write_text("post_hooks: []\n")  # the generated code needs no formatting
    generator = (Path(sys.executable).with_name("openapi-python-client"), "generate", "--meta", "none")
    printed = run(*generator, "--path", document, "--output-path", folder, "--config", config, cwd=document.parent)
    warnings = re.findall(r"WARNING parsing (.+) within", printed)
    message_image = "GET /api/v1/chats/{session_id}/messages/{message_id}/images/{id}"
    screenshot = "GET /api/v1/feedback/{id}/screenshot"
    # The generator does not support this content type.
    assert warnings == [message_image, "GET /bot-pictures/{name}", screenshot, "GET /avatars/{name}"]
    sys.path.insert(0, str(folder.parent))
    yield folder.name
    sys.path.remove(str(folder.parent))


@pytest.fixture(scope="module")
def client(package: str, server: Served) -> Any:
    """The generated client, with Alice's token."""
    made = importlib.import_module(f"{package}.client").AuthenticatedClient
    token = server.log_in(sample_data.EMAILS["alice"])
    with made(base_url=server.url, token=token, raise_on_unexpected_status=True) as opened:
        yield opened


def module_of(package: str, operation: Operation) -> Any:
    tag = operation.tag.lower().replace(" ", "_").replace("-", "_")
    return importlib.import_module(f"{package}.api.{tag}.{operation.name}")


@pytest.mark.parametrize("operation", LISTS, ids=lambda one: one.name)
def test_python_client_reads_all_lists_with_defaults(package: str, client: Any, operation: Operation) -> None:
    call = module_of(package, operation).sync_detailed
    parameters = inspect.signature(call).parameters.values()
    needed = {one.name for one in parameters if one.default is inspect.Parameter.empty} - {"client"}
    values: dict[str, Any] = REQUIRED | REQUIRED_TEXTS
    response = call(client=client, **{name: values[name] for name in needed})
    assert response.status_code == 200, response.content
    assert type(response.parsed).__name__ != "Failure"
    assert len(response.parsed.data) == len(json.loads(response.content)["data"])


def test_python_client_has_types_for_enums_timestamps_and_identifiers(package: str, client: Any) -> None:
    [operation] = [one for one in LISTS if one.name == "list_chat_sessions"]
    chat = module_of(package, operation).sync(client=client).data[0]
    assert isinstance(chat.id, UUID)
    assert chat.created_at.utcoffset() is not None
    assert chat.status.value in ("open", "active")


def test_typescript_client_compiles_and_runs(server: Served, document: Path) -> None:
    npm, node = find_program("npm"), find_program("node")
    folder = document.with_name("typescript")
    shutil.copytree(SOURCES, folder)
    run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    programs = folder / "node_modules" / ".bin"
    run(programs / "openapi-typescript", document, "--output", "schema.ts", cwd=folder)
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable")
    run(programs / "tsc", *options, "--outDir", "made", "usage.ts", cwd=folder)
    (folder / "made" / "package.json").write_text('{"type": "module"}')
    output = run(node, "made/usage.js", server.url, sample_data.EMAILS["alice"], PASSWORD, cwd=folder)
    assert json.loads(output) == {"words": "Hello from TypeScript", "theme": "dark", "statuses": [200] * 6}


def test_lock_file_contains_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_bytes())
    for name, package in lock["packages"].items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-")


class TestWithoutNode:
    @pytest.fixture(autouse=True)
    def _no_programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CI", raising=False)

    def test_skip_names_the_missing_package(self) -> None:
        with pytest.raises(pytest.skip.Exception, match="apt-get install nodejs npm"):
            find_program("npm")

    def test_continuous_integration_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", "true")
        with pytest.raises(pytest.fail.Exception, match="apt-get install nodejs npm"):
            find_program("npm")
