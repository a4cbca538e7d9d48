"""Declarations of operations, and the rules that every declared operation follows."""

import re
from typing import get_origin
from urllib.parse import urlencode

import msgspec
import peewee
import pytest

from service.api import openapi
from service.api.declared_errors import declared_errors, implied_errors
from service.api.operations import Operation, Routes
from service.commands.describe import listing
from service.db import Page, Position
from service.fields import Identifier, Text, UlidIdentifier
from service.http.application import build_app
from service.models import (
    App,
    Avatar,
    Bot,
    BotPicture,
    CannedAnswer,
    CannedReply,
    ChatSession,
    DataShare,
    Event,
    Feedback,
    FeedbackScreenshot,
    Message,
    MessageImage,
    Notification,
    StoredMail,
    User,
)
from service.models.callers import Caller
from service.routes import operations
from tests.support.operations import ALL, DOCUMENTED, accepts_any_identifier, address, every, title
from tests.support.paths import ROOT
from tests.support.sample_operations import UNKNOWN_ID, TextResponse

LIST = ROOT / "docs" / "operations.md"

LENIENT = {  # sections 4.4 to 4.8: the operations without a 400
    "GET /users/me/settings",
    "GET /data-shares",
    "GET /events",
    "GET /notifications",
    "PATCH /notifications/read-all",
}


@pytest.fixture
def existing_ids(alice, session, say, bot):
    """Return a function that gives identifiers of rows that Alice owns."""

    def as_admin(id):
        User.update(role="admin").where(User.id == alice.user.id).execute()
        return id

    make = {
        App: lambda: as_admin(bot.app_id),
        Feedback: lambda: as_admin(Feedback.create(user_id=alice.user.id, description="x").id),
        FeedbackScreenshot: lambda: (
            FeedbackScreenshot.create(
                feedback_id=Feedback.create(user_id=alice.user.id, description="x").id, image=""
            ).feedback_id
        ),
        User: lambda: as_admin(alice.user.id),
        StoredMail: lambda: as_admin(StoredMail.create(user_id=alice.user.id, content="Subject: Hi\n\nHi").id),
        ChatSession: lambda: session.id,
        Message: lambda: say().id,
        Bot: lambda: bot.id,
        CannedAnswer: lambda: CannedAnswer.create(bot_id=bot.id, question="Open?", answer="Yes.").id,
        CannedReply: lambda: CannedReply.create(app_id=bot.app_id, shortcut="hi", text="Hi.").id,
        DataShare: lambda: DataShare.grant(alice.user.id, mcp_server_id="files", allowed_tools='["read"]').id,
        Avatar: lambda: Avatar.create(user_id=alice.user.id, image="").name,
        MessageImage: lambda: (
            MessageImage.create(
                chat_session_id=session.id,
                user_id=alice.user.id,
                message_id=Message.select(peewee.fn.max(Message.id)).scalar(),
                image="",
            ).id
        ),
        BotPicture: lambda: BotPicture.create(id="1", bot_id=bot.id, kind="icon", image="").name,
        Event: lambda: Event.create(user_id=alice.user.id, title="Call", starts_at="2026-11-20T10:00:00.000Z").id,
        Notification: lambda: Notification.create(user_id=alice.user.id, title="News").id,
    }
    return lambda operation: [make[table]() for _, _, table in operation.path_rows]


def missing_ids(operation):
    """Return identifiers without rows."""
    kinds = {Identifier: UNKNOWN_ID, UlidIdentifier: "0" * 26, Text: "nothing"}
    return [kinds[type(table.path_column())] for _, _, table in operation.path_rows]


@pytest.fixture(scope="module")
def described():
    return openapi.document(ALL.values(), pages=True)


