"""A valid request of every operation by Alice, for the sample data; tests derive malformed requests from them."""

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
from service import clock, db
from service.api.operations import Operation
from service.auth import csrf, tokens
from service.auth.consent import RESOURCE
from service.http.application import build_app
from service.models import (
    App,
    Avatar,
    Bot,
    BotPicture,
    CalendarFeed,
    CannedAnswer,
    CannedReply,
    ChatSession,
    DataShare,
    Delivery,
    Event,
    Feedback,
    FeedbackScreenshot,
    LoginSession,
    Message,
    MessageImage,
    Notification,
    ServerCredential,
    StoredMail,
    User,
)
from service.models.audit_log import OPERATOR
from service.operate import import_export
from service.routes import operations
from service.settings import Settings
from service.signing import sign
from tests.support import sample_data as h
from tests.support.access import ROWS, as_form
from tests.support.client import Client, Reply
from tests.support.consent import VALID_PARAMETERS
from tests.support.installation import settings_at
from tests.support.server_process import json_lines

UNLIMITED: dict[str, Any] = dict.fromkeys(("login_failures", "login_failures_account", "login_failures_network"), 10**9)
IDS: dict[type, str] = {
    App: h.SHOP,
    ChatSession: h.SESSION,
    Message: h.HELLO,
    Bot: h.HILDA,
    CannedAnswer: h.ANSWER,
    CannedReply: h.CANNED_REPLY,
    Feedback: h.FEEDBACK,
    FeedbackScreenshot: h.FEEDBACK,
    DataShare: h.GRANT,
    Avatar: h.BOBS_PICTURE,
    MessageImage: h.IMAGE,
    BotPicture: h.ICON,
    Event: h.EVENT,
    Notification: h.NOTIFICATION,
    User: h.BOB,
}
NAMES = {
    "alice": h.ALICE,
    "caller": h.ALICE,
    "email": h.EMAILS["alice"],
    "user_email": h.EMAILS["bob"],
    "app": h.SHOP,
    "bot": h.HILDA,
    "conversation": h.CONVERSATION,
    "grant": IDS[DataShare],
    "sealed": IDS[Message],
    "consent": urlencode(VALID_PARAMETERS),
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
        """Return the bytes of the request."""
        lines = [f"{self.operation.method} {self.path}{'?' if self.query else ''}{self.query} HTTP/1.1", "Host: a"]
        lines += [f"Authorization: Bearer {self.token}"] * bool(self.token)
        lines += [f"Content-Type: {self.content_type}"] * bool(self.content_type)
        lines += [f"Content-Length: {len(self.body)}", "Connection: close", "", ""]
        return "\r\n".join(lines).encode() + self.body


TEXT = "Größe É word " * 4_000  # about 60 KiB of UTF-8 that is case-folded for the search
MEMBERS = {f"member {number}": "é" * 200 for number in range(35)}

# Members that replace those of the valid request: about the largest that the operation accepts.
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
    "edit_event": {"notes": "è" * 10_000},
}


def large_picture() -> bytes:
    """Return a small file that takes long to decode."""
    stream = io.BytesIO()
    Image.new("1", (3500, 3500)).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def enlarged(request: Request) -> Request:
    """Return the request with the largest body."""
    if request.operation.accepts == "multipart/form-data":
        return request._replace(body=request.body.replace(h.picture(), large_picture()))
    members = LARGEST[request.operation.name]
    if request.operation.accepts == "application/json":
        return request._replace(body=json.dumps(json.loads(request.body) | members).encode())
    return request._replace(body=urlencode(dict(parse_qsl(request.body.decode())) | members).encode())


def has_larger(request: Request) -> bool:
    return request.operation.name in LARGEST or request.operation.accepts == "multipart/form-data"


