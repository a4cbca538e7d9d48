"""All documented statuses of all operations, from a server over HTTP, and the members of the responses.

The lists of members repeat section 2 of the specification, so that the code is tested against it.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from service import db
from tests.support import sample_data as h
from tests.support.consent import VALID_PARAMETERS
from tests.support.installation import settings_at
from tests.support.observe import nothing_changes
from tests.support.operations import DOCUMENTED
from tests.support.passwords import PASSWORD
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

MIB = 2**20
ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

text, flag, integers, strings, number = "string", "boolean", "array of integer", "array of string", "number"

USER = {
    **dict.fromkeys(("id", "email", "first_name", "last_name", "auth_provider", "created_at", "last_login_at"), text),
    **dict.fromkeys(("is_anonymous", "is_verified", "onboarding_completed"), flag),
    **dict.fromkeys(("profile_image", "role", "user_type"), text),
    "location": integers,
}
TOKENS = {"access_token": text, "refresh_token": text}
SETTINGS = {
    "appearance": {"language": text, "theme": text},
    "chat_language": text,
    "notifications": {
        "email_enabled": flag,
        "marketing_enabled": flag,
        "muted_until": text,
        "push_enabled": flag,
    },
    "privacy": {
        "share_analytics": flag,
        "share_crash_reports": flag,
        "show_read_receipts": flag,
        "show_typing_indicator": flag,
    },
    "updated_at": text,
}
MESSAGE = {
    **dict.fromkeys(("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type"), text),
    **dict.fromkeys(("channel", "status", "content_type"), text),
    **dict.fromkeys(("content", "original_content", "translations", "reply_snapshot", "action_payload"), integers),
    **dict.fromkeys(("reply_to_message_id", "action_id", "action_source_id"), text),
    **dict.fromkeys(("is_edited", "is_pinned", "is_private", "is_read_once", "gdpr_purged"), flag),
    **dict.fromkeys(("edited_at", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type"), text),
    **dict.fromkeys(("created_at", "updated_at"), text),
}
BOT = {
    **dict.fromkeys(("id", "app_id", "name", "slug", "tagline", "description", "category", "kind", "status"), text),
    **dict.fromkeys(("presence", "country", "region", "city", "accent_color", "brand_color", "cover_url"), text),
    **dict.fromkeys(("icon_url", "contact_email", "contact_phone", "contact_website"), text),
    **dict.fromkeys(("created_at", "updated_at"), text),
    **dict.fromkeys(("is_active", "is_featured"), flag),
    "rating": number,
    "social_links": integers,
}
GRANT = {
    **dict.fromkeys(("id", "user_id", "app_id", "conversation_id", "mcp_server_id"), text),
    **dict.fromkeys(("expires_at", "granted_at", "revoked_at"), text),
    "allowed_tools": strings,
    "scope_meta": integers,
    "is_active": flag,
}
EVENT = {
    **dict.fromkeys(("id", "user_id", "app_id", "title", "notes", "starts_at", "ends_at", "reminder_at"), text),
    **dict.fromkeys(("source", "source_event_id", "created_at", "updated_at"), text),
    "is_time_sensitive": flag,
}
NOTIFICATION = {
    **dict.fromkeys(("id", "type", "title", "body", "conversation_id", "session_id", "read_at", "created_at"), text),
    "payload": integers,
    "is_read": flag,
}
FEEDBACK = {
    **dict.fromkeys(("id", "user_id", "feedback_type", "description", "app_version", "screenshot_url"), text),
    **dict.fromkeys(("status", "created_at", "updated_at"), text),
    "device_info": integers,
}

SCHEMAS: dict[str, Any] = {  # of `data`; a list has rows of the schema in it
    "POST /auth/login": {"tokens": TOKENS, "user": USER},
    "GET /chats/{id}/messages": [MESSAGE],
    "DELETE /chats/{session_id}/messages/{message_id}": {"deleted": flag},
    "POST /chats/{session_id}/messages/{message_id}/pin": {"pinned": flag},
    "DELETE /chats/{session_id}/messages/{message_id}/pin": {"unpinned": flag},
    "GET /chats/{session_id}/pinned-messages": [MESSAGE],
    "POST /chats/{id}/archive": {"status": text},
    "DELETE /chats/{id}": {"status": text},
    "POST /chats/{id}/end": {"status": text},
    "PUT /chats/{id}/status": {"status": text},
    "GET /bots": [BOT],
    "GET /bots/{id}": BOT,
    "PATCH /users/me": USER,
    "POST /users/me/avatar": {"profile_image": text},
    "GET /users/me/settings": SETTINGS,
    "PATCH /users/me/settings": SETTINGS,
    "POST /data-shares": GRANT,
    "GET /data-shares": [GRANT],
    "GET /data-shares/{id}": GRANT,
    "DELETE /data-shares/{id}": GRANT,
    "POST /feedback": FEEDBACK,
    "GET /events": [EVENT],
    "GET /notifications": [NOTIFICATION],
    "PATCH /notifications/read-all": {"marked_read": "integer"},
}
METAS = {  # the operations that have `meta`, and its members
    "GET /chats/{id}/messages": {"next_cursor", "page", "per_page", "total"},
    "GET /bots": {"next_cursor", "per_page"},
    "GET /events": {"next_cursor", "page", "per_page", "total"},
    "GET /notifications": {"next_cursor", "per_page", "unread_count"},
}
PAGE = {  # headers of all consent pages
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Case(NamedTuple):
    """A request, and the expected members of `data` or the expected error code."""

    expected: Any = None
    path: str = ""  # if it differs from that of the operation
    body: Any = None
    user: str | None = "alice"
    content_type: str = "application/json"
    while_locked: bool = False  # another process holds the write lock


def form(content: bytes, name: str = "avatar") -> dict[str, Any]:
    """A body of multipart/form-data with one file."""
    head = f'--x\r\nContent-Disposition: form-data; name="{name}"; filename="me.png"\r\n\r\n'
    return {"body": head.encode() + content + b"\r\n--x--\r\n", "content_type": "multipart/form-data; boundary=x"}


def pins(member: str) -> dict[int, Case]:
    """The common cases of pinning and unpinning."""
    path = f"/chats/{h.BUSY}/messages/{{}}/pin"
    return {
        200: Case({member: True}, path.format(h.EDITED)),
        400: Case("message_not_found", path.format(h.UNKNOWN_MESSAGE_ID)),
    }


def control(path: str, status: str, body: Any = None) -> dict[int, Case]:
    """The common cases of the operations that change the status of a chat session."""
    return {
        200: Case({"status": status}, path.format(id=h.QUIET), body),
        400: Case("invalid_id", path.format(id="33"), body),
        403: Case("forbidden", path.format(id=h.BOBS_SESSION), body),
        404: Case("session_not_found", path.format(id=h.UNKNOWN_ID), body),
    }


def grants(id: str, **expected: Any) -> dict[int, Case]:
    """The common cases of reading and revoking a grant."""
    return {
        200: Case({"id": id, **expected}, f"/data-shares/{id}"),
        400: Case("invalid_id", "/data-shares/{51}"),
        403: Case("forbidden", f"/data-shares/{h.BOBS_GRANT}"),
        404: Case("grant_not_found", f"/data-shares/{h.UNKNOWN_ID}"),
    }


NEW_GRANT = {"mcp_server_id": "files", "allowed_tools": ["read"], "conversation_id": h.CONVERSATION, "scope_meta": [1]}

ROWS: dict[str, dict[int, Case]] = {
    "POST /auth/login": {
        200: Case({}, body={"email": " Alice@Example.com", "password": PASSWORD}, user=None),
        400: Case("invalid_body", body={"email": "alice@example.com"}, user=None),
        401: Case("invalid_credentials", body={"email": "alice@example.com", "password": "wrong"}, user=None),
    },
    "GET /chats/{id}/messages": {
        200: Case([{"id": h.HELLO}, {"id": h.PINNED}], f"/chats/{h.SESSION}/messages?limit=2"),
        400: Case("session_not_found", f"/chats/{h.BOBS_SESSION}/messages"),
    },
    "DELETE /chats/{session_id}/messages/{message_id}": {
        200: Case({"deleted": True}, f"/chats/{h.BUSY}/messages/{h.REPLY}"),
        400: Case("invalid_id", f"/chats/{h.BUSY}/messages/{h.REPLY}0"),
        403: Case("forbidden", f"/chats/{h.BUSY}/messages/{h.EDITED}", user="bob"),
        404: Case("message_not_found", f"/chats/{h.BUSY}/messages/{h.UNKNOWN_MESSAGE_ID}"),
    },
    "POST /chats/{session_id}/messages/{message_id}/pin": pins("pinned"),
    "DELETE /chats/{session_id}/messages/{message_id}/pin": pins("unpinned"),
    "GET /chats/{session_id}/pinned-messages": {
        200: Case([{"id": h.PINNED, "is_pinned": True}], f"/chats/{h.SESSION}/pinned-messages"),
        400: Case("invalid_id", "/chats/nonsense/pinned-messages"),
    },
    "POST /chats/{id}/archive": control("/chats/{id}/archive", "archived"),
    "DELETE /chats/{id}": control("/chats/{id}", "archived"),
    "POST /chats/{id}/end": control("/chats/{id}/end", "resolved"),
    "PUT /chats/{id}/status": control("/chats/{id}/status", "snoozed", {"status": "snoozed"}),
    "GET /bots": {
        200: Case([{"id": h.HILDA, "app_id": h.SHOP, "rating": 4.5}], f"/bots?app_id={h.SHOP}"),
        400: Case("invalid_parameter", "/bots"),
    },
    "GET /bots/{id}": {
        200: Case({"id": h.HILDA}, f"/bots/{h.HILDA}?app_id={h.SHOP}"),
        400: Case("invalid_parameter", f"/bots/{h.HILDA}"),
        404: Case("bot_not_found", f"/bots/{h.DRAFT}?app_id={h.SHOP}"),
    },
    "PATCH /users/me": {
        200: Case({"last_name": "Liddell"}, body={"last_name": "Liddell", "location": [-1, 2**63 - 1]}),
        400: Case("invalid_body", body={"location": ["here"]}),
    },
    "POST /users/me/avatar": {
        200: Case({}, **form(h.picture())),
        400: Case("file_missing", **form(h.picture(), name="picture")),
        413: Case("file_too_large", **form(bytes(5 * MIB + 1))),
        415: Case("unsupported_media_type", **form(h.picture("GIF"))),
        503: Case("storage_unavailable", **form(h.picture("WEBP")), while_locked=True),
    },
    "GET /users/me/settings": {200: Case({})},
    "PATCH /users/me/settings": {
        200: Case({"chat_language": "de-CH"}, body={"chat_language": "de-CH", "appearance": {"theme": "dark"}}),
        400: Case("invalid_body", body={"appearance": {"theme": "pink"}}),
    },
    "POST /data-shares": {
        201: Case({"is_active": True, "scope_meta": [1], "revoked_at": None}, body=NEW_GRANT),
        400: Case("invalid_body", body={"mcp_server_id": "files"}),
        404: Case("conversation_not_found", body={**NEW_GRANT, "conversation_id": h.BOBS_CONVERSATION}),
    },
    "GET /data-shares": {200: Case([{"id": h.GRANT, "is_active": True}])},
    "GET /data-shares/{id}": grants(h.GRANT, allowed_tools=["*"], is_active=True),
    "DELETE /data-shares/{id}": grants(h.OTHER_GRANT, is_active=False),
    "POST /feedback": {
        201: Case({"description": "Fine 👍", "status": "new"}, body={"description": "Fine 👍", "device_info": {}}),
        400: Case("invalid_body", body={"description": ""}),
    },
    "GET /events": {200: Case([{"id": h.EVENT, "starts_at": "2026-11-20T09:00:00.000Z"}])},
    "GET /notifications": {200: Case([{"id": h.NOTIFICATION, "type": "chat_message"}])},
    "PATCH /notifications/read-all": {200: Case({})},
    "GET /auth/cli/authorize": {
        200: Case("alice@example.com", f"/auth/cli/authorize?{urlencode(VALID_PARAMETERS)}"),
        400: Case(
            "redirect_uri", f"/auth/cli/authorize?{urlencode(VALID_PARAMETERS | {'redirect_uri': 'http://a.example'})}"
        ),
    },
}
for _operation, _rows in ROWS.items():  # valid requests without credentials
    _rows.setdefault(401, _rows[min(_rows)]._replace(expected="missing_credentials", user=None))

CASES = [(operation, status) for operation, rows in ROWS.items() for status in rows]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder with the sample data, which this process opens too."""
    folder = tmp_path_factory.mktemp("sample") / "data"
    fill(folder, h.records())
    db.open_database(folder, settings_at(folder).database)
    yield folder
    db.close_database()


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    with serving(data, "--verify-answers") as running:
        yield running
        assert "Traceback" not in running.errors


