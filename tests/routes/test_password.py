"""Changing the password."""

import threading
from urllib.parse import parse_qs, urlsplit

import pytest

from service import db
from service.auth import authorization_codes, credentials, passwords, tokens
from service.auth.consent import ConsentRequest
from service.errors import InvalidToken, WrongPassword
from service.models import LoginAttempt, LoginSession, User
from tests.support.cli_login import VERIFIER
from tests.support.client import Client
from tests.support.consent import VALID_PARAMETERS
from tests.support.observe import at_once, nothing_changes
from tests.support.passwords import PASSWORD, PASSWORD_HASH

pytestmark = pytest.mark.usefixtures("host_clock")

NEW = "a new one, longer"
WRONG = (400, "wrong_password")


class Hashing:
    """Replaces argon2: its hashes contain the password and take no time."""

    def __init__(self):
        self.in_transaction = []  # for each call, whether it ran in a transaction

    def hash(self, password):
        self.in_transaction.append(db.database.in_transaction())
        return f"hash of {password}"

    def verify(self, password, stored_hash):
        self.in_transaction.append(db.database.in_transaction())
        return (password, stored_hash) == (PASSWORD, PASSWORD_HASH) or stored_hash == f"hash of {password}"

    def dummy_verify(self):
        self.in_transaction.append(db.database.in_transaction())


@pytest.fixture
def real_hashing():
    """Keep argon2."""


@pytest.fixture(autouse=True)
def hashing(request, monkeypatch):
    """Replace argon2, unless a test uses `real_hashing`."""
    fake = Hashing()
    if "real_hashing" not in request.fixturenames:
        monkeypatch.setattr(passwords, "_context", lambda: fake)
    return fake


def change(who, current=PASSWORD, new=NEW, **more):
    return who.post("/auth/password", {"current_password": current, "new_password": new}, **more)


def log_in(anyone, who, password):
    return anyone.post("/auth/login", {"email": who.user.email, "password": password})


def new_session(who, settings, **columns):
    """Create another login session of a user; return its client."""
    with db.write(who.user.id):
        session = tokens.create_token_session(who.user.id, settings, **columns)
    return Client(who.application, tokens.pair_of(session, settings).access_token, who.user)


def is_logged_in(who):
    return who.get("/users/me").status == 200


def test_new_password_replaces_the_old_one(alice, anyone, real_hashing):
    assert change(alice).data == {"changed": True}
    stored = User.get_by_id(alice.user.id).password_hash
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert log_in(anyone, alice, NEW).status == 200
    assert log_in(anyone, alice, PASSWORD).error == (401, "invalid_credentials")


def test_existing_short_email_and_password_can_log_in(anyone, real_hashing):
    User.create(email="x", password_hash=passwords._context().hash("short"))
    assert anyone.post("/auth/login", {"email": "X", "password": "short"}).status == 200


def test_all_other_sessions_end(alice, bob, settings):
    others = [
        new_session(alice, settings),
        new_session(alice, settings, kind="client", install_id="i", scopes="profile"),
        new_session(alice, settings, kind="browser"),
    ]
    assert change(alice).status == 200
    assert [is_logged_in(client) for client in (alice, bob, *others)] == [True, True, False, False, False]


def test_tokens_of_the_current_session_stay_valid(alice, anyone):
    pair = log_in(anyone, alice, PASSWORD).data["tokens"]
    present = Client(anyone.application, pair["access_token"], alice.user)
    assert change(present).status == 200
    assert anyone.post("/auth/refresh", {"refresh_token": pair["refresh_token"]}).status == 200
    assert not is_logged_in(alice)


def test_wrong_password_changes_nothing(alice, settings):
    other = new_session(alice, settings)
    for wrong in (PASSWORD + " ", PASSWORD.title(), " ", "x" * 5000, "\U0001f511"):
        with nothing_changes():
            assert change(alice, wrong).error == WRONG
    assert is_logged_in(other)


