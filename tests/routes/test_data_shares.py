"""Data shares: creation, checks, revocation, expiry."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service import clock, db
from service.http.application import build_app
from service.models import ChatSession, DataShare, IdempotencyKey, LoginSession
from service.models.data_shares import ACTIVE_LIMIT
from service.operate import import_export
from service.routes import operations
from tests.support.client import Client, Reply
from tests.support.faults import full, locked
from tests.support.observe import at_once, database_steps, nothing_changes, query_plan, statements, stored
from tests.support.postgres import is_chosen
from tests.support.sample_operations import UNKNOWN_ID

pytestmark = pytest.mark.usefixtures("host_clock")  # first, so that all tokens are of its time

NOW = "2026-11-20T10:00:00.000Z"
IN_A_MINUTE = "2026-11-20T10:01:00.000Z"
HIGH, LOW = 2**63 - 1, -(2**63)
APP = "0AB0c0de-0000-4000-8000-00000000ABCD"
MEMBERS = [
    "id",
    "user_id",
    "app_id",
    "conversation_id",
    "mcp_server_id",
    "allowed_tools",
    "scope_meta",
    "expires_at",
    "granted_at",
    "revoked_at",
    "is_active",
]


def wanted(**members: Any) -> dict[str, Any]:
    """The body of a grant."""
    return {"mcp_server_id": "files", "allowed_tools": ["read"], **members}


def give(client: Client, **members: Any) -> Any:
    """A new grant of a client's."""
    reply = client.post("/data-shares", wanted(**members))
    assert reply.status == 201, reply.json
    return reply.data


def check(client: Client, tool: str = "read", server: str = "files", **members: Any) -> tuple[str, str | None]:
    """The reason of a verdict and the grant that decided; tools are allowed when they are granted, else not."""
    verdict = client.post("/data-shares/check", {"mcp_server_id": server, "tool": tool, **members}).data
    assert list(verdict) == ["allowed", "grant_id", "reason"]
    assert verdict["allowed"] is (verdict["reason"] == "granted")
    return verdict["reason"], verdict["grant_id"]


def listed(client: Client) -> list[str]:
    """The identifiers of a client's active grants."""
    grants = client.get("/data-shares").data
    assert all(grant["is_active"] for grant in grants)
    return [grant["id"] for grant in grants]


def read(client: Client, grant: Any) -> Reply:
    return client.get(f"/data-shares/{grant['id']}")


def revoke(client: Client, grant: Any) -> Reply:
    return client.delete(f"/data-shares/{grant['id']}")


def store(client: Client, number: int, **columns: Any) -> None:
    """Many grants at once, however they came about."""
    columns = {"user_id": client.user.id, "mcp_server_id": "files", "allowed_tools": '["read"]', **columns}
    rows = [{"id": clock.uuid(), **columns} for _ in range(number)]
    with db.write():
        for first in range(0, number, 500):
            DataShare.insert_many(rows[first : first + 500]).execute()