@pytest.fixture(scope="module")
def tokens(server: Served) -> dict[str | None, str]:
    return {None: "", **{name: server.log_in(email) for name, email in h.EMAILS.items()}}


@pytest.fixture
def execute(server: Served, tokens: dict[str | None, str]) -> Callable[[str, Case], Any]:
    """Execute a request."""

    def call(operation: str, case: Case) -> Any:
        method, path = operation.split()
        body = json.dumps(case.body).encode() if isinstance(case.body, dict) else case.body
        headers = {"Content-Type": case.content_type} if body else {}
        with db.write() if case.while_locked else nullcontext():
            reply = server.call(method, f"/api/v1{case.path or path}", body, tokens[case.user], headers=headers)
        reply.headers = {name.lower(): value for name, value in reply.headers.items()}
        return reply

    return call


def assert_schema(value: Any, schema: Any, name: str = "data") -> None:
    """Fail unless a value has exactly the members of a schema, with their types."""
    if isinstance(schema, list):
        assert isinstance(value, list)
        for place, row in enumerate(value):
            assert_schema(row, schema[0], f"{name}[{place}]")
    elif isinstance(schema, dict):
        assert set(value) == set(schema), name
        for member in schema:
            assert_schema(value[member], schema[member], member)
    elif schema == number:
        assert type(value) in (int, float), name
    elif schema in (integers, strings):
        assert isinstance(value, list), name
        assert {type(item) for item in value} <= {int if schema == integers else str}, name
    elif schema == text and value is None:  # only timestamps and references may be null
        assert name.endswith(("_at", "_id", "_until")), name
    else:
        assert type(value) is {text: str, flag: bool, "integer": int}[schema], name
        if name.endswith(("_at", "_until")):
            assert MOMENT.fullmatch(value), name


