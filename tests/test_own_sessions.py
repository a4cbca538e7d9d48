"""Where somebody is logged in, and ending it: the contract's section 3."""

import pytest

from service import clock, db, migrations
from service.auth import consent, sign_in, tokens
from service.migrations import step_1, step_2
from service.models import LoginSession
from service.signature import Origin
from tests import postgres
from tests.conftest import PASSWORD, Client, walk
from tests.samples import NOBODY
from tests.watching import at_once, nothing_changes

pytestmark = pytest.mark.usefixtures("host_clock")  # first, so that all tokens are of its time

NOW = "2026-11-20T10:00:00.000Z"
ORIGIN = Origin("127.0.0.1", "Firefox", "http://127.0.0.1")


def log_in(anyone, who, **headers):
    """Another login of somebody's with the password, as a client."""
    reply = anyone.post("/auth/login", {"email": who.user.email, "password": PASSWORD}, **headers)
    return Client(anyone.application, reply.data["tokens"]["access_token"], who.user)


def sign_in_by_cookie(who):
    with db.write(who.user.id):
        sign_in.begin(who.user.id, ORIGIN)


def let_a_program_in(who, settings, scopes="chats:read profile", install_id="i", label="Laptop"):
    """A command-line client of somebody's."""
    with db.write(who.user.id):
        about = {"scopes": scopes, "install_id": install_id, "kind": "client", "label": label}
        session = tokens.open_session(who.user.id, settings, **about)
    return Client(who.application, tokens.pair_of(session, settings).access_token, who.user)


def listed(who):
    return who.get("/auth/sessions").data


def is_in(who):
    """Whether a token still opens something."""
    return who.post("/auth/logout", raw=b"{").status != 401


class TestTheList:
    def test_shows_every_member_of_a_login(self, alice):
        (shown,) = listed(alice)
        assert list(shown.items()) == [
            ("id", LoginSession.get().id),
            ("kind", "login"),
            ("label", ""),
            ("scopes", None),
            ("created_at", NOW),
            ("refreshed_at", NOW),
            ("expires_at", "2026-12-20T10:00:00.000Z"),
            ("is_current", True),
        ]

    def test_says_by_what_means_and_with_what_somebody_logged_in(self, alice, anyone, settings, host_clock):
        host_clock.forward(minutes=1)
        phone = log_in(anyone, alice, user_agent="Telefon/2 \xfc")
        host_clock.forward(minutes=1)
        sign_in_by_cookie(alice)
        host_clock.forward(minutes=1)
        let_a_program_in(alice, settings)
        told = [(row["kind"], row["label"], row["scopes"], row["is_current"]) for row in listed(phone)]
        assert told == [
            ("client", "Laptop", ["chats:read", "profile"], False),
            ("browser", "Firefox", None, False),
            ("login", "Telefon/2 \xfc", None, True),
            ("login", "", None, False),
        ]

    def test_says_when_tokens_were_last_refreshed(self, alice, anyone, host_clock):
        pair = anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD}).data["tokens"]
        host_clock.forward(minutes=50)
        anyone.post("/auth/refresh", {"refresh_token": pair["refresh_token"]})
        moments = {(row["created_at"], row["refreshed_at"], row["expires_at"]) for row in listed(alice)}
        assert moments == {
            (NOW, NOW, "2026-12-20T10:00:00.000Z"),
            (NOW, "2026-11-20T10:50:00.000Z", "2026-12-20T10:50:00.000Z"),
        }

    def test_leaves_out_what_has_ended_or_expired(self, alice, anyone, host_clock):
        log_in(anyone, alice).post("/auth/logout")
        sign_in_by_cookie(alice)
        assert len(listed(alice)) == 2
        host_clock.forward(hours=12)
        fresh = log_in(anyone, alice)
        assert [row["kind"] for row in listed(fresh)] == ["login", "login"]

    def test_holds_nothing_of_others(self, alice, bob, admin, agent):
        for who in (alice, bob, admin, agent):
            assert [row["is_current"] for row in listed(who)] == [True]

    def test_comes_in_pages_without_gaps_the_newest_first(self, alice, settings, host_clock):
        for number in range(11):
            host_clock.forward(seconds=number % 2)  # some at the same moment
            with db.write(alice.user.id):
                tokens.open_session(alice.user.id, settings, label=str(number))
        found = walk(alice, "/auth/sessions", limit=2)
        assert {row["label"] for row in found} == {"", *map(str, range(11))}
        assert len(found) == 12
        order = sorted(found, key=lambda row: row["id"])
        assert found == sorted(order, key=lambda row: row["created_at"], reverse=True)

    @pytest.mark.parametrize(("asked", "used"), [("", 25), ("0", 1), ("100", 100), ("101", 100), ("-7", 1)])
    def test_has_at_most_100_a_page(self, alice, asked, used):
        assert alice.get(f"/auth/sessions?limit={asked}" if asked else "/auth/sessions").meta == {
            "next_cursor": "",
            "per_page": used,
        }

    def test_takes_no_cursor_of_anybody_else(self, alice, bob, settings):
        with db.write(bob.user.id):
            tokens.open_session(bob.user.id, settings)
        cursor = bob.get("/auth/sessions?limit=1").meta["next_cursor"]
        assert bob.get(f"/auth/sessions?limit=1&cursor={cursor}").status == 200
        assert alice.get(f"/auth/sessions?cursor={cursor}").error == (400, "invalid_cursor")


