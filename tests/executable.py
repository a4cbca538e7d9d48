"""The built executable for the tests that need it: made once, and made again only when its sources have changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")


def build(root: Path = ROOT, **settings: str) -> Path:
    """Bring the executable of a checkout up to date; several test processes may ask for it at once."""
    subprocess.run(
        [sys.executable, root / ".ci" / "build.py", "--if-stale"],
        check=True,
        env={**os.environ, **settings},
        umask=int(settings.get("UMASK", "022"), 8),
    )
    return root / "dist" / "cx-service.pyz"


def clean_environment(**settings: str | Path) -> dict[str, str]:
    """Nothing of the tests' own environment, so that the executable finds only what it brings along."""
    return {"PATH": f"{PYTHON.parent}:/usr/bin:/bin", **{name: str(value) for name, value in settings.items()}}


@pytest.fixture(scope="session", name="executable")
def executable_fixture() -> Path:
    """The path of the executable; import this fixture by name where it is used."""
    return build()