def assert_members(value: Any, expected: Any) -> None:
    """Fail unless a value, or a row of a list, has the expected members."""
    rows = value if isinstance(value, list) else [value]
    for members in expected if isinstance(expected, list) else [expected]:
        assert members in [{name: row[name] for name in members} for row in rows]


def test_every_documented_status_has_a_row() -> None:
    assert {operation: set(rows) for operation, rows in ROWS.items()} == {
        operation: statuses | {401} for operation, statuses in DOCUMENTED.items()
    }


def test_every_operation_with_data_has_a_schema() -> None:
    assert set(SCHEMAS) | {"GET /auth/cli/authorize"} == set(DOCUMENTED)
    assert set(METAS) <= set(DOCUMENTED)


@pytest.mark.parametrize(("operation", "status"), [pair for pair in CASES if pair[1] < 300])
def test_responses_have_the_documented_members(
    operation: str, status: int, execute: Callable[[str, Case], Any]
) -> None:
    case = ROWS[operation][status]
    reply = execute(operation, case)
    assert reply.status == status, reply.raw
    assert reply.headers["x-request-id"]
    if operation not in SCHEMAS:
        assert_page(reply)
        assert case.expected in reply.raw.decode()
        return
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == ("no-store" if case.user is None else "private, no-cache")
    assert set(reply.json) == {"success", "data"} | ({"meta"} if operation in METAS else set())
    assert_schema(reply.data, SCHEMAS[operation])
    assert_members(reply.data, case.expected)
    for name, value in reply.json.get("meta", {}).items():
        assert type(value) is (str if name == "next_cursor" else int)
    assert set(reply.json.get("meta", {})) == METAS.get(operation, set())