class TestEveryOperation:
    @every(lambda operation: not operation.public)
    def test_requires_credentials_unless_it_is_public(self, anyone, operation):
        reply = anyone.call(operation.method, address(operation, *["x"] * len(operation.path_rows)))
        assert reply.error == (401, "missing_credentials")
        assert operation.handler is not None

    @every(lambda operation: operation.public)
    def test_sends_no_challenge_if_it_is_public(self, anyone, operation):
        path = address(operation, *missing_ids(operation))
        reply = anyone.call(operation.method, path, content_type="application/json")
        assert reply.headers.get("WWW-Authenticate") is None

    @every(lambda operation: not operation.public)
    def test_refuses_forged_credentials(self, anyone, operation):
        path = address(operation, *["x"] * len(operation.path_rows))
        for token in ("Bearer cxa_forged", "Bearer ", "bearer\tx", "Basic eDp5", "Basic "):
            assert anyone.call(operation.method, path, authorization=token).status == 401

    @every(  # those without the envelope have errors of their own
        lambda operation: (
            operation.body
            and not operation.is_lenient
            and not operation.is_bare
            and operation.accepts == "application/json"
        )
    )
    def test_refuses_a_malformed_body(self, alice, existing_ids, operation):
        path = address(operation, *existing_ids(operation))
        for raw in (b"{", b"[]", b"\xff"):
            assert alice.call(operation.method, path, raw=raw).error[0] == 400
        assert alice.call(operation.method, path, raw=b" " * (operation.max_body + 1)).error == (413, "body_too_large")

    @every(lambda operation: operation.body and operation.is_lenient)
    def test_ignores_a_malformed_body_if_it_is_lenient(self, alice, existing_ids, operation):
        reply = alice.call(operation.method, address(operation, *existing_ids(operation)), raw=b"{")
        assert reply.status == operation.status
        assert reply.headers["X-Request-Warning"].startswith("body: ")

    @every(lambda operation: operation.path_rows and not accepts_any_identifier(operation) and not operation.is_page)
    def test_refuses_malformed_identifiers(self, alice, operation):
        reply = alice.call(operation.method, address(operation, *["x"] * len(operation.path_rows)))
        assert reply.error == (400, "invalid_id")

    @every(lambda operation: operation.path_rows)
    def test_missing_rows_are_not_found(self, alice, operation):
        reply = alice.call(operation.method, address(operation, *missing_ids(operation)))
        assert reply.error[0] == (404 if 404 in operation.statuses else 400)

    @every(lambda operation: any(table is ChatSession for *_, table in operation.path_rows))
    def test_refuses_chat_sessions_of_other_users(self, bob, existing_ids, operation):
        reply = bob.call(operation.method, address(operation, *existing_ids(operation)))
        assert reply.error == ((403, "forbidden") if 403 in operation.statuses else (400, "session_not_found"))

    @every(lambda operation: operation.query)
    def test_ignores_unknown_parameters(self, alice, existing_ids, operation):
        path = address(operation, *existing_ids(operation))
        assert "nonsense" not in alice.call(operation.method, f"{path}?nonsense=%ff&nonsense=1").raw.decode()

    @every(lambda operation: operation.query and not operation.is_page)
    def test_accepts_every_declared_default_and_empty_filter(self, admin, existing_ids, operation, described):
        shown = described["paths"][operation.full_path][operation.method.lower()]["parameters"]
        empty_filters = {
            member.encode_name for member in msgspec.structs.fields(operation.query) if member.default == ""
        }
        parameters = {one["name"]: one["schema"]["default"] for one in shown if "default" in one["schema"]}
        parameters |= dict.fromkeys(empty_filters - {"from", "to"}, "")
        parameters |= {name: str(value).lower() for name, value in parameters.items() if isinstance(value, bool)}
        parameters |= {"wait": 0} if "wait" in parameters else {}  # its default would suspend the request
        required = {"app_id": UNKNOWN_ID, "q": "x", "token": "x"}
        names = {one["name"] for one in shown if one["in"] == "query"}
        parameters |= {name: value for name, value in required.items() if name in names}
        path = address(operation, *existing_ids(operation))
        assert admin.get(f"{path}?{urlencode(parameters)}").status in (200, 404)
        for name, value in parameters.items():
            reply = admin.get(f"{path}?{urlencode(required | {name: value})}")
            assert reply.status in (200, 404), name
            assert "X-Request-Warning" not in reply.headers

    @every(lambda operation: operation.full_path != "/")
    def test_supports_options_and_refuses_other_methods(self, anyone, operation):
        path = address(operation, *missing_ids(operation))
        assert operation.method in anyone.call("OPTIONS", path).headers["Allow"].split(", ")
        assert anyone.call("TRACE", path).error == (405, "method_not_allowed")