def test_repeated_request_is_a_wrong_password(alice, host_clock):
    assert change(alice).status == 200
    with nothing_changes():
        assert change(alice).error == WRONG


def test_same_password_is_accepted_and_ends_other_sessions(alice, anyone, settings):
    other = new_session(alice, settings)
    assert change(alice, new=PASSWORD).data == {"changed": True}
    assert not is_logged_in(other)
    assert log_in(anyone, alice, PASSWORD).status == 200


@pytest.mark.parametrize(
    "new", ["x" * 8, " " * 8, "\U0001f511" * 8, "x" * 1024, "\U0001f511" * 1024, "e\u0301\x01ß\u202eabc"]
)
def test_password_has_8_to_1024_characters_of_any_kind(alice, anyone, new):
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
def test_invalid_body_is_400_without_hashing_or_counting(alice, hashing, body):
    with nothing_changes():
        assert alice.post("/auth/password", body).error == (400, "invalid_body")
    assert not hashing.in_transaction
    assert not LoginAttempt.select().exists()


@pytest.mark.parametrize("raw", [b"{", b"\xff", b'{"current_password": "\\ud800", "new_password": "xxxxxxxx"}'])
def test_invalid_json_is_400(alice, raw):
    with nothing_changes():
        assert alice.post("/auth/password", raw=raw).error == (400, "invalid_json")


def test_no_password_is_hashed_inside_a_transaction(alice, hashing):
    change(alice)
    change(alice)
    assert hashing.in_transaction == [False] * 3


class TestGuessing:
    def test_with_a_stolen_token_is_429_after_20_failures(self, alice, anyone, host_clock):
        assert [change(alice, "guess").status for _ in range(20)] == [400] * 20
        response = change(alice)
        assert response.error == (429, "rate_limited")
        assert int(response.headers["Retry-After"]) == 15 * 60
        assert log_in(anyone, alice, PASSWORD).error == (429, "rate_limited")
        host_clock.forward(minutes=15)
        assert change(Client(alice.application, alice.token, alice.user)).status == 200

    def test_failures_count_together_with_logins(self, alice, anyone):
        for _ in range(10):
            log_in(anyone, alice, "guess")
        assert [change(alice, "guess").status for _ in range(11)] == [400] * 10 + [429]

    def test_failures_from_all_networks_count_for_the_account(self, alice):
        results = [change(alice, "guess", address=f"10.0.{number}.1").status for number in range(51)]
        assert results == [400] * 50 + [429]

    def test_correct_password_is_not_counted(self, alice):
        current = PASSWORD
        for number in range(25):
            assert change(alice, current, current := f"password {number}").status == 200
        assert not LoginAttempt.select().exists()

    def test_in_parallel_has_the_same_limit(self, alice):
        results = at_once(24, lambda number: change(alice, "guess").status)
        assert sorted(results) == [400] * 20 + [429] * 4

    def test_does_not_block_other_users(self, alice, bob):
        for _ in range(21):
            change(alice, "guess")
        assert change(bob).status == 200


def test_user_without_password_cannot_set_one(alice):
    User.update(password_hash="").where(User.id == alice.user.id).execute()
    with nothing_changes():
        assert change(alice, "anything").error == WRONG


@pytest.mark.parametrize("who", ["agent", "admin"])
def test_staff_can_change_only_their_own_password(alice, who, anyone, request):
    client = request.getfixturevalue(who)
    forged = {"id": alice.user.id, "user_id": alice.user.id, "email": alice.user.email}
    body = {"current_password": PASSWORD, "new_password": NEW, **forged}
    assert client.post(f"/auth/password?user_id={alice.user.id}", body).status == 200
    assert log_in(anyone, client, NEW).status == 200
    assert log_in(anyone, alice, PASSWORD).status == 200


@pytest.mark.parametrize("state", ["disabled", "logged out"])
def test_invalid_token_cannot_change_the_password(alice, state):
    alice.user.disable() if state == "disabled" else alice.post("/auth/logout")
    with nothing_changes():
        assert change(alice).error == (401, "invalid_token")