class TestCreating:
    def test_returns_every_member(self, alice, session):
        sent = {
            "allowed_tools": ["read", "write"],
            "app_id": APP,
            "conversation_id": session.conversation_id.upper(),
            "expires_at": "2026-11-20T11:30:00.5+01:00",
            "mcp_server_id": "files.example.com/ü",
            "scope_meta": [1, HIGH, LOW],
        }
        reply = alice.post("/data-shares", sent)
        assert reply.status == 201
        assert set(reply.json) == {"success", "data"}
        assert list(reply.data) == MEMBERS
        assert reply.data == {
            "id": clock.read_uuid(reply.data["id"]),
            "user_id": alice.user.id,
            "app_id": APP.lower(),
            "conversation_id": session.conversation_id,
            "mcp_server_id": "files.example.com/ü",
            "allowed_tools": ["read", "write"],
            "scope_meta": [1, HIGH, LOW],
            "expires_at": "2026-11-20T10:30:00.500Z",
            "granted_at": NOW,
            "revoked_at": None,
            "is_active": True,
        }
        assert read(alice, reply.data).data == reply.data
        assert alice.get("/data-shares").data == [reply.data]

    @pytest.mark.parametrize("unset", [{}, None, ""], ids=["left out", "null", "empty"])
    def test_requires_a_server_and_tools_only(self, alice, unset):
        optional = ("app_id", "conversation_id", "expires_at")
        more = {} if unset == {} else {**dict.fromkeys(optional, unset), "scope_meta": None}
        grant = give(alice, **more)
        assert [grant[name] for name in (*optional, "revoked_at")] == [None] * 4
        assert grant["scope_meta"] == []

    def test_creates_a_new_grant_each_time(self, alice):
        first, second = give(alice), give(alice)
        assert first["id"] != second["id"]
        assert set(listed(alice)) == {first["id"], second["id"]}

    @pytest.mark.parametrize(
        "tools",
        [
            ["read"],
            ["b", "a", "B", "á", "a\u0301"],
            ["x" * 255],
            ["\U0001f5dd" * 255],
            [" ", "**", "a*", '"', "\\", "\u2028", "\x7f", "\x01", "</script>"],
            [f"tool {number}" for number in range(1000)],
        ],
        ids=["one", "in their order", "255", "255 keys", "strange", "many"],
    )
    def test_returns_tools_unchanged(self, alice, tools):
        grant = give(alice, allowed_tools=tools)
        assert grant["allowed_tools"] == read(alice, grant).data["allowed_tools"] == tools
        assert check(alice, tools[-1]) == ("granted", grant["id"])

    def test_accepts_any_server(self, alice):
        for server in ("x" * 255, "\U0001f5dd" * 255, " ", '"', "\\", "\x01\x1f\x7f", "'; --", "%s"):
            grant = give(alice, mcp_server_id=server)
            assert grant["mcp_server_id"] == server
            assert check(alice, server=server) == ("granted", grant["id"])

    @pytest.mark.parametrize("numbers", [[], [0], [HIGH, LOW, -1], [7] * 1000], ids=["none", "0", "ends", "many"])
    def test_returns_scope_meta_unchanged(self, alice, numbers):
        grant = give(alice, scope_meta=numbers)
        assert grant["scope_meta"] == numbers
        assert str(numbers).replace(" ", "").encode() in read(alice, grant).raw

    @pytest.mark.parametrize(
        ("sent", "answered"),
        [
            ("2026-11-20T10:00:00.001Z", "2026-11-20T10:00:00.001Z"),
            ("2026-11-20t10:00:01z", "2026-11-20T10:00:01.000Z"),
            ("2026-11-20 10:01:00Z", IN_A_MINUTE),
            ("2026-11-20T10:01:00.000999Z", IN_A_MINUTE),
            ("2026-11-20T15:31:00+05:30", IN_A_MINUTE),
            ("2026-11-19T10:01:00.000-23:59", "2026-11-20T10:00:00.000Z"),
            ("2026-11-20T10:01:00-00:00", IN_A_MINUTE),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ],
    )
    def test_accepts_any_offset(self, alice, host_clock, sent, answered):
        host_clock.back(seconds=1)
        clock.reset()
        assert give(alice, expires_at=sent)["expires_at"] == answered

    @pytest.mark.parametrize(
        "expires_at",
        [
            NOW,
            "2026-11-20T10:00:00.000999Z",
            "2026-11-20T09:59:59.999Z",
            "2026-11-20T12:00:00+02:00",
            "0001-01-01T00:00:00Z",
        ],
    )
    def test_requires_an_expiry_in_the_future(self, alice, expires_at):
        with nothing_changes():
            reply = alice.post("/data-shares", wanted(expires_at=expires_at))
            assert reply.error == (400, "invalid_body")
            assert reply.message == "$.expires_at: expected a time in the future"

    def test_is_granted_at_the_time_of_the_write(self, alice, host_clock, monkeypatch):
        begin = db.database.obj.begin

        def begin_late(*arguments: Any) -> Any:
            host_clock.forward(minutes=1)
            return begin(*arguments)

        monkeypatch.setattr(db.database.obj, "begin", begin_late)
        with nothing_changes():
            assert alice.post("/data-shares", wanted(expires_at=IN_A_MINUTE)).error == (400, "invalid_body")

    @pytest.mark.parametrize("unset", [{}, {"expires_at": None}, {"expires_at": ""}], ids=["left out", "null", "empty"])
    def test_requires_an_expiry_for_every_tool(self, alice, unset):
        with nothing_changes():
            reply = alice.post("/data-shares", wanted(allowed_tools=["*"], conversation_id=UNKNOWN_ID, **unset))
            assert reply.error == (400, "invalid_body")
            assert reply.message == "$.expires_at: required if every tool is allowed (*)"
        assert give(alice, allowed_tools=["*"], expires_at=IN_A_MINUTE)["allowed_tools"] == ["*"]
        assert give(alice, allowed_tools=["**"])["expires_at"] is None

    def test_starts_before_it_expires(self, alice, host_clock, monkeypatch):
        monkeypatch.setattr(clock, "host_time", lambda: host_clock.forward(seconds=1) or host_clock.now)
        statuses = set()
        for seconds in range(20):
            ends = clock.timestamp(host_clock.now + seconds * clock.SECOND)
            reply = alice.post("/data-shares", wanted(expires_at=ends))
            statuses.add(reply.status)
            assert reply.status == 400 or reply.data["granted_at"] < reply.data["expires_at"] == ends
        assert statuses == {201, 400}

    def test_does_not_look_up_the_app(self, alice, other_shop):
        for app_id in (other_shop.id, UNKNOWN_ID):
            assert give(alice, app_id=app_id)["app_id"] == app_id

    def test_ignores_unknown_and_read_only_members(self, alice, bob):
        forged = {
            "id": UNKNOWN_ID,
            "user_id": bob.user.id,
            "granted_at": "2020-01-01T00:00:00.000Z",
            "revoked_at": NOW,
            "is_active": False,
            "colour": {"red": [1]},
        }
        grant = give(alice, **forged)
        assert not grant.items() & {**forged, "colour": ""}.items()
        assert (grant["user_id"], grant["granted_at"], grant["is_active"]) == (alice.user.id, NOW, True)
        assert listed(bob) == []


