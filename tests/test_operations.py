"""What an operation declares, and every declared operation against the rules that hold for all of them."""

import re
from pathlib import Path
from typing import get_origin
from urllib.parse import urlencode

import msgspec
import pytest

from service import openapi
from service.commands.describe import listing
from service.db import Page, Position
from service.declared_errors import declared_errors, implied_errors
from service.fields import Identifier, Sortable, Text
from service.models import App, Avatar, Bot, ChatSession, DataShare, Event, Feedback, Message, Notification, User
from service.models.people import Caller
from service.operations import Operation, Routes
from service.routes import operations
from service.web import build_app
from tests.samples import NOBODY, Told

ALL = {operation.name: operation for operation in operations()}
README = Path(__file__).parent.parent / "README.md"

DOCUMENTED = {  # the 25 operations of section 4 of the document; section 4.7 lists no statuses
    "POST /auth/login": {200, 400, 401},
    "GET /chats/{id}/messages": {200, 400, 401},
    "DELETE /chats/{session_id}/messages/{message_id}": {200, 400, 403, 404},
    "POST /chats/{session_id}/messages/{message_id}/pin": {200, 400, 401},
    "DELETE /chats/{session_id}/messages/{message_id}/pin": {200, 400, 401},
    "GET /chats/{session_id}/pinned-messages": {200, 400, 401},
    "POST /chats/{id}/archive": {200, 400, 403, 404},
    "DELETE /chats/{id}": {200, 400, 403, 404},
    "POST /chats/{id}/end": {200, 400, 403, 404},
    "PUT /chats/{id}/status": {200, 400, 403, 404},
    "GET /bots": {200, 400, 401},
    "GET /bots/{id}": {200, 400, 401, 404},
    "PATCH /users/me": {200, 400, 401},
    "POST /users/me/avatar": {200, 400, 401, 413, 415, 503},
    "GET /users/me/settings": {200, 401},
    "PATCH /users/me/settings": {200, 400, 401},
    "POST /data-shares": {201, 400, 401, 404},
    "GET /data-shares": {200, 401},
    "GET /data-shares/{id}": {200, 400, 403, 404},
    "DELETE /data-shares/{id}": {200, 400, 403, 404},
    "POST /feedback": {201, 400, 401},
    "GET /events": {200, 401},
    "GET /notifications": {200, 401},
    "PATCH /notifications/read-all": {200, 401},
    "GET /auth/cli/authorize": {200, 400, 401},
}
LENIENT = {  # sections 4.4 to 4.8: the rows that list no 400
    "GET /users/me/settings",
    "GET /data-shares",
    "GET /events",
    "GET /notifications",
    "PATCH /notifications/read-all",
}


def every(condition=lambda operation: True):
    """Parametrises a test with the operations for which a condition holds, by name."""
    chosen = [operation for operation in ALL.values() if condition(operation)]
    return pytest.mark.parametrize("operation", chosen, ids=lambda operation: operation.name)


def address(operation, *identifiers):
    """The path of an operation as the client of the tests takes it."""
    given = iter(identifiers)
    return "/" + re.sub(r"{\w+}", lambda _: next(given), operation.full_path)


@pytest.fixture
def existing(alice, session, say, bot):
    """Gives identifiers that lead somewhere: to Alice's things."""

    def as_admin(id):
        User.update(role="admin").where(User.id == alice.user.id).execute()
        return id

    make = {
        App: lambda: as_admin(bot.app_id),
        Feedback: lambda: as_admin(Feedback.create(user_id=alice.user.id, description="x").id),
        ChatSession: lambda: session.id,
        Message: lambda: say().id,
        Bot: lambda: bot.id,
        DataShare: lambda: DataShare.give(alice.user.id, mcp_server_id="files", allowed_tools='["*"]').id,
        Avatar: lambda: Avatar.create(user_id=alice.user.id, image="").name,
        Event: lambda: Event.create(user_id=alice.user.id, title="Call", starts_at="2026-11-20T10:00:00.000Z").id,
        Notification: lambda: Notification.create(user_id=alice.user.id, title="News").id,
    }
    return lambda operation: [make[table]() for _, _, table in operation.loads]


def missing(operation):
    """Identifiers that lead nowhere."""
    kinds = {Identifier: NOBODY, Sortable: "0" * 26, Text: "nothing"}
    return [kinds[type(table.path_column())] for _, _, table in operation.loads]


def is_free(operation):
    """Whether any text may stand for an identifier of the path."""
    return all(isinstance(table.path_column(), Text) for _, _, table in operation.loads)


def title(operation):
    return f"{operation.method} {operation.path}"


@pytest.fixture(scope="module")
def described():
    return openapi.document(ALL.values(), pages=True)


