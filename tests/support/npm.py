"""Programs of the npm registry."""

import shutil
import subprocess
from pathlib import Path

from tests.support.cluster import find

OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund")


def install(sources: Path, folder: Path) -> Path:
    """Copy the sources to a new folder, and install what their lock file names. Returns the folder."""
    npm = find("npm", "npm")
    shutil.copytree(sources, folder)
    subprocess.run([npm, "ci", *OPTIONS], cwd=folder, check=True, capture_output=True, timeout=300)
    return folder
