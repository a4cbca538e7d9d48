"""docs/decisions.md: it is complete, its tests exist, and the decisions that no other file tests."""

import ast
import functools
import io
import itertools
import json
import re
import socket
from urllib.parse import urlencode

import msgspec
import pytest
from PIL import Image

from service.api import openapi
from service.api.schemas import row_schema, wire_type
from service.errors import ApiError
from service.models import Bot, DataShare, Event, Feedback, Message, Notification, User
from service.operate import import_export
from service.preferences import Settings as Preferences
from service.routes import operations
from tests.support.client import walk
from tests.support.observe import nothing_changes
from tests.support.operations import DOCUMENTED, title
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.sample_operations import UNKNOWN_ID

TEXT = (ROOT / "docs" / "decisions.md").read_text("utf-8")

NOT_SHOWN = {  # every place where the specification says "not shown", a line for each question in it
    "Section 1": ["Purpose and behaviour beyond the operations below"],
    "Section 2.12": [
        "Inner structure of `location`",
        "Inner structure of `content`",
        "Inner structure of `original_content`",
        "Inner structure of `translations`",
        "Inner structure of `reply_snapshot`",
        "Inner structure of `action_payload`",
        "Inner structure of `payload`",
        "Inner structure of `social_links`",
        "Inner structure of `scope_meta`",
        "Which response fields are always present",
        "Format of timestamp strings in responses",
        "Allowed values of `role`",
        "Allowed values of `user_type`",
        "Allowed values of `auth_provider`",
        "Allowed values of `channel`",
        "Allowed values of `content_type`",
        "Allowed values of `sender_type`",
        "Allowed values of message `status`",
        "Allowed values of `feedback_type`",
        "Allowed values of feedback `status`",
        "Allowed values of event `source`",
    ],
    "Section 3": [
        "Bot `status`: transitions",
        "Bot `presence`: transitions",
        "Chat session `status`: the literal values",
        "Chat session `status`: the permitted source states",
        "Which status an archived session carries",
        "Which status an ended session carries",
        "What happens to a grant when `expires_at` passes",
    ],
    "Section 4": [
        "Which request-body fields are required",
        "Operations other than those listed here",
        "Effects of repeating an operation: pinning a pinned message",
        "… archiving an archived session, ending an ended one, setting the same status",
    ],
    "Section 4.8": ["Exactly which timestamp the cutoff is compared against"],
    "Section 5": [
        "The scheme of the header value",
        "The format of the header value",
        "Token lifetimes",
        "The refresh operation",
        "How a refresh token is used",
        "The allowed values of the consent page's `scope` parameter",
        "Which callers may act on which sessions",
        "Which callers may act on which messages",
        "Which callers may act on which grants",
    ],
    "Section 6": [
        "Outbound event delivery such as webhooks or streams",
        "Payload formats for outbound event delivery",
        "Notification `type` values other than `chat_message`",
        "Which operations create notifications",
        "Which operations create events",
    ],
    "Section 7": [
        "The error `code` values",
        "Conditions for 400 beyond those given per operation",
        "Conditions for 403 beyond those given per operation",
        "Conditions for 503 beyond those given per operation",
    ],
    "Section 8": [
        "limit of GET /notifications: default",
        "limit of GET /chats/{id}/messages: default",
        "limit of GET /chats/{id}/messages: maximum",
        "Rate limits",
        "Quotas",
    ],
    "Section 9": ["Deprecation policy", "The rules for compatible changes"],
}

