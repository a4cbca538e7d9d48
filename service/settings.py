"""Settings. Each is declared once; its flag, its `CX_…` variable, its default and its help are derived from that.

A flag takes precedence over a variable, and a variable over the default. Settings are read once at the start and are
immutable. A secret has no flag, because all users of a host can read the command lines of its processes. A setting that
may hold a secret can also be the content of a file, which the variable `CX_…_FILE` names.
"""

import argparse
import dataclasses
import ipaddress
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

_SITE = re.compile(
    r"(https?)://(?:\[([0-9a-f:.]+)]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)(?::([1-9][0-9]{0,4}))?/?", re.ASCII
)
_URL = re.compile(r"([a-z]+://)(?:([^/?#@:]*)(:[^/?#@]*)?@)?([^/?#@]*(?:/[^/?#@]*)?)(\?[^@]*)?", re.DOTALL)
_LISTEN = re.compile(r"unix:(/.+)|(?:\[([0-9A-Fa-f:.]+)]|([^:\[\]/]+)):([0-9]{1,5})", re.DOTALL)
_SMTP = re.compile(
    r"smtps?://(?:([^:/?#\s]+)@)?(?:\[([0-9a-f:.]+)]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)(?::([1-9][0-9]{0,4}))?/?",
    re.ASCII | re.IGNORECASE,
)
_MAILBOX = re.compile(r"(?:(?P<name>[^<>@\"]*)<)?(?P<address>[\w.!#$%&'*+/=?^`{|}~-]+@[\w.-]*\w)(?(name)>)")
_MCP = re.compile(r"([a-z0-9]+(?:[.-][a-z0-9]+)*)=(https?://.+)", re.ASCII)
_MCP_TOKEN_FILE = re.compile("CX_MCP_[A-Z0-9_]+_TOKEN_FILE", re.ASCII)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

HIDDEN = "********"  # shown in place of a secret
DESTINATION = "setting_{}"  # of a flag in the parsed arguments; a command may have an argument of the same name
MAX_TEXT = 200  # characters of a text for display
MAX_SECRET = 64 * 1024  # bytes of a file
MAX_MCP_NAME = 64  # characters


def by_demo(text: str) -> str:
    """Raise ValueError: the setting is for demos only."""
    raise ValueError("unset: `serve --demo` sets it")


def site(text: str) -> str:
    """Return the origin of a web site, as browsers send it: in lower case, without path and default port.

    Raises ValueError with the expected form, but without the text, which may contain a password.
    """
    match = _SITE.fullmatch(text.lower())
    try:
        if not match or int(match[3] or 0) > 65535:
            raise ValueError
        if match[2]:
            ipaddress.IPv6Address(match[2])
    except ValueError:
        raise ValueError(
            "http:// or https://, a host and maybe a port, such as https://chat.example, without path, query and user"
        ) from None
    return text.lower().removesuffix("/").removesuffix(_DEFAULT_PORTS[match[1]])


class ListenAddress(NamedTuple):
    """A host and a port, or the path of a Unix socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"


def listen_address(text: str) -> str:
    """Return the text of an address to listen on. Raises ValueError with the expected form for any other text."""
    match = _LISTEN.fullmatch(text)
    if not match or int(match[4] or 0) > 65535 or "\0" in text:
        raise ValueError(
            "HOST:PORT, or unix: and the absolute path of a socket, such as unix:/run/cx-service/http.sock"
        )
    return text


def file_mode(text: str) -> str:
    """Return the mode of a file in three octal digits. Raises ValueError with the expected form for any other text."""
    if not re.fullmatch("0?[0-7]{3}", text, re.ASCII):
        raise ValueError("three octal digits, such as 660")
    return text


def colour(text: str) -> str:
    """Return a colour as in HTML, in lower case. Raises ValueError with the expected form for any other text."""
    if not re.fullmatch("#[0-9a-f]{6}", text.lower(), re.ASCII):
        raise ValueError("a colour such as #0b6e5f")
    return text.lower()


def short_text(text: str) -> str:
    """Return a text for display, without surrounding white space. Raises ValueError with the expected form."""
    text = text.strip()
    if len(text) > MAX_TEXT or not text.isprintable():
        raise ValueError(f"a text of at most {MAX_TEXT} characters in one line")
    return text


def smtp_url(text: str) -> str:
    """Return the URL of an SMTP server. Raises ValueError with the expected form, but without the text."""
    match = _SMTP.fullmatch(text)
    try:
        if not match or int(match[3] or 0) > 65535 or not text.isascii() or not text.isprintable():
            raise ValueError
        if match[2]:
            ipaddress.IPv6Address(match[2])
    except ValueError:
        raise ValueError(
            "smtps:// or smtp://, a host and maybe a user and a port, such as smtps://user@mail.example, without the"
            " password, which is CX_SMTP_PASSWORD"
        ) from None
    return text


def mailbox(text: str) -> str:
    """Return an e-mail address with or without a name. Raises ValueError with the expected form for any other text."""
    if not _MAILBOX.fullmatch(text) or not text.isprintable():
        raise ValueError("an e-mail address, or a name and one, such as Support <support@chat.example>")
    return text


def mcp_servers(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names and URLs of MCP servers. Raises ValueError with the expected form, but without the text."""
    matches = [_MCP.fullmatch(entry) for entry in entries]
    names = [match[1] if match else "" for match in matches]
    if not all(names) or max(map(len, names)) > MAX_MCP_NAME:
        raise ValueError(
            "NAME=URL, such as weather=https://weather.example/mcp; a name has at most"
            f" {MAX_MCP_NAME} lower-case letters, digits, dots and hyphens"
        )
    if len(set(map(mcp_token_variable, names))) < len(names):
        raise ValueError("servers with different names, also if . and - are the same")
    return entries


