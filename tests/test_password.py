"""Giving oneself another password: the contract's section 3."""

import threading
from urllib.parse import parse_qs, urlsplit

import pytest

from service import db
from service.auth import codes, credentials, passwords, tokens
from service.auth.consent import ConsentRequest
from service.errors import InvalidToken, WrongPassword
from service.models import LoginAttempt, LoginSession, User
from tests.conftest import PASSWORD, PASSWORD_HASH, Client
from tests.test_cli_login import VERIFIER
from tests.test_consent import GOOD
from tests.watching import at_once, nothing_changes

pytestmark = pytest.mark.usefixtures("host_clock")

NEW = "a new one, longer"
WRONG = (400, "wrong_password")


class Hashing:
    """Stands in for argon2: its hashes tell the password, and cost nothing."""

    def __init__(self):
        self.inside = []  # whether each piece of work was done inside a write

    def hash(self, password):
        self.inside.append(db.database.in_transaction())
        return f"hash of {password}"

    def verify(self, password, stored_hash):
        self.inside.append(db.database.in_transaction())
        return (password, stored_hash) == (PASSWORD, PASSWORD_HASH) or stored_hash == f"hash of {password}"

    def dummy_verify(self):
        self.inside.append(db.database.in_transaction())


@pytest.fixture
def real_hashing():
    """Leaves hashing as it is."""


@pytest.fixture(autouse=True)
def hashing(request, monkeypatch):
    """Makes hashing free, unless a test asks for the real one."""
    free = Hashing()
    if "real_hashing" not in request.fixturenames:
        monkeypatch.setattr(passwords, "_context", lambda: free)
    return free


def change(who, current=PASSWORD, new=NEW, **more):
    return who.post("/auth/password", {"current_password": current, "new_password": new}, **more)


def log_in(anyone, who, password):
    return anyone.post("/auth/login", {"email": who.user.email, "password": password})


def again(who, settings, **columns):
    """Another login of somebody's."""
    with db.write(who.user.id):
        session = tokens.open_session(who.user.id, settings, **columns)
    return Client(who.application, tokens.pair_of(session, settings).access_token, who.user)


def is_in(who):
    return who.get("/users/me").status == 200


def test_the_new_password_counts_from_then_on_and_the_old_one_no_more(alice, anyone, real_hashing):
    assert change(alice).data == {"changed": True}
    stored = User.get_by_id(alice.user.id).password_hash
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert log_in(anyone, alice, NEW).status == 200
    assert log_in(anyone, alice, PASSWORD).error == (401, "invalid_credentials")


def test_a_user_stored_before_the_rules_still_logs_in(anyone, real_hashing):
    User.create(email="x", password_hash=passwords._context().hash("short"))
    assert anyone.post("/auth/login", {"email": "X", "password": "short"}).status == 200


def test_every_other_login_ends_and_the_present_one_goes_on(alice, bob, settings):
    others = [
        again(alice, settings),
        again(alice, settings, kind="client", install_id="i", scopes="profile"),
        again(alice, settings, kind="browser"),
    ]
    assert change(alice).status == 200
    assert [is_in(one) for one in (alice, bob, *others)] == [True, True, False, False, False]


def test_the_tokens_of_the_present_login_stay_as_they_are(alice, anyone):
    pair = log_in(anyone, alice, PASSWORD).data["tokens"]
    present = Client(anyone.application, pair["access_token"], alice.user)
    assert change(present).status == 200
    assert anyone.post("/auth/refresh", {"refresh_token": pair["refresh_token"]}).status == 200
    assert not is_in(alice)


def test_a_wrong_password_changes_nothing(alice, settings):
    other = again(alice, settings)
    for wrong in (PASSWORD + " ", PASSWORD.title(), " ", "x" * 5000, "\U0001f511"):
        with nothing_changes():
            assert change(alice, wrong).error == WRONG
    assert is_in(other)


def test_a_second_click_is_told_that_the_password_is_another_one_now(alice, host_clock):
    assert change(alice).status == 200
    with nothing_changes():
        assert change(alice).error == WRONG


