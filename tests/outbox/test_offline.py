"""The outbox without a network: everything else works, and the deliveries wait."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

ISOLATED = ("unshare", "--map-root-user", "--net", "--")


@pytest.mark.slow
def test_deliveries_wait_in_a_network_with_loopback_only(tmp_path: Path) -> None:
    if not shutil.which("unshare"):
        reason = "NOT TESTED: unshare is missing; on Debian: apt-get install util-linux"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    if subprocess.run([*ISOLATED, "true"], capture_output=True).returncode:
        pytest.skip("NOT TESTED: network namespaces are not allowed here")
    line = [*ISOLATED, sys.executable, "-m", "tests.support.offline_outbox", str(tmp_path)]
    run = subprocess.run(line, cwd=ROOT, capture_output=True, timeout=180)
    assert run.returncode == 0, run.stderr.decode()
    found = json.loads(run.stdout)
    assert found["interfaces"] == ["lo"]
    assert set(found["statuses"]) <= {200, 201, 204} and found["exit"] == 0
    waiting = found["deliveries"]
    assert {row["channel"] for row in waiting} == {"email", "push", "webhook"}
    assert {row["state"] for row in waiting} == {"pending"}
    assert all(row["error"] for row in waiting if row["attempts"])
