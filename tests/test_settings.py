"""Settings: a flag beats a variable beats the default, and whatever cannot be read is one sentence."""

import argparse
import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings, add_flags, read_settings, shown_default, variable
from tests.serving import ROOT, environment

SETTINGS = dataclasses.fields(Settings)
VISIBLE = [setting for setting in SETTINGS if not setting.metadata.get("hidden")]
FLAGS = [setting for setting in SETTINGS if not setting.metadata.get("secret")]


def read(*arguments: str, **variables: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_settings(parser.parse_args(arguments), variables)


def another(setting: "dataclasses.Field[Any]", number: int) -> tuple[str, Any]:
    """Some value that is not the default, as text and as read."""
    if choices := setting.metadata.get("choices"):
        return choices[-number], choices[-number]
    if isinstance(setting.default, bool):
        return "true", True
    if isinstance(setting.default, int):
        return str(setting.default + number), setting.default + number
    if isinstance(setting.default, Path):
        return f"/tmp/{number}", Path(f"/tmp/{number}")
    text = f"https://{number}.example"
    return text, (text,) if isinstance(setting.default, tuple) else text


@pytest.mark.parametrize("setting", FLAGS, ids=lambda setting: setting.name)
def test_a_flag_beats_a_variable_beats_the_default(setting: "dataclasses.Field[Any]") -> None:
    flag, name = f"--{setting.name.replace('_', '-')}", variable(setting.name)
    assert getattr(read(), setting.name) == setting.default
    text, value = another(setting, 1)
    assert getattr(read(**{name: text}), setting.name) == value
    if setting.type is bool:
        assert getattr(read(flag, **{name: "false"}), setting.name) is True
    else:
        text, by_flag = another(setting, 2)
        assert getattr(read(flag, text, **{name: another(setting, 1)[0]}), setting.name) == by_flag != value


def test_a_secret_has_no_flag_and_is_not_shown() -> None:
    assert read(CX_ASSISTANT_KEY="hush").assistant_key == "hush"
    assert "hush" not in repr(read(CX_ASSISTANT_KEY="hush"))
    with pytest.raises(SystemExit):
        read("--assistant-key", "hush")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_an_empty_variable_is_no_variable(setting: "dataclasses.Field[Any]") -> None:
    assert read(**{variable(setting.name): ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("CX_PORT", "eighty", "CX_PORT must be a whole number, not 'eighty'"),
        ("CX_THREADS", "1.5", "CX_THREADS must be a whole number, not '1.5'"),
        ("CX_DOCUMENTED_ONLY", "maybe", "CX_DOCUMENTED_ONLY must be true or false, not 'maybe'"),
        ("CX_LOG_LEVEL", "loud", "CX_LOG_LEVEL must be one of debug, info, warning, error, not 'loud'"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as refusal:
        read(**{name: text})
    assert str(refusal.value) == complaint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("https://chat.example", "https://chat.example"),
        ("https://chat.example/", "https://chat.example"),
        ("HTTPS://Chat.Example:443", "https://chat.example"),
        ("http://chat_backend:80/", "http://chat_backend"),
        ("http://10.0.0.5:8080", "http://10.0.0.5:8080"),
        ("https://[2001:DB8::1]:8443/", "https://[2001:db8::1]:8443"),
    ],
)
def test_a_public_url_is_read_as_browsers_write_an_origin(text: str, value: str) -> None:
    assert read("--public-url", text).public_url == read(CX_PUBLIC_URL=text).public_url == value


@pytest.mark.parametrize(
    "text",
    [
        *("chat.example", "ftp://chat.example", "//chat.example", "https:chat.example", "https://", "https:///"),
        *("https://chat.example/sub", "https://chat.example//", "https://chat.example?", "https://chat.example/#"),
        *(
            "https://ada:hush@chat.example",
            "https://chat.example:",
            "https://chat.example:0",
            "https://a.example:65536",
        ),
        *(
            "https://chat .example",
            "https://chat.example\n",
            "https://[chat]",
            "https://[::g]",
            "https://a..",
            "https://é",
        ),
    ],
)
def test_a_public_url_with_more_or_less_than_a_site_is_refused(text: str) -> None:
    expected = " must be http:// or https://, a host and maybe a port, such as https://chat.example, without path, "
    for name, arguments, variables in (
        ("--public-url", ["--public-url", text], {}),
        ("CX_PUBLIC_URL", [], {"CX_PUBLIC_URL": text}),
    ):
        with pytest.raises(ValueError) as refusal:
            read(*arguments, **variables)
        assert str(refusal.value) == f"{name}{expected}query and user"


@pytest.mark.parametrize(("text", "value"), [("1", True), ("YES", True), ("on", True), ("0", False), ("Off", False)])
def test_a_switch_takes_the_usual_words(text: str, value: bool) -> None:
    assert read(CX_DOCUMENTED_ONLY=text).documented_only is value


def test_several_origins_are_flags_or_words_of_one_variable() -> None:
    both = ("https://a.example", "https://b.example")
    assert read("--allow-origin", both[0], "--allow-origin", both[1]).allow_origin == both
    assert read(CX_ALLOW_ORIGIN=" ".join(both)).allow_origin == both


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_the_help_of_serve_shows_every_setting_with_its_variable_and_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from service import commands

    monkeypatch.setenv("COLUMNS", "10000")
    with pytest.raises(SystemExit):
        commands.run(["serve", "--help"])
    shown = capsys.readouterr().out
    for setting in SETTINGS:
        is_visible = f"[{variable(setting.name)}; {shown_default(setting)}]" in shown
        assert is_visible is (setting in VISIBLE and setting in FLAGS)


def test_the_readme_lists_every_setting_with_its_default() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    for setting in VISIBLE:
        (row,) = [row for row in rows if f"`{variable(setting.name)}`" in row]
        assert shown_default(setting) in row


@pytest.fixture
def start() -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
        import sys

        line = [sys.executable, str(ROOT / "app.py"), *arguments]
        return subprocess.run(line, env=environment(**variables), capture_output=True, timeout=30)

    return run


def test_an_unreadable_variable_is_one_line_and_status_1(
    start: Callable[..., "subprocess.CompletedProcess[bytes]"],
) -> None:
    done = start("routes", CX_PORT="eighty")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"cx-service: CX_PORT must be a whole number, not 'eighty'\n"
