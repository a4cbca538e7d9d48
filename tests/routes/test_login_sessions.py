"""The list of login sessions, and ending them."""

import pytest

from service import clock, db
from service.api.parameter_types import RequestInfo
from service.auth import consent, tokens
from service.console import sign_in
from service.db import migrations
from service.db.migrations import step_1, step_2
from service.models import LoginSession
from tests.support import postgres
from tests.support.client import Client, walk
from tests.support.observe import at_once, nothing_changes
from tests.support.passwords import PASSWORD
from tests.support.sample_operations import UNKNOWN_ID

pytestmark = [
    pytest.mark.usefixtures("host_clock"),
    pytest.mark.database,
]  # first, so that all tokens are issued at its time

NOW = "2026-11-20T10:00:00.000Z"
ORIGIN = RequestInfo("127.0.0.1", "Firefox", "http://127.0.0.1")


def log_in(anyone, who, **headers):
    """Log a user in again with the password; return the client."""
    reply = anyone.post("/auth/login", {"email": who.user.email, "password": PASSWORD}, **headers)
    return Client(anyone.application, reply.data["tokens"]["access_token"], who.user)


def sign_in_by_cookie(who):
    with db.write(who.user.id):
        sign_in.begin(who.user.id, ORIGIN)


def log_in_client(who, settings, scopes="chats:read profile", install_id="i", label="Laptop"):
    """Create a session of a command-line client of a user."""
    with db.write(who.user.id):
        columns = {"scopes": scopes, "install_id": install_id, "kind": "client", "label": label}
        session = tokens.create_token_session(who.user.id, settings, **columns)
    return Client(who.application, tokens.pair_of(session, settings).access_token, who.user)


def sessions_of(who):
    return who.get("/auth/sessions").data


def is_logged_in(who):
    """Return whether the token is valid."""
    return who.post("/auth/logout", raw=b"{").status != 401


class TestList:
    def test_has_every_member(self, alice):
        (session,) = sessions_of(alice)
        assert list(session.items()) == [
            ("id", LoginSession.get().id),
            ("kind", "login"),
            ("label", ""),
            ("scopes", None),
            ("created_at", NOW),
            ("refreshed_at", NOW),
            ("expires_at", "2026-12-20T10:00:00.000Z"),
            ("is_current", True),
        ]

    def test_has_kind_and_label_of_each_login(self, alice, anyone, settings, host_clock):
        host_clock.forward(minutes=1)
        phone = log_in(anyone, alice, user_agent="Telefon/2 \xfc")
        host_clock.forward(minutes=1)
        sign_in_by_cookie(alice)
        host_clock.forward(minutes=1)
        log_in_client(alice, settings)
        rows = [(row["kind"], row["label"], row["scopes"], row["is_current"]) for row in sessions_of(phone)]
        assert rows == [
            ("client", "Laptop", ["chats:read", "profile"], False),
            ("browser", "Firefox", None, False),
            ("login", "Telefon/2 \xfc", None, True),
            ("login", "", None, False),
        ]

    def test_has_the_time_of_the_last_refresh(self, alice, anyone, host_clock):
        pair = anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD}).data["tokens"]
        host_clock.forward(minutes=50)
        anyone.post("/auth/refresh", {"refresh_token": pair["refresh_token"]})
        times = {(row["created_at"], row["refreshed_at"], row["expires_at"]) for row in sessions_of(alice)}
        assert times == {
            (NOW, NOW, "2026-12-20T10:00:00.000Z"),
            (NOW, "2026-11-20T10:50:00.000Z", "2026-12-20T10:50:00.000Z"),
        }

    def test_omits_ended_and_expired_sessions(self, alice, anyone, host_clock):
        log_in(anyone, alice).post("/auth/logout")
        sign_in_by_cookie(alice)
        assert len(sessions_of(alice)) == 2
        host_clock.forward(hours=12)
        fresh = log_in(anyone, alice)
        assert [row["kind"] for row in sessions_of(fresh)] == ["login", "login"]

    def test_has_only_sessions_of_the_caller(self, alice, bob, admin, agent):
        for who in (alice, bob, admin, agent):
            assert [row["is_current"] for row in sessions_of(who)] == [True]

    def test_pages_have_no_gaps_and_newest_first(self, alice, settings, host_clock):
        for number in range(11):
            host_clock.forward(seconds=number % 2)  # some at the same time
            with db.write(alice.user.id):
                tokens.create_token_session(alice.user.id, settings, label=str(number))
        found = walk(alice, "/auth/sessions", limit=2)
        assert {row["label"] for row in found} == {"", *map(str, range(11))}
        assert len(found) == 12
        order = sorted(found, key=lambda row: row["id"])
        assert found == sorted(order, key=lambda row: row["created_at"], reverse=True)

    @pytest.mark.parametrize(("requested", "used"), [("", 25), ("0", 1), ("100", 100), ("101", 100), ("-7", 1)])
    def test_page_has_at_most_100_sessions(self, alice, requested, used):
        assert alice.get(f"/auth/sessions?limit={requested}" if requested else "/auth/sessions").meta == {
            "next_cursor": "",
            "per_page": used,
        }

    def test_cursor_of_another_user_is_400(self, alice, bob, settings):
        with db.write(bob.user.id):
            tokens.create_token_session(bob.user.id, settings)
        cursor = bob.get("/auth/sessions?limit=1").meta["next_cursor"]
        assert bob.get(f"/auth/sessions?limit=1&cursor={cursor}").status == 200
        assert alice.get(f"/auth/sessions?cursor={cursor}").error == (400, "invalid_cursor")


