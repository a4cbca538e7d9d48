"""Rules for the requests and responses of all operations."""

import dataclasses
import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

import apsw
import peewee
import pytest

import app
from service import clock, db
from service.auth import tokens
from service.errors import ApiError
from service.http.application import build_app
from service.models import App, ChatSession, IdempotencyKey, LoginSession, Message, Notification, User
from service.routes import health, operations
from tests.support.client import Client
from tests.support.faults import another_connection, damaged, full, locked, read_only
from tests.support.postgres import require_sqlite
from tests.support.sample_operations import UNKNOWN_ID, eve_fixture, routes  # noqa: F401

pytestmark = pytest.mark.database


CRASHED = "The server failed to process this request; its log has the details under the request's identifier."


def with_settings(client, settings, **changes):
    """A client of the same user for an application with other settings."""
    other = build_app([*operations(), *routes], dataclasses.replace(settings, **changes))
    return Client(other, client.token, client.user)


def renew_token(client, settings):
    """Log in again, since the token may have expired."""
    with db.write():
        client.token = tokens.log_in(client.user.id, settings).access_token


def stored():
    """All rows that a failed request must not change."""
    tables = (App, ChatSession, Message, Notification, IdempotencyKey)
    return [list(table.select().tuples()) for table in tables]


def error_classes(kind):
    """All classes of errors that clients can get."""
    for child in kind.__subclasses__():
        yield child
        yield from error_classes(child)


class TestEnvelope:
    def test_of_success_has_success_and_data_only(self, eve):
        reply = eve.put("/everything", {"name": "x"})
        assert reply.json == {"success": True, "data": {"name": "x"}}
        assert reply.headers["Content-Type"] == "application/json"

    def test_of_a_list_has_exactly_the_meta_members_of_the_operation(self, eve):
        assert set(eve.get(f"/sample-apps?app_id={UNKNOWN_ID}").meta) == {"next_cursor", "per_page"}
        assert set(eve.get("/inbox").meta) == {"next_cursor", "page", "per_page", "total", "unread_count"}

    def test_of_a_list_without_meta_has_none(self, alice, session):
        assert alice.get(f"/chats/{session.id}/pinned-messages").json == {"success": True, "data": []}

    def test_of_errors_has_code_and_message_only(self, eve):
        reply = eve.put("/everything", raw=b"nonsense")
        assert set(reply.json) == {"success", "error"}
        assert reply.json["success"] is False
        assert set(reply.json["error"]) == {"code", "message"}

    def test_codes_are_words_and_messages_sentences(self):
        for kind in error_classes(ApiError):
            assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code), kind
            assert re.fullmatch(r"[A-Z].*\.", " ".join(kind.__doc__.split())), kind

    def test_of_unknown_paths_is_the_same(self, anyone):
        for path in (
            "//nowhere",
            "/",
            "/nowhere",
            "/chats/",
            "//api/v1",
            "//index.php",
            "//healthz/",
            "/chats//end",
        ):
            assert anyone.get(path).error == (404, "not_found"), path

    @pytest.mark.parametrize(
        "path", ["//healthz\n", f"/chats/{UNKNOWN_ID}/archive\n", f"/chats/{UNKNOWN_ID}/archive/", "//\xff"]
    )
    def test_similar_paths_are_unknown(self, alice, path):
        assert alice.post(path).error == (404, "not_found")

    def test_of_unsupported_methods_is_the_same(self, anyone):
        reply = anyone.delete(f"/chats/{UNKNOWN_ID}/archive")
        assert reply.error == (405, "method_not_allowed")
        assert reply.headers["Allow"] == "OPTIONS, POST"
        assert anyone.post("//healthz").headers["Allow"] == "GET, HEAD, OPTIONS"

    @pytest.mark.parametrize("method", ["TRACE", "PROXY", "CONNECT", "FOO"])
    def test_unusual_methods_are_unsupported(self, anyone, method):
        assert anyone.call(method, "//healthz").error == (405, "method_not_allowed")

    def test_unset_members_are_present(self, alice, session, say):
        message = say()
        [shown] = alice.get(f"/chats/{session.id}/messages").data
        assert (shown["deleted_at"], shown["identity_id"], shown["reply_snapshot"]) == (None, None, [])
        assert shown["id"] == message.id
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", shown["created_at"])