class TestEndingALogin:
    def test_shuts_it_out_at_once(self, alice, anyone):
        phone = log_in(anyone, alice)
        (id,) = [row["id"] for row in listed(alice) if not row["is_current"]]
        assert alice.delete(f"/auth/sessions/{id.upper()}").data == {"ended": True}
        assert not is_in(phone)
        assert is_in(alice)
        assert [row["is_current"] for row in listed(alice)] == [True]

    def test_ends_its_refresh_token_too(self, alice, anyone):
        pair = anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD}).data["tokens"]
        for row in listed(alice):
            if not row["is_current"]:
                alice.delete(f"/auth/sessions/{row['id']}")
        refused = anyone.post("/auth/refresh", {"refresh_token": pair["refresh_token"]})
        assert refused.error == (401, "invalid_token")

    @pytest.mark.parametrize("kind", ["browser", "client"])
    def test_works_whatever_kind_of_login_it_is(self, alice, settings, kind):
        sign_in_by_cookie(alice)
        program = let_a_program_in(alice, settings)
        (id,) = [row["id"] for row in listed(alice) if row["kind"] == kind]
        assert alice.delete(f"/auth/sessions/{id}").status == 200
        assert kind not in {row["kind"] for row in listed(alice)}
        assert is_in(program) == (kind == "browser")

    def test_a_second_time_changes_nothing(self, alice, anyone, host_clock):
        log_in(anyone, alice)
        (id,) = [row["id"] for row in listed(alice) if not row["is_current"]]
        first = alice.delete(f"/auth/sessions/{id}")
        host_clock.forward(minutes=1)
        with nothing_changes():
            assert alice.delete(f"/auth/sessions/{id}").raw == first.raw

    def test_that_one_is_in_is_a_logout(self, alice):
        (row,) = listed(alice)
        assert alice.delete(f"/auth/sessions/{row['id']}").data == {"ended": True}
        assert alice.delete(f"/auth/sessions/{row['id']}").error == (401, "invalid_token")

    @pytest.mark.parametrize("who", ["bob", "agent", "admin"])
    def test_of_somebody_else_is_as_impossible_as_one_that_never_was(self, alice, who, request):
        other = request.getfixturevalue(who)
        (row,) = listed(alice)
        with nothing_changes():
            assert other.delete(f"/auth/sessions/{row['id']}").error == (404, "not_found")
            assert other.delete(f"/auth/sessions/{NOBODY}").error == (404, "not_found")
            assert other.delete("/auth/sessions/{1}").error == (400, "invalid_id")
        assert is_in(alice)

    def test_may_be_asked_for_many_times_at_once(self, alice, anyone):
        log_in(anyone, alice)
        (id,) = [row["id"] for row in listed(alice) if not row["is_current"]]
        replies = at_once(4, lambda number: alice.delete(f"/auth/sessions/{id}").status)
        assert replies == [200] * 4

    def test_is_not_a_way_around_the_list_of_installs(self, alice):
        """`DELETE /users/me/installs/{id}` ends command-line clients only."""
        (row,) = listed(alice)
        with nothing_changes():
            assert alice.delete(f"/users/me/installs/{row['id']}").error == (404, "not_found")


