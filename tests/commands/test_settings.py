"""Settings: precedence of flags, environment variables and defaults, and errors in one line."""

import argparse
import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.settings import (
    MAX_SECRET,
    Settings,
    add_flags,
    by_demo,
    exposed_files,
    file_variable,
    is_secret,
    read_settings,
    shown_default,
    split_mailbox,
    variable,
)
from tests.support.paths import ROOT
from tests.support.server_process import environment

SETTINGS = dataclasses.fields(Settings)
VISIBLE = [setting for setting in SETTINGS if not setting.metadata.get("hidden")]
FLAGS = [one for one in SETTINGS if not one.metadata.get("secret") and one.metadata.get("read") is not by_demo]


def read(*arguments: str, **variables: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_settings(parser.parse_args(arguments), variables)


def other_value(setting: "dataclasses.Field[Any]", number: int) -> tuple[str, Any]:
    """A value other than the default, as text and as parsed."""
    if choices := setting.metadata.get("choices"):
        return choices[-number], choices[-number]
    if isinstance(setting.default, bool):
        return "true", True
    if isinstance(setting.default, int):
        return str(setting.default + number), setting.default + number
    if isinstance(setting.default, Path):
        return f"/tmp/{number}", Path(f"/tmp/{number}")
    if setting.name == "listen":
        return f"unix:/{number}", f"unix:/{number}"
    if setting.name == "socket_mode":
        return f"60{number}", f"60{number}"
    if setting.name == "accent":
        return f"#00000{number}", f"#00000{number}"
    if setting.name == "mcp":
        return f"n{number}=https://{number}.example", (f"n{number}=https://{number}.example",)
    if setting.name == "smtp":
        return f"smtp://{number}.example", f"smtp://{number}.example"
    if setting.name == "mail_from":
        return f"{number}@chat.example", f"{number}@chat.example"
    text = f"https://{number}.example"
    return text, (text,) if isinstance(setting.default, tuple) else text


@pytest.mark.parametrize("setting", FLAGS, ids=lambda setting: setting.name)
def test_flag_overrides_variable_overrides_default(setting: "dataclasses.Field[Any]") -> None:
    flag, name = f"--{setting.name.replace('_', '-')}", variable(setting.name)
    assert getattr(read(), setting.name) == setting.default
    text, value = other_value(setting, 1)
    assert getattr(read(**{name: text}), setting.name) == value
    if setting.type is bool:
        assert getattr(read(flag, **{name: "false"}), setting.name) is True
    else:
        text, by_flag = other_value(setting, 2)
        assert getattr(read(flag, text, **{name: other_value(setting, 1)[0]}), setting.name) == by_flag != value


def test_secret_has_no_flag_and_is_not_shown() -> None:
    assert read(CX_ASSISTANT_KEY="hush").assistant_key == "hush"
    assert "hush" not in repr(read(CX_ASSISTANT_KEY="hush"))
    with pytest.raises(SystemExit):
        read("--assistant-key", "hush")


class TestSecretFiles:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "secret"

    @pytest.mark.parametrize("setting", [setting for setting in SETTINGS if is_secret(setting)], ids=lambda s: s.name)
    def test_file_has_the_value_of_every_secret(self, setting: "dataclasses.Field[Any]", path: Path) -> None:
        path.write_text("hush\n")
        assert getattr(read(**{file_variable(setting.name): str(path)}), setting.name) == "hush"

    def test_setting_without_secret_has_no_file(self, path: Path) -> None:
        path.write_text("1")
        assert read(CX_PORT_FILE=str(path)) == Settings()

    def test_flag_overrides_the_file(self, path: Path) -> None:
        assert read("--database", "postgresql://h/db", CX_DATABASE_FILE=str(path)).database == "postgresql://h/db"

    def test_empty_name_of_a_file_is_ignored(self) -> None:
        assert read(CX_ASSISTANT_KEY_FILE="", CX_ASSISTANT_KEY="hush").assistant_key == "hush"

    @pytest.mark.parametrize(
        ("content", "value"), [(b"hush", "hush"), (b"hush\r\n", "hush"), (b" h \xc3\xbc ", " h \xfc ")]
    )
    def test_only_the_line_end_is_removed(self, content: bytes, value: str, path: Path) -> None:
        path.write_bytes(content)
        assert read(CX_ASSISTANT_KEY_FILE=str(path)).assistant_key == value

    @pytest.mark.parametrize(
        ("content", "error"),
        [
            (b"", "is empty"),
            (b"\n", "is empty"),
            (b"hush\n\n", "must have one line of text without control characters"),
            (b"hush\nhash", "must have one line of text without control characters"),
            (b"hush\0", "must have one line of text without control characters"),
            (b"hush\xff", "is not text in UTF-8"),
            (b"x" * (MAX_SECRET + 1), f"is longer than {MAX_SECRET} bytes"),
        ],
    )
    def test_invalid_content_is_an_error_that_does_not_show_it(self, content: bytes, error: str, path: Path) -> None:
        path.write_bytes(content)
        with pytest.raises(ValueError) as caught:
            read(CX_ASSISTANT_KEY_FILE=str(path))
        assert str(caught.value) == f"CX_ASSISTANT_KEY_FILE: {path} {error}"

    def test_file_that_cannot_be_read_is_an_error(self, tmp_path: Path) -> None:
        for path, reason in ((tmp_path / "missing", "No such file or directory"), (tmp_path, "Is a directory")):
            with pytest.raises(ValueError) as caught:
                read(CX_DATABASE_FILE=str(path))
            assert str(caught.value) == f"CX_DATABASE_FILE: cannot read {path}: {reason}"

    def test_variable_and_file_together_are_an_error(self, path: Path) -> None:
        path.write_text("hush")
        with pytest.raises(ValueError) as caught:
            read(CX_ASSISTANT_KEY_FILE=str(path), CX_ASSISTANT_KEY="hush")
        assert str(caught.value) == "CX_ASSISTANT_KEY and CX_ASSISTANT_KEY_FILE are both set: use one of them"

    def test_file_that_all_users_can_read_causes_a_warning(
        self, path: Path, start: Callable[..., "subprocess.CompletedProcess[bytes]"]
    ) -> None:
        path.write_text("hush")
        path.chmod(0o640)
        assert exposed_files({"CX_ASSISTANT_KEY_FILE": str(path)}) == []
        path.chmod(0o644)
        done = start("routes", CX_ASSISTANT_KEY_FILE=str(path))
        assert done.returncode == 0
        assert done.stderr.decode() == f"cx-service: warning: all users of this machine can read {path}\n"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_empty_variable_is_ignored(setting: "dataclasses.Field[Any]") -> None:
    assert read(**{variable(setting.name): ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("CX_PORT", "eighty", "CX_PORT must be a whole number, not 'eighty'"),
        ("CX_STORE_MAILS", "https://chat.example", "CX_STORE_MAILS must be unset: `serve --demo` sets it"),
        ("CX_THREADS", "1.5", "CX_THREADS must be a whole number, not '1.5'"),
        ("CX_DOCUMENTED_ONLY", "maybe", "CX_DOCUMENTED_ONLY must be true or false, not 'maybe'"),
        ("CX_LOG_LEVEL", "loud", "CX_LOG_LEVEL must be one of debug, info, warning, error, not 'loud'"),
    ],
)
def test_error_names_the_invalid_variable(name: str, text: str, error: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(**{name: text})
    assert str(caught.value) == error


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
def test_public_url_is_normalized_to_an_origin(text: str, value: str) -> None:
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
def test_public_url_that_is_no_origin_is_refused(text: str) -> None:
    expected = " must be http:// or https://, a host and maybe a port, such as https://chat.example, without path, "
    for name, arguments, variables in (
        ("--public-url", ["--public-url", text], {}),
        ("CX_PUBLIC_URL", [], {"CX_PUBLIC_URL": text}),
    ):
        with pytest.raises(ValueError) as caught:
            read(*arguments, **variables)
        assert str(caught.value) == f"{name}{expected}query and user"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ("127.0.0.1", 8080, "")),
        ("0.0.0.0:80", ("0.0.0.0", 80, "")),
        ("[::1]:65535", ("::1", 65535, "")),
        ("chat_backend:0", ("chat_backend", 0, "")),
        ("unix:/run/cx service/http.sock", ("", 0, "/run/cx service/http.sock")),
    ],
)
def test_listen_address_is_a_host_and_a_port_or_a_path(text: str, address: tuple[str, int, str]) -> None:
    assert read(CX_LISTEN=text).address == address


