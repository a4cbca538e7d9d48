"""Untrusted texts in logs and on terminals: they cannot forge lines or control the terminal."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.commands import run
from service.escape import clean, escape
from service.logs import TextFormatter
from service.models import User
from service.settings import Settings
from tests.support.installation import flags_of
from tests.support.passwords import PASSWORD_HASH

pytestmark = pytest.mark.database


FORGED = "\n2026-11-20 10:00:00,000 INFO cx.requests GET /admin 200 0.1ms forged"
TRICKS = {
    "newline": FORGED,
    "carriage return": f"x\r{FORGED}",
    "other ends of lines": f"\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029{FORGED[1:]}",
    "escapes": "\x1b[2J\x1b]0;title\x07\x9b31m\x90\x9d0;x\x9c",
    "backspaces": "secret\b\b\b\b\b\b\x7f",
    "turned": "\u202egnp.exe\u2066\u200f\u061c",
    "not to be seen": "a\u200bb\u00adc\ufeffd\U000e0041e",
    "half a letter": "\ud800",
    "NUL": "a\0b",
}
tricks = pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)


def is_tame(line: str) -> bool:
    """Whether a line has no effect on a terminal but its text."""
    return line.replace("\u3000", " ").isprintable()


def record(text: str, *arguments: Any, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("cx.requests", logging.ERROR, __file__, 1, text, arguments, exc_info)


@tricks
def test_a_text_is_displayed_in_one_line(trick: str) -> None:
    shown = clean(f"Grüße 👋 {trick} 好")
    assert is_tame(shown)
    assert shown.startswith("Grüße 👋 ") and shown.endswith(" 好")
    assert len(shown.splitlines()) == 1


@tricks
def test_escaped_json_keeps_its_meaning_in_one_line(trick: str) -> None:
    value = {f"Grüße 👋 {trick}": [trick, 5, None, "好"]}
    shown = escape(json.dumps(value, ensure_ascii=False))
    assert is_tame(shown) and "Grüße 👋" in shown and "好" in shown
    assert json.loads(shown) == value


@tricks
def test_a_log_line_cannot_be_forged(trick: str) -> None:
    line = TextFormatter().format(record("before %s after", trick))
    assert " ERROR cx.requests before " in line and line.endswith(" after")
    assert is_tame(line)


@tricks
def test_a_traceback_cannot_forge_a_log_line(trick: str) -> None:
    try:
        raise RuntimeError(trick) from KeyError(trick)
    except RuntimeError as error:
        lines = TextFormatter().format(record("request %s failed", "id", error=error)).split("\n")
    assert lines[0].endswith(" ERROR cx.requests request id failed")
    assert any("Traceback" in line for line in lines)
    assert all(line.startswith("    ") for line in lines[1:])
    assert all(map(is_tame, lines))


@pytest.mark.parametrize(
    "make",
    [
        lambda text: {text: {}},
        lambda text: {"user": {"email": "a@example.com", text: 1}},
        lambda text: {"bot": {"name": "Hilda", "app_id": text}},
        lambda text: {"bot": {"name": "Hilda", "kind": text}},
        lambda text: {"user": {"email": "a@example.com", "timezone": text}},
        lambda text: {"event": {"title": "Tea", "starts_at": text, "user_id": text}},
    ],
    ids=["kind", "member", "reference", "word", "time zone", "moment"],
)
def test_an_import_error_takes_one_line(
    make: Callable[[str], Any], application: Any, settings: Settings, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text("".join(f"{json.dumps(make(trick))}\n" for trick in TRICKS.values()))
    assert run(["import", str(file), *flags_of(settings)]) == 1
    *faults, last = capsys.readouterr().err.split("\n")[:-1]
    assert last == "nothing was imported"
    assert [fault.split(": ")[0] for fault in faults] == [f"{file}:{number + 1}" for number in range(len(TRICKS))]
    assert all(map(is_tame, faults))


def test_a_list_of_users_has_a_line_for_each(application: Any, settings: Settings, capsys: Any) -> None:
    emails = [
        f"a{trick}@{name[:4].strip()}.example" for name, trick in TRICKS.items() if name not in ("half a letter", "NUL")
    ]
    for email in emails:  # written before addresses were checked
        User.create(email=email, password_hash=PASSWORD_HASH)
    assert run(["user", "list", *flags_of(settings)]) == 0
    lines = capsys.readouterr().out.split("\n")[:-1]
    assert len(lines) == len(emails) == User.select().count()
    assert all(map(is_tame, lines))


@pytest.mark.parametrize("line", [["user", "disable"], ["user", "add"], ["purge", "--user"], ["purge", "--session"]])
def test_an_error_message_takes_one_line(line: list[str], application: Any, settings: Settings, capsys: Any) -> None:
    for trick in TRICKS.values():
        assert run([*line, trick, *flags_of(settings)]) == 1
        printed = capsys.readouterr().err.removesuffix("\n")
        assert printed.startswith("cx-service: ") and is_tame(printed)
