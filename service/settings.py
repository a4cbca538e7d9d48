"""Settings: each declared once, with its flag, its `CX_…` variable, its default and its sentence.

A flag beats a variable beats the default. Read once at the start and frozen. A secret has no flag, since everybody on
a host can read the command lines of its processes.
"""

import argparse
import dataclasses
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SITE = re.compile(
    r"(https?)://(?:\[([0-9a-f:.]+)]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)(?::([1-9][0-9]{0,4}))?/?", re.ASCII
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def site(text: str) -> str:
    """The address of a web site as browsers write an origin: no path, no default port, lower case.

    Raises ValueError with what was expected, but without the text: it may hold a password.
    """
    found = _SITE.fullmatch(text.lower())
    try:
        if not found or int(found[3] or 0) > 65535:
            raise ValueError
        if found[2]:
            ipaddress.IPv6Address(found[2])
    except ValueError:
        raise ValueError(
            "http:// or https://, a host and maybe a port, such as https://chat.example, without path, query and user"
        ) from None
    return text.lower().removesuffix("/").removesuffix(_DEFAULT_PORTS[found[1]])


def _setting(default: Any, about: str, **more: Any) -> Any:
    is_shown = not more.keys() & {"secret", "may_hold_password"}
    return dataclasses.field(default=default, repr=is_shown, metadata={"about": about, **more})


@dataclass(frozen=True)
class Settings:
    """What an operator can choose; `--name-with-dashes`, `CX_NAME_WITH_UNDERSCORES`."""

    data: Path = _setting(Path("cx-data"), "folder that holds service.db, which is the whole system")
    database: str = _setting(
        "", "postgresql:// address of a database, in place of the file in the data folder", may_hold_password=True
    )
    replica: str = _setting(
        "",
        "postgresql:// address of a streaming replica, which answers lists once it has caught up",
        may_hold_password=True,
    )
    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8080, "port to listen on")
    workers: int = _setting(1, "processes that serve requests")
    threads: int = _setting(4, "threads of each process for what takes long")
    public_url: str = _setting(
        "", "address under which clients reach the service, such as https://chat.example", read=site
    )
    trusted_proxy: str = _setting(
        "", "address or network of the reverse proxy whose X-Forwarded-For and X-Forwarded-Proto are believed"
    )
    documented_only: bool = _setting(False, "serve the documented operations only")
    allow_origin: tuple[str, ...] = _setting((), "web origin that may call from a browser; repeatable")
    access_minutes: int = _setting(60, "life of an access token")
    refresh_days: int = _setting(30, "life of a refresh token")
    login_failures: int = _setting(20, "failed logins for an account from one network in 15 minutes")
    login_failures_account: int = _setting(50, "failed logins for an account in an hour")
    login_failures_network: int = _setting(100, "failed logins from a network in 15 minutes")
    assistant_url: str = _setting(
        "", "address of an OpenAI-style API that answers for bots, such as https://ai.example/v1"
    )
    assistant_model: str = _setting("", "model that the assistant is asked for")
    assistant_key: str = _setting("", "key of the assistant", secret=True)
    log_level: str = _setting("info", "least urgent log lines to write", choices=("debug", "info", "warning", "error"))
    log_format: str = _setting("text", "form of log lines, for people or for programs", choices=("text", "json"))
    metrics_network: str = _setting("", "address or network that may read /metrics, in place of this host")
    verify_answers: bool = _setting(False, "check every answer against its declaration, for tests", hidden=True)


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Give a command the flags of some settings, or of all."""
    for setting in dataclasses.fields(Settings):
        if (names and setting.name not in names) or setting.metadata.get("secret"):
            continue
        about = f"{setting.metadata['about']} [{variable(setting.name)}; {shown_default(setting)}]"
        options: dict[str, Any] = {"default": None, "help": about.replace("%", "%%")}
        if setting.type is bool:
            options["action"] = "store_true"
        elif isinstance(setting.default, tuple):
            options |= {"action": "append", "metavar": "ORIGIN"}
        else:
            options |= {"type": setting.type, "choices": setting.metadata.get("choices")}
        if setting.metadata.get("hidden"):
            options["help"] = argparse.SUPPRESS
        parser.add_argument(flag_of(setting.name), **options)


def read_settings(flags: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this run. Raises ValueError with a sentence for a flag or variable that cannot be read."""
    chosen: dict[str, Any] = {}
    for setting in dataclasses.fields(Settings):
        flag = getattr(flags, setting.name, None)
        text = environ.get(variable(setting.name), "")
        if flag is not None:
            chosen[setting.name] = tuple(flag) if isinstance(flag, list) else flag
        elif text:
            chosen[setting.name] = _read(setting, text)
        read = setting.metadata.get("read")
        if read and chosen.get(setting.name):
            name = variable(setting.name) if flag is None else flag_of(setting.name)
            try:
                chosen[setting.name] = read(chosen[setting.name])
            except ValueError as error:
                raise ValueError(f"{name} must be {error}") from None
    return Settings(**chosen)


def flag_of(name: str) -> str:
    """The flag of a setting."""
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"CX_{name.upper()}"


def shown_default(setting: "dataclasses.Field[Any]") -> str:
    """The default as people read it."""
    return {"": "unset", "()": "none", "False": "off"}.get(str(setting.default), str(setting.default))


def _read(setting: "dataclasses.Field[Any]", text: str) -> Any:
    name = variable(setting.name)
    if setting.type is bool:
        if text.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            raise ValueError(f"{name} must be true or false, not {text!r}")
        return text.lower() in ("1", "true", "yes", "on")
    if isinstance(setting.default, tuple):
        return tuple(text.split())
    choices = setting.metadata.get("choices")
    if choices and text not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {text!r}")
    try:
        return setting.type(text)  # type: ignore[operator]
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None