@pytest.mark.parametrize(("operation", "status"), [pair for pair in CASES if pair[1] >= 400])
def test_errors_are_in_the_envelope_and_change_nothing(
    operation: str, status: int, execute: Callable[[str, Case], Any]
) -> None:
    case = ROWS[operation][status]
    with nothing_changes():
        reply = execute(operation, case)
    assert reply.status == status, reply.raw
    assert reply.headers["x-request-id"]
    if operation not in SCHEMAS and status == 400:
        assert_page(reply)
        assert case.expected in reply.raw.decode()
        return
    assert reply.error == (status, case.expected)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-store"
    assert ("www-authenticate" in reply.headers) == (status == 401)
    assert reply.headers.get("www-authenticate", "Bearer").startswith("Bearer")
    assert ("retry-after" in reply.headers) == (status == 503)


def assert_page(reply: Any) -> None:
    """Fail unless the response is a page with strict headers."""
    assert {name: reply.headers[name] for name in PAGE} == PAGE
    policy = dict(part.strip().partition(" ")[::2] for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert not any("unsafe" in sources or "http" in sources for sources in policy.values())
    assert "script-src" not in policy
    assert reply.raw.startswith(b"<!doctype html>")
    assert not re.search(rb"<script|\son\w+=|(?:src|href|action)=.?(?:https?:)?//", reply.raw, re.IGNORECASE)


@pytest.mark.parametrize("token", ["cxa_forged", "cxr_forged", "x"])
@pytest.mark.parametrize("operation", [operation for operation in DOCUMENTED if operation != "POST /auth/login"])
def test_forged_token_is_401_for_all_operations(operation: str, token: str, server: Served) -> None:
    method, path = operation.split()
    path = ROWS[operation][min(ROWS[operation])].path or path
    reply = server.call(method, f"/api/v1{path}", token=token)
    assert reply.error == (401, "invalid_token")


def test_identifiers_have_the_documented_format(execute: Callable[[str, Case], Any]) -> None:
    listed = execute("GET /chats/{id}/messages", Case(path=f"/chats/{h.SESSION}/messages")).data
    assert all(ULID.fullmatch(row["id"]) and UUID.fullmatch(row["chat_session_id"]) for row in listed)
    for operation in ("GET /data-shares", "GET /events", "GET /notifications"):
        assert all(UUID.fullmatch(row["id"]) for row in execute(operation, Case()).data)


def test_imported_values_are_returned(execute: Callable[[str, Case], Any]) -> None:
    """Values that differ from the defaults are returned as imported."""
    listed = execute("GET /chats/{id}/messages", Case(path=f"/chats/{h.SESSION}/messages")).data
    rows = {row["id"]: row for row in listed}
    assert json.loads(bytes(rows[h.HELLO]["content"])) == {"text": "Grüße 👋"}
    assert rows[h.PURGED]["gdpr_original_content_type"] == "text"
    assert rows[h.PURGED]["content"] == []
    (notification,) = execute("GET /notifications", Case()).data
    assert json.loads(bytes(notification["payload"])) == {"message_id": h.PINNED}