# Operations that remove something that other operations need.
LAST = (
    "publish_bot",
    "change_bot",
    "delete_message",
    "delete_event",
    "archive_chat_session",
    "end_chat_session",
    "delete_chat_session",
    "change_chat_session_status",
    "delete_user_data",
    "end_login",
    "revoke_install",
    "sign_out_browser",
)


def writing_operations() -> list[Operation]:
    """Return all operations but GET, in an order in which the rows that each needs still exist."""
    writing = [operation for operation in operations() if operation.method != "GET"]
    return sorted(writing, key=lambda operation: LAST.index(operation.name) if operation.name in LAST else -1)


class SampleInstallation:
    """The sample data in a database, which stays open, and login sessions of Alice."""

    def __init__(self, settings: Settings, folder: Path, **alice: str) -> None:
        app.prepare(settings, create=True)
        lines = folder / "sample.jsonl"
        lines.write_bytes(json_lines(h.records(**alice)))
        assert not import_export.import_files([lines])
        with db.write():
            self.token = tokens.log_in(h.ALICE, settings).access_token
            install = tokens.create_token_session(h.ALICE, settings, install_id="laptop", scopes="chats")
            program = tokens.create_token_session(
                h.ALICE, settings, install_id="program", scopes="chats", resource=RESOURCE
            )
            refresh_token = tokens.log_in(h.ALICE, settings).refresh_token
            mail = StoredMail.create(user_id=h.ALICE, subject="Hello", content="Subject: Hello\n\nHello")
            delivery = Delivery.create(channel="webhook", kind="chat.created", due_at=clock.MAX_TIME)
            credential = ServerCredential.add({"name": "Gateway", "mcp_server_id": "files"}, OPERATOR)
        self.tokens = {"": self.token, RESOURCE: tokens.pair_of(program, settings).access_token}
        self.ids = {**IDS, LoginSession: install.id, StoredMail: mail.id}
        self.names = {
            **NAMES,
            "refresh_token": refresh_token,
            "delivery": delivery.id,
            "credential": credential.client_id,
            "csrf_token": sign("form", ["Alice's browser"]),
            "console": csrf.make_token(tokens.authenticate(f"Bearer {self.token}")),
            "feed": CalendarFeed.renew(h.ALICE),
        }

    def request(self, operation: Operation) -> Request:
        """Return a request of an operation."""
        row = ROWS[operation.name]
        identifiers = {name: self.ids[table] for name, _, table in operation.path_rows}
        path = re.sub(r"{(\w+)}", lambda found: identifiers[found[1]], operation.full_path)
        body, content_type = self._body(operation, row.body)
        return Request(operation, path, self._fill_in(row.query), body, content_type, self.tokens[operation.resource])

    def requests(self) -> Iterator[Request]:
        """Yield a request of every operation."""
        return map(self.request, operations())

    def _body(self, operation: Operation, body: Any) -> tuple[bytes, str]:
        if operation.accepts == "multipart/form-data":
            texts = {name: self._fill_in(value) for name, value in body.items() if isinstance(value, str)}
            form = as_form(body | texts)
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


class SampleService(NamedTuple):
    """A service with the sample data. Alice is an admin, who may call most operations."""

    installation: SampleInstallation
    client: Client

    def send(self, request: Request, method: str = "", **headers: str) -> Reply:
        """Send a request, with some headers set or added."""
        own = {"authorization": f"Bearer {request.token}"} if request.token else {}
        own |= {"content_type": request.content_type} if request.content_type else {}
        target = f"/{request.path}?{request.query}"
        return self.client.call(method or request.operation.method, target, raw=request.body, **own | headers)


@pytest.fixture(name="sample_service", scope="module")
def sample_service_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleService]:
    """Return one service for all tests of a module, which must not change it; import this fixture by name."""
    folder = tmp_path_factory.mktemp("hostile")
    settings = dataclasses.replace(settings_at(folder / "data"), **UNLIMITED)
    installation = SampleInstallation(settings, folder, role="admin")
    yield SampleService(installation, Client(build_app(operations(), settings)))
    db.close_database()
