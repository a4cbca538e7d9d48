"""`config show`: the value and the source of every setting, without secrets."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from service import commands
from service.settings import HIDDEN, Settings
from tests.support.command_line import Outcome


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run `config show` with flags and variables."""

    def run(*flags: str, **variables: str) -> Outcome:
        for setting in dataclasses.fields(Settings):
            monkeypatch.delenv(f"CX_{setting.name.upper()}", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        return Outcome(commands.run(["config", "show", *flags]), *capsys.readouterr())

    return run


def test_every_setting_has_its_value_and_its_source(show: Callable[..., Outcome], tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("hush")
    outcome = show("--json", "--port", "9", CX_WORKERS="3", CX_ALLOW_ORIGIN="http://a", CX_ASSISTANT_KEY_FILE=str(path))
    assert (outcome.status, outcome.errors) == (0, "")
    rows = {row["name"]: (row["value"], row["source"], row["source_name"]) for row in json.loads(outcome.output)}
    assert rows.keys() == {field.name for field in dataclasses.fields(Settings)} - {
        *("demo_questions", "store_mails", "verify_answers")
    }
    assert rows["data"] == ("cx-data", "default", "")
    assert rows["port"] == (9, "flag", "--port")
    assert rows["workers"] == (3, "variable", "CX_WORKERS")
    assert rows["allow_origin"] == (["http://a"], "variable", "CX_ALLOW_ORIGIN")
    assert rows["assistant_key"] == (HIDDEN, "file", str(path))
    assert rows["documented_only"] == (False, "default", "")


def test_text_has_one_line_per_setting(show: Callable[..., Outcome]) -> None:
    lines = [line.split() for line in show("--documented-only", CX_DATA="/a\nb").output.splitlines()]
    assert ["documented_only", "on", "flag", "--documented-only"] in lines
    assert ["data", "/a", "b", "variable", "CX_DATA"] in lines
    assert ["database", "-", "default"] in lines
    assert len(lines) == len([field for field in dataclasses.fields(Settings) if not field.metadata.get("hidden")])


def test_value_is_shown_as_it_is_used(show: Callable[..., Outcome]) -> None:
    assert "https://chat.example  variable CX_PUBLIC_URL" in show(CX_PUBLIC_URL="https://Chat.Example:443/").output


def test_setting_of_tests_is_shown_if_it_is_set(show: Callable[..., Outcome]) -> None:
    assert "verify_answers" in show(CX_VERIFY_ANSWERS="1").output


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/db", "postgresql://h/db"),
        ("postgresql://cx@h:5432,i/db", "postgresql://cx@h:5432,i/db"),
        ("postgresql://cx:hush%40@h/db", f"postgresql://cx:{HIDDEN}@h/db"),
        ("postgresql://:hush@h/db", f"postgresql://:{HIDDEN}@h/db"),
        ("postgresql://cx@h/db?password=hush", f"postgresql://cx@h/db?{HIDDEN}"),
        ("postgresql://cx:hu/sh@h/db", HIDDEN),
        ("postgresql://cx:hu@sh@h/db", HIDDEN),
        ("postgresql://cx:hu?sh@h/db", HIDDEN),
        ("postgresql://cx:hu#sh@h/db", HIDDEN),
        ("hush", HIDDEN),
    ],
)
def test_secrets_are_hidden(show: Callable[..., Outcome], url: str, shown: str) -> None:
    outcome = show("--json", CX_DATABASE=url, CX_REPLICA=url, CX_ASSISTANT_KEY="hush")
    rows = {row["name"]: row["value"] for row in json.loads(outcome.output)}
    assert (rows["database"], rows["replica"], rows["assistant_key"]) == (shown, shown, HIDDEN)
    assert "hush" not in outcome.output + show(CX_DATABASE=url, CX_ASSISTANT_KEY="hush").output


def test_invalid_setting_is_an_error(show: Callable[..., Outcome]) -> None:
    outcome = show(CX_PORT="x")
    assert (outcome.status, outcome.output, outcome.errors) == (
        1,
        "",
        "cx-service: CX_PORT must be a whole number, not 'x'\n",
    )
