"""The process of a command: closed, full and broken standard streams, and interrupts, in bare environments."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import interrupts
from tests.support.paths import ROOT
from tests.support.server_process import INTERRUPTING, PROGRAM, chat, database_variables, fill

pytestmark = [pytest.mark.slow, pytest.mark.database]


DATA = "DATA"  # in a command line: the data folder
COMMANDS = {
    "routes": ("routes",),
    "openapi": ("openapi",),
    "help": ("--help",),
    "help of a command": ("serve", "--help"),
    "export": ("export", "--data", DATA),
    "user list": ("user", "list", "--data", DATA),
    "audit list": ("audit", "list", "--data", DATA),
    "audit verify": ("audit", "verify", "--data", DATA),
    "migrate": ("migrate", "--data", DATA),
    "backup": ("backup", "-", "--data", DATA),
    "doctor": ("doctor", "--data", DATA),
    "demo": ("serve", "--demo", "--port", "0", "--data", DATA),
}
every_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def environment(request: pytest.FixtureRequest, data: Path) -> dict[str, str]:
    """A minimal environment, with and without PYTHONUNBUFFERED."""
    variables = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **database_variables(data)}
    return variables | ({"PYTHONUNBUFFERED": request.param} if request.param else {})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "data"
    fill(folder, chat())
    return folder


@pytest.fixture
def data(filled: Path) -> Path:
    return filled


def command_line(command: tuple[str, ...], data: Path) -> list[str]:
    return [*PROGRAM, *(str(data) if word == DATA else word for word in command)]


def failures(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """The exit status of a command, and its standard error without the log."""
    lines = process.communicate(timeout=60)[1].decode().splitlines(keepends=True)
    return process.returncode, "".join(line for line in lines if " INFO " not in line and " WARNING " not in line)


@every_command
def test_full_output_is_one_line_and_status_1(
    command: tuple[str, ...], data: Path, environment: dict[str, str]
) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(command_line(command, data), stdout=full, stderr=subprocess.PIPE, env=environment)
    status, errors = failures(process)
    assert status == 1
    assert re.fullmatch(r"(\d[^\n]+\n)?cx-service: [^\n]*No space left on device\n", errors), errors


@every_command
def test_closed_pipe_ends_silently(command: tuple[str, ...], data: Path, environment: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(command_line(command, data), stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    assert failures(process) == (1, "")


@pytest.mark.parametrize("closed", [">&-", ">&- <&-"])
def test_closed_output_is_one_line_and_status_1(closed: str, environment: dict[str, str]) -> None:
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, "routes"]
    process = subprocess.Popen(shell, stderr=subprocess.PIPE, env=environment)
    assert failures(process) == (1, "cx-service: cannot write standard output: Bad file descriptor\n")


def test_closed_input_and_error_streams_change_nothing(environment: dict[str, str]) -> None:
    shell = ["sh", "-c", 'exec "$@" 2>&- <&-', "sh", *PROGRAM, "routes"]
    done = subprocess.run(shell, stdout=subprocess.PIPE, env=environment, timeout=60)
    assert done.returncode == 0
    assert b"/api/v1/auth/login" in done.stdout


def test_status_of_a_failure_without_standard_error(data: Path, environment: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command_line(("user", "disable", "missing@example.com", "--data", DATA), data), stderr=full, env=environment
        )
    assert done.returncode == 1


# Interrupts.


@pytest.mark.parametrize(
    "module", ["service.process", "service.commands", "argparse", "service.commands.serve", "service.db", "peewee"]
)
def test_interrupt_during_imports_is_status_130_and_silent(
    module: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    variables = environment | {"PYTHONPATH": str(tmp_path), "INTERRUPT_AT": module}
    done = subprocess.run([*PROGRAM, "serve", "--help"], env=variables, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_interrupt_of_a_running_command_raises_an_error() -> None:
    before = signal.signal(signal.SIGINT, lambda *_: None)  # such as the handler that the executable installs first
    try:
        interrupts.exit_at_once()
        assert not interrupts.raises_error()
        interrupts.raise_error()
        assert interrupts.raises_error()
    finally:
        signal.signal(signal.SIGINT, before)


def on_a_terminal(data: Path, environment: dict[str, str], *keys: bytes) -> tuple[int, str]:
    """Add a user from a terminal, with a key for each prompt. Returns the exit status and the output."""
    command = command_line(("user", "add", "bob@example.com", "--data", DATA), data)
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, command, environment)
    return _type(process, terminal, list(zip((b"Password: ", b"Password again: "), keys, strict=False)))


def _type(process: int, terminal: int, prompts: list[tuple[bytes, bytes]]) -> tuple[int, str]:
    shown, key = b"", b""
    for chunk in _chunks(terminal):
        shown += chunk
        if prompts and prompts[0][0] in shown:
            key = prompts.pop(0)[1]
            os.write(terminal, key)
        elif not chunk:
            os.write(terminal, key)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.decode()


def _chunks(terminal: int) -> Iterator[bytes]:
    """The output of a terminal, in pieces; an empty one after seconds of silence.

    An interrupt is not noticed if it arrives just before Python begins to wait for input: the key is pressed again.
    """
    try:
        while True:
            readable, _, _ = select.select([terminal], [], [], 10)
            chunk = os.read(terminal, 1000) if readable else b""
            if readable and not chunk:
                return
            yield chunk
    except OSError:  # the terminal was closed
        return


@pytest.mark.parametrize("keys", [(b"\x04",), (b"secret\n", b"\x04")], ids=["first", "second"])
def test_end_of_input_at_a_password_prompt_is_one_line(
    keys: tuple[bytes, ...], data: Path, environment: dict[str, str]
) -> None:
    status, shown = on_a_terminal(data, environment, *keys)
    assert status == 1
    assert re.fullmatch(r"Password: (\r\nPassword again: )?\r\ncx-service: no password was entered\r\n", shown), shown


@pytest.mark.parametrize("keys", [(b"\x03",), (b"secret\n", b"\x03")], ids=["first", "second"])
def test_interrupt_at_a_password_prompt_is_status_130_without_a_traceback(
    keys: tuple[bytes, ...], data: Path, environment: dict[str, str]
) -> None:
    status, shown = on_a_terminal(data, environment, *keys)
    assert status == 130
    assert re.fullmatch(r"Password: (\r\nPassword again: )?(\^C)?(\r\n)?", shown), shown


def test_ignored_interrupt_stays_ignored(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    variables = environment | {"PYTHONPATH": str(tmp_path), "INTERRUPT_AT": "peewee"}
    shell = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *PROGRAM, "routes"]
    done = subprocess.run(shell, env=variables, capture_output=True, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, b"")