def test_the_same_password_is_taken_and_ends_the_other_logins(alice, anyone, settings):
    other = again(alice, settings)
    assert change(alice, new=PASSWORD).data == {"changed": True}
    assert not is_in(other)
    assert log_in(anyone, alice, PASSWORD).status == 200


@pytest.mark.parametrize(
    "new", ["x" * 8, " " * 8, "\U0001f511" * 8, "x" * 1024, "\U0001f511" * 1024, "e\u0301\x01ß\u202eabc"]
)
def test_a_password_has_8_to_1024_characters_of_any_kind(alice, anyone, new):
    assert change(alice, new=new).status == 200
    assert log_in(anyone, alice, new).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {"current_password": PASSWORD, "new_password": "x" * 7},
        {"current_password": PASSWORD, "new_password": ""},
        {"current_password": PASSWORD, "new_password": "x" * 1025},
        {"current_password": PASSWORD, "new_password": None},
        {"current_password": PASSWORD, "new_password": 12345678},
        {"current_password": PASSWORD},
        {"current_password": "", "new_password": NEW},
        {"current_password": [PASSWORD], "new_password": NEW},
        {"new_password": NEW},
        {},
    ],
)
def test_a_faulty_request_is_400_before_any_work_and_counts_for_nothing(alice, hashing, body):
    with nothing_changes():
        assert alice.post("/auth/password", body).error == (400, "invalid_body")
    assert not hashing.inside
    assert not LoginAttempt.select().exists()


@pytest.mark.parametrize("raw", [b"{", b"\xff", b'{"current_password": "\\ud800", "new_password": "xxxxxxxx"}'])
def test_an_unreadable_request_is_400(alice, raw):
    with nothing_changes():
        assert alice.post("/auth/password", raw=raw).error == (400, "invalid_json")


def test_nothing_is_hashed_inside_a_write(alice, hashing):
    change(alice)
    change(alice)
    assert hashing.inside == [False] * 3


class TestGuessing:
    def test_with_a_stolen_token_stops_after_20_tries_even_for_the_right_password(self, alice, anyone, host_clock):
        assert [change(alice, "guess").status for _ in range(20)] == [400] * 20
        refused = change(alice)
        assert refused.error == (429, "rate_limited")
        assert int(refused.headers["Retry-After"]) == 15 * 60
        assert log_in(anyone, alice, PASSWORD).error == (429, "rate_limited")
        host_clock.forward(minutes=15)
        assert change(Client(alice.application, alice.token, alice.user)).status == 200

    def test_counts_together_with_logins(self, alice, anyone):
        for _ in range(10):
            log_in(anyone, alice, "guess")
        assert [change(alice, "guess").status for _ in range(11)] == [400] * 10 + [429]

    def test_counts_for_the_account_from_all_networks(self, alice):
        told = [change(alice, "guess", address=f"10.0.{number}.1").status for number in range(51)]
        assert told == [400] * 50 + [429]

    def test_counts_a_right_password_for_nothing(self, alice):
        current = PASSWORD
        for number in range(25):
            assert change(alice, current, current := f"password {number}").status == 200
        assert not LoginAttempt.select().exists()

    def test_in_parallel_gets_no_more_tries(self, alice):
        told = at_once(24, lambda number: change(alice, "guess").status)
        assert sorted(told) == [400] * 20 + [429] * 4

    def test_does_not_stop_others(self, alice, bob):
        for _ in range(21):
            change(alice, "guess")
        assert change(bob).status == 200


def test_whoever_has_no_password_cannot_give_themselves_one(alice):
    User.update(password_hash="").where(User.id == alice.user.id).execute()
    with nothing_changes():
        assert change(alice, "anything").error == WRONG


@pytest.mark.parametrize("who", ["agent", "admin"])
def test_everybody_may_change_their_own_and_nobody_elses(alice, who, anyone, request):
    client = request.getfixturevalue(who)
    forged = {"id": alice.user.id, "user_id": alice.user.id, "email": alice.user.email}
    body = {"current_password": PASSWORD, "new_password": NEW, **forged}
    assert client.post(f"/auth/password?user_id={alice.user.id}", body).status == 200
    assert log_in(anyone, client, NEW).status == 200
    assert log_in(anyone, alice, PASSWORD).status == 200