FAULTS = [
    ({"mcp_server_id": None}, "$.mcp_server_id: expected str"),
    ({"mcp_server_id": ""}, "$.mcp_server_id: expected str of length >= 1"),
    ({"mcp_server_id": 5}, "$.mcp_server_id: expected str"),
    ({"mcp_server_id": "x" * 256}, "$.mcp_server_id: expected str of length <= 255"),
    ({"mcp_server_id": "a\0"}, "$.mcp_server_id: NUL characters are not accepted"),
    ({"allowed_tools": None}, "$.allowed_tools: expected array"),
    ({"allowed_tools": "*"}, "$.allowed_tools: expected array"),
    ({"allowed_tools": {"read": True}}, "$.allowed_tools: expected array"),
    ({"allowed_tools": []}, "$.allowed_tools: expected at least one tool"),
    ({"allowed_tools": [""]}, "$.allowed_tools[0]: expected str of length >= 1"),
    ({"allowed_tools": ["read", None]}, "$.allowed_tools[1]: expected str"),
    ({"allowed_tools": ["read", 7]}, "$.allowed_tools[1]: expected str"),
    ({"allowed_tools": ["read", ["write"]]}, "$.allowed_tools[1]: expected str"),
    ({"allowed_tools": ["x" * 256]}, "$.allowed_tools[0]: expected str of length <= 255"),
    ({"allowed_tools": ["read", "write", "read"]}, "$.allowed_tools: expected every tool once"),
    ({"allowed_tools": ["*", "*"]}, "$.allowed_tools: expected every tool once"),
    ({"allowed_tools": ["read", "*"]}, "$.allowed_tools: expected * alone"),
    ({"allowed_tools": ["a\ud800"]}, "$.allowed_tools[0]: lone surrogate"),
    ({"scope_meta": 7}, "$.scope_meta: expected array | null"),
    ({"scope_meta": ""}, "$.scope_meta: expected array | null"),
    ({"scope_meta": {}}, "$.scope_meta: expected array | null"),
    ({"scope_meta": [1, "2"]}, "$.scope_meta[1]: expected int"),
    ({"scope_meta": [True]}, "$.scope_meta[0]: expected int"),
    ({"scope_meta": [1.0]}, "$.scope_meta[0]: expected int"),
    ({"scope_meta": [None]}, "$.scope_meta[0]: expected int"),
    ({"scope_meta": [0, HIGH + 1]}, f"$.scope_meta[1]: expected int <= {HIGH}"),
    ({"scope_meta": [LOW - 1]}, f"$.scope_meta[0]: expected int >= {LOW}"),
    ({"expires_at": 1795168860}, "$.expires_at: expected str | null"),
    ({"expires_at": "tomorrow"}, "$.expires_at: expected an RFC 3339 timestamp such as 2026-11-20T10:00:00Z"),
    ({"expires_at": "2027-01-01"}, "$.expires_at: expected an RFC 3339 timestamp such as 2026-11-20T10:00:00Z"),
    (
        {"expires_at": "2027-01-01T00:00:00"},
        "$.expires_at: expected an RFC 3339 timestamp such as 2026-11-20T10:00:00Z",
    ),
    ({"expires_at": "2027-02-29T00:00:00Z"}, "$.expires_at: no such date or time"),
    ({"expires_at": "9999-12-31T23:59:59-01:00"}, "$.expires_at: no such date or time"),
    ({"app_id": "nonsense"}, "$.app_id: expected a UUID"),
    ({"app_id": f"{{{UNKNOWN_ID}}}"}, "$.app_id: expected a UUID"),
    ({"app_id": f"urn:uuid:{UNKNOWN_ID}"}, "$.app_id: expected a UUID"),
    ({"app_id": UNKNOWN_ID.replace("-", "")}, "$.app_id: expected a UUID"),
    ({"app_id": f"{UNKNOWN_ID}\n"}, "$.app_id: expected a UUID"),
    ({"app_id": 7}, "$.app_id: expected str | null"),
    ({"conversation_id": "nonsense"}, "$.conversation_id: expected a UUID"),
    ({"conversation_id": [UNKNOWN_ID]}, "$.conversation_id: expected str | null"),
]


class TestInvalidGrants:
    def test_are_400_with_the_place_and_nothing_is_stored(self, alice):
        with nothing_changes():
            for members, reason in FAULTS:
                reply = alice.post("/data-shares", wanted(**members))
                assert (reply.error[0], reply.message) == (400, reason)

    @pytest.mark.parametrize("name", ["mcp_server_id", "allowed_tools"])
    def test_without_a_required_member_are_400(self, alice, name):
        body = wanted()
        del body[name]
        with nothing_changes():
            reply = alice.post("/data-shares", body)
            assert reply.error == (400, "invalid_body")
            assert reply.message == f"$: object missing required field {name}"

    @pytest.mark.parametrize(
        "raw",
        [b"", b"null", b"[]", b"{", b'"x"', b'{"mcp_server_id": "a", "mcp_server_id": "b", "allowed_tools": ["c"]}'],
    )
    def test_that_are_not_objects_are_400(self, alice, raw):
        with nothing_changes():
            assert alice.post("/data-shares", raw=raw).error[0] == 400

    def test_are_reported_before_the_conversation_is_looked_up(self, alice, session):
        for fault in ({"expires_at": NOW}, {"allowed_tools": []}, {"app_id": "x"}):
            reply = alice.post("/data-shares", wanted(conversation_id=UNKNOWN_ID, **fault))
            assert reply.error == (400, "invalid_body")

    def test_are_reported_after_authentication(self, anyone):
        with nothing_changes():
            assert anyone.post("/data-shares", raw=b"{").error == (401, "missing_credentials")
            assert anyone.get("/data-shares").error == (401, "missing_credentials")
            assert anyone.get("/data-shares/x").error == (401, "missing_credentials")
            assert anyone.delete("/data-shares/x").error == (401, "missing_credentials")
            assert anyone.post("/data-shares/check", raw=b"{").error == (401, "missing_credentials")


class TestConversations:
    def test_can_be_any_of_the_callers_own(self, alice, session):
        alice.post(f"/chats/{session.id}/archive")
        assert give(alice, conversation_id=session.conversation_id)["conversation_id"] == session.conversation_id

    def test_that_do_not_exist_are_404(self, alice, session):
        with nothing_changes():
            for unknown in (UNKNOWN_ID, session.id):
                reply = alice.post("/data-shares", wanted(conversation_id=unknown))
                assert reply.error == (404, "conversation_not_found")

    @pytest.mark.parametrize("who", ["bob", "agent", "other_agent", "admin"])
    def test_of_other_users_are_404_for_staff_too(self, who, request, session):
        client = request.getfixturevalue(who)
        with nothing_changes():
            foreign = client.post("/data-shares", wanted(conversation_id=session.conversation_id))
            unknown = client.post("/data-shares", wanted(conversation_id=UNKNOWN_ID))
        assert foreign.error == (404, "conversation_not_found")
        assert foreign.json == unknown.json