def mcp_token_variable(name: str) -> str:
    """Return the variable with the token of an MCP server."""
    return variable("_".join(("mcp", re.sub("[.-]", "_", name), "token")))


def split_mailbox(text: str) -> tuple[str, str]:
    """Return the name and the address of a mailbox."""
    name, _, address = text.rpartition("<")
    return name.strip(), address.rstrip(">")


Value = TypeVar("Value")
SettingValue: TypeAlias = Any  # or of an option of its flag; dataclasses and argparse give no types for these


def _setting(default: Value, help: str, **options: object) -> Value:
    is_shown = not options.keys() & {"secret", "may_hold_password"}
    return dataclasses.field(default=default, repr=is_shown, metadata={"help": help, **options})


@dataclass(frozen=True)
class Settings:
    """The settings of an installation. Flags are `--name-with-dashes`, variables `CX_NAME_WITH_UNDERSCORES`."""

    data: Path = _setting(Path("cx-data"), "folder of service.db, the file with all data")
    database: str = _setting(
        "", "postgresql:// URL of a database to use in place of the file in the data folder", may_hold_password=True
    )
    share_folder: bool = _setting(False, "serve a data folder that other services with this setting serve, too")
    replica: str = _setting(
        "",
        "postgresql:// URL of a streaming replica, which lists are read from when it has caught up",
        may_hold_password=True,
    )
    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8080, "port to listen on")
    listen: str = _setting(
        "", "HOST:PORT or unix:/path to listen on, in place of --host and --port", read=listen_address
    )
    socket_mode: str = _setting("660", "mode of a Unix socket: who may connect", read=file_mode)
    workers: int = _setting(1, "number of processes that serve requests")
    threads: int = _setting(4, "number of threads in each process, for slow requests")
    public_url: str = _setting("", "URL at which clients reach the service, such as https://chat.example", read=site)
    trusted_proxy: str = _setting(
        "",
        "address or network of the reverse proxy whose X-Forwarded-For and X-Forwarded-Proto are trusted; unix for one"
        " that connects to the Unix socket",
    )
    documented_only: bool = _setting(False, "serve the documented operations only")
    allow_origin: tuple[str, ...] = _setting(
        (), "web origin that may call the API from browsers; repeatable", metavar="ORIGIN"
    )
    access_minutes: int = _setting(60, "lifetime of an access token")
    refresh_days: int = _setting(30, "lifetime of a refresh token")
    login_failures: int = _setting(20, "limit of failed logins to an account from one network in 15 minutes")
    login_failures_account: int = _setting(50, "limit of failed logins to an account in an hour")
    login_failures_network: int = _setting(100, "limit of failed logins from a network in 15 minutes")
    assistant_url: str = _setting(
        "", "URL of an OpenAI-compatible API that writes the replies of bots, such as https://ai.example/v1"
    )
    assistant_model: str = _setting("", "name of the assistant's model")
    assistant_key: str = _setting("", "API key of the assistant", secret=True)
    assistant_rate: int = _setting(60, "limit of requests to the assistant for each app in a minute; 0 is no limit")
    assistant_tokens: int = _setting(
        0, "limit of tokens of the assistant for each app in a calendar month (UTC); 0 is no limit"
    )
    mcp: tuple[str, ...] = _setting(
        (),
        "name and URL of an MCP server whose tools the assistant may use, such as"
        " weather=https://weather.example/mcp; repeatable",
        metavar="NAME=URL",
        read=mcp_servers,
    )
    mcp_trusted: tuple[str, ...] = _setting(
        (), "name of an MCP server that says truly which of its tools only read; repeatable", metavar="NAME"
    )
    demo_questions: str = _setting(
        "",
        "regular expression of the messages to which the assistant of a demo replies; others get canned answers",
        read=by_demo,
        hidden=True,
    )
    smtp: str = _setting(
        "",
        "URL of the server that sends e-mails, such as smtps://user@mail.example, or smtp:// with STARTTLS",
        read=smtp_url,
    )
    smtp_password: str = _setting("", "password of the user of the SMTP server", secret=True)
    store_mails: str = _setting(  # which gives admins access to the accounts of others
        "", "URL of a demo, whose e-mails are stored in the database in place of being sent", read=by_demo, hidden=True
    )
    mail_from: str = _setting("", "sender of e-mails, such as Support <support@chat.example>", read=mailbox)
    webhook: tuple[str, ...] = _setting(
        (), "URL that events are sent to, such as https://hooks.example/chat; repeatable", metavar="URL"
    )
    webhook_secret: str = _setting(
        "", "secret that signs the requests to webhooks, whsec_ and base64; during a rotation two", secret=True
    )
    ntfy: str = _setting(
        "", "URL of the ntfy server that sends push notifications, such as https://push.example", read=site
    )
    ntfy_token: str = _setting("", "access token of the ntfy server", secret=True)
    web_push: tuple[str, ...] = _setting(
        (), "host of a push service of browsers that messages may be sent to; repeatable", metavar="HOST"
    )
    push_content: bool = _setting(False, "include titles and texts of messages in push notifications")
    name: str = _setting("", "name of the installation on its pages", read=short_text)
    accent: str = _setting("", "accent colour of the pages, such as #0b6e5f", read=colour)
    logo: str = _setting("", "file with the logo of the installation: JPEG, PNG or WebP")
    contact: str = _setting(
        "", "e-mail address, URL or text on the sign-in page: where users get a new password", read=short_text
    )
    log_level: str = _setting("info", "lowest level of log lines", choices=("debug", "info", "warning", "error"))
    log_format: str = _setting("text", "format of log lines, for people or for programs", choices=("text", "json"))
    metrics_network: str = _setting("", "address or network that may read /metrics, in place of this host")
    verify_answers: bool = _setting(False, "check every response against its declaration, for tests", hidden=True)

    @property
    def assistant_helps_staff(self) -> bool:
        """Whether the assistant writes drafts and translations for staff, which that of a demo does not."""
        return bool(self.assistant_url) and not self.demo_questions

    @property
    def address(self) -> ListenAddress:
        """The address to listen on."""
        match = _LISTEN.fullmatch(self.listen)
        if match is None:
            return ListenAddress(self.host, self.port)
        return ListenAddress("", 0, match[1]) if match[1] else ListenAddress(match[2] or match[3], int(match[4]))


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flags of the named settings, or of all, to a command. They set nothing if they are not given."""
    for setting in dataclasses.fields(Settings):
        if (names and setting.name not in names) or setting.metadata.get("secret"):
            continue
        help = f"{setting.metadata['help']} [{variable(setting.name)}; {shown_default(setting)}]"
        options: dict[str, SettingValue] = {"default": argparse.SUPPRESS, "help": help.replace("%", "%%")}
        options["dest"] = DESTINATION.format(setting.name)
        if setting.type is bool:
            options["action"] = "store_true"
        elif isinstance(setting.default, tuple):
            options |= {"action": "append", "metavar": setting.metadata["metavar"]}
        else:
            options |= {"type": setting.type, "choices": setting.metadata.get("choices")}
            options["metavar"] = None if options["choices"] else setting.name.upper()
        if setting.metadata.get("hidden"):
            options["help"] = argparse.SUPPRESS
        parser.add_argument(flag_of(setting.name), **options)


Source: TypeAlias = Literal["default", "variable", "file", "flag"]


class Found(NamedTuple):
    """The value of a setting, the kind of its source, and the name of the source: a flag, a variable or a path."""

    value: SettingValue
    source: Source
    name: str = ""


def read_settings(flags: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of this run.

    Raises ValueError with a message for a flag, variable or file that is invalid.
    """
    return Settings(**{name: found.value for name, found in find_settings(flags, environ).items()})


