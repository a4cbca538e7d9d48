"""The built executables. They are built again only when their sources have changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.paths import ROOT

PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
DEFAULT, POSTGRESQL = "cx-service.pyz", "cx-service-postgresql.pyz"


def build(root: Path = ROOT, name: str = DEFAULT, **settings: str) -> Path:
    """Build an executable of a checkout if it is out of date. Several test processes may do this concurrently."""
    subprocess.run(
        [sys.executable, root / ".ci" / "build.py", "--if-stale", *(["--postgresql"] if name == POSTGRESQL else [])],
        check=True,
        env={**os.environ, **settings},
        umask=int(settings.get("UMASK", "022"), 8),
    )
    return root / "dist" / name


def clean_environment(**settings: str | Path) -> dict[str, str]:
    """A minimal environment, in which the executable finds no libraries except its own."""
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
    """The path of the executable with the PostgreSQL driver; import this fixture by name where it is used."""
    return build(name=POSTGRESQL)
