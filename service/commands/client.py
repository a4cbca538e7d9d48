"""`client`: uses a service from the command line, signed in through a browser; and manages clients that are servers."""

import argparse
import json
import secrets
import shutil
import sys
import urllib.parse
from collections.abc import Callable, Iterator

from service.client import ClientError, Service, TokenStore
from service.commands import Stop, add_actions
from service.escape import clean, escape
from service.settings import Settings, add_flags
from service.types import JsonObject

Action = Callable[[Service, argparse.Namespace], None]

URL = "http://127.0.0.1:8080"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser)

    def add(name: str, summary: str, act: Action) -> argparse.ArgumentParser:
        action = add_action(name, summary, run)
        action.add_argument("--url", default=URL, help=f"URL of the service [{URL}]")
        action.add_argument("--json", action="store_true", help="print the data of the responses as JSON")
        action.set_defaults(act=act)
        return action

    login = add("login", "sign in through a browser", log_in)
    login.add_argument("--scope", default="", help="scopes, separated by spaces [all]")
    login.add_argument("--no-browser", action="store_true", help="sign in on any device, with a code; works over SSH")
    login.add_argument("--patience", type=float, default=300, metavar="SECONDS", help="timeout for the sign-in [300]")
    add("whoami", "print the signed-in user", print_user)
    add("chats", "list your chat sessions with their last messages, most recent activity first", list_chats)
    read = add("read", "print the messages of a chat session, oldest first", read_messages)
    read.add_argument("session", metavar="SESSION", help="identifier of the chat session")
    send = add("send", "send a message to a chat session", send_message)
    send.add_argument("session", metavar="SESSION", help="identifier of the chat session")
    send.add_argument("text", metavar="TEXT", help="text of the message; - reads standard input")
    send.add_argument("--note", action="store_true", help="send a private note, which only staff see")
    bots = add("bots", "list the active bots of an app", list_bots)
    bots.add_argument("app", metavar="APP", nargs="?", help="identifier of the app [that of your newest chat session]")
    bots.add_argument("--search", default="", help="text to look for in name, tagline or description")
    add("logout", "sign out, and delete the stored tokens", log_out)

    def add_managing(name: str, summary: str) -> argparse.ArgumentParser:
        action = add_action(name, summary, manage)
        add_flags(action, "data", "database")
        action.set_defaults(act=name)
        return action

    new = add_managing("add", "let an MCP server or gateway ask about data shares, and print its secret")
    new.add_argument("name", metavar="NAME", help="name of the server or gateway, for the list")
    new.add_argument("--mcp-server", dest="mcp_server_id", metavar="ID", required=True, help="the server of the grants")
    listing = add_managing("list", "list the MCP servers and gateways that may ask about data shares")
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    rotating = add_managing("rotate", "replace the secret of an MCP server or gateway, and print the new one")
    rotating.add_argument("--at-once", action="store_true", help="end the previous secret now, not in 24 hours")
    revoking = add_managing("revoke", "revoke the secrets of an MCP server or gateway")
    for action in (rotating, revoking):
        action.add_argument("id", metavar="CLIENT", help="identifier of the client")


def run(flags: argparse.Namespace, _: Settings) -> None:
    """Run the chosen action."""
    try:
        flags.act(Service(flags.url, TokenStore()), flags)
    except ClientError as error:
        raise Stop(str(error)) from None


def manage(flags: argparse.Namespace, settings: Settings) -> None:
    """Run an action on the credentials of MCP servers, which needs the database; the other actions do without."""
    from service.commands import server_credentials

    server_credentials.ACTIONS[flags.act](flags, settings)


def log_in(service: Service, flags: argparse.Namespace) -> None:
    if service.url.startswith("http:") and urllib.parse.urlsplit(service.url).hostname not in LOOPBACK:
        print("Warning: without https, passwords and tokens can be intercepted.", file=sys.stderr)
    if flags.no_browser:
        service.log_in_on_another_device(flags.scope, show_code, timeout=flags.patience)
    else:
        service.log_in(flags.scope, show_page, timeout=flags.patience)
    print_user(service, flags)