class TestConcurrentRequests:
    def test_one_of_several_changes_succeeds(self, alice, anyone, settings):
        devices = [alice, *(new_session(alice, settings) for _ in range(3))]
        results = at_once(4, lambda number: change(devices[number], new=f"password {number}").status)
        (winner,) = [number for number, status in enumerate(results) if status == 200]
        assert set(results) <= {200, 400, 401}
        assert log_in(anyone, alice, f"password {winner}").status == 200
        assert [is_logged_in(device) for device in devices] == [number == winner for number in range(4)]

    @pytest.mark.parametrize("meanwhile", ["logged out", "disabled", "changed"])
    def test_state_is_checked_again_after_the_password(self, alice, settings, monkeypatch, meanwhile):
        """The login session ends, or the password changes, between the check and the write."""
        (session,) = LoginSession.select()
        hash_password = passwords.hash_password

        def change_state(password):
            if meanwhile == "logged out":
                session.end()
            elif meanwhile == "disabled":
                alice.user.disable()
            else:
                User.update(password_hash="hash of something").where(User.id == alice.user.id).execute()
            return hash_password(password)

        monkeypatch.setattr(passwords, "hash_password", change_state)
        caller = tokens.caller_of(session.id)
        with pytest.raises(WrongPassword if meanwhile == "changed" else InvalidToken):
            credentials.change_password(caller, PASSWORD, NEW, "127.0.0.1", settings)
        assert User.get_by_id(alice.user.id).password_hash != f"hash of {NEW}"

    def test_concurrent_login_with_the_old_password_fails(self, alice, anyone, monkeypatch):
        """The login checks the password before the change and creates its session after it."""
        checked, changed = threading.Event(), threading.Event()
        is_right = passwords.is_correct

        def check(password, stored_hash):
            is_valid = is_right(password, stored_hash)
            if threading.current_thread() is not threading.main_thread():
                checked.set()
                changed.wait(60)
            return is_valid

        monkeypatch.setattr(passwords, "is_correct", check)
        results = []

        def log_in_with_old_password():
            results.append(log_in(anyone, alice, PASSWORD).error)
            db.close_database()

        login = threading.Thread(target=log_in_with_old_password)
        login.start()
        assert checked.wait(60)
        assert change(alice).status == 200
        changed.set()
        login.join(60)
        assert results == [(401, "invalid_credentials")]

    @pytest.mark.parametrize("end", [change, lambda who: who.post("/auth/logout", {"scope": "global"})])
    def test_concurrent_code_exchange_gives_no_valid_tokens(self, alice, settings, anyone, monkeypatch, end):
        """The session of the code is created but not committed while all other sessions end."""
        created, changed = threading.Event(), threading.Event()
        with db.write(alice.user.id):
            approved_by = tokens.create_token_session(alice.user.id, settings)
        csrf_token = authorization_codes.make_csrf_token(
            tokens.caller_of(approved_by.id), ConsentRequest(**VALID_PARAMETERS)
        )
        address = authorization_codes.record_decision(tokens.caller_of(approved_by.id), csrf_token, True, "http://test")
        (code,) = parse_qs(urlsplit(address).query)["code"]
        pair_of, results = tokens.pair_of, []

        def delayed_pair_of(*arguments):
            created.set()
            changed.wait(0.3)  # times out if the other request waits for this transaction
            return pair_of(*arguments)

        def exchange():
            results.append(authorization_codes.exchange(code, VERIFIER, VALID_PARAMETERS["redirect_uri"], settings)[0])
            db.close_database()

        monkeypatch.setattr(tokens, "pair_of", delayed_pair_of)
        exchanging = threading.Thread(target=exchange)
        exchanging.start()
        assert created.wait(60)
        assert end(alice).status == 200
        changed.set()
        exchanging.join(60)
        (pair,) = results
        assert not is_logged_in(Client(alice.application, pair.access_token, alice.user))
        assert anyone.post("/auth/refresh", {"refresh_token": pair.refresh_token}).status == 401