class TestEveryOperation:
    @every(lambda operation: not operation.public)
    def test_needs_a_caller_unless_it_is_public(self, anyone, operation):
        reply = anyone.call(operation.method, address(operation, "x", "x"))
        assert reply.error == (401, "missing_credentials")
        assert operation.handler is not None

    @every(lambda operation: operation.public)
    def test_never_asks_for_a_caller_if_it_is_public(self, anyone, operation):
        path = address(operation, *missing(operation))
        reply = anyone.call(operation.method, path, content_type="application/json")
        assert reply.headers.get("WWW-Authenticate") is None

    @every(lambda operation: not operation.public)
    def test_refuses_forged_credentials(self, anyone, operation):
        for token in ("Bearer cxa_forged", "Bearer ", "bearer\tx"):
            assert anyone.call(operation.method, address(operation, "x", "x"), authorization=token).status == 401

    @every(lambda operation: operation.body and not operation.is_lenient and operation.accepts == "application/json")
    def test_refuses_a_malformed_body(self, alice, existing, operation):
        path = address(operation, *existing(operation))
        for raw in (b"{", b"[]", b"\xff"):
            assert alice.call(operation.method, path, raw=raw).error[0] == 400
        assert alice.call(operation.method, path, raw=b" " * (operation.most + 1)).error == (413, "body_too_large")

    @every(lambda operation: operation.body and operation.is_lenient)
    def test_takes_a_malformed_body_for_nothing_where_it_may_not_refuse(self, alice, existing, operation):
        reply = alice.call(operation.method, address(operation, *existing(operation)), raw=b"{")
        assert reply.status == operation.status
        assert reply.headers["X-Request-Warning"].startswith("body: ")

    @every(lambda operation: operation.loads and not is_free(operation) and not operation.is_page)
    def test_refuses_malformed_identifiers(self, alice, operation):
        reply = alice.call(operation.method, address(operation, *["x"] * len(operation.loads)))
        assert reply.error == (400, "invalid_id")

    @every(lambda operation: operation.loads)
    def test_does_not_find_what_does_not_exist(self, alice, operation):
        reply = alice.call(operation.method, address(operation, *missing(operation)))
        assert reply.error[0] == (404 if 404 in operation.answers else 400)

    @every(lambda operation: any(table is ChatSession for *_, table in operation.loads))
    def test_keeps_others_out_of_a_chat_session(self, bob, existing, operation):
        reply = bob.call(operation.method, address(operation, *existing(operation)))
        assert reply.error == ((403, "forbidden") if 403 in operation.answers else (400, "session_not_found"))

    @every(lambda operation: operation.query)
    def test_ignores_parameters_it_does_not_know(self, alice, existing, operation):
        path = address(operation, *existing(operation))
        assert "nonsense" not in alice.call(operation.method, f"{path}?nonsense=%ff&nonsense=1").raw.decode()

    @every(lambda operation: operation.query and not operation.is_page)
    def test_takes_every_declared_default_and_empty_filter(self, admin, existing, operation, described):
        shown = described["paths"][operation.full_path][operation.method.lower()]["parameters"]
        wanted = {member.encode_name for member in msgspec.structs.fields(operation.query) if member.default == ""}
        given = {one["name"]: one["schema"]["default"] for one in shown if "default" in one["schema"]}
        given |= dict.fromkeys(wanted - {"from", "to"}, "")
        given |= {name: str(value).lower() for name, value in given.items() if isinstance(value, bool)}
        given |= {"wait": 0} if "wait" in given else {}  # whose default would be waited for
        required = {"app_id": NOBODY, "q": "x", "token": "x"}
        names = {one["name"] for one in shown if one["in"] == "query"}
        given |= {name: value for name, value in required.items() if name in names}
        path = address(operation, *existing(operation))
        assert admin.get(f"{path}?{urlencode(given)}").status in (200, 404)
        for name, value in given.items():
            reply = admin.get(f"{path}?{urlencode(required | {name: value})}")
            assert reply.status in (200, 404), name
            assert "X-Request-Warning" not in reply.headers

    @every(lambda operation: operation.full_path != "/")
    def test_answers_options_and_refuses_other_methods(self, anyone, operation):
        path = address(operation, NOBODY, "0" * 26)
        assert operation.method in anyone.call("OPTIONS", path).headers["Allow"].split(", ")
        assert anyone.call("TRACE", path).error == (405, "method_not_allowed")