class TestEndingASession:
    def test_invalidates_the_access_token_at_once(self, alice, anyone):
        phone = log_in(anyone, alice)
        (id,) = [row["id"] for row in sessions_of(alice) if not row["is_current"]]
        assert alice.delete(f"/auth/sessions/{id.upper()}").data == {"ended": True}
        assert not is_logged_in(phone)
        assert is_logged_in(alice)
        assert [row["is_current"] for row in sessions_of(alice)] == [True]

    def test_invalidates_the_refresh_token(self, alice, anyone):
        pair = anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD}).data["tokens"]
        for row in sessions_of(alice):
            if not row["is_current"]:
                alice.delete(f"/auth/sessions/{row['id']}")
        response = anyone.post("/auth/refresh", {"refresh_token": pair["refresh_token"]})
        assert response.error == (401, "invalid_token")

    @pytest.mark.parametrize("kind", ["browser", "client"])
    def test_ends_every_kind_of_session(self, alice, settings, kind):
        sign_in_by_cookie(alice)
        client = log_in_client(alice, settings)
        (id,) = [row["id"] for row in sessions_of(alice) if row["kind"] == kind]
        assert alice.delete(f"/auth/sessions/{id}").status == 200
        assert kind not in {row["kind"] for row in sessions_of(alice)}
        assert is_logged_in(client) == (kind == "browser")

    def test_repetition_changes_nothing(self, alice, anyone, host_clock):
        log_in(anyone, alice)
        (id,) = [row["id"] for row in sessions_of(alice) if not row["is_current"]]
        first = alice.delete(f"/auth/sessions/{id}")
        host_clock.forward(minutes=1)
        with nothing_changes():
            assert alice.delete(f"/auth/sessions/{id}").raw == first.raw

    def test_of_the_current_session_logs_out(self, alice):
        (row,) = sessions_of(alice)
        assert alice.delete(f"/auth/sessions/{row['id']}").data == {"ended": True}
        assert alice.delete(f"/auth/sessions/{row['id']}").error == (401, "invalid_token")

    @pytest.mark.parametrize("who", ["bob", "agent", "admin"])
    def test_of_another_user_is_404(self, alice, who, request):
        other = request.getfixturevalue(who)
        (row,) = sessions_of(alice)
        with nothing_changes():
            assert other.delete(f"/auth/sessions/{row['id']}").error == (404, "not_found")
            assert other.delete(f"/auth/sessions/{UNKNOWN_ID}").error == (404, "not_found")
            assert other.delete("/auth/sessions/{1}").error == (400, "invalid_id")
        assert is_logged_in(alice)

    def test_concurrent_requests_succeed(self, alice, anyone):
        log_in(anyone, alice)
        (id,) = [row["id"] for row in sessions_of(alice) if not row["is_current"]]
        replies = at_once(4, lambda number: alice.delete(f"/auth/sessions/{id}").status)
        assert replies == [200] * 4

    def test_install_endpoint_does_not_end_login_sessions(self, alice):
        """`DELETE /users/me/installs/{id}` ends command-line clients only."""
        (row,) = sessions_of(alice)
        with nothing_changes():
            assert alice.delete(f"/users/me/installs/{row['id']}").error == (404, "not_found")