class TestOtherMethods:
    def test_options_returns_204_with_allow_and_no_body(self, anyone):
        for path, allow in (
            ("//healthz", "GET, HEAD, OPTIONS"),
            (f"/chats/{UNKNOWN_ID}", "DELETE, GET, HEAD, OPTIONS"),
        ):
            reply = anyone.call("OPTIONS", path)
            assert (reply.status, reply.raw, reply.headers["Allow"]) == (204, b"", allow)
            assert not {"Content-Type", "Content-Length"} & set(reply.headers)

    def test_options_of_an_unknown_path_is_404(self, anyone):
        assert anyone.call("OPTIONS", "/nowhere").error == (404, "not_found")

    @pytest.mark.parametrize("path", ["/inbox", "/crash", "/nowhere", "/sample-apps", "//healthz"])
    def test_head_is_get_without_the_body(self, eve, path):
        eve.may_crash = True
        head, get = eve.call("HEAD", path), eve.get(path)
        assert (head.status, head.raw) == (get.status, b"")
        for name in set(get.headers) - {"X-Request-ID"}:
            assert head.headers[name] == get.headers[name]

    def test_head_requires_authentication(self, anyone, session):
        assert anyone.call("HEAD", f"/chats/{session.id}/messages").status == 401

    def test_head_without_get_is_unsupported(self, anyone):
        reply = anyone.call("HEAD", "/auth/login")
        assert (reply.status, reply.raw, reply.headers["Allow"]) == (405, b"", "OPTIONS, POST")


class TestUnexpectedExceptions:
    def test_details_are_in_the_log_only(self, eve, caplog):
        eve.may_crash = True
        reply = eve.get("/crash", x_request_id="trace-me")
        assert reply.error == (500, "internal_error")
        assert reply.message == CRASHED
        assert reply.headers["X-Request-ID"] == "trace-me"
        assert b"secret" not in reply.raw
        assert b"Traceback" not in reply.raw
        assert "an internal detail" in caplog.text
        assert "request trace-me failed" in caplog.text

    def test_log_has_no_credentials(self, eve, caplog):
        eve.may_crash = True
        eve.get("/crash", cookie="cx_signed_in=biscuit")
        assert "Traceback" in caplog.text
        assert eve.token not in caplog.text
        assert "biscuit" not in caplog.text

    def test_oauth_clients_get_the_format_of_oauth(self, eve, caplog):
        eve.may_crash = True
        reply = eve.post("/oauth-crash")
        assert (reply.status, reply.json) == (500, {"error": "internal_error", "error_description": CRASHED})
        assert f"request {reply.headers['X-Request-ID']} failed" in caplog.text

    def test_browsers_get_a_page(self, eve):
        eve.may_crash = True
        assert eve.get("/page-crash").error == (500, "internal_error")
        page = eve.get("/page-crash", sec_fetch_mode="navigate")
        assert page.status == 500
        assert "The server failed to process this request" in page.raw.decode()
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")

    def test_writes_of_the_operation_are_rolled_back(self, eve):
        eve.may_crash = True
        before = stored()
        reply = eve.post("/sample-apps", {"name": "x", "fails": True}, idempotency_key="k")
        assert reply.error == (500, "internal_error")
        assert stored() == before

    def test_next_request_succeeds(self, eve):
        eve.may_crash = True
        eve.get("/crash")
        assert eve.get("/inbox").status == 200


class TestResponsesAreVerified:
    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("/wrong-status", "raise_undeclared_status returned 400 session_not_found"),
            ("/wrong-code", "raise_undeclared_code returned 400 grant_limit_reached"),
            ("/wrong-shape", "Expected `str`"),
        ],
    )
    def test_undeclared_responses_fail(self, eve, caplog, path, message):
        eve.may_crash = True
        assert eve.get(path).error == (500, "internal_error")
        assert message in caplog.text

    def test_without_verification_they_are_returned(self, eve, settings):
        plain = with_settings(eve, settings, verify_answers=False)
        assert plain.get("/wrong-status").error == (400, "session_not_found")
        assert plain.get("/wrong-code").error == (400, "grant_limit_reached")
        assert plain.get("/wrong-shape").data == {"text": 5}