@pytest.mark.parametrize(
    "text", ["8080", ":8080", "a:65536", "::1:80", "unix:", "unix:x", "unix:@x", "http://a:1", "a:"]
)
def test_invalid_listen_address_is_an_error(text: str) -> None:
    with pytest.raises(
        ValueError, match="^--listen must be HOST:PORT, or unix: and the absolute path of a socket, such"
    ):
        read("--listen", text)


@pytest.mark.parametrize("text", ["rw", "66", "888", "0o660", "6660"])
def test_invalid_socket_mode_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="^--socket-mode must be three octal digits, such as 660$"):
        read("--socket-mode", text)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("YES", True), ("on", True), ("0", False), ("Off", False)])
def test_boolean_variable_accepts_common_words(text: str, value: bool) -> None:
    assert read(CX_DOCUMENTED_ONLY=text).documented_only is value


def test_several_origins_are_repeated_flags_or_words_of_one_variable() -> None:
    both = ("https://a.example", "https://b.example")
    assert read("--allow-origin", both[0], "--allow-origin", both[1]).allow_origin == both
    assert read(CX_ALLOW_ORIGIN=" ".join(both)).allow_origin == both


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_help_of_serve_shows_every_setting_with_its_variable_and_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from service import commands

    monkeypatch.setenv("COLUMNS", "10000")
    with pytest.raises(SystemExit):
        commands.run(["serve", "--help"])
    shown = capsys.readouterr().out
    for setting in SETTINGS:
        is_shown = f"[{variable(setting.name)}; {shown_default(setting)}]" in shown
        assert is_shown is (setting in VISIBLE and setting in FLAGS)