@pytest.mark.parametrize("scopes", ["profile", "chats events", "", "account", "account:read"])
def test_command_line_client_cannot_list_or_end_login_sessions(alice, settings, scopes):
    """Also with the name of the scope, which the consent page cannot grant."""
    client = log_in_client(alice, settings, scopes)
    (own,) = [row["id"] for row in sessions_of(alice) if row["is_current"]]
    expected = (403, "insufficient_scope")
    with nothing_changes():
        if scopes not in ("account", "account:read"):
            assert client.get("/auth/sessions").error == expected
        if scopes != "account":
            assert client.delete(f"/auth/sessions/{own}").error == expected
            assert client.post("/auth/password", raw=b"{").error == expected


@pytest.mark.parametrize("scopes", ["profile", "events", " ".join(sorted(consent.SCOPES))])
def test_command_line_client_cannot_manage_installs_or_the_calendar_feed(alice, settings, scopes):
    client = log_in_client(alice, settings, scopes, install_id="its own")
    log_in_client(alice, settings, install_id="other")
    installs = alice.get("/users/me/installs").data
    with nothing_changes():
        assert client.get("/users/me/installs").error == (403, "insufficient_scope")
        for install in installs:
            assert client.delete(f"/users/me/installs/{install['id']}").error == (403, "insufficient_scope")
        assert client.post("/events/feed").error == (403, "insufficient_scope")
        assert client.delete("/events/feed").error == (403, "insufficient_scope")
    assert client.post("/auth/logout").data == {"logged_out": True}
    assert [install["install_id"] for install in alice.get("/users/me/installs").data] == ["other"]


@pytest.mark.parametrize("state", ["disabled", "logged out", "expired"])
def test_invalid_token_cannot_list_or_end_sessions(alice, state, host_clock):
    (row,) = sessions_of(alice)
    if state == "disabled":
        alice.user.disable()
    elif state == "logged out":
        alice.post("/auth/logout")
    else:
        host_clock.forward(minutes=61)
    with nothing_changes():
        assert alice.get("/auth/sessions").error == (401, "invalid_token")
        assert alice.delete(f"/auth/sessions/{row['id']}").error == (401, "invalid_token")


def test_credentials_are_required(anyone):
    for method, path in (("GET", "/auth/sessions"), ("DELETE", "/auth/sessions/x"), ("POST", "/auth/password")):
        assert anyone.call(method, path).error == (401, "missing_credentials")


def test_migration_sets_the_kind_of_existing_sessions(tmp_path, monkeypatch, host_clock):
    """Before step 3, a browser session differed from tokens only by never being refreshed or used."""
    older = tmp_path / "older"
    address = postgres.database_of(older)
    db.open_database(older, address, create=True)
    monkeypatch.setattr(migrations, "STEPS", (step_1.STATEMENTS, step_2.STATEMENTS))
    migrations.migrate()
    db.database.execute_sql(
        """INSERT INTO "user" VALUES ('u', 'a@b.c', '', '', '', '', NULL, false, false, '[]', false, '', 'user', '',
        NULL, '', '', '', '', '{}', false, '')"""
    )
    rows = [("cookie", 1, False, None), ("fresh", 1, True, None), ("old", 7, False, None), ("cli", 3, False, "i")]
    for id, generation, used, install in rows:
        row = (id, "u", 0, clock.now() + clock.DAY, None, generation, 0, used, None, "", install)
        parameters = ", ".join([db.database.param] * len(row))
        db.database.execute_sql(f"INSERT INTO login_session VALUES ({parameters})", row)
    monkeypatch.undo()
    monkeypatch.setattr(clock, "host_time", lambda: host_clock.now)
    assert migrations.migrate() == len(migrations.STEPS) - 2
    kinds = {session.id: session.kind for session in LoginSession.select()}
    db.close_database()
    if address:
        postgres.drop(address)
    assert kinds == {"cookie": "browser", "fresh": "login", "old": "login", "cli": "client"}