class TestRepeatingWithAKey:
    def test_creates_one_grant_and_returns_the_same_response(self, alice):
        first = alice.post("/data-shares", wanted(), idempotency_key="k")
        second = alice.post("/data-shares", wanted(), idempotency_key="k")
        assert (first.status, first.raw) == (second.status, second.raw)
        assert first.status == 201
        assert second.headers["Idempotency-Replayed"] == "true"
        assert listed(alice) == [first.data["id"]]

    def test_with_another_body_is_400(self, alice):
        alice.post("/data-shares", wanted(), idempotency_key="k")
        with nothing_changes():
            reply = alice.post("/data-shares", wanted(scope_meta=[1]), idempotency_key="k")
            assert reply.error == (400, "idempotency_key_reused")

    def test_returns_the_first_response_after_the_grant_has_ended(self, alice, host_clock):
        body = wanted(expires_at=IN_A_MINUTE)
        first = alice.post("/data-shares", body, idempotency_key="k")
        revoke(alice, first.data)
        host_clock.forward(minutes=2)
        with nothing_changes():
            assert alice.post("/data-shares", body, idempotency_key="k").raw == first.raw
        assert listed(alice) == []

    def test_stores_no_error(self, alice):
        for body in (wanted(expires_at=NOW), wanted(conversation_id=UNKNOWN_ID), wanted(allowed_tools=[])):
            with nothing_changes(IdempotencyKey, DataShare):
                assert alice.post("/data-shares", body, idempotency_key="k").error[0] in (400, 404)
        assert alice.post("/data-shares", wanted(), idempotency_key="k").status == 201

    def test_is_separate_by_user(self, alice, bob):
        hers, his = (client.post("/data-shares", wanted(), idempotency_key="k").data for client in (alice, bob))
        assert hers["id"] != his["id"]
        assert his["user_id"] == bob.user.id


class TestAtMostFiveHundred:
    def test_are_active_at_a_time(self, alice, bob):
        store(alice, ACTIVE_LIMIT - 1, expires_at=IN_A_MINUTE)
        last = give(alice)
        with nothing_changes():
            assert alice.post("/data-shares", wanted()).error == (400, "grant_limit_reached")
        assert len(listed(alice)) == ACTIVE_LIMIT == 500
        give(bob)
        revoke(alice, last)
        give(alice)

    def test_and_expired_or_revoked_grants_do_not_count(self, alice, host_clock):
        store(alice, ACTIVE_LIMIT, expires_at=IN_A_MINUTE)
        store(alice, ACTIVE_LIMIT, revoked_at=NOW)
        host_clock.forward(seconds=59.999)
        assert alice.post("/data-shares", wanted()).error == (400, "grant_limit_reached")
        host_clock.forward(seconds=0.001)
        grant = give(alice)
        assert listed(alice) == [grant["id"]]

    def test_and_a_repeated_request_does_not_count(self, alice):
        store(alice, ACTIVE_LIMIT - 1)
        first, second = (alice.post("/data-shares", wanted(), idempotency_key="k") for _ in range(2))
        assert first.raw == second.raw
        assert first.status == 201

    def test_and_more_that_were_imported_are_all_listed(self, alice):
        store(alice, ACTIVE_LIMIT + 1)
        assert len(listed(alice)) == ACTIVE_LIMIT + 1

    def test_and_unknown_conversations_are_reported_first(self, alice):
        store(alice, ACTIVE_LIMIT)
        with nothing_changes():
            assert alice.post("/data-shares", wanted(conversation_id=UNKNOWN_ID)).error == (
                404,
                "conversation_not_found",
            )

    def test_also_with_concurrent_requests(self, alice):
        store(alice, ACTIVE_LIMIT - 2)
        replies = at_once(6, lambda _: alice.post("/data-shares", wanted()))
        assert sorted(reply.status for reply in replies) == [201, 201, 400, 400, 400, 400]
        assert len(listed(alice)) == ACTIVE_LIMIT


class TestTheList:
    def test_has_the_callers_active_grants_newest_first(self, alice, bob, host_clock):
        given_in_order = []
        for _ in range(4):
            given_in_order.append(give(alice)["id"])
            give(bob)
            host_clock.forward(seconds=1)
        expiring = give(alice, expires_at=IN_A_MINUTE)
        revoke(alice, {"id": given_in_order.pop(1)})
        assert listed(alice) == [expiring["id"], *reversed(given_in_order)]
        host_clock.forward(minutes=1)
        assert listed(alice) == given_in_order[::-1]

    def test_is_initially_empty(self, alice):
        reply = alice.get("/data-shares")
        assert reply.json == {"success": True, "data": []}

    def test_has_a_stable_order_for_grants_of_the_same_time(self, alice):
        store(alice, 20, granted_at=NOW)
        assert listed(alice) == listed(alice) == sorted(listed(alice), reverse=True)

    @pytest.mark.parametrize("who", ["agent", "admin"])
    def test_shows_staff_only_their_own(self, who, request, alice):
        client = request.getfixturevalue(who)
        give(alice)
        own = give(client)
        assert listed(client) == [own["id"]]

    def test_ignores_every_parameter(self, alice, bob):
        hers = give(alice)["id"]
        give(bob)
        revoke(alice, give(alice))
        assert listed(alice) == [hers]
        for query in ("cursor=x", "limit=-1", "limit=x&limit=y", "include=%ff", "user_id=x", "%00=%00", "&&=", "\xff"):
            reply = alice.call("GET", f"/data-shares?{query}", raw=b"\xff{")
            assert (reply.status, [grant["id"] for grant in reply.data]) == (200, [hers])