def show_page(page: str) -> None:
    print(f"Sign in with a browser on this computer, at:\n\n{page}\n", file=sys.stderr)
    print("Waiting for the sign-in … On another computer, use --no-browser.", file=sys.stderr, flush=True)


def show_code(page: str, code: str) -> None:
    print(f"Sign in with a browser on any device, at:\n\n{page}\n", file=sys.stderr)
    print(f"Enter this code: {clean(code)}\n\nWaiting for the sign-in …", file=sys.stderr, flush=True)


def print_user(service: Service, flags: argparse.Namespace) -> None:
    me = service.call("GET", "/users/me")["data"]
    name = " ".join(filter(None, (me["first_name"], me["last_name"])))
    print_row(flags, me, f"{name or me['email']} <{me['email']}>, {me['role']} at {service.url}")


def list_chats(service: Service, flags: argparse.Namespace) -> None:
    for session in all_pages(service, "/chats", limit="200"):
        last = session["last_message"] or {"created_at": session["created_at"], "text": ""}
        time = last["created_at"][:16].replace("T", " ")
        title = f"{session['customer_name'] or 'Guest'} with {session['bot_name'] or session['app_name']}"
        print_line(flags, session, f"{session['id']}  {time}  {session['status']:<8}  {title}  {last['text']}")


def read_messages(service: Service, flags: argparse.Namespace) -> None:
    session = urllib.parse.quote(flags.session, safe="")
    for message in all_pages(service, f"/chats/{session}/messages", limit="200"):
        created_at = message["created_at"][:16].replace("T", " ")
        print_row(flags, message, f"{created_at}  {message['sender_type']:<8} {text_of(message)}")


def send_message(service: Service, flags: argparse.Namespace) -> None:
    text = sys.stdin.read().removesuffix("\n") if flags.text == "-" else flags.text
    if not text.strip():
        raise ClientError("the message is empty")
    # With an identifier, the message is sent once even if the request is repeated.
    message = {"content": {"text": text}, "is_private": flags.note, "client_message_id": secrets.token_hex(16)}
    sent = service.call("POST", f"/chats/{urllib.parse.quote(flags.session, safe='')}/messages", message)["data"]
    print_row(flags, sent, f"sent {sent['id']}")


def list_bots(service: Service, flags: argparse.Namespace) -> None:
    app_id = flags.app or next((chat["app_id"] for chat in all_pages(service, "/chats", limit="1")), "")
    if not app_id:
        raise ClientError("you have no chat sessions: name an app")
    for bot in all_pages(service, "/bots", app_id=app_id, search=flags.search, per_page="100"):
        print_line(flags, bot, f"{bot['id']}  {bot['name']}  {bot['tagline']}")


def log_out(service: Service, flags: argparse.Namespace) -> None:
    service.log_out()
    print_row(flags, {"logged_out": True}, f"signed out at {service.url}")


def print_row(flags: argparse.Namespace, value: object, line: str) -> None:
    """Print a line of text, or with --json the value."""
    print(escape(json.dumps(value, ensure_ascii=False)) if flags.json else clean(line))


def print_line(flags: argparse.Namespace, value: object, line: str) -> None:
    """Print a row of a list, which is cut off at the width of a terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() and not flags.json else None
    print_row(flags, value, clean(line).rstrip()[:width])


def all_pages(service: Service, path: str, **query: str) -> Iterator[JsonObject]:
    """Yield every item of a list, page by page."""
    cursor = ""
    while True:
        parameters = {name: value for name, value in {**query, "cursor": cursor}.items() if value}
        response = service.call("GET", f"{path}?{urllib.parse.urlencode(parameters)}")
        yield from response["data"]
        cursor = response["meta"]["next_cursor"]
        if not cursor:
            return


def text_of(message: JsonObject) -> str:
    """Return the text of a message, or its content type in brackets."""
    try:
        return str(json.loads(bytes(message["content"]))["text"])
    except (ValueError, KeyError, TypeError):
        return f"[{message['content_type']}]"
