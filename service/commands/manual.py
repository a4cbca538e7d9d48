"""`completion` and `man`: the completion of a shell and the manual page, from the parsers of the command line."""

import argparse
import dataclasses
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from service.commands import COMMANDS, make_parser
from service.settings import Settings, file_variable, is_secret, shown_default, variable
from service.version import VERSION

PROGRAMS = ("cx-service", "cx-service.pyz")

BASH = """\
# Completion of cx-service {version} for {shell}.
_cx_service() {{
    local command='' i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$command ${{COMP_WORDS[i]}}" in
            {commands}) command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$command ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
    esac
    case "$command" in
{words}
    esac
}}
complete -o default -F _cx_service {programs}
"""
ZSH = "#compdef {programs}\nautoload -U +X bashcompinit && bashcompinit\n"


class Command(NamedTuple):
    """A command, or an action of a command."""

    words: tuple[str, ...]  # its names; none for the program itself
    parser: argparse.ArgumentParser
    summary: str
    actions: dict[str, str]  # the names and summaries of the commands below it


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "completion":
        parser.add_argument("shell", choices=("bash", "zsh", "fish"))
        parser.epilog = 'Example: eval "$(cx-service completion bash)" in ~/.bashrc.'
    parser.set_defaults(run=print_completion if name == "completion" else print_manual)


def print_completion(flags: argparse.Namespace, _: Settings) -> None:
    """Print the completion script of a shell."""
    commands = list(all_commands())
    if flags.shell == "fish":
        print("\n".join(fish_lines(commands)))
        return
    programs = " ".join(PROGRAMS)
    print((ZSH.format(programs=programs) if flags.shell == "zsh" else "") + bash_script(commands, flags.shell), end="")


def print_manual(_: argparse.Namespace, __: Settings) -> None:
    """Print the manual page in troff."""
    print("\n".join(manual_lines(list(all_commands()))))


def all_commands() -> Iterator[Command]:
    """Yield the program, its commands and their actions."""
    yield from _commands((), make_parser(*COMMANDS), "")


def _commands(words: tuple[str, ...], parser: argparse.ArgumentParser, summary: str) -> Iterator[Command]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    summaries = {choice.dest: choice.help or "" for action in below for choice in action._choices_actions}
    yield Command(words, parser, summary, summaries)
    for action in below:
        for name, found in action.choices.items():
            yield from _commands((*words, name), found, summaries[name])


def flags_of(command: Command) -> list[argparse.Action]:
    """Return the flags of a command that its help shows."""
    return [each for each in command.parser._actions if each.option_strings and each.help != argparse.SUPPRESS]


def positional_choices(command: Command) -> list[str]:
    """Return the words that a command accepts as its arguments."""
    return [
        str(choice)
        for each in command.parser._actions
        if not each.option_strings and each.choices and not isinstance(each, argparse._SubParsersAction)
        for choice in each.choices
    ]


def bash_script(commands: Iterable[Command], shell: str) -> str:
    """Return the completion script for bash."""
    names, values, words = [], [], []
    for command in commands:
        path = " ".join(command.words)
        names += [_pattern(f"{path} {action}") for action in command.actions]
        offered = [*command.actions, *positional_choices(command)]
        for flag in flags_of(command):
            offered += flag.option_strings
            if flag.nargs != 0:  # without choices, the shell completes the name of a file
                choices = " ".join(map(str, flag.choices or ()))
                pattern = "|".join(_pattern(f"{path} {option}") for option in flag.option_strings)
                values.append(f"        {pattern}) {_offer(choices) if choices else ''}return ;;")
        words.append(f"        {_pattern(path)}) {_offer(' '.join(offered))};;")
    return BASH.format(
        version=VERSION,
        shell=shell,
        commands=" | ".join(names),
        values="\n".join(values),
        words="\n".join(words),
        programs=" ".join(PROGRAMS),
    )


def _pattern(text: str) -> str:
    return f"'{text}'"


def _offer(words: str) -> str:
    return f'COMPREPLY=($(compgen -W {shlex.quote(words)} -- "${{COMP_WORDS[COMP_CWORD]}}")); '


def fish_lines(commands: Iterable[Command]) -> Iterator[str]:
    """Yield the lines of the completion script for fish."""
    yield f"# Completion of cx-service {VERSION} for fish."
    for command in commands:
        seen = [f"__fish_seen_subcommand_from {word}" for word in command.words]
        none = f"not __fish_seen_subcommand_from {' '.join(command.actions)}" if command.actions else ""
        condition = "; and ".join(filter(None, [*seen, none]))
        for program in PROGRAMS:
            begin = f"complete -c {program}" + (f" -n {_fish(condition)}" if condition else "")
            for name, summary in command.actions.items():
                yield f"{begin} -f -a {name} -d {_fish(summary)}"
            if choices := positional_choices(command):
                yield f"{begin} -f -a {_fish(' '.join(choices))}"
            for flag in flags_of(command):
                names = " ".join(map(_fish_flag, flag.option_strings))
                value = "" if flag.nargs == 0 else " -r"
                choices = list(map(str, flag.choices or ()))
                offered = f" -f -a {_fish(' '.join(choices))}" if choices else ""
                yield f"{begin} {names}{value}{offered} -d {_fish(_help(flag))}"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_flag(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _help(flag: argparse.Action) -> str:
    return (flag.help or "").replace("%%", "%")


def manual_lines(commands: list[Command]) -> Iterator[str]:
    """Yield the lines of the manual page (man(7))."""
    program, *others = commands
    yield f'.TH CX\\-SERVICE 1 "" "cx\\-service {_troff(VERSION)}" "User Commands"'
    yield from (".SH NAME", f"cx\\-service \\- {_troff('a self-hosted chat backend in one file')}")
    yield from (".SH SYNOPSIS", ".B cx\\-service", ".I COMMAND", ".RI [ OPTION \\|.\\|.\\|.]")
    yield from (".SH OPTIONS", *_flag_lines(program), ".SH COMMANDS")
    for command in others:
        if command.actions:
            continue
        yield f'.SS "cx\\-service {_troff(" ".join(command.words))}"'
        yield _troff(f"{command.summary[:1].upper()}{command.summary[1:]}.")
        yield from (".PP", f".B {_troff(_usage(command))}", *_flag_lines(command))
    yield from (".SH ENVIRONMENT", "A flag takes precedence over a variable, and a variable over the default.")
    for setting in dataclasses.fields(Settings):
        if not setting.metadata.get("hidden"):
            names = [variable(setting.name)] + [file_variable(setting.name)] * is_secret(setting)
            text = f"{setting.metadata['help']} [{shown_default(setting)}]"
            yield from (".TP", f".B {_troff(', '.join(names))}", _troff(text))
    yield from (".SH EXIT STATUS", "0 after success, 1 after an error, 2 for an invalid command line.")


def _usage(command: Command) -> str:
    formatter = command.parser._get_formatter()
    positionals = [each for each in command.parser._actions if not each.option_strings]
    shown = [formatter._format_args(each, str(each.metavar or each.dest)) for each in positionals]
    return " ".join(("cx-service", *command.words, "[OPTION ...]", *shown))


def _flag_lines(command: Command) -> Iterator[str]:
    for flag in flags_of(command):
        value = "" if flag.nargs == 0 else f" {flag.metavar or flag.dest.upper()}"
        yield from (".TP", f".B {_troff(', '.join(flag.option_strings) + value)}", _troff(_help(flag)))


def _troff(text: str) -> str:
    """Return a line of text, in which troff reads no request and no escape."""
    escaped = re.sub(r"\s+", " ", text).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