class TestEveryDeclaration:
    @every()
    def test_has_a_summary_of_one_sentence(self, operation):
        assert re.fullmatch(r"[A-Z][^\n]{5,118}[\w`)]\.", operation.summary)

    @every()
    def test_handler_is_named_verb_noun(self, operation):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", operation.name)

    def test_names_are_unique(self):
        assert len(ALL) == len(list(operations()))

    @every(lambda operation: get_origin(operation.handler.__annotations__["return"]) is Page)
    def test_lists_accept_a_cursor_and_a_size(self, operation):
        members = {member.name: member for member in msgspec.structs.fields(operation.query)}
        assert members["cursor"].default == Position()
        assert {"limit", "per_page"} & set(members)

    @every(lambda operation: operation.is_lenient)
    def test_without_a_400_accepts_any_input(self, operation):
        assert accepts_any_identifier(operation)
        assert not operation.body or callable(operation.body.nothing)
        assert not operation.query or not any(member.required for member in msgspec.structs.fields(operation.query))

    @every()
    def test_has_401_if_it_has_a_caller(self, operation, described):
        responses = described["paths"][operation.full_path][operation.method.lower()]["responses"]
        assert ("401" in responses) == (not operation.public or 401 in operation.statuses)

    @every(lambda operation: not operation.is_page)
    def test_every_error_status_has_a_code(self, operation):
        assert {status for status in operation.all_statuses if status >= 400} == set(declared_errors(operation))

    @every(lambda operation: operation.errors)
    def test_does_not_declare_implied_errors(self, operation):
        assert not set(operation.errors) & {*implied_errors(operation)}

    @every()
    def test_is_in_the_openapi_document(self, operation, described):
        shown = described["paths"][operation.full_path][operation.method.lower()]
        assert shown["operationId"] == operation.name
        assert shown["summary"] == operation.summary
        assert set(shown["responses"]) == {"default", *map(str, operation.all_statuses)}
        assert shown.get("x-extension", False) is operation.extension
        ways = ["bearer"] * (not operation.public) + ["basic"] * bool(operation.basic)
        assert shown["security"] == [{way: []} for way in ways]
        assert ("requestBody" in shown) == bool(operation.body)

    def test_is_in_the_list_of_operations(self):
        block = LIST.read_text().split("```\n")[1].split("```")[0]
        assert block == listing(ALL.values()), (
            "replace the list in docs/operations.md by the output of `python app.py routes`"
        )

    def test_list_has_one_line_for_each(self):
        lines = listing(ALL.values()).splitlines()
        assert len(lines) == len(ALL)
        assert all(line == line.rstrip() for line in lines)


class TestTheDocumentedOperations:
    def test_are_those_of_the_specification(self):
        assert {title(operation) for operation in ALL.values() if not operation.extension} == set(DOCUMENTED)

    @every(lambda operation: not operation.extension)
    def test_have_the_statuses_of_the_specification(self, operation):
        assert set(operation.statuses) == DOCUMENTED[title(operation)]
        assert operation.prefix == "/api/v1"

    @every(lambda operation: not operation.extension)
    def test_are_lenient_if_the_specification_lists_no_400(self, operation):
        assert operation.is_lenient == (title(operation) in LENIENT)

    def test_remain_without_extensions(self):
        remaining = {operation.full_path for operation in operations(documented_only=True) if operation.extension}
        assert remaining <= {"/healthz", "/readyz", "/metrics", "/avatars/{name}", "/bot-pictures/{name}"}
        assert {title(operation) for operation in operations(documented_only=True)} >= set(DOCUMENTED)

    def test_extensions_do_not_exist_with_documented_only(self, settings, application):
        from dataclasses import replace

        from tests.support.client import Client

        documented = Client(build_app(operations(documented_only=True), replace(settings, documented_only=True)))
        for operation in ALL.values():
            expected = operation.always_served or not operation.extension
            reply = documented.call("OPTIONS", address(operation, *missing_ids(operation)))
            allowed = reply.headers.get("Allow", "").split(", ")
            assert (operation.method in allowed) == expected, operation.name

    def test_responses_have_the_same_bytes_without_extensions(self, settings, host_clock, alice, session, say, bot):
        from dataclasses import replace

        from tests.support.client import Client

        for text in ("one", "two", "three"):
            alice.post(f"/chats/{session.id}/messages/{say(text).id}/pin")
        alice.post("/data-shares", {"mcp_server_id": "files", "allowed_tools": ["read"]})
        documented_only = replace(settings, documented_only=True)
        documented = Client(build_app(operations(documented_only=True), documented_only), alice.token)
        for path in (
            f"/chats/{session.id}/messages?limit=2",
            f"/chats/{session.id}/pinned-messages",
            f"/bots?app_id={bot.app_id}",
            f"/bots/{bot.id}?app_id={bot.app_id}",
            "/users/me/settings",
            "/data-shares",
            "/events",
            "/notifications",
            "/events?cursor=x",
            f"/chats/{UNKNOWN_ID}/messages",
        ):
            reply = alice.get(path)
            assert (documented.get(path).status, documented.get(path).raw) == (reply.status, reply.raw), path


def speak(caller: Caller) -> TextResponse:
    """Say something."""
    return TextResponse("x")


def declare(handler=speak, path="/x", **options):
    """Declare an operation as a module of routes does."""
    Routes("Invalid").get(path, **{"statuses": (200,), **options})(handler)