class TestReading:
    def test_is_permitted_to_the_owner_whether_active_or_not(self, alice, host_clock):
        revoked, expired, active = give(alice), give(alice, expires_at=IN_A_MINUTE), give(alice)
        revoke(alice, revoked)
        host_clock.forward(minutes=1)
        assert read(alice, active).data == active
        assert read(alice, revoked).data == {**revoked, "revoked_at": NOW, "is_active": False}
        assert read(alice, expired).data == {**expired, "revoked_at": None, "is_active": False}

    @pytest.mark.parametrize("who", ["bob", "agent", "other_agent", "admin"])
    def test_is_forbidden_to_others(self, who, request, alice, session):
        grant, client = give(alice, conversation_id=session.conversation_id), request.getfixturevalue(who)
        with nothing_changes():
            assert read(client, grant).error == (403, "forbidden")

    def test_of_a_revoked_grant_is_as_forbidden_to_others(self, alice, bob):
        grant = give(alice)
        revoke(alice, grant)
        assert read(bob, grant).error == (403, "forbidden")

    @pytest.mark.parametrize("who", ["alice", "admin"])
    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    def test_of_an_unknown_grant_is_404(self, method, who, request, alice):
        give(alice)
        client = request.getfixturevalue(who)
        with nothing_changes():
            assert client.call(method, f"/data-shares/{UNKNOWN_ID}").error == (404, "grant_not_found")
            for malformed in (
                "nonsense",
                f"{{{UNKNOWN_ID}}}",
                f"urn:uuid:{UNKNOWN_ID}",
                UNKNOWN_ID.replace("-", ""),
                "check",
            ):
                assert client.call(method, f"/data-shares/{malformed}").error == (400, "invalid_id")

    def test_accepts_the_identifier_in_any_case(self, alice):
        grant = give(alice)
        assert alice.get(f"/data-shares/{grant['id'].upper()}").data == grant
        assert alice.delete(f"/data-shares/{grant['id'].upper()}").data["revoked_at"] == NOW

    def test_supports_head(self, alice):
        grant = give(alice)
        for path in ("/data-shares", f"/data-shares/{grant['id']}"):
            head = alice.call("HEAD", path)
            assert (head.status, head.raw) == (200, b"")


class TestRevoking:
    @pytest.mark.parametrize("who", ["alice", "admin"])
    def test_is_permitted_to_the_owner_and_to_admins(self, who, request, alice, host_clock):
        grant, client = give(alice), request.getfixturevalue(who)
        host_clock.forward(seconds=1)
        revoked = revoke(client, grant)
        assert revoked.status == 200
        assert revoked.data == {**grant, "revoked_at": "2026-11-20T10:00:01.000Z", "is_active": False}
        assert read(alice, grant).data == revoked.data
        assert listed(alice) == []
        assert check(alice) == ("revoked", grant["id"])

    @pytest.mark.parametrize("who", ["bob", "agent", "other_agent"])
    def test_is_forbidden_to_others(self, who, request, alice, session):
        grant, client = give(alice, conversation_id=session.conversation_id), request.getfixturevalue(who)
        with nothing_changes():
            assert revoke(client, grant).error == (403, "forbidden")
        assert check(alice, conversation_id=session.conversation_id)[0] == "granted"

    def test_is_forbidden_to_former_admins(self, alice, admin):
        grant = give(alice)
        admin.user.role = "user"
        admin.user.save()
        with nothing_changes():
            assert revoke(admin, grant).error == (403, "forbidden")

    def test_a_second_time_changes_nothing(self, alice, admin, host_clock):
        grant = give(alice)
        first = revoke(alice, grant)
        host_clock.forward(minutes=1)
        with nothing_changes():
            assert revoke(alice, grant).raw == revoke(admin, grant).raw == first.raw

    def test_concurrently_has_one_time(self, alice):
        grant = give(alice)
        replies = at_once(4, lambda _: revoke(alice, grant))
        assert {reply.status for reply in replies} == {200}
        assert len({reply.raw for reply in replies}) == 1

    def test_does_not_change_other_grants(self, alice, bob):
        gone, kept, his = give(alice), give(alice), give(bob)
        before = [read(alice, kept).raw, read(bob, his).raw]
        revoke(alice, gone)
        assert [read(alice, kept).raw, read(bob, his).raw] == before

    def test_ignores_a_body(self, alice):
        assert alice.delete(f"/data-shares/{give(alice)['id']}", raw=b"\xff").data["is_active"] is False

    def test_an_expired_grant_remains_when_the_clock_is_set_back(self, alice, host_clock):
        expired, withdrawn = (give(alice, expires_at=IN_A_MINUTE) for _ in range(2))
        host_clock.forward(minutes=2)
        gone = revoke(alice, withdrawn).data
        assert gone == {**withdrawn, "revoked_at": "2026-11-20T10:02:00.000Z", "is_active": False}
        host_clock.back(minutes=2)
        clock.reset()  # as after a restart
        assert listed(alice) == [expired["id"]]
        assert read(alice, withdrawn).data == gone
        revoke(alice, expired)
        assert check(alice)[0] == "revoked"


class TestExpiring:
    def test_writes_nothing_and_is_visible_everywhere(self, alice, host_clock):
        grant = give(alice, expires_at=IN_A_MINUTE)
        with nothing_changes():
            host_clock.forward(seconds=59.999)
            assert read(alice, grant).data == grant
            assert listed(alice) == [grant["id"]]
            assert check(alice) == ("granted", grant["id"])
            host_clock.forward(seconds=0.001)  # not a moment longer
            assert read(alice, grant).data == {**grant, "is_active": False}
            assert listed(alice) == []
            assert check(alice) == ("expired", grant["id"])

    def test_is_not_undone_when_the_clock_is_set_back(self, alice, host_clock):
        grant = give(alice, expires_at=IN_A_MINUTE)
        host_clock.forward(minutes=1)
        assert check(alice)[0] == "expired"
        host_clock.back(minutes=1)
        assert check(alice)[0] == "expired"
        assert listed(alice) == []
        assert read(alice, grant).data["is_active"] is False


