"""Clients that others' generators make of the OpenAPI document, in Python and TypeScript, against a running server."""

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

from service.operations import Operation
from service.routes import operations
from tests import household
from tests.conftest import PASSWORD
from tests.serving import Served, fill, serving

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).with_name("clients")
LISTS = [one for one in operations() if one.method == "GET" and get_origin(one.data) is list]
REQUIRED = {"app_id": UUID(household.SHOP), "id": UUID(household.SESSION), "session_id": UUID(household.SESSION)}
REQUIRED_TEXTS = {"q": "hello"}
MISSING = "NOT TESTED: there is no {} here; apt-get install nodejs npm"


def find_program(name: str) -> str:
    """The path of a program. Without it the test is skipped, or fails where CI is set."""
    found = shutil.which(name)
    if not found:
        told = MISSING.format(name)
        pytest.fail(told) if os.environ.get("CI") else pytest.skip(told)
    return found


def run(*line: str | Path, cwd: Path) -> str:
    """What a program prints, its complaints too. Fails with that if it did."""
    printed = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(line, cwd=cwd, **printed, text=True, timeout=300)
    assert done.returncode == 0, f"{line[0]}: {done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The household, with Alice as an admin, who may read every list."""
    data = tmp_path_factory.mktemp("clients") / "data"
    fill(data, household.records(role="admin"))
    with serving(data, "--verify-answers") as running:
        yield running
        assert "Traceback" not in running.errors


@pytest.fixture(scope="module")
def document(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document that the server serves."""
    path = tmp_path_factory.mktemp("document") / "openapi.json"
    path.write_bytes(server.call("GET", "/docs/openapi.json").raw)
    return path


@pytest.fixture(scope="module")
def package(document: Path) -> Iterator[str]:
    """The name of a package with a Python client, which can be imported."""
    folder = document.with_name("generated_client")
    config = document.with_name("config.yml")
    config.write_text("post_hooks: []\n")  # it is not to be read
    generator = (Path(sys.executable).with_name("openapi-python-client"), "generate", "--meta", "none")
    printed = run(*generator, "--path", document, "--output-path", folder, "--config", config, cwd=document.parent)
    warnings = re.findall(r"WARNING parsing (.+) within", printed)
    assert warnings == ["GET /avatars/{name}"]  # a picture, for which it has no type
    sys.path.insert(0, str(folder.parent))
    yield folder.name
    sys.path.remove(str(folder.parent))


@pytest.fixture(scope="module")
def client(package: str, server: Served) -> Any:
    """The generated client, with Alice's token."""
    made = importlib.import_module(f"{package}.client").AuthenticatedClient
    token = server.log_in(household.EMAILS["alice"])
    with made(base_url=server.url, token=token, raise_on_unexpected_status=True) as opened:
        yield opened


def module_of(package: str, operation: Operation) -> Any:
    tag = operation.tag.lower().replace(" ", "_").replace("-", "_")
    return importlib.import_module(f"{package}.api.{tag}.{operation.name}")


@pytest.mark.parametrize("operation", LISTS, ids=lambda one: one.name)
def test_a_python_client_reads_every_list_with_its_defaults(package: str, client: Any, operation: Operation) -> None:
    call = module_of(package, operation).sync_detailed
    parameters = inspect.signature(call).parameters.values()
    needed = {one.name for one in parameters if one.default is inspect.Parameter.empty} - {"client"}
    known: dict[str, Any] = REQUIRED | REQUIRED_TEXTS
    answer = call(client=client, **{name: known[name] for name in needed})
    assert answer.status_code == 200, answer.content
    assert type(answer.parsed).__name__ != "Failure"
    assert len(answer.parsed.data) == len(json.loads(answer.content)["data"])


def test_a_python_client_has_types_for_words_moments_and_identifiers(package: str, client: Any) -> None:
    [operation] = [one for one in LISTS if one.name == "list_chat_sessions"]
    chat = module_of(package, operation).sync(client=client).data[0]
    assert isinstance(chat.id, UUID)
    assert chat.created_at.utcoffset() is not None
    assert chat.status.value in ("open", "active")


def test_a_typescript_client_is_sound_and_runs(server: Served, document: Path) -> None:
    npm, node = find_program("npm"), find_program("node")
    folder = document.with_name("typescript")
    shutil.copytree(SOURCES, folder)
    run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    programs = folder / "node_modules" / ".bin"
    run(programs / "openapi-typescript", document, "--output", "schema.ts", cwd=folder)
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable")
    run(programs / "tsc", *options, "--outDir", "made", "usage.ts", cwd=folder)
    (folder / "made" / "package.json").write_text('{"type": "module"}')
    told = run(node, "made/usage.js", server.url, household.EMAILS["alice"], PASSWORD, cwd=folder)
    assert json.loads(told) == {"words": "Hello from TypeScript", "theme": "dark", "statuses": [200] * 6}


def test_the_lock_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_bytes())
    for name, package in lock["packages"].items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-")


class TestWithoutNode:
    @pytest.fixture(autouse=True)
    def _bare_machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CI", raising=False)

    def test_a_developer_is_told_what_to_install(self) -> None:
        with pytest.raises(pytest.skip.Exception, match="apt-get install nodejs npm"):
            find_program("npm")

    def test_continuous_integration_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", "true")
        with pytest.raises(pytest.fail.Exception, match="apt-get install nodejs npm"):
            find_program("npm")