class TestUnwritableDatabase:
    LONG = {"name": "x" * 100_000}

    @pytest.mark.parametrize("failure", [locked, full, read_only])
    @pytest.mark.parametrize("headers", [{}, {"idempotency_key": "k"}], ids=["plain", "with a key"])
    def test_writes_are_503_and_succeed_later(self, eve, failure, headers):
        before = stored()
        with failure():
            reply = eve.post("/sample-apps", self.LONG, **headers)
            assert reply.error == (503, "storage_unavailable")
            assert int(reply.headers["Retry-After"]) > 0
        assert stored() == before
        assert eve.post("/sample-apps", self.LONG, **headers).status == 201

    @pytest.mark.parametrize("failure", [locked, full, read_only])
    def test_reads_succeed_with_an_unused_token(self, eve, settings, failure):
        with db.write():
            old = tokens.log_in(eve.user.id, settings)
        eve.token = tokens.rotate(old.refresh_token, settings).access_token
        with failure():
            assert eve.get("/inbox").status == 200

    @pytest.mark.parametrize(("method", "path"), [("DELETE", "/events/feed"), ("PATCH", "/notifications/read-all")])
    def test_is_reopened_if_it_was_opened_read_only(self, alice, settings, monkeypatch, method, path):
        require_sqlite()
        with another_connection(settings) as other, monkeypatch.context() as patch:
            other.execute("SELECT count(*) FROM app")
            db.close_database()
            patch.setattr(db.database.obj, "database", f"file:{settings.data / db.FILE_NAME}?mode=ro")
            patch.setitem(db.database.obj.connect_params, "flags", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
            assert alice.call(method, path, {}).error == (503, "storage_unavailable")
            patch.undo()
            assert alice.call(method, path, {}).status == 200


PAGE = 4096


class TestUnreadableDatabase:
    """Failures of the database are 503, and the service continues when the file is restored."""

    @pytest.fixture(autouse=True)
    def _on_sqlite(self, monkeypatch):
        require_sqlite()
        monkeypatch.setattr(health, "READY_SECONDS", -1.0)  # do not cache the result

    @pytest.mark.parametrize("first", [0, PAGE], ids=["no database", "malformed"])
    @pytest.mark.parametrize("method", ["GET", "PATCH"])
    def test_is_503_until_it_is_restored(self, alice, anyone, caplog, first, method):
        assert alice.get("/users/me").status == 200
        with damaged(first):
            for _ in range(2):
                reply = alice.call(method, "/users/me", {})
                assert reply.error == (503, "storage_unavailable")
                assert int(reply.headers["Retry-After"]) > 0
            assert anyone.get("//readyz").error == (503, "storage_unavailable")
            assert anyone.get("//healthz").status == 200
        assert caplog.text.count("the database is unavailable: ") == 2
        assert "Traceback" not in caplog.text
        assert alice.call(method, "/users/me", {}).status == 200
        assert anyone.get("//readyz").status == 200

    def test_damage_of_later_rows_is_recognized(self, alice, application):
        """The error occurs while rows are fetched, so it is an exception of SQLite, not of Peewee."""
        for number in range(2000):
            User.create(email=f"{number}@example.com", first_name="x" * 100)
        rows = User.select(User.first_name).tuples()
        size = Path(db.database.database).stat().st_size
        with damaged(size // 2), pytest.raises(db.SqliteError) as caught:
            list(rows)
        assert db.is_unavailable(caught.value)
        db.reconnect_after(caught.value)
        assert len(list(rows.clone())) == 2001

    def test_other_errors_are_not_unavailability(self, application):
        for sql in ("SELECT", "SELECT nothing FROM app", "SELECT json('{')"):
            with pytest.raises(peewee.DatabaseError) as caught:
                db.database.execute_sql(sql).fetchall()
            assert not db.is_unavailable(caught.value)


MALFORMED_IDS = {
    "a word": "latest",
    "braces": "{%s}",
    "urn": "urn:uuid:%s",
    "blank": " %s",
    "newline": "%s\n",
    "not UTF-8": "%s\xff",
    "only not UTF-8": "\xff",
    "NUL": "%s\0",
    "too long": "%s0",
    "percent": "%%25",
}


class TestIdentifiers:
    @pytest.mark.parametrize("kind", MALFORMED_IDS)
    def test_malformed_ones_are_400_and_never_404(self, alice, session, say, kind):
        form, message = MALFORMED_IDS[kind], say()
        for id in (session.id, UNKNOWN_ID):
            wrong = form % id if "%s" in form else form
            assert alice.post(f"/chats/{wrong}/archive").error == (400, "invalid_id")
            assert alice.delete(f"/chats/{wrong}").error == (400, "invalid_id")
        wrong = form % message.id if "%s" in form else form
        assert alice.post(f"/chats/{session.id}/messages/{wrong}/pin").error == (400, "invalid_id")

    def test_other_spellings_of_uuids_are_malformed(self, alice, session):
        arabic = session.id.translate({ord(str(digit)): chr(0x660 + digit) for digit in range(10)})
        as_wsgi = arabic.encode().decode("latin-1")
        for wrong in (session.id.replace("-", ""), as_wsgi, session.id.replace("-", "_"), session.id[:-1]):
            assert alice.get(f"/chats/{wrong}/messages").error == (400, "invalid_id")

    def test_other_spellings_of_ulids_are_malformed(self, alice, session, say):
        id = say().id
        for wrong in (id[:-1], f"8{id[1:]}", f"{id[:-1]}I", f"{id[:-1]}\u0131".encode().decode("latin-1"), session.id):
            assert alice.delete(f"/chats/{session.id}/messages/{wrong}/pin").error == (400, "invalid_id")

    def test_the_message_names_the_identifier(self, alice, session):
        assert alice.delete(f"/chats/{session.id}/messages/x").message == "message_id: expected a ULID."
        assert alice.delete("/chats/x").message == "id: expected a UUID."

    def test_case_does_not_matter(self, alice, session, say):
        message = say()
        pinned = alice.post(f"/chats/{session.id.upper()}/messages/{message.id.lower()}/pin")
        assert pinned.data == {"pinned": True}

    def test_are_all_validated_before_any_row_is_read(self, alice):
        assert alice.delete(f"/chats/{UNKNOWN_ID}/messages/x").error == (400, "invalid_id")


class TestOrderOfChecks:
    def test_path_and_method_come_before_the_caller(self, anyone):
        assert anyone.get("/nowhere").error[0] == 404
        assert anyone.get(f"/chats/{UNKNOWN_ID}/archive").error[0] == 405

    def test_then_caller_then_identifier_then_existence_then_permission_then_query_and_body(
        self, eve, anyone, bob, session
    ):
        bad = {"raw": b"{"}
        stranger = Client(eve.application)
        other = Client(eve.application, bob.token, bob.user)
        assert stranger.put("/sessions/x?app_id=x", **bad).error == (401, "missing_credentials")
        assert eve.put("/sessions/x?app_id=x", **bad).error == (400, "invalid_id")
        assert eve.put(f"/sessions/{UNKNOWN_ID}?app_id=x", **bad).error == (404, "session_not_found")
        assert other.put(f"/sessions/{session.id}?app_id=x", **bad).error == (403, "forbidden")
        assert eve.put(f"/sessions/{session.id}?app_id=x", **bad).error == (400, "invalid_parameter")
        assert eve.put(f"/sessions/{session.id}?app_id={UNKNOWN_ID}", **bad).error == (400, "invalid_json")
        assert eve.put(f"/sessions/{session.id}?app_id={UNKNOWN_ID}", {"name": "x"}).data == {"text": session.id}

    def test_applies_to_existing_operations(self, anyone, alice, bob, session):
        bad = {"raw": b"{"}
        assert anyone.put("/chats/x/status", **bad).error[0] == 401
        assert bob.put("/chats/x/status", **bad).error == (400, "invalid_id")
        assert bob.put(f"/chats/{UNKNOWN_ID}/status", **bad).error == (404, "session_not_found")
        assert bob.put(f"/chats/{session.id}/status", **bad).error == (403, "forbidden")
        assert alice.put(f"/chats/{session.id}/status", **bad).error == (400, "invalid_json")

    def test_size_of_the_body_does_not_reveal_sessions_of_others(self, bob, session):
        assert bob.put(f"/chats/{session.id}/status", raw=b"x" * 2**21).error == (403, "forbidden")


def test_operation_without_a_body_ignores_a_small_one_and_refuses_a_large_one(alice, session):
    path = f"/chats/{session.id}/archive"
    assert alice.post(path, raw=bytes(16 * 1024 + 1)).error == (413, "body_too_large")
    assert alice.post(path, raw=bytes(16 * 1024)).status == 200


class TestRequestIds:
    def test_are_different_for_each_request(self, anyone):
        given = {anyone.get("//healthz").headers["X-Request-ID"] for _ in range(20)}
        assert len(given) == 20

    @pytest.mark.parametrize("path", ["//healthz", "/nowhere", "/auth/login"])
    def test_are_accepted_from_the_client_if_they_are_harmless(self, anyone, path):
        assert anyone.get(path, x_request_id="Trace_1.2-3").headers["X-Request-ID"] == "Trace_1.2-3"

    @pytest.mark.parametrize(
        "hostile", ["", "a b", "a\r\nSet-Cookie: x=1", "a\n", "x" * 65, "é", "<b>", "a;b", "\u0661", "a\0"]
    )
    def test_are_never_reflected_otherwise(self, anyone, caplog, hostile):
        caplog.set_level(logging.INFO)
        chosen = anyone.get("//healthz", x_request_id=hostile).headers["X-Request-ID"]
        assert re.fullmatch(r"[0-9a-f]{16}", chosen)
        assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == [chosen]

    def test_are_in_the_log_line(self, eve, caplog):
        caplog.set_level(logging.INFO, "cx.requests")
        for path in ("//healthz", "/nowhere", "/inbox"):
            id = eve.get(path).headers["X-Request-ID"]
            assert caplog.records[-1].getMessage().endswith(id)


class TestLog:
    FORGED = "\n2026-11-20 INFO GET /admin 200\r\x1b[31m\u2028\x85"

    @pytest.mark.parametrize("place", ["path", "method", "query", "user_agent"])
    def test_cannot_be_forged(self, anyone, caplog, place):
        caplog.set_level(logging.INFO, "cx.requests")
        forged = self.FORGED.encode().decode("latin-1")
        method = f"GET{forged}" if place == "method" else "GET"
        path = {"path": f"//healthz{forged}", "query": f"//healthz?{forged}"}.get(place, "//healthz")
        anyone.call(method, path, **({"user_agent": forged} if place == "user_agent" else {}))
        [line] = [record.getMessage() for record in caplog.records]
        assert re.fullmatch(r"[!-~]+ [!-~]+ \d{3} \d+\.\dms \d+B [a-z_]+ 127\.0\.0\.1 - [0-9a-f]{16}", line)

    def test_names_method_path_status_and_time(self, anyone, caplog):
        caplog.set_level(logging.INFO, "cx.requests")
        anyone.get("//healthz?token=hidden")
        assert re.match(r"GET /healthz 200 \d+\.\dms ", caplog.records[-1].getMessage())
        assert "hidden" not in caplog.text


class TestHeaders:
    def test_responses_for_a_caller_are_private(self, alice, session):
        assert alice.get(f"/chats/{session.id}/messages").headers["Cache-Control"] == "private, no-cache"

    def test_tokens_are_never_stored(self, anyone, alice):
        from tests.support.passwords import PASSWORD

        given = anyone.post("/auth/login", {"email": "alice@example.com", "password": PASSWORD})
        assert given.headers["Cache-Control"] == "no-store"
        traded = anyone.post("/auth/refresh", {"refresh_token": given.data["tokens"]["refresh_token"]})
        assert traded.headers["Cache-Control"] == "no-store"

    def test_content_types_are_not_sniffed(self, anyone):
        for path in ("//healthz", "/nowhere", "/auth/login"):
            assert anyone.get(path).headers["X-Content-Type-Options"] == "nosniff"

    def test_a_missing_and_a_wrong_token_are_challenged(self, anyone):
        for header, code in (
            ("", "missing_credentials"),
            ("Basic eDp5", "missing_credentials"),
            ("Bearer x", "invalid_token"),
        ):
            reply = anyone.get(f"/chats/{UNKNOWN_ID}/messages", authorization=header)
            assert reply.error == (401, code)
            assert reply.headers["WWW-Authenticate"].startswith("Bearer")


class TestCrossOriginRequests:
    ORIGIN = "https://chat.example"

    @staticmethod
    def cors_headers(reply):
        return {name: value for name, value in reply.headers.items() if name.startswith("Access-Control-")}

    @pytest.mark.parametrize("method", ["GET", "OPTIONS"])
    def test_are_off_by_default(self, anyone, method):
        assert not self.cors_headers(anyone.call(method, "//healthz", origin=self.ORIGIN))

    @pytest.mark.parametrize("path", ["/inbox", "/nowhere", "/crash", "//readyz"])
    def test_are_allowed_for_configured_origins_with_any_status(self, eve, settings, path):
        client = with_settings(eve, settings, allow_origin=("https://other.example", self.ORIGIN))
        client.may_crash = path == "/crash"
        reply = client.get(path, origin=self.ORIGIN)
        assert reply.headers["Access-Control-Allow-Origin"] == self.ORIGIN
        assert reply.headers["Vary"] == "Origin"
        for name in ("ETag", "X-Request-Warning", "WWW-Authenticate"):
            assert name in reply.headers["Access-Control-Expose-Headers"]

    def test_preflight_succeeds_without_credentials(self, eve, settings):
        client = with_settings(Client(None), settings, allow_origin=(self.ORIGIN,))
        headers = {"origin": self.ORIGIN, "access_control_request_method": "PUT"}
        reply = client.call("OPTIONS", f"/chats/{UNKNOWN_ID}/status", **headers)
        assert reply.status == 204
        assert "PUT" in reply.headers["Access-Control-Allow-Methods"]
        for name in ("Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "MCP-Protocol-Version"):
            assert name in reply.headers["Access-Control-Allow-Headers"]

    @pytest.mark.parametrize(
        "origin", ["https://evil.example", "null", "https://chat.example.evil", "HTTPS://CHAT.EXAMPLE", ""]
    )
    def test_are_not_allowed_for_other_origins(self, eve, settings, origin):
        reply = with_settings(eve, settings, allow_origin=(self.ORIGIN,)).get("/inbox", origin=origin)
        assert not self.cors_headers(reply)
        assert reply.headers["Vary"] == "Origin"


class TestIdempotencyKeys:
    BODY = {"name": "Bakery"}

    def test_a_repeated_request_gets_the_first_response_and_is_executed_once(self, eve):
        first = eve.post("/sample-apps", self.BODY, idempotency_key="k1")
        again = eve.post("/sample-apps", self.BODY, idempotency_key="k1")
        assert (first.status, first.raw) == (again.status, again.raw) == (201, first.raw)
        assert "Idempotency-Replayed" not in first.headers
        assert again.headers["Idempotency-Replayed"] == "true"
        assert App.select().where(App.name == "Bakery").count() == 1

    def test_without_a_key_each_request_is_executed(self, eve):
        assert eve.post("/sample-apps", self.BODY).data != eve.post("/sample-apps", self.BODY).data

    def test_an_empty_key_is_ignored(self, eve):
        responses = [eve.post("/sample-apps", self.BODY, idempotency_key="").data["id"] for _ in range(2)]
        assert len(set(responses)) == 2

    def test_another_body_with_the_same_key_is_an_error(self, eve):
        eve.post("/sample-apps", self.BODY, idempotency_key="k1")
        before = stored()
        reply = eve.post("/sample-apps", {"name": "Butcher"}, idempotency_key="k1")
        assert reply.error == (400, "idempotency_key_reused")
        assert stored() == before

    def test_keys_belong_to_a_user_and_an_operation(self, eve, bob):
        other = Client(eve.application, bob.token, bob.user)
        made = [eve.post("/sample-apps", self.BODY, idempotency_key="k1")]
        made += [eve.post("/other-sample-apps", self.BODY, idempotency_key="k1")]
        made += [other.post("/sample-apps", self.BODY, idempotency_key="k1")]
        assert len({reply.data["id"] for reply in made}) == 3

    def test_are_stored_for_24_hours(self, host_clock, eve, settings):
        renew_token(eve, settings)
        first = eve.post("/sample-apps", self.BODY, idempotency_key="k1").data
        host_clock.forward(hours=23, minutes=59)
        renew_token(eve, settings)
        assert eve.post("/sample-apps", self.BODY, idempotency_key="k1").data == first
        host_clock.forward(minutes=1)
        renew_token(eve, settings)
        later = eve.post("/sample-apps", {"name": "Butcher"}, idempotency_key="k1")
        assert later.status == 201
        assert later.data["name"] == "Butcher"
        assert IdempotencyKey.select().count() == 1

    def test_a_failed_request_does_not_use_the_key(self, eve):
        assert eve.post("/sample-apps", {"name": 5}, idempotency_key="k1").error == (400, "invalid_body")
        assert eve.post("/sample-apps", self.BODY, idempotency_key="k1").status == 201

    def test_a_rolled_back_request_does_not_use_the_key(self, eve):
        eve.may_crash = True
        eve.post("/sample-apps", {**self.BODY, "fails": True}, idempotency_key="k1")
        assert not App.select().where(App.name == "Bakery").exists()
        assert eve.post("/sample-apps", self.BODY, idempotency_key="k1").status == 201

    def test_concurrent_requests_are_executed_once(self, eve):
        responses = []

        def send():
            responses.append(eve.post("/sample-apps", self.BODY, idempotency_key="k1").raw)
            db.close_database()

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(responses) == 4
        assert len(set(responses)) == 1
        assert App.select().where(App.name == "Bakery").count() == 1

    @pytest.mark.parametrize("key", ["x" * 256, "a\x07b", "a\nb"])
    def test_invalid_ones_are_errors(self, eve, key):
        assert eve.post("/sample-apps", self.BODY, idempotency_key=key).error == (400, "bad_request")

    def test_are_ignored_by_operations_that_create_nothing(self, eve):
        for name in ("a", "b"):
            assert eve.put("/everything", {"name": name}, idempotency_key="k1").data == {"name": name}


@pytest.fixture
def notices(alice):
    """Seven notifications of Alice, three of them created in the same millisecond."""
    for number in range(7):
        at = clock.timestamp(1_800_000_000_000 + max(0, number - 2) * 1000)
        Notification.create(title=f"n{number}", user_id=alice.user.id, created_at=at)


def titles(reply):
    return [notice["title"] for notice in reply.data]


def next_cursor(client, path):
    cursor = client.get(path).meta["next_cursor"]
    assert cursor
    return cursor


class TestCursors:
    def test_page_through_a_list_without_gaps_or_duplicates(self, eve, notices):
        found, cursor, pages = [], "", 0
        while True:
            reply = eve.get(f"/inbox?limit=2{cursor and '&cursor=' + cursor}")
            pages += 1
            assert (reply.meta["page"], reply.meta["per_page"], reply.meta["total"]) == (pages, 2, 7)
            found += titles(reply)
            cursor = reply.meta["next_cursor"]
            if not cursor:
                break
        assert pages == 4
        assert found[:4] == ["n6", "n5", "n4", "n3"]
        assert sorted(found) == [f"n{number}" for number in range(7)]

    def test_are_empty_at_the_end_also_when_the_last_page_is_full(self, eve, notices):
        assert eve.get("/inbox?limit=7").meta["next_cursor"] == ""
        assert eve.get("/inbox?limit=6").meta["next_cursor"] != ""

    def test_are_opaque_and_safe_in_urls(self, eve, notices):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", next_cursor(eve, "/inbox?limit=2"))

    def test_altered_by_one_character_anywhere_are_invalid(self, alice, session, say):
        for _ in range(3):
            say()
        path = f"/chats/{session.id}/messages?limit=1"
        cursor = next_cursor(alice, path)
        last = len(cursor) - 1
        for place, character in enumerate(cursor):
            # The last character of unpadded base64 has significant and insignificant bits.
            others = (
                [other for other in "AQgw" if other != character]
                if place == last
                else ["a" if character != "a" else "b"]
            )
            for other in others:
                altered = cursor[:place] + other + cursor[place + 1 :]
                assert alice.get(f"{path}&cursor={altered}").error == (400, "invalid_cursor"), (place, other)

    def test_an_empty_one_selects_the_first_page(self, alice, session, say):
        say()
        path = f"/chats/{session.id}/messages"
        assert alice.get(f"{path}?cursor=").data == alice.get(path).data

    @pytest.mark.parametrize("wrong", ["x", "a.b", "é", "%ff", "%00", "..", "cxa_x", "0" * 10_000])
    def test_forged_ones_are_invalid(self, alice, session, wrong):
        assert alice.get(f"/chats/{session.id}/messages?cursor={wrong}").error == (400, "invalid_cursor")

    def test_shortened_or_lengthened_ones_are_invalid(self, alice, session, say):
        for _ in range(2):
            say()
        path = f"/chats/{session.id}/messages?limit=1"
        cursor = next_cursor(alice, path)
        for wrong in (cursor[:-1], cursor + "A", cursor + ".", f"{cursor}%0a", f"%20{cursor}", cursor.upper()):
            assert alice.get(f"{path}&cursor={wrong}").error == (400, "invalid_cursor"), wrong

    def test_of_another_session_caller_filter_or_operation_are_invalid(
        self, alice, agent, eve, session, say, shop, bot
    ):
        for _ in range(2):
            say()
        other = ChatSession.create(app_id=shop.id, user_id=alice.user.id, bot_id=bot.id)
        cursor = next_cursor(alice, f"/chats/{session.id}/messages?limit=1")
        assert alice.get(f"/chats/{other.id}/messages?cursor={cursor}").error == (400, "invalid_cursor")
        assert agent.get(f"/chats/{session.id}/messages?cursor={cursor}").error == (400, "invalid_cursor")
        assert eve.get(f"/sample-apps?app_id={UNKNOWN_ID}&cursor={cursor}").error == (400, "invalid_cursor")
        App.create(name="One more")
        cursor = next_cursor(eve, f"/sample-apps?app_id={UNKNOWN_ID}&per_page=1")
        assert eve.get(f"/sample-apps?app_id={UNKNOWN_ID}&cursor={cursor}&per_page=5").status == 200
        assert eve.get(f"/sample-apps?app_id={UNKNOWN_ID}&cursor={cursor}&search=x").error == (400, "invalid_cursor")

    def test_select_nothing_in_lenient_operations(self, eve, notices):
        cursor = next_cursor(eve, "/inbox?limit=2")
        for wrong in (f"{cursor}x", cursor[1:]):
            reply = eve.get(f"/inbox?limit=2&cursor={wrong}")
            assert (reply.status, reply.data) == (200, [])
            assert reply.meta["next_cursor"] == ""
            assert reply.headers["X-Request-Warning"].startswith("cursor: ")
        assert eve.get(f"/inbox?unread_only=true&cursor={cursor}").data == []

    def test_survive_closing_and_reopening_the_database(self, alice, settings, session, say):
        for number in range(3):
            say(f"line {number}")
        path = f"/chats/{session.id}/messages?limit=1"
        cursor = next_cursor(alice, path)
        expected = alice.get(f"{path}&cursor={cursor}").data
        db.close_database()
        again = Client(app.build(settings), alice.token)
        assert again.get(f"{path}&cursor={cursor}").data == expected

    def test_require_a_valid_login_session(self, alice, session, say):
        for _ in range(2):
            say()
        cursor = next_cursor(alice, f"/chats/{session.id}/messages?limit=1")
        LoginSession.end_all(alice.user.id)
        assert alice.get(f"/chats/{session.id}/messages?cursor={cursor}").error == (401, "invalid_token")

    def test_an_ulid_is_a_position_in_messages_in_any_case(self, alice, session, say):
        first, second, third = (say(f"line {number}").id for number in range(3))
        path = f"/chats/{session.id}/messages?cursor={second.lower()}"
        assert [message["id"] for message in alice.get(path).data] == [third]
        assert [message["id"] for message in alice.get(f"{path}&direction=backward").data] == [first]

    def test_the_direction_may_change_from_page_to_page(self, alice, session, say):
        lines = [say(f"line {number}").id for number in range(4)]
        path = f"/chats/{session.id}/messages?limit=2"
        cursor = next_cursor(alice, path)
        assert [message["id"] for message in alice.get(f"{path}&cursor={cursor}").data] == lines[2:]
        back = alice.get(f"{path}&cursor={cursor}&direction=backward").data
        assert [message["id"] for message in back] == lines[:1]


class TestRepeatedRequests:
    @pytest.mark.parametrize(("verb", "status"), [("archive", "archived"), ("end", "resolved")])
    def test_archive_and_end_return_the_same_response_twice(self, alice, session, verb, status):
        replies = [alice.post(f"/chats/{session.id}/{verb}").data for _ in range(2)]
        assert replies == [{"status": status}] * 2

    def test_status_returns_the_same_response_twice(self, alice, session):
        replies = [alice.put(f"/chats/{session.id}/status", {"status": "pending"}).data for _ in range(2)]
        assert replies == [{"status": "pending"}] * 2

    @pytest.mark.parametrize(
        ("method", "rest", "data", "column"),
        [
            ("POST", "/pin", {"pinned": True}, "pinned_at"),
            ("DELETE", "/pin", {"unpinned": True}, "pinned_at"),
            ("DELETE", "", {"deleted": True}, "deleted_at"),
        ],
        ids=["pin", "unpin", "delete"],
    )
    def test_messages_keep_the_first_timestamp(
        self, host_clock, alice, settings, session, say, method, rest, data, column
    ):
        renew_token(alice, settings)
        message, states = say(), []
        for _ in range(2):
            assert alice.call(method, f"/chats/{session.id}/messages/{message.id}{rest}").data == data
            states.append(
                (getattr(Message.get_by_id(message.id), column), ChatSession.get_by_id(session.id).shown_total)
            )
            host_clock.forward(minutes=1)
        assert states[0] == states[1]


def test_time_and_identifiers_never_go_backwards(host_clock: Any) -> None:
    earlier = clock.timestamp(), clock.ulid()
    host_clock.back(hours=2)
    later = clock.timestamp(), clock.ulid()
    assert later[0] >= earlier[0]
    assert later[1] > earlier[1]


def test_text_in_responses_is_escaped_once(eve) -> None:
    name = 'Quote " backslash \\ newline \n and \u2028 \U0001f35e </script>'
    reply = eve.post("/sample-apps", {"name": name})
    assert reply.data["name"] == name
    assert json.loads(reply.raw)["data"]["id"] == App.get(App.name == name).id