class TestDeclaringAnOperation:
    def test_keeps_the_declaration(self):
        routes = Routes("Good", scope="chats")
        routes.post("/x/{id}", statuses=(201, 400))(HANDLERS["good"])
        [operation] = routes
        assert (operation.tag, operation.name, operation.summary) == ("Good", "good", "Say something.")
        assert (operation.status, operation.full_path, operation.needed_scope) == (201, "/api/v1/x/{id}", "chats")
        assert operation.all_statuses == {201, 400, 401}
        assert operation.path_rows == (("id", "session", ChatSession),)

    def test_get_needs_a_read_scope(self):
        routes = Routes("Good", scope="chats")
        routes.get("/x", statuses=(200,))(speak)
        assert next(iter(routes)).needed_scope == "chats:read"

    @pytest.mark.parametrize("option", ["status", "pubic", "metas"])
    def test_refuses_unknown_options(self, option):
        with pytest.raises(TypeError, match=option):
            declare(**{option: True})

    def test_refuses_a_declaration_without_statuses(self):
        with pytest.raises(TypeError, match="statuses"):
            Routes("Invalid").get("/x")(speak)

    @pytest.mark.parametrize(
        ("handler", "options", "error"),
        [
            ("no_docstring", {}, "needs a docstring"),
            ("speak", {"path": "/x/{id}"}, "does not look up every identifier of its path"),
            ("good", {}, "does not look up every identifier of its path"),
            ("unknown_parameter", {}, "has an unknown parameter"),
            ("speak", {"public": True}, "has a caller but is public"),
            ("no_return", {}, "has no return annotation"),
            ("speak", {"meta": ("total",)}, "declares meta but returns no page"),
            ("page_without_meta", {}, "declares meta but returns no page"),
            ("page_without_cursor", {"meta": ("total",)}, "returns a page but has no cursor"),
            ("requires_a_parameter", {"statuses": (200, 401)}, "requires a parameter but declares no 400"),
            ("public_create", {"statuses": (201, 400), "public": True}, "creates a row but is public"),
        ],
    )
    def test_refuses_an_invalid_handler(self, handler, options, error):
        with pytest.raises(TypeError, match=rf"GET /x.*: \w+ {error}"):
            declare(HANDLERS[handler], **options)

    def test_operation_is_immutable(self):
        with pytest.raises(AttributeError):
            next(iter(ALL.values())).path = "/elsewhere"


class RequiredQuery(msgspec.Struct):
    """A query with a required parameter."""

    app_id: str


def _handlers():
    def good(session: ChatSession) -> TextResponse:
        """Say something.

        With details.
        """

    def no_docstring(caller: Caller) -> TextResponse: ...

    def unknown_parameter(caller: Caller, cookies: dict) -> TextResponse:
        """Say something."""

    def page_without_cursor(caller: Caller) -> Page[ChatSession]:
        """List something."""

    def requires_a_parameter(query: RequiredQuery) -> TextResponse:
        """Say something."""

    def public_create() -> TextResponse:
        """Say something."""

    def no_return(caller: Caller):
        """Say something."""

    def page_without_meta(caller: Caller) -> Page[ChatSession]:
        """Say something."""

    return {**locals(), "speak": speak}


HANDLERS = _handlers()


class TestBuildingAService:
    def operation(self, path="/elsewhere", method="GET", handler=speak):
        return Operation(method=method, path=path, handler=handler, statuses=(200,), tag="x")

    def test_refuses_a_path_that_is_declared_twice(self, settings):
        def repeat(caller: Caller) -> TextResponse:
            """Say something."""

        with pytest.raises(TypeError, match=r"GET /api/v1/elsewhere \(repeat\) is declared twice"):
            build_app([self.operation(), self.operation(handler=repeat)], settings)

    def test_refuses_paths_that_differ_only_in_the_name_of_an_identifier(self, settings):
        def again(chat: ChatSession) -> TextResponse:
            """Say something."""

        with pytest.raises(TypeError, match="declared twice"):
            build_app(
                [self.operation("/x/{id}", handler=HANDLERS["good"]), self.operation("/x/{it}", handler=again)],
                settings,
            )

    def test_refuses_a_name_that_is_declared_twice(self, settings):
        with pytest.raises(TypeError, match=r"\(speak\) is declared twice"):
            build_app([self.operation(), self.operation("/another")], settings)

    def test_accepts_two_methods_of_one_path(self, settings):
        def speak_by_post(caller: Caller) -> TextResponse:
            """Say something."""

        build_app([self.operation(), self.operation(method="POST", handler=speak_by_post)], settings)
