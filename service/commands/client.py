"""`client`: the service from the command line, as a person who signs in through a browser."""

import argparse
import json
import shutil
import sys
import urllib.parse
from collections.abc import Iterator
from typing import Any

from service.client import Failed, Keyring, Service
from service.commands import Stop
from service.settings import Settings
from service.terminal import clean, escape

URL = "http://127.0.0.1:8080"
OWN_COMPUTER = ("127.0.0.1", "::1", "localhost")


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, about: str, act: Any) -> argparse.ArgumentParser:
        command = actions.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        command.add_argument("--url", default=URL, help=f"address of the service [{URL}]")
        command.add_argument("--json", action="store_true", help="print what the service answered, for programs")
        command.set_defaults(run=run, act=act)
        return command

    login = action("login", "sign in through a browser", log_in)
    login.add_argument("--scope", default="", help="what the client may do, apart by blanks [everything]")
    login.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")
    login.add_argument("--patience", type=float, default=300, metavar="SECONDS", help="how long to wait [300]")
    action("whoami", "say who is signed in", tell_who)
    action("chats", "list the chat sessions that you may read, the newest first", list_chats)
    read = action("read", "print the messages of a chat session, the oldest first", read_messages)
    read.add_argument("session", metavar="SESSION", help="identifier of the chat session")
    bots = action("bots", "list the active bots of an app", list_bots)
    bots.add_argument("app", metavar="APP", nargs="?", help="identifier of the app [that of your newest chat session]")
    bots.add_argument("--search", default="", help="what stands in the name, tagline or description")
    action("logout", "end the login and forget its tokens", log_out)


def run(flags: argparse.Namespace, _: Settings) -> None:
    """Do what was asked of the service."""
    try:
        flags.act(Service(flags.url, Keyring()), flags)
    except Failed as failed:
        raise Stop(str(failed)) from None


def log_in(service: Service, flags: argparse.Namespace) -> None:
    def show(page: str) -> None:
        print(f"Open this page in a browser on this computer:\n\n{page}\n", file=sys.stderr, flush=True)

    if service.url.startswith("http:") and urllib.parse.urlsplit(service.url).hostname not in OWN_COMPUTER:
        print("Careful: without https, others on the way can read passwords and tokens.", file=sys.stderr)
    print(f"Waiting for you to sign in at {service.url} …", file=sys.stderr, flush=True)
    service.log_in(flags.scope, show, browse=not flags.no_browser, patience=flags.patience)
    tell_who(service, flags)


def tell_who(service: Service, flags: argparse.Namespace) -> None:
    me = service.call("GET", "/users/me")["data"]
    name = " ".join(filter(None, (me["first_name"], me["last_name"])))
    tell(flags, me, f"{name or me['email']} <{me['email']}>, {me['role']} at {service.url}")


def list_chats(service: Service, flags: argparse.Namespace) -> None:
    for session in pages(service, "/chats", limit="200"):
        when = session["created_at"][:16].replace("T", " ")
        tell(flags, session, f"{session['id']}  {when}  {session['status']}")


def read_messages(service: Service, flags: argparse.Namespace) -> None:
    session = urllib.parse.quote(flags.session, safe="")
    for message in pages(service, f"/chats/{session}/messages", limit="200"):
        when = message["created_at"][:16].replace("T", " ")
        tell(flags, message, f"{when}  {message['sender_type']:<8} {text_of(message)}")


def list_bots(service: Service, flags: argparse.Namespace) -> None:
    app_id = flags.app or next((chat["app_id"] for chat in pages(service, "/chats", limit="1")), "")
    if not app_id:
        raise Failed("you have no chat session yet: name the app whose bots you would like to see")
    found = pages(service, "/bots", app_id=app_id, search=flags.search, per_page="100")
    width = shutil.get_terminal_size().columns
    for bot in found:
        line = f"{bot['id']}  {bot['name']}  {bot['tagline']}".rstrip()
        tell(flags, bot, line[:width] if sys.stdout.isatty() else line)


def log_out(service: Service, flags: argparse.Namespace) -> None:
    service.log_out()
    tell(flags, {"logged_out": True}, f"signed out at {service.url}")


def tell(flags: argparse.Namespace, value: Any, line: str) -> None:
    """A line for people, or JSON for programs."""
    print(escape(json.dumps(value, ensure_ascii=False)) if flags.json else clean(line))


def pages(service: Service, path: str, **query: str) -> Iterator[dict[str, Any]]:
    """Every item of a list, page by page."""
    cursor = ""
    while True:
        asked = {name: value for name, value in {**query, "cursor": cursor}.items() if value}
        answer = service.call("GET", f"{path}?{urllib.parse.urlencode(asked)}")
        yield from answer["data"]
        cursor = answer["meta"]["next_cursor"]
        if not cursor:
            return


def text_of(message: dict[str, Any]) -> str:
    """What a message says, or what kind it is."""
    try:
        return str(json.loads(bytes(message["content"]))["text"])
    except (ValueError, KeyError, TypeError):
        return f"[{message['content_type']}]"
