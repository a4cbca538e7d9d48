"""`config`: shows the settings and their sources."""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from typing import NamedTuple

from service.commands import add_actions
from service.escape import clean, escape
from service.settings import Settings, SettingValue, Source, find_settings, shown_value

EPILOG = "Pass the settings of `serve`, as flags or environment variables."


class ShownSetting(NamedTuple):
    """A setting without secrets, the kind of its source, and the flag, variable or file that it comes from."""

    name: str
    value: SettingValue
    source: Source
    source_name: str


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    show = add_actions(parser, *(setting.name for setting in dataclasses.fields(Settings)))
    action = show("show", "show every setting and its source; secrets are hidden", show_settings)
    action.add_argument("--json", action="store_true", help="print JSON")
    action.epilog = EPILOG


def show_settings(flags: argparse.Namespace, _: Settings) -> None:
    """Print one line per setting, or JSON."""
    shown = list(all_settings(flags))
    if flags.json:
        print(escape(json.dumps([setting._asdict() for setting in shown], default=str, ensure_ascii=False)))
        return
    rows = [(name, text_of(value), f"{source} {origin}".rstrip()) for name, value, source, origin in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def all_settings(flags: argparse.Namespace) -> Iterator[ShownSetting]:
    """Yield the settings of this run; those that only tests use if they are set."""
    found = find_settings(flags)
    for setting in dataclasses.fields(Settings):
        value, source, name = found[setting.name]
        if source != "default" or not setting.metadata.get("hidden"):
            yield ShownSetting(setting.name, shown_value(setting, value), source, name)


def text_of(value: SettingValue) -> str:
    """Return a value as text; `-` if it is empty, `on` or `off` for a boolean."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return clean(" ".join(value) if isinstance(value, tuple) else str(value)) or "-"