def test_documentation_lists_every_setting_with_its_default() -> None:
    rows = [line for line in (ROOT / "docs" / "configuration.md").read_text().splitlines() if line.startswith("|")]
    for setting in VISIBLE:
        described = [row for row in rows if f"`{variable(setting.name)}`" in row and shown_default(setting) in row]
        assert len(described) == 1, f"describe {variable(setting.name)} and its default in docs/configuration.md"


@pytest.fixture
def start() -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
        import sys

        line = [sys.executable, str(ROOT / "app.py"), *arguments]
        return subprocess.run(line, env=environment(**variables), capture_output=True, timeout=30)

    return run


def test_invalid_variable_is_one_line_and_status_1(
    start: Callable[..., "subprocess.CompletedProcess[bytes]"],
) -> None:
    done = start("routes", CX_PORT="eighty")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"cx-service: CX_PORT must be a whole number, not 'eighty'\n"


class TestMailSettings:
    @pytest.mark.parametrize(
        "url",
        [
            "smtps://mail.example",
            "smtp://localhost:25",
            "SMTP://bot@[::1]:2525/",
            "smtps://bot%40chat.example@mail.example:465",
            "smtps://bot@chat.example@mail.example",
        ],
    )
    def test_url_of_a_server(self, url: str) -> None:
        assert read("--smtp", url).smtp == url

    @pytest.mark.parametrize(
        "url",
        [
            "mail.example",
            "https://mail.example",
            "smtp://",
            "smtp://bot:hush@mail.example",
            "smtp://mail.example/path",
            "smtp://mail.example?a=1",
            "smtp://mail.example:0",
            "smtp://mail.example:65536",
            "smtp://[::1::]",
            "smtp://b\xfcro@mail.example",
            "smtp://mail.example\n",
        ],
    )
    def test_other_url_is_refused_without_being_shown(self, url: str) -> None:
        with pytest.raises(ValueError, match="^--smtp must be smtps:// or smtp://") as caught:
            read("--smtp", url)
        assert "hush" not in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("a@chat.example", ("", "a@chat.example")),
            ("<a@chat.example>", ("", "a@chat.example")),
            ("Shop, Nord <a+b@b\xfccher.example>", ("Shop, Nord", "a+b@b\xfccher.example")),
        ],
    )
    def test_sender_has_a_name_or_none(self, text: str, parts: tuple[str, str]) -> None:
        assert split_mailbox(read("--mail-from", text).mail_from) == parts

    @pytest.mark.parametrize(
        "text",
        ["chat.example", "a@", "Shop a@chat.example", "<a@b", "a@b>", "A <a@b> x", '"A" <a@b>', "A\n<a@b>", "a@b, c@d"],
    )
    def test_other_sender_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="^CX_MAIL_FROM must be an e-mail address, or a name and one"):
            read(CX_MAIL_FROM=text)