@pytest.mark.parametrize("shut_out", ["disabled", "logged out"])
def test_whoever_is_shut_out_changes_nothing(alice, shut_out):
    alice.user.disable() if shut_out == "disabled" else alice.post("/auth/logout")
    with nothing_changes():
        assert change(alice).error == (401, "invalid_token")


class TestAtTheSameTime:
    def test_one_of_several_changes_wins(self, alice, anyone, settings):
        devices = [alice, *(again(alice, settings) for _ in range(3))]
        told = at_once(4, lambda number: change(devices[number], new=f"password {number}").status)
        (winner,) = [number for number, status in enumerate(told) if status == 200]
        assert set(told) <= {200, 400, 401}
        assert log_in(anyone, alice, f"password {winner}").status == 200
        assert [is_in(device) for device in devices] == [number == winner for number in range(4)]

    @pytest.mark.parametrize("meanwhile", ["logged out", "disabled", "changed"])
    def test_what_has_happened_while_the_password_was_checked_counts(self, alice, settings, monkeypatch, meanwhile):
        """The login ends, or the password becomes another one, between the check and the write."""
        (session,) = LoginSession.select()
        hash_password = passwords.hash_password

        def act(password):
            if meanwhile == "logged out":
                session.end()
            elif meanwhile == "disabled":
                alice.user.disable()
            else:
                User.update(password_hash="hash of something").where(User.id == alice.user.id).execute()
            return hash_password(password)

        monkeypatch.setattr(passwords, "hash_password", act)
        caller = tokens.caller_of(session.id)
        with pytest.raises(WrongPassword if meanwhile == "changed" else InvalidToken):
            credentials.change_password(caller, PASSWORD, NEW, "127.0.0.1", settings)
        assert User.get_by_id(alice.user.id).password_hash != f"hash of {NEW}"

    def test_a_login_with_the_old_password_does_not_outlive_it(self, alice, anyone, monkeypatch):
        """It was checked before the change, and would begin after it."""
        checked, changed = threading.Event(), threading.Event()
        is_right = passwords.is_right

        def check(password, stored_hash):
            told = is_right(password, stored_hash)
            if threading.current_thread() is not threading.main_thread():
                checked.set()
                changed.wait(60)
            return told

        monkeypatch.setattr(passwords, "is_right", check)
        told = []

        def act():
            told.append(log_in(anyone, alice, PASSWORD).error)
            db.close_database()

        login = threading.Thread(target=act)
        login.start()
        assert checked.wait(60)
        assert change(alice).status == 200
        changed.set()
        login.join(60)
        assert told == [(401, "invalid_credentials")]

    @pytest.mark.parametrize("end", [change, lambda who: who.post("/auth/logout", {"scope": "global"})])
    def test_a_code_that_is_being_exchanged_does_not_outlive_it_either(self, alice, settings, anyone, monkeypatch, end):
        """The program's login is made, but not yet to be seen, while all others are ended."""
        made, changed = threading.Event(), threading.Event()
        with db.write(alice.user.id):
            approved_by = tokens.open_session(alice.user.id, settings)
        ticket = codes.make_ticket(tokens.caller_of(approved_by.id), ConsentRequest(**GOOD))
        address = codes.answer(tokens.caller_of(approved_by.id), ticket, True, "http://test")
        (code,) = parse_qs(urlsplit(address).query)["code"]
        pair_of, told = tokens.pair_of, []

        def linger(*arguments):
            made.set()
            changed.wait(0.3)  # unless it has to wait for us
            return pair_of(*arguments)

        def exchange():
            told.append(codes.exchange(code, VERIFIER, GOOD["redirect_uri"], settings)[0])
            db.close_database()

        monkeypatch.setattr(tokens, "pair_of", linger)
        program = threading.Thread(target=exchange)
        program.start()
        assert made.wait(60)
        assert end(alice).status == 200
        changed.set()
        program.join(60)
        (pair,) = told
        assert not is_in(Client(alice.application, pair.access_token, alice.user))
        assert anyone.post("/auth/refresh", {"refresh_token": pair.refresh_token}).status == 401