MEMBERS = {  # sections 2.2 and 2.6 to 2.11 of the specification
    User: "id email first_name last_name auth_provider created_at last_login_at is_anonymous is_verified location "
    "onboarding_completed profile_image role user_type",
    Message: "id chat_session_id conversation_id identity_id sender_id sender_type channel status content_type content "
    "original_content translations reply_to_message_id reply_snapshot action_id action_source_id action_payload "
    "is_edited edited_at is_pinned is_private is_read_once deleted_at gdpr_purged gdpr_purged_at "
    "gdpr_original_content_type created_at updated_at",
    Bot: "id app_id name slug tagline description category kind status presence is_active is_featured rating country "
    "region city accent_color brand_color cover_url icon_url contact_email contact_phone contact_website social_links "
    "created_at updated_at",
    DataShare: "id user_id app_id conversation_id mcp_server_id allowed_tools scope_meta expires_at granted_at "
    "revoked_at is_active",
    Event: "id user_id app_id title notes starts_at ends_at reminder_at is_time_sensitive source source_event_id "
    "created_at updated_at",
    Notification: "id type title body conversation_id session_id payload is_read read_at created_at",
    Feedback: "id user_id feedback_type description app_version device_info screenshot_url status created_at "
    "updated_at",
}
WORDS = {DataShare: "data share"}  # of tables in texts
META = {  # section 4 of the specification: 4.2, 4.3, 4.7, 4.8
    "GET /chats/{id}/messages": {"next_cursor", "page", "per_page", "total"},
    "GET /bots": {"next_cursor", "per_page"},
    "GET /events": {"next_cursor", "page", "per_page", "total"},
    "GET /notifications": {"next_cursor", "per_page", "unread_count"},
}
REQUIRED = {  # of the operations with a body
    "POST /auth/login": {"email", "password"},
    "PUT /chats/{id}/status": {"status"},
    "PATCH /users/me": set(),
    "PATCH /users/me/settings": set(),
    "POST /users/me/avatar": {"avatar"},
    "POST /data-shares": {"mcp_server_id", "allowed_tools"},
    "POST /feedback": {"description"},
    "PATCH /notifications/read-all": set(),
}


def tables():
    """Yield the tables of the page: the heading above, and the rows without the first two lines."""
    heading, rows = "", []
    for line in TEXT.splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        elif line.startswith("| "):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif line.startswith("|---"):
            rows.clear()
        elif rows:
            yield heading, rows
            rows = []
    yield heading, rows


def decision_rows():
    """Return the rows of decisions with their headings."""
    return [(heading, row) for heading, rows in tables() for row in rows if len(row) > 2]


@functools.cache
def names_in(file):
    """Return the names that a test file defines; those inside a class as `TestClass::test_name`."""
    found = set()
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


@pytest.fixture
def import_records(application, tmp_path):
    """Return a function that imports records and return the errors."""

    def run(*records):
        file = tmp_path / "records.jsonl"
        file.write_text("\n".join(json.dumps(record) for record in records))
        return [error.partition(": ")[2] for error in import_export.import_files([file])]

    return run


class TestThePage:
    @pytest.mark.parametrize("section", NOT_SHOWN)
    def test_has_a_decision_for_each_gap_of_the_specification(self, section):
        decisions = [row[0] for heading, row in decision_rows() if heading.partition(":")[0] == section]
        missing = [question for question in NOT_SHOWN[section] if question not in decisions]
        assert not missing

    def test_decisions_are_unique(self):
        beginnings = [(heading, *row[:2]) for heading, row in decision_rows()]
        assert len(set(beginnings)) == len(beginnings) > 120

    def test_every_decision_has_a_reason_and_a_test(self):
        for heading, row in decision_rows():
            assert len(row) == (5 if heading.startswith("Where the specification contradicts") else 4), row
            assert all(row), row
            tests = row[-1].split(", ")
            assert all(re.fullmatch(r"`tests/(\w+/)?test_\w+\.py(::\w+)*`", test) for test in tests), row

    @pytest.mark.slow
    def test_names_tests_that_exist(self):
        named = set(re.findall(r"`(tests/[\w/]+\.py)(?:::([\w:]+))?`", TEXT))
        assert len(named) > 60
        missing = {file for file, _ in named if not (ROOT / file).is_file()}
        assert not missing
        assert not {f"{file}::{name}" for file, name in named if name and name not in names_in(file)}

    def test_names_every_test_of_this_file(self):
        own_tests = {name for name in names_in("tests/project/test_decisions.py") if name.startswith("test_")}
        assert not {name for name in own_tests if f"`tests/project/test_decisions.py::{name}`" not in TEXT}


def test_every_error_code_is_listed():
    def codes(kind):
        return {(kind.status, kind.code)}.union(*map(codes, kind.__subclasses__()))

    used = {code for kind in ApiError.__subclasses__() for code in codes(kind)}
    rows = [row for heading, rows in tables() if heading.startswith("Section 7") for row in rows if len(row) == 2]
    assert {(int(status), code) for status, text in rows for code in re.findall(r"`(\w+)`", text)} == used