class TestChecking:
    def test_allows_the_tools_of_a_grant(self, alice):
        grant = give(alice, allowed_tools=["read", "list"])
        assert check(alice, "read") == check(alice, "list") == ("granted", grant["id"])

    def test_refuses_other_tools(self, alice):
        grant = give(alice, allowed_tools=["read", "list"])
        for tool in ("write", "Read", "rea", "read ", "*", "read,list", '["read"]', "%"):
            assert check(alice, tool) == ("tool_not_allowed", grant["id"])

    def test_allows_every_tool_with_a_wildcard(self, alice):
        grant = give(alice, allowed_tools=["*"], expires_at=IN_A_MINUTE)
        for tool in ("read", "*", "x" * 255, "\U0001f5dd"):
            assert check(alice, tool) == ("granted", grant["id"])

    def test_compares_servers_exactly(self, alice):
        give(alice, allowed_tools=["*"], expires_at=IN_A_MINUTE)
        for server in ("file", "files2", "Files", "files ", "%", "*"):
            assert check(alice, server=server) == ("not_granted", None)

    def test_finds_nothing_without_grants(self, alice):
        assert check(alice) == ("not_granted", None)

    def test_uses_the_callers_grants_only(self, alice, bob, agent, admin):
        give(alice, allowed_tools=["*"], expires_at=IN_A_MINUTE)
        revoke(alice, give(alice, mcp_server_id="mail"))
        for client in (bob, agent, admin):
            for server in ("files", "mail"):
                assert check(client, server=server) == ("not_granted", None)

    def test_returns_the_newest_grant_that_allows_the_tool(self, alice, host_clock):
        give(alice)
        host_clock.forward(seconds=1)
        newest = give(alice, allowed_tools=["*"], expires_at=IN_A_MINUTE)
        host_clock.forward(seconds=1)
        give(alice, allowed_tools=["other"])
        assert check(alice) == ("granted", newest["id"])

    def test_prefers_an_active_grant(self, alice, host_clock):
        holding = give(alice, allowed_tools=["list"])
        host_clock.forward(seconds=1)
        give(alice, expires_at=IN_A_MINUTE)
        revoke(alice, give(alice))
        host_clock.forward(minutes=2)
        assert check(alice, "list") == ("granted", holding["id"])
        assert check(alice, "read") == ("tool_not_allowed", holding["id"])

    @pytest.mark.parametrize("order", ["expired, revoked", "revoked, expired"])
    def test_returns_the_newest_without_an_active_one(self, alice, host_clock, order):
        for kind in order.split(", "):
            grant = give(alice, expires_at=IN_A_MINUTE)
            if kind == "revoked":
                revoke(alice, grant)
            host_clock.forward(seconds=1)
        host_clock.forward(minutes=1)
        assert check(alice) == (kind, grant["id"])

    def test_reports_an_expired_and_revoked_grant_as_revoked(self, alice, host_clock):
        grants = [give(alice, expires_at=IN_A_MINUTE) for _ in range(2)]
        revoke(alice, grants[0])
        host_clock.forward(minutes=1)
        revoke(alice, grants[1])
        assert check(alice)[0] == "revoked"

    def test_writes_nothing(self, alice, host_clock):
        give(alice, expires_at=IN_A_MINUTE)
        with nothing_changes():
            check(alice)
            host_clock.forward(minutes=1)
            check(alice)

    def test_never_reports_a_concurrently_created_grant_as_ended(self, alice):
        revoked = give(alice)
        revoke(alice, revoked)
        real, newer = db.database.obj.execute_sql, list[Any]()

        def execute_sql(sql: str, values: Any = None) -> Any:
            found = real(sql, values)
            if "data_share" in sql:
                db.database.obj.execute_sql = real
                newer.extend(at_once(1, lambda _: give(alice)))
            return found

        db.database.obj.execute_sql = execute_sql
        assert check(alice) == ("revoked", revoked["id"])
        del db.database.obj.execute_sql
        assert check(alice) == ("granted", newer[0]["id"])

    def test_treats_missing_null_and_empty_conversations_alike(self, alice):
        grant = give(alice)
        for conversation in ({}, {"conversation_id": None}, {"conversation_id": ""}):
            assert check(alice, **conversation) == ("granted", grant["id"])

    def test_refuses_malformed_bodies(self, alice):
        for body, reason in [
            ({}, "$: object missing required field mcp_server_id"),
            ({"mcp_server_id": "files"}, "$: object missing required field tool"),
            ({"tool": "read"}, "$: object missing required field mcp_server_id"),
            ({"mcp_server_id": "", "tool": "read"}, "$.mcp_server_id: expected str of length >= 1"),
            ({"mcp_server_id": None, "tool": "read"}, "$.mcp_server_id: expected str"),
            ({"mcp_server_id": "x" * 256, "tool": "read"}, "$.mcp_server_id: expected str of length <= 255"),
            ({"mcp_server_id": "files", "tool": ""}, "$.tool: expected str of length >= 1"),
            ({"mcp_server_id": "files", "tool": "x" * 256}, "$.tool: expected str of length <= 255"),
            ({"mcp_server_id": "files", "tool": ["read"]}, "$.tool: expected str"),
            ({"mcp_server_id": "files", "tool": "a", "conversation_id": "x"}, "$.conversation_id: expected a UUID"),
            ({"mcp_server_id": "files", "tool": "a", "conversation_id": 7}, "$.conversation_id: expected str | null"),
        ]:
            reply = alice.post("/data-shares/check", body)
            assert (*reply.error, reply.message) == (400, "invalid_body", reason)

    def test_is_an_extension(self, alice, settings):
        plain = Client(build_app(operations(documented_only=True), settings), alice.token)
        assert plain.post("/data-shares/check", {}).error == (405, "method_not_allowed")
        assert give(plain)["id"] in listed(plain)


class TestGrantsForOneConversation:
    def test_are_valid_in_it_only(self, alice, session, shop):
        other = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
        grant = give(alice, conversation_id=session.conversation_id)
        assert check(alice, conversation_id=session.conversation_id) == ("granted", grant["id"])
        assert check(alice, conversation_id=session.conversation_id.upper()) == ("granted", grant["id"])
        for conversation in (other.conversation_id, session.id, UNKNOWN_ID):
            assert check(alice, conversation_id=conversation) == ("not_granted", None)
        assert check(alice) == ("not_granted", None)
        revoke(alice, grant)
        assert check(alice, conversation_id=session.conversation_id) == ("revoked", grant["id"])
        assert check(alice) == ("not_granted", None)

    def test_are_combined_with_those_for_all(self, alice, session, host_clock):
        everywhere = give(alice, allowed_tools=["list"])
        host_clock.forward(seconds=1)
        here = give(alice, conversation_id=session.conversation_id)
        at_home = {"conversation_id": session.conversation_id}
        assert check(alice, "list", **at_home) == check(alice, "list") == ("granted", everywhere["id"])
        assert check(alice, "read", **at_home) == ("granted", here["id"])
        assert check(alice, "write", **at_home) == ("tool_not_allowed", here["id"])
        assert check(alice, "read") == ("tool_not_allowed", everywhere["id"])

    @pytest.mark.parametrize("latest", ["here", "everywhere"])
    def test_are_returned_when_they_are_the_newest(self, alice, session, host_clock, latest):
        at_home = {"conversation_id": session.conversation_id}
        for place in ("everywhere", "here") if latest == "here" else ("here", "everywhere"):
            grant = give(alice, **(at_home if place == "here" else {}))
            revoke(alice, grant)
            host_clock.forward(seconds=1)
        assert check(alice, **at_home) == ("revoked", grant["id"])

    def test_of_other_users_do_not_count(self, alice, bob, session):
        give(alice, conversation_id=session.conversation_id, allowed_tools=["*"], expires_at=IN_A_MINUTE)
        assert check(bob, conversation_id=session.conversation_id) == ("not_granted", None)


