"""Compiles the catalogues of the pages when a wheel is built. All metadata is in setup.cfg."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))

from service import translation  # noqa: E402


class BuildWithCatalogues(build_py):
    """Builds the package, and compiles the catalogues into it."""

    def run(self) -> None:
        super().run()
        target = Path(self.build_lib, "service", "translation")
        for catalogue in sorted(translation.FOLDER.glob("*.po")):
            (target / f"{catalogue.stem}.mo").write_bytes(translation.compile_catalogue(catalogue.stem))


setup(cmdclass={"build_py": BuildWithCatalogues})