@pytest.mark.parametrize("scopes", ["profile", "chats events", "", "account", "account:read"])
def test_a_program_neither_sees_nor_ends_the_logins_of_the_person(alice, settings, scopes):
    """Not even with the scope's name: the consent page grants no such scope, and this is how the refusal reads."""
    program = let_a_program_in(alice, settings, scopes)
    (own,) = [row["id"] for row in listed(alice) if row["is_current"]]
    expected = (403, "insufficient_scope")
    with nothing_changes():
        if scopes not in ("account", "account:read"):
            assert program.get("/auth/sessions").error == expected
        if scopes != "account":
            assert program.delete(f"/auth/sessions/{own}").error == expected
            assert program.post("/auth/password", raw=b"{").error == expected


@pytest.mark.parametrize("scopes", ["profile", "events", " ".join(sorted(consent.SCOPES))])
def test_a_program_touches_neither_other_clients_nor_the_calendar_address(alice, settings, scopes):
    program = let_a_program_in(alice, settings, scopes, install_id="its own")
    let_a_program_in(alice, settings, install_id="other")
    installs = alice.get("/users/me/installs").data
    with nothing_changes():
        assert program.get("/users/me/installs").error == (403, "insufficient_scope")
        for install in installs:
            assert program.delete(f"/users/me/installs/{install['id']}").error == (403, "insufficient_scope")
        assert program.post("/events/feed").error == (403, "insufficient_scope")
        assert program.delete("/events/feed").error == (403, "insufficient_scope")
    assert program.post("/auth/logout").data == {"logged_out": True}
    assert [install["install_id"] for install in alice.get("/users/me/installs").data] == ["other"]


@pytest.mark.parametrize("shut_out", ["disabled", "logged out", "expired"])
def test_whoever_is_shut_out_sees_and_ends_nothing(alice, shut_out, host_clock):
    (row,) = listed(alice)
    if shut_out == "disabled":
        alice.user.disable()
    elif shut_out == "logged out":
        alice.post("/auth/logout")
    else:
        host_clock.forward(minutes=61)
    with nothing_changes():
        assert alice.get("/auth/sessions").error == (401, "invalid_token")
        assert alice.delete(f"/auth/sessions/{row['id']}").error == (401, "invalid_token")


def test_a_stranger_is_asked_for_credentials(anyone):
    for method, path in (("GET", "/auth/sessions"), ("DELETE", "/auth/sessions/x"), ("POST", "/auth/password")):
        assert anyone.call(method, path).error == (401, "missing_credentials")


def test_logins_of_an_older_database_keep_their_kind(tmp_path, monkeypatch, host_clock):
    """Before step 3, nothing told a cookie from a pair of tokens but that it was never refreshed nor used."""
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
        marks = ", ".join([db.database.param] * len(row))
        db.database.execute_sql(f"INSERT INTO login_session VALUES ({marks})", row)
    monkeypatch.undo()
    monkeypatch.setattr(clock, "host_time", lambda: host_clock.now)
    assert migrations.migrate() == len(migrations.STEPS) - 2
    kinds = {session.id: session.kind for session in LoginSession.select()}
    db.close_database()
    if address:
        postgres.drop(address)
    assert kinds == {"cookie": "browser", "fresh": "login", "old": "login", "cli": "client"}
