"""The short forms of the long tests (`make torture`) of the guarantees in docs/reliability.md."""

import importlib
import os
from importlib.util import find_spec

import pytest

from tests.torture import NOT_TESTED, PARTS

pytestmark = [pytest.mark.extended, pytest.mark.database, pytest.mark.sqlite_only]


@pytest.mark.parametrize("part", [part for part in PARTS if find_spec(f"tests.torture.{part}")])
def test_guarantees_hold_in_the_short_form(part: str) -> None:
    figures = list(importlib.import_module(f"tests.torture.{part}").run(True))
    assert figures
    not_tested = [
        f"{figure.result.removeprefix(NOT_TESTED)} ({figure.claim})"
        for figure in figures
        if NOT_TESTED in figure.result
    ]
    if not_tested:
        reason = f"{NOT_TESTED}{'; '.join(not_tested)}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
