"""A valid request of every operation, of Alice's in her household: what is spoilt where hostile ones are made."""

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import pytest
from PIL import Image

import app
from service import db, transfer
from service.auth import tickets, tokens
from service.auth.signing import sign
from service.models import (
    App,
    Avatar,
    Bot,
    CalendarFeed,
    ChatSession,
    DataShare,
    Event,
    Feedback,
    LoginSession,
    Message,
    Notification,
)
from service.operations import Operation
from service.routes import operations
from service.settings import Settings
from service.web import build_app
from tests import household as h
from tests.conftest import Client, Reply, at
from tests.serving import json_lines
from tests.test_access import ROWS, as_form
from tests.test_consent import GOOD

UNLIMITED: dict[str, Any] = dict.fromkeys(("login_failures", "login_failures_account", "login_failures_network"), 10**9)
IDS: dict[type, str] = {
    App: h.SHOP,
    ChatSession: h.SESSION,
    Message: h.HELLO,
    Bot: h.HILDA,
    Feedback: h.FEEDBACK,
    DataShare: h.GRANT,
    Avatar: h.BOBS_PICTURE,
    Event: h.EVENT,
    Notification: h.NOTIFICATION,
}
NAMES = {
    "alice": h.ALICE,
    "email": h.EMAILS["alice"],
    "app": h.SHOP,
    "bot": h.HILDA,
    "conversation": h.CONVERSATION,
    "consent": urlencode(GOOD),
}


class Request(NamedTuple):
    """A request."""

    operation: Operation
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = ""
    token: str = ""

    def raw(self) -> bytes:
        """As it goes over the wire."""
        lines = [f"{self.operation.method} {self.path}{'?' if self.query else ''}{self.query} HTTP/1.1", "Host: a"]
        lines += [f"Authorization: Bearer {self.token}"] * bool(self.token)
        lines += [f"Content-Type: {self.content_type}"] * bool(self.content_type)
        lines += [f"Content-Length: {len(self.body)}", "Connection: close", "", ""]
        return "\r\n".join(lines).encode() + self.body


TEXT = "Größe É word " * 4_000  # some 60 KiB of UTF-8 that has to be folded for searches
MEMBERS = {f"member {number}": "é" * 200 for number in range(35)}

# Members in place of those of the valid request: the largest that the operation takes, or nearly.
LARGEST: dict[str, dict[str, Any]] = {
    "send_message": {"content": {"text": TEXT}},
    "edit_message": {"content": {"text": TEXT + "."}},
    "submit_feedback": {"description": "é" * 10_000, "device_info": MEMBERS},
    "create_event": {"notes": "é" * 10_000},
    "update_event": {"notes": "è" * 10_000},
    "update_profile": {"location": [2**62] * 1_000, "display_name": "é" * 100},
    "update_settings": {"extra": {**MEMBERS, "more": ["é" * 100] * 100}},
    "create_data_share": {"allowed_tools": [f"tool {number}" for number in range(100)], "scope_meta": [2**62] * 1_000},
    "change_chat": {"act": "send", "text": TEXT},
    "change_feedback": {"act": "give", "description": "é" * 10_000},
    "change_events": {"act": "add", "notes": "é" * 10_000},
}


def large_picture() -> bytes:
    """A small file that takes long to read."""
    stream = io.BytesIO()
    Image.new("1", (3990, 3990)).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def enlarged(request: Request) -> Request:
    """The request with the largest body."""
    if request.operation.accepts == "multipart/form-data":
        form = as_form({"avatar": large_picture()})
        return request._replace(body=form["raw"], content_type=form["content_type"])
    members = LARGEST[request.operation.name]
    if request.operation.accepts == "application/json":
        return request._replace(body=json.dumps(json.loads(request.body) | members).encode())
    return request._replace(body=urlencode(dict(parse_qsl(request.body.decode())) | members).encode())


def has_larger(request: Request) -> bool:
    return request.operation.name in LARGEST or request.operation.accepts == "multipart/form-data"


# They end what the others need.
LAST = (
    "publish_bot",
    "change_bot",
    "delete_message",
    "delete_event",
    "end_login",
    "revoke_install",
    "sign_out_browser",
)


def writing_operations() -> list[Operation]:
    """All but those with GET, in an order in which each finds what it needs."""
    writing = [operation for operation in operations() if operation.method != "GET"]
    return sorted(writing, key=lambda operation: LAST.index(operation.name) if operation.name in LAST else -1)


class Household:
    """The household in a database, which is open from now on, and a login of Alice's."""

    def __init__(self, settings: Settings, folder: Path, **alice: str) -> None:
        app.prepare(settings, create=True)
        lines = folder / "household.jsonl"
        lines.write_bytes(json_lines(h.records(**alice)))
        assert not transfer.take_in([lines])
        with db.write():
            self.token = tokens.begin(h.ALICE, settings).access_token
            install = tokens.open_session(h.ALICE, settings, install_id="laptop", scopes="chats")
            refresh_token = tokens.begin(h.ALICE, settings).refresh_token
        self.ids = {**IDS, LoginSession: install.id}
        self.names = {
            **NAMES,
            "refresh_token": refresh_token,
            "ticket": sign("form", ["of Alice's browser"]),
            "console": tickets.make(tokens.authenticate(f"Bearer {self.token}")),
            "feed": CalendarFeed.renew(h.ALICE),
        }

    def request(self, operation: Operation) -> Request:
        """A request of an operation."""
        row = ROWS[operation.name]
        identifiers = {name: self.ids[table] for name, _, table in operation.loads}
        path = re.sub(r"{(\w+)}", lambda found: identifiers[found[1]], operation.full_path)
        body, content_type = self._body(operation, row.body)
        return Request(operation, path, self._fill_in(row.query), body, content_type, self.token)

    def requests(self) -> Iterator[Request]:
        """One of every operation."""
        return map(self.request, operations())

    def _body(self, operation: Operation, body: Any) -> tuple[bytes, str]:
        if operation.accepts == "multipart/form-data":
            form = as_form(body)
            return form["raw"], form["content_type"]
        if not body:
            return b"", ""
        filled = self._fill_in(json.dumps(body))
        if operation.accepts == "application/json":
            return filled.encode(), operation.accepts
        return urlencode(json.loads(filled)).encode(), operation.accepts

    def _fill_in(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace(f"{{{name}}}", value)
        return text


class Place(NamedTuple):
    """A service with the household in it. Alice is an admin, who may do most."""

    household: Household
    client: Client

    def ask(self, request: Request, method: str = "", **headers: str) -> Reply:
        """One request, with some headers set or added."""
        given = {"authorization": f"Bearer {request.token}"} if request.token else {}
        given |= {"content_type": request.content_type} if request.content_type else {}
        target = f"/{request.path}?{request.query}"
        return self.client.call(method or request.operation.method, target, raw=request.body, **given | headers)


@pytest.fixture(name="place", scope="module")
def place_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all tests of a module, none of which may change it; import this fixture by name."""
    folder = tmp_path_factory.mktemp("hostile")
    settings = dataclasses.replace(at(folder / "data"), **UNLIMITED)
    household = Household(settings, folder, role="admin")
    yield Place(household, Client(build_app(operations(), settings)))
    db.close_database()