class TestEveryDeclaration:
    @every()
    def test_has_a_summary_of_one_sentence(self, operation):
        assert re.fullmatch(r"[A-Z][^\n]{5,118}[\w`)]\.", operation.summary)

    @every()
    def test_names_the_handler_verb_noun(self, operation):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", operation.name)

    def test_has_a_name_of_its_own(self):
        assert len(ALL) == len(list(operations()))

    @every(lambda operation: get_origin(operation.handler.__annotations__["return"]) is Page)
    def test_of_a_page_takes_a_cursor_and_a_size(self, operation):
        members = {member.name: member for member in msgspec.structs.fields(operation.query)}
        assert members["cursor"].default == Position()
        assert {"limit", "per_page"} & set(members)

    @every(lambda operation: operation.is_lenient)
    def test_without_a_400_can_answer_garbage(self, operation):
        assert is_free(operation)
        assert not operation.body or callable(operation.body.nothing)
        assert not operation.query or not any(member.required for member in msgspec.structs.fields(operation.query))

    @every()
    def test_lists_401_through_its_caller_only(self, operation, described):
        answers = described["paths"][operation.full_path][operation.method.lower()]["responses"]
        assert ("401" in answers) == (not operation.public or 401 in operation.answers)

    @every(lambda operation: not operation.is_page)
    def test_has_a_code_for_every_status_of_an_error(self, operation):
        assert {status for status in operation.statuses if status >= 400} == set(declared_errors(operation))

    @every(lambda operation: operation.raises)
    def test_declares_no_error_that_follows_from_the_rest(self, operation):
        assert not set(operation.raises) & {*implied_errors(operation)}

    @every()
    def test_stands_in_the_openapi_document(self, operation, described):
        shown = described["paths"][operation.full_path][operation.method.lower()]
        assert shown["operationId"] == operation.name
        assert shown["summary"] == operation.summary
        assert set(shown["responses"]) == {"default", *map(str, operation.statuses)}
        assert shown.get("x-extension", False) is operation.extension
        assert shown["security"] == ([] if operation.public else [{"bearer": []}])
        assert ("requestBody" in shown) == bool(operation.body)

    @every()
    def test_stands_in_the_readme(self, operation):
        assert any(
            operation.full_path in line.split() and operation.method in line.split() and operation.summary in line
            for line in README.read_text().splitlines()
        )

    def test_stands_in_the_readme_as_the_command_lists_it(self):
        written = README.read_text().splitlines()
        missing = [line for line in listing(ALL.values()).splitlines() if line not in written]
        assert not missing

    def test_the_listing_has_a_line_for_each(self):
        lines = listing(ALL.values()).splitlines()
        assert len(lines) == len(ALL)
        assert all(line == line.rstrip() for line in lines)


class TestTheDocumentedOperations:
    def test_are_those_of_the_document(self):
        assert {title(operation) for operation in ALL.values() if not operation.extension} == set(DOCUMENTED)

    @every(lambda operation: not operation.extension)
    def test_list_the_statuses_of_the_document(self, operation):
        assert set(operation.answers) == DOCUMENTED[title(operation)]
        assert operation.prefix == "/api/v1"

    @every(lambda operation: not operation.extension)
    def test_are_lenient_exactly_where_the_document_lists_no_400(self, operation):
        assert operation.is_lenient == (title(operation) in LENIENT)

    def test_remain_when_extensions_are_left_out(self):
        remaining = {operation.full_path for operation in operations(documented_only=True) if operation.extension}
        assert remaining <= {"/healthz", "/readyz", "/metrics", "/avatars/{name}"}
        assert {title(operation) for operation in operations(documented_only=True)} >= set(DOCUMENTED)

    def test_extensions_are_gone_with_documented_only(self, settings, application):
        from dataclasses import replace

        from tests.conftest import Client

        narrow = Client(build_app(operations(documented_only=True), replace(settings, documented_only=True)))
        for operation in ALL.values():
            expected = operation.vital or not operation.extension
            asked = narrow.call("OPTIONS", address(operation, NOBODY, "0" * 26))
            allowed = asked.headers.get("Allow", "").split(", ")
            assert (operation.method in allowed) == expected, operation.name

    def test_answer_in_the_same_bytes_when_extensions_are_left_out(
        self, settings, host_clock, alice, session, say, bot
    ):
        from dataclasses import replace

        from tests.conftest import Client

        for text in ("one", "two", "three"):
            alice.post(f"/chats/{session.id}/messages/{say(text).id}/pin")
        alice.post("/data-shares", {"mcp_server_id": "files", "allowed_tools": ["*"]})
        narrow = replace(settings, documented_only=True)
        there = Client(build_app(operations(documented_only=True), narrow), alice.token)
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
            f"/chats/{NOBODY}/messages",
        ):
            here = alice.get(path)
            assert (there.get(path).status, there.get(path).raw) == (here.status, here.raw), path


