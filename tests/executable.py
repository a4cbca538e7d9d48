"""The built executables for the tests that need them: made once, and again only when their sources have changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import postgres

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
DEFAULT, POSTGRESQL = "cx-service.pyz", "cx-service-postgresql.pyz"


def build(root: Path = ROOT, name: str = DEFAULT, **settings: str) -> Path:
    """Bring an executable of a checkout up to date; several test processes may ask for it at once."""
    subprocess.run(
        [sys.executable, root / ".ci" / "build.py", "--if-stale", *(["--postgresql"] if name == POSTGRESQL else [])],
        check=True,
        env={**os.environ, **settings},
        umask=int(settings.get("UMASK", "022"), 8),
    )
    return root / "dist" / name


def clean_environment(**settings: str | Path) -> dict[str, str]:
    """Nothing of the tests' own environment, so that the executable finds only what it brings along."""
    return {"PATH": f"{PYTHON.parent}:/usr/bin:/bin", **{name: str(value) for name, value in settings.items()}}


@pytest.fixture(scope="session", name="shipped")
def shipped_fixture() -> Path:
    """The path of the executable for the database of this run; import this fixture by name where it is used."""
    return build(name=POSTGRESQL if postgres.is_chosen() else DEFAULT)


@pytest.fixture(scope="session", name="executable")
def executable_fixture() -> Path:
    """The path of the executable; import this fixture by name where it is used."""
    return build()


@pytest.fixture(scope="session", name="postgresql_executable")
def postgresql_executable_fixture() -> Path:
    """The path of the executable that holds the driver of PostgreSQL; import this fixture by name where it is used."""
    return build(name=POSTGRESQL)