class TestALongHistory:
    @pytest.mark.slow
    @pytest.mark.sqlite_only
    def test_does_not_slow_down_a_check(self, alice, session):
        def cost() -> int:
            return database_steps(lambda: (check(alice), check(alice, conversation_id=session.conversation_id)))

        for end in ({"revoked_at": NOW}, {"expires_at": NOW}):
            for place in ({}, {"conversation_id": UNKNOWN_ID}):
                store(alice, 1, **end, **place)
                before = cost()
                store(alice, 1000, **end, **place)
                assert cost() < before + 200
        give(alice)
        assert cost() < before + 200

    @pytest.mark.sqlite_only
    def test_does_not_slow_down_grants_and_the_list(self, alice):
        def cost() -> list[int]:
            return [database_steps(lambda: alice.get("/data-shares")), database_steps(lambda: give(alice))]

        give(alice)
        before = cost()
        store(alice, 1000, revoked_at=NOW)
        store(alice, 1000, expires_at=NOW)
        assert sum(cost()) < sum(before) + 200

    def test_is_excluded_by_an_index(self, alice):
        of_the_user, of_the_server = "data_share_active", "data_share_active_server"
        end = "(COALESCE(expires_at, '~'::text) > " if is_chosen() else "<expr>>?"
        store(alice, 1000, expires_at=NOW)
        db.database.execute_sql("ANALYZE data_share")
        actions = {(lambda: alice.get("/data-shares")): of_the_user, (lambda: give(alice)): of_the_user}
        for action, index in {**actions, (lambda: check(alice)): of_the_server}.items():
            with statements() as seen:
                action()
            ((sql, values),) = [found for found in seen if "'~'" in found[0]]
            plan = query_plan(sql, values)
            assert plan.ranges == [index], plan
            assert any(f"{index} " in step and end in step for step in plan.steps), plan


class TestNarrowTokens:
    @pytest.fixture
    def narrow(self, alice):
        """Let Alice's token reach no farther than some scopes."""

        def make(scopes: str) -> None:
            LoginSession.update(scopes=scopes).where(LoginSession.user_id == alice.user.id).execute()

        return make

    def test_for_reading_permit_checks_and_no_grants(self, alice, narrow):
        grant = give(alice)
        narrow("data-shares:read")
        assert listed(alice) == [grant["id"]]
        assert read(alice, grant).data == grant
        assert check(alice) == ("granted", grant["id"])
        with nothing_changes():
            for refused in (
                alice.post("/data-shares", wanted()),
                alice.post("/data-shares", raw=b"{"),
                revoke(alice, grant),
            ):
                assert refused.error == (403, "insufficient_scope")
                assert 'scope="data-shares"' in refused.headers["WWW-Authenticate"]

    def test_for_writing_permit_everything(self, alice, narrow):
        narrow("data-shares")
        grant = give(alice)
        assert check(alice) == ("granted", grant["id"])
        assert listed(alice) == [grant["id"]]
        assert revoke(alice, grant).status == 200

    @pytest.mark.parametrize("scopes", ["", "chats feedback", "data-share", "data-shares:write"])
    def test_for_other_resources_permit_nothing(self, alice, narrow, scopes):
        grant = give(alice)
        narrow(scopes)
        with nothing_changes():
            refused = [alice.post("/data-shares", wanted()), alice.get("/data-shares"), read(alice, grant)]
            refused += [revoke(alice, grant), alice.post("/data-shares/check", {"mcp_server_id": "files", "tool": "a"})]
            assert {reply.error for reply in refused} == {(403, "insufficient_scope")}


class TestADatabaseThatCannotWrite:
    LONG = [f"{number:0250}" for number in range(1000)]

    @pytest.mark.parametrize("trouble", [locked, full])
    def test_refuses_changes_and_permits_reads(self, alice, trouble):
        grant, before = give(alice), stored()
        with trouble():
            assert alice.post("/data-shares", wanted(allowed_tools=self.LONG)).error == (503, "storage_unavailable")
            assert listed(alice) == [grant["id"]]
            assert check(alice) == ("granted", grant["id"])
            if trouble is locked:  # a mark of a few bytes finds room on a full disk
                assert revoke(alice, grant).error == (503, "storage_unavailable")
        assert stored() == before
        assert revoke(alice, grant).status == 200


# Whatever is sent.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("*"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
LIKELY = {
    "mcp_server_id": TEXTS,
    "allowed_tools": st.lists(TEXTS, min_size=1, unique=True) | st.just(["*"]),
    "app_id": st.uuids().map(str),
    "expires_at": st.sampled_from([IN_A_MINUTE, "2027-01-01T00:00:00.000Z", NOW, ""]),
    "scope_meta": st.lists(st.integers(LOW, HIGH)),
}
BODIES = st.fixed_dictionaries(
    {name: st.one_of(*[LIKELY[name]] * 9, JSON) for name in ("mcp_server_id", "allowed_tools")},
    optional={name: LIKELY[name] | JSON for name in ("app_id", "expires_at", "scope_meta")},
)
widely = hypothesis_settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=[*HealthCheck], derandomize=True
)


