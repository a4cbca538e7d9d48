"""MCP servers and gateways ask about data shares: introspections (RFC 7662), and checks."""

import base64
import json
from typing import Any
from urllib.parse import quote, urlencode

import peewee
import pytest

from service import clock, db
from service.api import openapi
from service.auth import server_credentials
from service.errors import CredentialNotFound
from service.models import AuditLog, ChatSession, ServerCredential, User
from service.models.server_credentials import IssuedSecret
from service.routes import operations
from tests.support.client import Client, Reply
from tests.support.faults import locked
from tests.support.observe import nothing_changes, stored
from tests.support.sample_operations import UNKNOWN_ID

pytestmark = pytest.mark.usefixtures("host_clock")

IN_A_MINUTE = "2026-11-20T10:01:00.000Z"
INACTIVE = {"active": False}
WRONG = (401, "invalid_client")
FORM = "application/x-www-form-urlencoded"


def give(client: Client, **members: Any) -> str:
    """Create a grant. Returns its identifier."""
    body = {"mcp_server_id": "files", "allowed_tools": ["read", "list"], **members}
    return str(client.post("/data-shares", body).data["id"])


def add(server: str = "files") -> IssuedSecret:
    """Add a credential."""
    return ServerCredential.add({"name": "A gateway", "mcp_server_id": server}, "operator")


def basic(issued: IssuedSecret) -> str:
    """Return the header of RFC 6749, section 2.3.1."""
    return "Basic " + base64.b64encode(":".join(map(quote, issued)).encode()).decode()


def send(client: Client, token: str, authorization: str = "", **members: str) -> Reply:
    body = urlencode({"token": token, **members}).encode()
    headers = {"authorization": authorization} if authorization else {}
    return client.post("/data-shares/introspect", raw=body, content_type=FORM, **headers)


def ask(client: Client, token: str, issued: IssuedSecret) -> Any:
    """Return the answer to a question."""
    reply = send(client, token, basic(issued))
    assert reply.status == 200, reply.json
    return reply.json