def test_every_extension_is_listed():
    rows = [row for heading, rows in tables() if heading == "Extensions" for row in rows]
    extensions = {f"`{operation.method} {operation.full_path}`" for operation in operations() if operation.extension}
    assert {row[0] for row in rows} == extensions, "list extensions in the table Extensions of docs/decisions.md"


# Section 2.12


def test_resources_have_the_members_of_the_specification():
    for table, members in MEMBERS.items():
        assert {member.name for member in msgspec.structs.fields(row_schema(table))} == set(members.split())
        assert all(member.required for member in msgspec.structs.fields(row_schema(table)))


def test_every_setting_and_member_of_the_specification_is_explained():
    explained = {}
    for row in (row for heading, rows in tables() if heading == "What settings and members do" for row in rows):
        subject = row[0].partition(" `")[0]
        explained.setdefault(subject, []).extend(re.findall(r"`([\w.]+)`", row[0]))
    expected = {WORDS.get(table, table.__name__.lower()): members.split() for table, members in MEMBERS.items()}
    expected["user"] += ["display_name", "locale", "phone", "timezone"]  # of section 2.4
    expected["settings"] = [*leaves(msgspec.to_builtins(Preferences()))]
    assert {subject: sorted(members) for subject, members in explained.items()} == {
        subject: sorted(members) for subject, members in expected.items()
    }


