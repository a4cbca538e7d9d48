"""The short forms of the long trials (`make torture`): what docs/reliability.md promises, tried a few times."""

import importlib
import os
from importlib.util import find_spec

import pytest

from tests.postgres import on_sqlite_alone
from tests.torture import PARTS, UNTRIED

pytestmark = [pytest.mark.slow, on_sqlite_alone]


@pytest.mark.parametrize("part", [part for part in PARTS if find_spec(f"tests.torture.{part}")])
def test_what_is_promised_holds_in_a_short_trial(part: str) -> None:
    figures = list(importlib.import_module(f"tests.torture.{part}").run(True))
    assert figures
    untried = [f"{figure.seen.removeprefix(UNTRIED)} ({figure.claim})" for figure in figures if UNTRIED in figure.seen]
    if untried:
        told = f"{UNTRIED}{'; '.join(untried)}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(told)