@widely
@given(BODIES)
@pytest.mark.slow
def test_every_body_is_stored_unchanged_or_refused(alice, body):
    before = stored(DataShare)
    reply = alice.post("/data-shares", raw=json.dumps(body).encode())
    if reply.status == 400:
        assert stored(DataShare) == before
        return
    assert reply.status == 201
    for name, sent in body.items():
        assert reply.data[name] == (sent or ([] if name == "scope_meta" else None))
    assert revoke(alice, reply.data).data["is_active"] is False


# Import and export.


@pytest.fixture
def take_in(tmp_path):
    """Import grants; the faults, as they stand in a file."""

    def run(*records: dict[str, Any]) -> list[str]:
        path = Path(tmp_path, "in.jsonl")
        path.write_text("".join(json.dumps({"data_share": record}) + "\n" for record in records))
        return [fault.replace(str(path), "FILE") for fault in import_export.import_files([path])]

    return run


def exported() -> dict[str, Any]:
    """Every grant as it leaves, by its identifier."""
    written: list[bytes] = []
    import_export.export(written.append)
    records = [json.loads(line) for line in b"".join(written).splitlines()]
    return {record["data_share"]["id"]: record["data_share"] for record in records if "data_share" in record}


class TestTransfer:
    def test_restores_every_grant(self, alice, session, host_clock, take_in):
        give(alice, conversation_id=session.conversation_id, scope_meta=[LOW, HIGH], app_id=UNKNOWN_ID)
        expired = give(alice, expires_at=IN_A_MINUTE)
        revoke(alice, give(alice, allowed_tools=["*"], expires_at=IN_A_MINUTE, mcp_server_id="ü \U0001f5dd\n"))
        host_clock.forward(minutes=2)
        first = exported()
        assert [list(record) for record in first.values()] == [MEMBERS] * 3
        assert first[expired["id"]] == {**expired, "is_active": False}
        DataShare.delete().execute()
        assert take_in(*first.values()) == []
        assert exported() == first
        assert take_in(*first.values()) == []
        assert exported() == first

    def test_accepts_a_minimal_grant(self, alice, take_in):
        assert take_in({"user_id": alice.user.id, **wanted()}) == []
        (grant,) = alice.get("/data-shares").data
        assert grant["granted_at"] == NOW
        assert (grant["app_id"], grant["conversation_id"], grant["expires_at"]) == (None, None, None)
        assert grant["scope_meta"] == []

    def test_accepts_a_grant_for_every_tool_of_an_earlier_version(self, alice, take_in):
        assert take_in({"user_id": alice.user.id, **wanted(allowed_tools=["*"])}) == []
        (grant,) = alice.get("/data-shares").data
        assert grant["expires_at"] is None
        assert check(alice) == ("granted", grant["id"])

    @pytest.mark.parametrize("expires_at", [None, IN_A_MINUTE])
    def test_never_activates_an_ended_grant(self, alice, take_in, expires_at):
        given_at = "2026-11-01T00:00:00.000Z"
        record = {"user_id": alice.user.id, **wanted(), "is_active": False, "granted_at": given_at}
        assert take_in({**record, "expires_at": expires_at}) == []
        assert listed(alice) == []
        assert check(alice)[0] == "revoked"
        (grant,) = exported().values()
        assert (grant["revoked_at"], grant["expires_at"]) == (given_at, expires_at)

    def test_does_not_call_a_grant_revoked_that_has_expired(self, alice, take_in):
        record = {"user_id": alice.user.id, **wanted(), "is_active": False, "expires_at": NOW}
        assert take_in(record) == []
        (grant,) = exported().values()
        assert (grant["revoked_at"], grant["expires_at"]) == (None, NOW)
        assert check(alice)[0] == "expired"

    @pytest.mark.parametrize("over", [{"revoked_at": NOW}, {"expires_at": NOW}])
    def test_prefers_a_time_to_a_flag(self, alice, take_in, over):
        assert take_in({"user_id": alice.user.id, **wanted(), "is_active": True, **over}) == []
        assert listed(alice) == []

    def test_replaces_a_grant_completely(self, alice, take_in):
        grant = give(alice, scope_meta=[1], expires_at=IN_A_MINUTE)
        revoke(alice, grant)
        assert take_in({"id": grant["id"].upper(), "user_id": alice.user.id, **wanted(allowed_tools=["list"])}) == []
        now = read(alice, grant).data
        assert (now["scope_meta"], now["expires_at"], now["revoked_at"]) == ([], None, None)
        assert check(alice, "list") == ("granted", grant["id"])

    def test_reports_the_place_of_an_error(self, alice, take_in):
        faults = [(given, why) for given, why in FAULTS if given.keys() & {"allowed_tools", "mcp_server_id"}]
        faults += [
            ({"scope_meta": [HIGH + 1]}, f"$.scope_meta[0]: expected int <= {HIGH}"),
            ({"expires_at": "soon"}, "$.expires_at: expected an RFC 3339 timestamp such as 2026-11-20T10:00:00Z"),
            ({"app_id": "x"}, "$.app_id: expected a UUID"),
            ({"is_active": "yes"}, "$.is_active: expected bool"),
            ({"colour": "red"}, "$: object contains unknown field colour"),
            ({"user_id": UNKNOWN_ID}, f"$.user_id: refers to a missing record: {UNKNOWN_ID}"),
        ]
        sound = {"user_id": alice.user.id, **wanted()}
        with nothing_changes():
            for members, reason in faults:
                assert take_in(sound, {**sound, **members}) == [f"FILE:2: {reason.replace('$', '$.data_share', 1)}"]

    @pytest.mark.parametrize("name", ["user_id", "mcp_server_id", "allowed_tools"])
    def test_requires_members_without_a_default(self, alice, take_in, name):
        record = {"user_id": alice.user.id, **wanted()}
        del record[name]
        with nothing_changes():
            assert take_in(record) == [f"FILE:1: $.data_share: missing required member {name}"]