def told(caller: Caller) -> Told:
    """Say something."""
    return Told("x")


def declare(handler=told, path="/x", **words):
    """An operation, declared as in a routes module."""
    Routes("Faults").get(path, **{"answers": (200,), **words})(handler)


class TestDeclaringAnOperation:
    def test_works(self):
        routes = Routes("Good", scope="chats")
        routes.post("/x/{id}", answers=(201, 400))(HANDLERS["good"])
        [operation] = routes
        assert (operation.tag, operation.name, operation.summary) == ("Good", "good", "Say something.")
        assert (operation.status, operation.full_path, operation.needed_scope) == (201, "/api/v1/x/{id}", "chats")
        assert operation.statuses == {201, 400, 401}
        assert operation.loads == (("id", "session", ChatSession),)

    def test_reading_needs_a_read_scope(self):
        routes = Routes("Good", scope="chats")
        routes.get("/x", answers=(200,))(told)
        assert next(iter(routes)).needed_scope == "chats:read"

    @pytest.mark.parametrize("word", ["answer", "pubic", "metas"])
    def test_refuses_words_it_does_not_know(self, word):
        with pytest.raises(TypeError, match=word):
            declare(**{word: True})

    def test_refuses_to_be_declared_without_answers(self):
        with pytest.raises(TypeError, match="answers"):
            Routes("Faults").get("/x")(told)

    @pytest.mark.parametrize(
        ("handler", "words", "fault"),
        [
            ("no_docstring", {}, "needs a docstring"),
            ("told", {"path": "/x/{id}"}, "does not look up every identifier of its path"),
            ("good", {}, "does not look up every identifier of its path"),
            ("wants_more", {}, "asks for something unknown"),
            ("told", {"public": True}, "asks for a caller but is public"),
            ("no_return", {}, "does not say what it returns"),
            ("told", {"meta": ("total",)}, "fills meta but returns no page"),
            ("page_without_meta", {}, "fills meta but returns no page"),
            ("page_without_cursor", {"meta": ("total",)}, "returns a page, takes no cursor"),
            ("requires_a_parameter", {"answers": (200, 401)}, "requires a parameter but lists no 400"),
            ("for_nobody", {"answers": (201, 400), "public": True}, "creates something for nobody"),
        ],
    )
    def test_refuses_a_faulty_handler(self, handler, words, fault):
        with pytest.raises(TypeError, match=rf"GET /x.*: \w+ {fault}"):
            declare(HANDLERS[handler], **words)

    def test_freezes_it(self):
        with pytest.raises(AttributeError):
            next(iter(ALL.values())).path = "/elsewhere"


class Needy(msgspec.Struct):
    """A query that cannot be left out."""

    app_id: str


def _handlers():
    def good(session: ChatSession) -> Told:
        """Say something.

        At length.
        """

    def no_docstring(caller: Caller) -> Told: ...

    def wants_more(caller: Caller, cookies: dict) -> Told:
        """Say something."""

    def page_without_cursor(caller: Caller) -> Page[ChatSession]:
        """List something."""

    def requires_a_parameter(query: Needy) -> Told:
        """Say something."""

    def for_nobody() -> Told:
        """Say something."""

    def no_return(caller: Caller):
        """Say something."""

    def page_without_meta(caller: Caller) -> Page[ChatSession]:
        """Say something."""

    return {**locals(), "told": told}


HANDLERS = _handlers()


class TestBuildingAService:
    def other(self, path="/elsewhere", method="GET", handler=told):
        return Operation(method=method, path=path, handler=handler, answers=(200,), tag="x")

    def test_refuses_an_address_that_is_declared_twice(self, settings):
        def retold(caller: Caller) -> Told:
            """Say something."""

        with pytest.raises(TypeError, match=r"GET /api/v1/elsewhere \(retold\) is declared twice"):
            build_app([self.other(), self.other(handler=retold)], settings)

    def test_refuses_an_address_that_differs_in_the_name_of_its_identifier_only(self, settings):
        def again(chat: ChatSession) -> Told:
            """Say something."""

        with pytest.raises(TypeError, match="declared twice"):
            build_app([self.other("/x/{id}", handler=HANDLERS["good"]), self.other("/x/{it}", handler=again)], settings)

    def test_refuses_a_name_that_is_declared_twice(self, settings):
        with pytest.raises(TypeError, match=r"\(told\) is declared twice"):
            build_app([self.other(), self.other("/another")], settings)

    def test_takes_one_address_under_two_methods(self, settings):
        def tell(caller: Caller) -> Told:
            """Say something."""

        build_app([self.other(), self.other(method="POST", handler=tell)], settings)