def find_settings(flags: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> dict[str, Found]:
    """Return the value and the source of every setting of this run, by name. Raises ValueError, as `read_settings`."""
    settings = {}
    for setting in dataclasses.fields(Settings):
        found = _find(setting, getattr(flags, DESTINATION.format(setting.name), None), environ)
        read = setting.metadata.get("read")
        if read and found.value:
            try:
                found = found._replace(value=read(found.value))
            except ValueError as error:
                raise ValueError(f"{found.name} must be {error}") from None
        settings[setting.name] = found
    return settings


def exposed_files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the files of secrets that all users of this host can read."""
    named = [environ.get(file_variable(setting.name), "") for setting in dataclasses.fields(Settings)]
    named += [environ[name] for name in filter(_MCP_TOKEN_FILE.fullmatch, environ)]
    paths = [Path(name) for name in named if name]
    return [path for path in paths if path.exists() and path.stat().st_mode & stat.S_IROTH]


def shown_value(setting: "dataclasses.Field[object]", value: SettingValue) -> SettingValue:
    """Return the value of a setting without secrets, for display."""
    if not value or not is_secret(setting):
        return value
    url = _URL.fullmatch(value) if setting.metadata.get("may_hold_password") else None
    if url is None:  # also a URL whose password is not percent-encoded, so that its end is unclear
        return HIDDEN
    scheme, user, password, rest, query = url.groups(default="")
    login = f"{user}{password and f':{HIDDEN}'}@" if user or password else ""
    return f"{scheme}{login}{rest}{query and f'?{HIDDEN}'}"


def is_secret(setting: "dataclasses.Field[object]") -> bool:
    """Return whether a setting is or may hold a secret."""
    return bool(setting.metadata.keys() & {"secret", "may_hold_password"})


def flag_of(name: str) -> str:
    """Return the flag of a setting."""
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"CX_{name.upper()}"


def file_variable(name: str) -> str:
    """Return the environment variable with the path of the file that holds a secret."""
    return f"{variable(name)}_FILE"


def shown_default(setting: "dataclasses.Field[object]") -> str:
    """Return the default, for display."""
    return {"": "unset", "()": "none", "False": "off"}.get(str(setting.default), str(setting.default))


def _find(setting: "dataclasses.Field[SettingValue]", flag: SettingValue, environ: Mapping[str, str]) -> Found:
    name, text = variable(setting.name), environ.get(variable(setting.name), "")
    if flag is not None:
        return Found(tuple(flag) if isinstance(flag, list) else flag, "flag", flag_of(setting.name))
    if is_secret(setting):
        found = find_secret(name, environ)
        text = found.value
        if found.source == "file":
            return found
    return Found(_read(setting, text), "variable", name) if text else Found(setting.default, "default")


def find_secret(name: str, environ: Mapping[str, str] = os.environ) -> Found:
    """Return the secret in a variable, or in the file that its `_FILE` variable names; empty without both.

    Raises ValueError.

    For the secrets of settings, and for those of which there is one for each value of a setting.
    """
    text, path = environ.get(name, ""), environ.get(f"{name}_FILE", "")
    if path and text:
        raise ValueError(f"{name} and {name}_FILE are both set: use one of them")
    if path:
        return Found(_read_secret(f"{name}_FILE", Path(path)), "file", path)
    return Found(text, "variable", name)


def _read_secret(name: str, path: Path) -> str:
    """Return the line of text in the file of a secret. Errors do not show it."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: cannot read {path}: {getattr(error, 'strerror', error)}") from None
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError(f"{name}: {path} is not text in UTF-8") from None
    if len(content) > MAX_SECRET:
        raise ValueError(f"{name}: {path} is longer than {MAX_SECRET} bytes")
    if not text:
        raise ValueError(f"{name}: {path} is empty")
    if not text.isprintable():
        raise ValueError(f"{name}: {path} must have one line of text without control characters")
    return text


def _read(setting: "dataclasses.Field[SettingValue]", text: str) -> SettingValue:
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