def leaves(document, prefix=""):
    """Yield the dotted names of all members of a document that are no objects."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_json_inside_a_resource_is_its_bytes(alice, shop, session, import_records):
    value = {"é": [1, None], "b": "x y"}
    encoded = list('{"é":[1,null],"b":"x y"}'.encode())
    members = ("original_content", "translations", "reply_snapshot", "action_payload")
    record = {"chat_session_id": session.id, **dict.fromkeys(members, value)}
    bot = {"app_id": shop.id, "name": "B", "status": "published", "social_links": value}
    assert not import_records({"message": record}, {"bot": bot})
    (message,) = walk(alice, f"/chats/{session.id}/messages")
    assert {name: message[name] for name in members} == dict.fromkeys(members, encoded)
    assert [encoded] == [bot["social_links"] for bot in walk(alice, "/bots", app_id=shop.id) if bot["name"] == "B"]


def test_roles_are_a_closed_list(import_records):
    assert not import_records(
        *({"user": {"email": f"{role}@b.de", "role": role}} for role in ("user", "agent", "admin"))
    )
    with nothing_changes():
        assert import_records({"user": {"email": "boss@b.de", "role": "boss"}}) == [
            "$.user.role: invalid enum value 'boss'"
        ]
        assert import_records({"user": {"email": "boss@b.de", "role": "Admin"}}) == [
            "$.user.role: invalid enum value 'Admin'"
        ]


def minimal_record(name, alice, session):
    """Return a minimal record of a kind."""
    user = {"user_id": alice.user.id}
    return {
        "user": {"email": "user@b.de"},
        "message": {"chat_session_id": session.id},
        "notification": user,
        "feedback": {"description": "x", **user},
        "event": {"starts_at": "2026-11-20T10:30:00Z", **user},
    }[name]


@pytest.mark.parametrize(
    ("table", "member", "default"),
    [
        (User, "user_type", "customer"),
        (User, "auth_provider", "password"),
        (Message, "channel", "web"),
        (Message, "content_type", "text"),
        (Message, "sender_type", "user"),
        (Message, "status", "sent"),
        (Notification, "type", "chat_message"),
    ],
)
def test_labels_can_be_any_text(alice, session, import_records, table, member, default):
    kind = table.__name__.lower()
    assert not import_records({kind: minimal_record(kind, alice, session)})
    assert table.select().where(getattr(table, member) == default).exists()
    unusual = ("Übersetzer 7/é " + "x" * 64)[:64]
    table.delete().where(getattr(table, "email", table.id) == "user@b.de").execute()
    assert not import_records({kind: {**minimal_record(kind, alice, session), member: unusual}})
    assert table.select().where(getattr(table, member) == unusual).exists()
    with nothing_changes():
        (error,) = import_records({kind: {**minimal_record(kind, alice, session), member: unusual + "x"}})
    assert error.startswith(f"$.{kind}.{member}: ")


@pytest.mark.parametrize(
    ("table", "member", "default"),
    [(Feedback, "feedback_type", "general"), (Feedback, "status", "new"), (Event, "source", "manual")],
)
def test_labels_that_are_slugs(alice, session, import_records, table, member, default):
    kind = table.__name__.lower()
    assert not import_records({kind: minimal_record(kind, alice, session)})
    assert [getattr(row, member) for row in table.select()] == [default]
    for word in ("In_review-2", "x" * 64):
        assert not import_records({kind: {**minimal_record(kind, alice, session), member: word}})
        assert table.select().where(getattr(table, member) == word).exists()
    for wrong in ("two words", "é", "_x", "x" * 65):
        with nothing_changes():
            (error,) = import_records({kind: {**minimal_record(kind, alice, session), member: wrong}})
        assert error.startswith(f"$.{kind}.{member}: ")


# Section 3


@pytest.mark.parametrize(
    ("member", "words"), [("status", ("draft", "published")), ("presence", ("online", "away", "rsvp", "offline"))]
)
def test_bots_can_be_changed_by_import_only(alice, admin, bot, import_records, member, words):
    for word in itertools.chain.from_iterable(itertools.permutations(words, 2)):
        assert not import_records({"bot": {"id": bot.id, "app_id": bot.app_id, member: word}})
        assert getattr(Bot.get_by_id(bot.id), member) == word
    with nothing_changes(Bot):
        for method in ("PUT", "PATCH", "POST", "DELETE"):
            for path in ("/bots", f"/bots/{bot.id}"):
                assert admin.call(method, path, {member: words[0]}).error == (405, "method_not_allowed")


# Section 4


def test_bodies_have_the_required_members_only():
    documented = [operation for operation in operations() if not operation.extension and operation.body]
    required = {
        title(operation): {
            field.encode_name for field in msgspec.structs.fields(wire_type(operation.body)) if field.required
        }
        for operation in documented
    }
    assert required == REQUIRED


# Section 6


def send_all_requests(alice, bot, session, say):
    """Send a request to every documented operation that could create notifications or events."""
    message = say().id
    alice.post("/auth/login", {"email": alice.user.email, "password": PASSWORD})
    grant_body = {"mcp_server_id": "files", "allowed_tools": ["read"], "conversation_id": session.conversation_id}
    grant = alice.post("/data-shares", grant_body).data["id"]
    consent = urlencode(
        {
            "client_id": "service-cli",
            "response_type": "code",
            "code_challenge": "A" * 43,
            "code_challenge_method": "S256",
            "redirect_uri": "http://127.0.0.1:9/done",
            "state": "s",
            "install_id": "i",
        }
    )
    feedback = {"description": "x", "screenshot_url": "http://127.0.0.1:9/shot.png"}
    replies = [
        alice.post("/feedback", feedback),
        alice.patch("/users/me", {"first_name": "Alicia"}),
        alice.patch("/users/me/settings", {"notifications": {"push_enabled": True, "email_enabled": True}}),
        alice.delete(f"/data-shares/{grant}"),
        alice.post(f"/chats/{session.id}/messages/{message}/pin"),
        alice.delete(f"/chats/{session.id}/messages/{message}"),
        alice.post(f"/chats/{session.id}/end"),
        alice.post(f"/chats/{session.id}/archive"),
        alice.put(f"/chats/{session.id}/status", {"status": "open"}),
        alice.get(f"/bots/{bot.id}?app_id={bot.app_id}"),
        alice.get(f"/auth/cli/authorize?{consent}"),
    ]
    assert {reply.status for reply in replies} == {200, 201}


def test_own_actions_create_no_notifications_or_events(alice, bot, session, say):
    with nothing_changes(Notification, Event):
        send_all_requests(alice, bot, session, say)


def test_service_opens_no_connections(alice, bot, session, say, monkeypatch):
    connections = []
    monkeypatch.setattr(socket.socket, "connect", lambda *arguments: connections.append(arguments))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **_: connections.append(arguments))
    send_all_requests(alice, bot, session, say)
    assert not connections


def test_only_the_stream_of_updates_is_open_ended():
    types = {operation.produces for operation in operations()}
    assert types == {
        *("application/json", "text/html", "image/webp", "application/vnd.oai.openapi+json", "text/event-stream"),
        *("text/html; charset=utf-8", "text/calendar; charset=utf-8"),
        *("text/plain; version=0.0.4; charset=utf-8", "application/vnd.sqlite3"),
    }


# Section 8


@pytest.mark.parametrize(
    ("path", "name", "default", "maximum"),
    [
        ("/bots?app_id={app}", "per_page", 25, 100),
        ("/events?", "limit", 25, 200),
        ("/notifications?", "limit", 25, 100),
        ("/chats/{session}/messages?", "limit", 50, 200),
    ],
)
def test_page_sizes(alice, shop, session, path, name, default, maximum):
    path = path.format(app=shop.id, session=session.id)
    other = {"limit": "per_page", "per_page": "limit"}[name]
    for parameter, used in [
        ("", default),
        (f"{name}={maximum}", maximum),
        (f"{name}={maximum + 1}", maximum),
        (f"{name}=0", 1),
    ]:
        assert alice.get(f"{path}&{parameter}").meta["per_page"] == used
    assert alice.get(f"{path}&{other}=7").meta["per_page"] == default


def test_requests_of_a_caller_are_not_limited(alice):
    assert {alice.get("/users/me/settings").status for _ in range(150)} == {200}


# Section 9


def test_nothing_is_deprecated():
    paths = openapi.document(operations())["paths"]
    assert not [path for path, described in paths.items() if any(one.get("deprecated") for one in described.values())]
    documented = [operation for operation in operations() if not operation.extension]
    assert {title(operation) for operation in documented} == set(DOCUMENTED)
    assert {operation.prefix for operation in documented} == {"/api/v1"}


# Where the specification contradicts itself


def test_meta_has_the_members_that_section_4_lists():
    filled = {title(operation): set(operation.meta) for operation in operations(documented_only=True) if operation.meta}
    assert filled == META


# Further decisions


def test_rating_has_15_digits(alice, shop, import_records):
    for rating, stored in ((0.1234567890123456, 0.123456789012346), (4.7, 4.7), (1 / 3, 0.333333333333333)):
        assert not import_records(
            {"bot": {"id": UNKNOWN_ID, "app_id": shop.id, "status": "published", "rating": rating}}
        )
        assert alice.get(f"/bots/{UNKNOWN_ID}?app_id={shop.id}").data["rating"] == stored


def test_complete_and_plain_members_take_precedence_on_import(alice, anyone, session, import_records):
    user = {"email": "dora@example.com", "password_hash": alice.user.password_hash, "password": "another one"}
    record = {"chat_session_id": session.id, "text": "short", "content": {"text": "full", "more": 1}}
    assert not import_records({"user": user}, {"message": record})
    (message,) = walk(alice, f"/chats/{session.id}/messages")
    assert bytes(message["content"]).decode() == '{"text":"full","more":1}'
    assert anyone.post("/auth/login", {"email": "dora@example.com", "password": PASSWORD}).status == 401
    assert anyone.post("/auth/login", {"email": "dora@example.com", "password": "another one"}).status == 200


def test_form_field_without_a_file_name_is_not_a_file(alice):
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "PNG")
    for parameters, status in ((b"", 400), (b"\r\nContent-Type: text/plain", 400), (b'; filename="me.png"', 200)):
        head = b'--x\r\nContent-Disposition: form-data; name="avatar"' + parameters
        raw = head + b"\r\n\r\n" + stream.getvalue() + b"\r\n--x--\r\n"
        reply = alice.post("/users/me/avatar", raw=raw, content_type="multipart/form-data; boundary=x")
        assert reply.status == status
        assert status == 200 or reply.error == (400, "file_missing")


def test_openapi_document_has_an_address(anyone):
    reply = anyone.get("//docs/openapi.json")
    assert reply.headers["Content-Type"] == "application/vnd.oai.openapi+json"
    assert reply.json == json.loads(msgspec.json.encode(openapi.document(operations())))
