"""`completion` and `man`: real shells complete every command and flag, and the manual page has all of them."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from service import commands
from service.commands.manual import Command, all_commands, flags_of
from service.settings import Settings, variable
from tests.support.cluster import find

COMMANDS = list(all_commands())


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return what a command print."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        assert commands.run(list(arguments)) == 0
        return str(capsys.readouterr().out)

    return run


def output(*line: str) -> str:
    """Run a program that must succeed without errors. Returns its output."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def complete_bash(script: Path, *lines: tuple[str, ...], shell: str = "bash") -> list[set[str]]:
    """The completions of the last word of each line, by the function of the script."""
    calls = [
        f"COMP_WORDS=({' '.join(map(shlex.quote, line))}); COMP_CWORD={len(line) - 1}; _cx_service;"
        ' echo "${COMPREPLY[@]}"'
        for line in lines
    ]
    before = "autoload -U compinit && compinit -u -D; " if shell == "zsh" else ""
    after = "setopt ksharrays shwordsplit; " if shell == "zsh" else ""
    options = "-fc" if shell == "zsh" else "-c"
    found = output(find(shell, shell), options, f"{before}. {script}; {after}{'; '.join(calls)}").splitlines()
    words = [set(offered.split()) for offered in found]
    if shell == "bash":
        return words
    # zsh offers those of the words that begin with the last one.
    return [{word for word in each if word.startswith(line[-1])} for each, line in zip(words, lines, strict=True)]


def expected_words(command: Command) -> set[str]:
    return {*command.actions, *(name for flag in flags_of(command) for name in flag.option_strings)}


@pytest.fixture(params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def script(shell: str, printed: Callable[..., str], tmp_path: Path) -> Path:
    (tmp_path / "script").write_text(printed("completion", shell))
    return tmp_path / "script"


def test_every_command_and_flag_is_completed(shell: str, script: Path) -> None:
    found = complete_bash(script, *(("cx-service", *command.words, "") for command in COMMANDS), shell=shell)
    assert len(found) == len(COMMANDS) > len(commands.COMMANDS)
    for command, words in zip(COMMANDS, found, strict=True):
        assert words >= expected_words(command), command.words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cx-service heal", {"healthcheck"}),
        ("cx-service user pass", {"password"}),
        ("cx-service --version se", {"serve"}),
        ("cx-service serve --log-level w", {"warning"}),
        ("cx-service serve --port 80 --public", {"--public-url"}),
        ("cx-service user add --role ag", {"agent"}),
        ("cx-service completion f", {"fish"}),
        ("cx-service serve --data x", set[str]()),  # then the shell completes file names
        ("cx-service nothing-like-this x", set[str]()),
    ],
)
def test_word_is_completed(shell: str, script: Path, line: str, words: set[str]) -> None:
    assert complete_bash(script, tuple(line.split()), shell=shell) == [words]


def test_bash_and_zsh_use_the_function_for_both_names(shell: str, script: Path) -> None:
    if shell == "bash":
        shown = output(find("bash", "bash"), "-c", f". {script}; complete -p cx-service cx-service.pyz")
        assert shown.count("-o default -F _cx_service") == 2
    else:
        test = 'print -r -- "$_comps[cx-service]|$_comps[cx-service.pyz]"'
        shown = output(find("zsh", "zsh"), "-fc", f"autoload -U compinit && compinit -u -D; . {script}; {test}")
        assert shown.count("_cx_service") == 2


def test_fish_completes_commands_flags_and_values(printed: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(printed("completion", "fish"))

    def complete(line: str) -> set[str]:
        code = f"source {tmp_path / 'script'}; complete -C {shlex.quote(line)}"
        found = output("env", f"HOME={tmp_path}", find("fish", "fish"), "--no-config", "-c", code)
        return {row.partition("\t")[0] for row in found.splitlines()}

    assert complete("cx-service ") >= set(commands.COMMANDS)
    assert complete("cx-service user ") >= {"add", "list", "password"}
    assert complete("cx-service user add --") >= {"--role", "--first-name", "--app", "--data"}
    assert complete("cx-service serve --log-level ") == {"debug", "info", "warning", "error"}
    assert complete("cx-service.pyz completion ") >= {"bash", "zsh", "fish"}
    assert "--first-name" not in complete("cx-service user list --")


def test_manual_page_has_no_errors_and_every_flag(printed: Callable[..., str], tmp_path: Path) -> None:
    page = printed("man")
    (tmp_path / "page").write_text(page)
    text = output(find("groff", "groff"), "-man", "-ww", "-Tascii", "-P-cbou", "-rLL=1000n", str(tmp_path / "page"))
    for command in COMMANDS:
        assert "cx-service " + " ".join(command.words) in text
        for flag in flags_of(command):
            assert ", ".join(flag.option_strings) in text
    for setting in Settings.__dataclass_fields__.values():
        assert (variable(setting.name) in text) is not bool(setting.metadata.get("hidden"))
    assert "CX_ASSISTANT_KEY, CX_ASSISTANT_KEY_FILE" in text


def test_manual_page_has_no_requests_from_texts(printed: Callable[..., str]) -> None:
    requests = {line.partition(" ")[0] for line in printed("man").splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I", ".RI"}


def test_unknown_shell_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        commands.run(["completion", "tcsh"])
    assert caught.value.code == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