def error(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.json["error"]


class TestAnActiveGrant:
    def test_is_described(self, alice, anyone, session):
        issued = add()
        answer = ask(anyone, give(alice), issued)
        assert answer == {"active": True, "sub": answer["sub"], "scope": "read list"}
        bound = give(alice, conversation_id=session.conversation_id, expires_at=IN_A_MINUTE)
        assert ask(anyone, bound.upper(), issued) == {
            **answer,
            "exp": clock.milliseconds(IN_A_MINUTE) // 1000,
            "conversation_id": session.conversation_id,
        }

    def test_is_answered_without_caching(self, alice, anyone):
        reply = send(anyone, give(alice), basic(add()))
        assert (reply.headers["Cache-Control"], reply.headers["Content-Type"]) == ("no-store", "application/json")

    def test_has_a_subject_for_each_user_and_server(self, alice, bob, anyone):
        files, mail = add(), add("mail")
        subjects = [ask(anyone, give(client), files)["sub"] for client in (alice, alice, bob)]
        subjects.append(ask(anyone, give(alice, mcp_server_id="mail"), mail)["sub"])
        subjects.append(ask(anyone, give(alice), add())["sub"])  # another client of the same server
        assert subjects[0] == subjects[1] == subjects[4]
        assert len(set(subjects)) == 3
        assert not {alice.user.id, bob.user.id} & set(subjects)

    def test_never_names_tools_that_are_no_scopes(self, alice, anyone):
        issued = add()
        tools = ["read all", 'a"b', "a\\b", "ü", "files/read.2"]
        assert ask(anyone, give(alice, allowed_tools=tools), issued)["scope"] == "files/read.2"
        every = give(alice, allowed_tools=["*"], expires_at=IN_A_MINUTE)
        assert ask(anyone, every, issued)["scope"] == "*"

    def test_changes_nothing_when_asked_about(self, alice, anyone):
        issued, grant = add(), give(alice)
        with nothing_changes():
            assert ask(anyone, grant, issued)["active"] is True


class TestAnInactiveGrant:
    def test_is_never_explained(self, alice, anyone, host_clock):
        issued = add()
        revoked, expired, foreign = give(alice), give(alice, expires_at=IN_A_MINUTE), give(alice, mcp_server_id="mail")
        alice.delete(f"/data-shares/{revoked}")
        host_clock.forward(minutes=1)
        tokens = (revoked, expired, foreign, UNKNOWN_ID, "x", "é " * 99)
        raw = {send(anyone, token, basic(issued)).raw for token in tokens}
        assert [json.loads(one) for one in raw] == [INACTIVE]

    def test_stays_inactive_if_the_clock_is_set_back(self, alice, anyone, host_clock):
        issued, grant = add(), give(alice, expires_at=IN_A_MINUTE)
        host_clock.forward(minutes=1)
        assert ask(anyone, grant, issued) == INACTIVE
        host_clock.back(minutes=5)
        assert ask(anyone, grant, issued) == INACTIVE

    def test_is_that_of_a_disabled_user(self, alice, anyone):
        issued, grant = add(), give(alice)
        assert ask(anyone, grant, issued)["active"] is True
        with db.write():
            User.update(is_disabled=True).where(User.id == alice.user.id).execute()
        assert ask(anyone, grant, issued) == INACTIVE


class TestTheCredential:
    def test_can_be_in_the_body(self, alice, anyone):
        issued, grant = add(), give(alice)
        reply = send(anyone, grant, client_id=issued.client_id, client_secret=issued.secret)
        assert reply.json == ask(anyone, grant, issued)

    def test_cannot_be_in_both_places(self, alice, anyone):
        issued = add()
        assert error(send(anyone, give(alice), basic(issued), client_id=issued.client_id)) == WRONG

    def test_is_required(self, alice, bob, anyone):
        issued, grant = add(), give(alice)
        wrong = [
            IssuedSecret(issued.client_id, "cxm_wrong"),
            IssuedSecret(issued.client_id, ""),
            IssuedSecret(UNKNOWN_ID, issued.secret),
            IssuedSecret("", ""),
            IssuedSecret("x\0", issued.secret),
            IssuedSecret(issued.client_id, add().secret),
        ]
        replies = [send(anyone, grant, basic(one)) for one in wrong]
        replies += [send(anyone, grant, text) for text in ("Basic", "Basic é", "Basic !!", "Basic /w==", "Digest x")]
        replies += [send(client, grant) for client in (alice, bob, anyone)]
        assert {error(reply) for reply in replies} == {WRONG}
        assert {reply.headers["WWW-Authenticate"] for reply in replies} == {'Basic realm="data-shares"'}
        assert len({reply.raw for reply in replies}) == 1

    def test_works_nowhere_else(self, alice, anyone):
        issued, grant = add(), give(alice)
        for header in (basic(issued), f"Bearer {issued.secret}"):
            for method, path in (("GET", "/users/me"), ("GET", "/data-shares"), ("DELETE", f"/data-shares/{grant}")):
                assert anyone.call(method, path, authorization=header).status == 401
        assert ask(anyone, grant, issued)["active"] is True

    def test_is_stored_as_a_digest(self, alice):
        issued = add()
        assert issued.secret.removeprefix("cxm_") not in json.dumps(stored(ServerCredential), default=str)
        (client,) = ServerCredential.select()
        assert len(client.secret_digest) == 64

    def test_ends_when_it_is_revoked(self, alice, anyone):
        issued, grant = add(), give(alice)
        client = ServerCredential.get_by_id(issued.client_id)
        for _ in range(2):
            client.revoke("operator")
            assert error(send(anyone, grant, basic(issued))) == WRONG
        with pytest.raises(CredentialNotFound):
            client.rotate("operator")
        assert kinds() == ["server_credential_added", "server_credential_revoked"]

    def test_has_two_secrets_for_a_day_after_a_rotation(self, alice, anyone, host_clock):
        first, grant = add(), give(alice)
        client = ServerCredential.get_by_id(first.client_id)
        second = client.rotate("operator")
        assert ask(anyone, grant, first) == ask(anyone, grant, second)
        host_clock.forward(hours=24)
        assert error(send(anyone, grant, basic(first))) == WRONG
        assert ask(anyone, grant, second)["active"] is True
        third = client.rotate("operator", at_once=True)
        assert error(send(anyone, grant, basic(second))) == WRONG
        assert ask(anyone, grant, third)["active"] is True
        assert kinds() == ["server_credential_added", "server_credential_rotated", "server_credential_rotated"]


class TestTheLimit:
    def test_is_for_each_client_and_minute(self, alice, anyone, host_clock, monkeypatch):
        monkeypatch.setattr(server_credentials, "QUESTIONS_PER_MINUTE", 2)
        first, second, grant = add(), add(), give(alice)
        assert [send(anyone, grant, basic(first)).status for _ in range(3)] == [200, 200, 429]
        reply = send(anyone, grant, basic(first))
        assert reply.headers["Retry-After"] == "60"
        assert send(anyone, grant, basic(second)).status == 200
        assert error(send(anyone, grant, basic(IssuedSecret(first.client_id, "cxm_wrong")))) == WRONG
        host_clock.forward(minutes=1)
        assert send(anyone, grant, basic(first)).status == 200


def last_asked(*clients: IssuedSecret) -> list[str | None]:
    """Let the timer store the last questions. Returns the times that are stored."""
    while server_credentials.record_questions():
        pass
    return [ServerCredential.get_by_id(one.client_id).last_asked_at for one in clients]


class TestTheLastQuestion:
    def test_is_stored_at_most_once_an_hour(self, alice, anyone, host_clock):
        first, second, grant = add(), add(), give(alice)
        assert last_asked(first, second) == [None, None]
        ask(anyone, grant, first)
        noon = clock.timestamp()
        assert last_asked(first, second) == [noon, None]
        host_clock.forward(minutes=59)
        ask(anyone, grant, first)
        with nothing_changes(), locked():  # without a statement that would wait for a writer
            assert last_asked(first, second) == [noon, None]
        host_clock.forward(minutes=1)
        assert last_asked(first, second) == [noon, None]  # nothing was asked since
        check(anyone, grant, first)
        later = clock.timestamp()
        assert last_asked(first, second) == [later, None]
        assert clock.milliseconds(later) - clock.milliseconds(noon) >= clock.HOUR

    def test_is_stored_once_by_several_processes(self, alice, anyone, host_clock, monkeypatch):
        issued, grant = add(), give(alice)
        ask(anyone, grant, issued)
        (first,) = last_asked(issued)
        for name in ("_asked", "_recorded"):
            monkeypatch.setattr(server_credentials, name, {})  # as in another process
        host_clock.forward(minutes=59)
        ask(anyone, grant, issued)
        assert last_asked(issued) == [first]

    def test_is_stored_when_the_database_is_available_again(self, alice, anyone):
        issued, grant = add(), give(alice)
        ask(anyone, grant, issued)
        with locked(), pytest.raises(peewee.OperationalError):
            last_asked(issued)
        (stored_at,) = last_asked(issued)
        assert stored_at

    def test_is_one_with_the_right_secret(self, alice, anyone):
        issued = add()
        assert error(send(anyone, give(alice), basic(IssuedSecret(issued.client_id, "cxm_wrong")))) == WRONG
        assert last_asked(issued) == [None]


def question(grant: str, **members: Any) -> dict[str, Any]:
    """Return the body of a check."""
    return {"mcp_server_id": "files", "tool": "read", "grant_id": grant, **members}


def check(client: Client, grant: str, issued: IssuedSecret, **members: Any) -> tuple[str, str | None]:
    """Return the reason of a verdict, and the grant that decided."""
    reply = client.post("/data-shares/check", question(grant, **members), authorization=basic(issued))
    assert reply.status == 200, reply.json
    verdict = reply.data
    assert list(verdict) == ["allowed", "grant_id", "reason"]
    assert verdict["allowed"] is (verdict["reason"] == "granted")
    return verdict["reason"], verdict["grant_id"]


NOT_GRANTED = ("not_granted", None)


class TestACheck:
    def test_judges_the_tool(self, alice, anyone):
        issued, grant = add(), give(alice, allowed_tools=["read all", "read"])
        assert check(anyone, grant.upper(), issued, tool="read all") == ("granted", grant)
        assert check(anyone, grant, issued, tool="write") == ("tool_not_allowed", grant)
        every = give(alice, allowed_tools=["*"], expires_at=IN_A_MINUTE)
        assert check(anyone, grant, issued, tool="write") == ("granted", every)  # of the same user and server

    def test_uses_no_grants_of_other_users_and_servers(self, alice, bob, anyone):
        issued, grant = add(), give(alice)
        give(bob, allowed_tools=["write"])
        give(alice, mcp_server_id="mail", allowed_tools=["write"])
        assert check(anyone, grant, issued, tool="write") == ("tool_not_allowed", grant)

    def test_judges_the_conversation(self, alice, anyone, session, shop):
        other = ChatSession.create(app_id=shop.id, user_id=alice.user.id).conversation_id
        issued, grant = add(), give(alice, conversation_id=session.conversation_id)
        assert check(anyone, grant, issued, conversation_id=session.conversation_id) == ("granted", grant)
        assert check(anyone, grant, issued, conversation_id=other) == NOT_GRANTED
        assert check(anyone, grant, issued) == NOT_GRANTED
        lasting = give(alice, allowed_tools=["list"])
        alice.delete(f"/data-shares/{lasting}")
        assert check(anyone, grant, issued) == NOT_GRANTED  # not `revoked`

    def test_of_a_grant_that_is_not_active_is_never_explained(self, alice, anyone, host_clock):
        issued = add()
        revoked, expired, foreign = give(alice), give(alice, expires_at=IN_A_MINUTE), give(alice, mcp_server_id="mail")
        alice.delete(f"/data-shares/{revoked}")
        host_clock.forward(minutes=1)
        questions = [question(grant) for grant in (revoked, expired, foreign, UNKNOWN_ID)]
        questions += [question(foreign, mcp_server_id="mail"), question(give(alice), mcp_server_id="mail")]
        replies = [anyone.post("/data-shares/check", body, authorization=basic(issued)) for body in questions]
        assert {(reply.status, reply.data["reason"], reply.data["grant_id"]) for reply in replies} == {
            (200, *NOT_GRANTED)
        }
        assert len({reply.raw for reply in replies}) == 1

    def test_of_a_revoked_grant_uses_no_other_grant(self, alice, anyone):
        issued, revoked, grant = add(), give(alice), give(alice)
        alice.delete(f"/data-shares/{revoked}")
        assert check(anyone, grant, issued) == ("granted", grant)
        assert check(anyone, revoked, issued) == NOT_GRANTED

    def test_refuses_disabled_users(self, alice, anyone):
        issued, grant = add(), give(alice)
        assert check(anyone, grant, issued) == ("granted", grant)
        with db.write():
            User.update(is_disabled=True).where(User.id == alice.user.id).execute()
        assert check(anyone, grant, issued) == NOT_GRANTED

    def test_needs_a_grant_with_a_secret_only(self, alice, bob, anyone):
        issued, grant = add(), give(alice)
        body = question(grant)
        del body["grant_id"]
        reply = anyone.post("/data-shares/check", body, authorization=basic(issued))
        assert (*reply.error, reply.message) == (400, "invalid_body", "$.grant_id: required with a client secret")
        assert alice.post("/data-shares/check", body).data["reason"] == "granted"
        assert bob.post("/data-shares/check", question(grant)).data == {
            "allowed": False,
            "grant_id": None,
            "reason": "not_granted",
        }

    def test_writes_nothing_and_waits_for_no_writer(self, alice, anyone):
        issued, grant = add(), give(alice)
        with nothing_changes(), locked():
            assert check(anyone, grant, issued) == ("granted", grant)

    def test_reports_a_wrong_secret_before_the_body_is_read(self, alice, anyone):
        issued = add()
        wrong = [basic(IssuedSecret(issued.client_id, "cxm_wrong")), basic(IssuedSecret(UNKNOWN_ID, issued.secret))]
        replies = [
            anyone.post("/data-shares/check", raw=b"{", authorization=header)
            for header in (*wrong, "basic !!", "BASIC x")
        ]
        assert {reply.error for reply in replies} == {WRONG}
        assert {reply.headers["WWW-Authenticate"] for reply in replies} == {'Basic realm="data-shares"'}
        ended = add()
        ServerCredential.get_by_id(ended.client_id).revoke("operator")
        assert anyone.post("/data-shares/check", {}, authorization=basic(ended)).error == WRONG
        assert (
            anyone.post("/data-shares/check", {}, authorization=f"Bearer {issued.secret}").error[1] == "invalid_token"
        )

    def test_counts_as_an_introspection(self, alice, anyone, monkeypatch):
        monkeypatch.setattr(server_credentials, "QUESTIONS_PER_MINUTE", 2)
        issued, grant = add(), give(alice)
        assert check(anyone, grant, issued) == ("granted", grant)
        assert ask(anyone, grant, issued)["active"] is True
        reply = anyone.post("/data-shares/check", question(grant), authorization=basic(issued))
        assert (reply.error, reply.headers["Retry-After"]) == ((429, "rate_limited"), "60")
        assert alice.post("/data-shares/check", question(grant)).status == 200

    def test_is_in_the_request_log_with_the_client(self, alice, anyone, caplog):
        issued, grant = add(), give(alice)
        with caplog.at_level("INFO", "cx.requests"):
            check(anyone, grant, issued)
        assert issued.client_id in caplog.text
        assert not [text for text in (grant, alice.user.id, issued.secret) if text in caplog.text]

    def test_is_described_with_both_ways_of_authentication(self):
        both = [{"bearer": []}, {"basic": []}]
        described = openapi.document(operations())
        secured = [one for path in described["paths"].values() for one in path.values() if one["security"] == both]
        assert [one["operationId"] for one in secured] == ["check_data_share"]
        assert set(described["components"]["securitySchemes"]) == {"bearer", "basic"}
        plain = openapi.document(operations(documented_only=True))
        assert set(plain["components"]["securitySchemes"]) == {"bearer"}


def kinds() -> list[str]:
    """Return the kinds of the entries of the audit log about credentials, and check that they contain no secret."""
    found = [
        entry for entry in AuditLog.select().order_by(AuditLog.position) if entry.kind.startswith("server_credential")
    ]
    assert {entry.details for entry in found} == {'{"server":"files"}'}
    return [entry.kind for entry in found]
