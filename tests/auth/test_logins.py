"""Logging in, tokens, and the throttling of failed logins."""

import dataclasses
import hashlib
import io
import re
from collections import Counter

import pytest
from itsdangerous import URLSafeSerializer

import app
from service import clock, db, signing
from service.auth import login_throttle, passwords, tokens
from service.commands import run
from service.http.application import build_app
from service.models import TABLES, ChatSession, LoginAttempt, LoginSession, Message, User
from service.routes import operations
from tests.support.client import Client
from tests.support.installation import flags_of, settings_at
from tests.support.observe import at_once, files_of, nothing_changes, stored
from tests.support.passwords import PASSWORD, PASSWORD_HASH

pytestmark = pytest.mark.database


USER_MEMBERS = {
    "id", "email", "first_name", "last_name", "auth_provider", "created_at", "last_login_at", "is_anonymous",
    "is_verified", "location", "onboarding_completed", "profile_image", "role", "user_type",
}  # fmt: skip

GUARDED = {operation.name: operation for operation in operations() if not operation.public}
every_guarded_operation = pytest.mark.parametrize("operation", GUARDED.values(), ids=GUARDED)


class FakeHashing:
    """Replaces argon2: accepts PASSWORD without hashing, and counts the calls."""

    def __init__(self) -> None:
        self.calls = Counter()

    def hash(self, password):
        self.calls["hash"] += 1
        return PASSWORD_HASH

    def verify(self, password, stored_hash):
        if not stored_hash.startswith("$argon2id$"):
            raise ValueError("hash could not be identified")
        self.calls["verify"] += 1
        return (password, stored_hash) == (PASSWORD, PASSWORD_HASH)

    def dummy_verify(self):
        self.calls["dummy"] += 1


@pytest.fixture
def hashing(monkeypatch):
    """Replace password hashing, and count the calls."""
    counted = FakeHashing()
    monkeypatch.setattr(passwords, "_context", lambda: counted)
    return counted


@pytest.fixture
def cat(host_clock, hashing, person):
    """A customer with a frozen clock and fake password hashing."""
    return person("cat")


@pytest.fixture
def logged_in(host_clock, hashing, person):
    """A session of Cat on a device."""
    client = person("cat")
    return Device(client)


class Device:
    """A device of Cat with the tokens of one login session."""

    def __init__(self, client):
        self.anyone = Client(client.application)
        self.user = client.user
        self.first = self.pair = log_in(self.anyone).data["tokens"]

    def other_device(self):
        """Return another device of the same user."""
        return Device(Client(self.anyone.application, user=self.user))

    def refresh(self, token=""):
        return self.anyone.post("/auth/refresh", {"refresh_token": token or self.pair["refresh_token"]})

    def rotate(self):
        """Refreshes, stores the new pair, and returns the old one."""
        old, self.pair = self.pair, self.refresh().data["tokens"]
        return old

    def use(self, pair=None):
        """Return the status of a request with an access token."""
        return status_with(self.anyone, (pair or self.pair)["access_token"])


NO_CHAT = "/chats/00000000-0000-4000-8000-000000000000/messages"


def status_with(client, token):
    """Return the status of a request with a token: 400 for a valid token, since the chat does not exist, or 401."""
    return client.get(NO_CHAT, authorization=f"Bearer {token}").status


VALID, INVALID = 400, 401


def log_in(client, email="cat@example.com", password=PASSWORD, **more):
    return client.post("/auth/login", {"email": email, "password": password}, **more)


def fail(client, number=1, **more):
    """Log in with a wrong password, and return the statuses."""
    return [log_in(client, password="wrong", **more).status for _ in range(number)]


def request(operation, client, **headers):
    """Request any operation with well-formed identifiers and a body."""
    path = re.sub(r"{\w*message\w*}", "01ARZ3NDEKTSV4RRFFQ69G5FAV", operation.full_path)
    path = re.sub(r"{\w+}", "00000000-0000-4000-8000-000000000000", path)
    return client.call(operation.method, f"/{path}", {} if operation.body else None, **headers)


def challenge(reply):
    """Return the header `WWW-Authenticate`; its name is case-insensitive."""
    return {name.lower(): value for name, value in reply.headers.items()}["www-authenticate"]


def without_request_id(reply):
    headers = {name: value for name, value in reply.headers.items() if name != "X-Request-ID"}
    return reply.status, headers, reply.raw


# Logging in


def test_login_returns_prefixed_tokens_and_the_user(anyone, alice):
    reply = log_in(anyone, "alice@example.com")
    assert set(reply.json) == {"success", "data"} and set(reply.data) == {"tokens", "user"}
    assert set(reply.data["tokens"]) == {"access_token", "refresh_token"}
    assert reply.data["tokens"]["access_token"].startswith("cxa_")
    assert reply.data["tokens"]["refresh_token"].startswith("cxr_")
    assert set(reply.data["user"]) == USER_MEMBERS
    assert (reply.data["user"]["id"], reply.data["user"]["email"]) == (alice.user.id, "alice@example.com")
    assert reply.headers["Cache-Control"] == "no-store"
    assert "argon2" not in str(reply.raw)
    assert status_with(anyone, reply.data["tokens"]["access_token"]) == VALID


def test_login_sets_last_login_at(host_clock, anyone, cat):
    assert cat.user.last_login_at is None
    assert log_in(anyone).data["user"]["last_login_at"] == "2026-11-20T10:00:00.000Z"
    host_clock.forward(hours=1)
    assert log_in(anyone).data["user"]["last_login_at"] == "2026-11-20T11:00:00.000Z"


@pytest.mark.parametrize(
    "spelling", ["cat@example.com", " cat@example.com\t", "CAT@Example.COM", "\u2003Cat@example.com\n"]
)
def test_email_address_is_trimmed_and_folded(anyone, cat, spelling):
    assert log_in(anyone, spelling).data["user"]["email"] == "cat@example.com"


def test_folding_is_more_than_lower_case(anyone, hashing):
    User.create(email="strasse@example.com", password_hash=PASSWORD_HASH)
    assert log_in(anyone, "STRAẞE@example.com").status == log_in(anyone, "straße@example.com").status == 200


def test_password_is_compared_exactly(anyone, cat):
    for other in (f" {PASSWORD}", f"{PASSWORD} ", PASSWORD.upper()):
        assert log_in(anyone, password=other).error == (401, "invalid_credentials")


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"null", b"[]", b'"x"', b"5", b"{", b"\xff", b"{}",
        b'{"email": "cat@example.com"}',
        b'{"password": "x"}',
        b'{"email": "", "password": "x"}',
        b'{"email": "cat@example.com", "password": ""}',
        b'{"email": "cat@example.com", "email": "cat@example.com", "password": "x"}',
        b'{"email": "cat@example.com\\u0000", "password": "x"}',
        b'{"email": "cat@example.com", "password": "\\ud800"}',
    ],
)  # fmt: skip
def test_invalid_body_or_missing_or_empty_member_is_400(anyone, cat, hashing, raw):
    with nothing_changes(*TABLES):
        status, code = anyone.post("/auth/login", raw=raw).error
    assert status == 400 and code in ("invalid_json", "invalid_body")
    assert not hashing.calls


@pytest.mark.parametrize("member", ["email", "password"])
@pytest.mark.parametrize("value", [None, 5, 1.5, True, [], {}, ["cat@example.com"]])
def test_members_that_are_not_strings_are_400(anyone, cat, hashing, member, value):
    body = {"email": "cat@example.com", "password": PASSWORD, member: value}
    with nothing_changes(*TABLES):
        reply = anyone.post("/auth/login", body)
    assert reply.error == (400, "invalid_body")
    assert reply.message.startswith(f"$.{member}: expected str")
    assert not hashing.calls


def test_other_content_type_is_400(anyone, cat):
    form = b"email=cat%40example.com&password=x"
    with nothing_changes(*TABLES):
        reply = anyone.post("/auth/login", raw=form, content_type="application/x-www-form-urlencoded")
    assert reply.error == (400, "invalid_json")


def test_impossible_credentials_are_401_and_not_400(anyone, cat):
    for email in ("unknown", "@", " ", "x" * 10_000, "🙂"):
        assert log_in(anyone, email).error == (401, "invalid_credentials")
    assert log_in(anyone, password="x" * 10_000).error == (401, "invalid_credentials")


def test_unknown_wrong_and_disabled_get_the_same_response_after_the_same_work(anyone, person, hashing):
    person("cat"), person("dan").user.disable()
    User.create(email="eve@example.com", password_hash="")
    User.create(email="fay@example.com", password_hash="not an argon2 hash")
    attempts = {
        "unknown": ("unknown@example.com", PASSWORD),
        "wrong": ("cat@example.com", "wrong"),
        "disabled": ("dan@example.com", PASSWORD),
        "disabled and wrong": ("dan@example.com", "wrong"),
        "too long": ("cat@example.com", "x" * 5000),
        "no password": ("eve@example.com", PASSWORD),
        "unusable hash": ("fay@example.com", PASSWORD),
    }
    responses = {}
    for name, (email, password) in attempts.items():
        hashing.calls.clear()
        with nothing_changes():
            reply = log_in(anyone, email, password)
        assert reply.error == (401, "invalid_credentials")
        assert challenge(reply) == "Bearer"
        assert hashing.calls.total() == 1, name
        responses[name] = without_request_id(reply)
    assert all(response == responses["wrong"] for response in responses.values())
    hashing.calls.clear()
    assert log_in(anyone).status == 200
    assert hashing.calls.total() == 1


def test_first_login_takes_no_longer_for_an_unknown_address(monkeypatch):
    passwords._context.cache_clear()
    monkeypatch.setattr(passwords._context(), "hash", None)  # a call of hash() fails
    assert not passwords.is_correct(PASSWORD, None)
    assert passwords.is_correct(PASSWORD, PASSWORD_HASH)


def test_argon2_accepts_the_password_and_refuses_others():
    stored = passwords.hash_password(PASSWORD)
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    for password_hash in (stored, PASSWORD_HASH):
        assert passwords.is_correct(PASSWORD, password_hash)
        assert not passwords.is_correct("wrong", password_hash)
    assert not passwords.is_correct(PASSWORD, None)


@pytest.mark.parametrize("event", ["disabled", "password changed"])
def test_account_that_changes_during_the_check_gets_no_session(anyone, cat, hashing, event, monkeypatch):
    def verify(password, stored_hash):
        cat.user.disable() if event == "disabled" else cat.user.change_password("$argon2id$other")
        return True

    monkeypatch.setattr(hashing, "verify", verify)
    assert log_in(anyone).error == (401, "invalid_credentials")
    assert not LoginSession.select().where(LoginSession.ended_at.is_null()).exists()


def test_login_produces_every_listed_status(anyone, cat):
    assert {anyone.post("/auth/login", {}).status, *fail(anyone), log_in(anyone).status} == {400, 401, 200}


def test_tokens_and_passwords_are_not_stored_in_clear_text(anyone, cat, settings):
    pair = log_in(anyone).data["tokens"]
    pair |= {f"next {name}": token for name, token in Device(cat).rotate().items()}
    fail(anyone)
    db.close_database()
    raw = b"".join(files_of(settings))
    assert b"cat@example.com" in raw
    for token in pair.values():
        body, _, signature = token[4:].rpartition(".")
        for secret in (token, body, signature, hashlib.sha256(token.encode()).hexdigest()):
            assert secret.encode() not in raw
    assert PASSWORD.encode() not in raw
    db.database.connect()


# Throttling


def test_ten_failures_get_401_and_then_the_right_password_works(anyone, cat):
    assert fail(anyone, 10) == [401] * 10
    assert log_in(anyone).status == 200


def test_twenty_first_failure_from_a_network_in_15_minutes_is_429(host_clock, anyone, cat):
    assert fail(anyone, 20) == [401] * 20
    with nothing_changes(*TABLES):
        reply = log_in(anyone, password="wrong")
        assert reply.error == (429, "rate_limited")
        assert reply.headers["Retry-After"] == "900"


def test_right_password_is_429_too_and_is_not_hashed(host_clock, anyone, cat, hashing):
    fail(anyone, 20)
    hashing.calls.clear()
    with nothing_changes(*TABLES):
        assert log_in(anyone).error == (429, "rate_limited")
    assert not hashing.calls


def test_account_accepts_logins_after_retry_after(host_clock, anyone, cat):
    fail(anyone)
    host_clock.forward(minutes=1)
    fail(anyone, 19)
    host_clock.forward(minutes=5, seconds=0.001)
    reply = log_in(anyone)
    assert (reply.status, reply.headers["Retry-After"]) == (429, "540")  # 8:59.999, rounded up
    host_clock.forward(minutes=8, seconds=59.998)
    assert (log_in(anyone).status, log_in(anyone).headers["Retry-After"]) == (429, "1")
    host_clock.forward(seconds=0.001)
    assert fail(anyone, 2) == [401, 429]  # the first failure is 15 minutes old; the others are not
    host_clock.forward(minutes=1)
    assert log_in(anyone).status == 200


def test_throttled_attempts_do_not_extend_retry_after(host_clock, anyone, cat):
    fail(anyone, 20)
    for _ in range(14):
        host_clock.forward(minutes=1)
        assert fail(anyone, 3) == [429] * 3
    host_clock.forward(minutes=1)
    assert log_in(anyone).status == 200


def test_successful_logins_do_not_count(anyone, cat):
    assert [log_in(anyone).status for _ in range(25)] == [200] * 25
    assert not LoginAttempt.select().exists()
    assert fail(anyone, 21) == [401] * 20 + [429]


def test_successful_login_does_not_reset_failures(anyone, cat):
    fail(anyone, 19)
    assert log_in(anyone).status == 200
    assert fail(anyone, 2) == [401, 429]


def test_attempt_counts_during_the_check(host_clock, anyone, cat, settings):
    for _ in range(20):
        login_throttle.record_attempt("cat@example.com", "127.0.0.1", settings)
    assert log_in(anyone).status == 429


def test_400_does_not_count(anyone, cat):
    for _ in range(30):
        anyone.post("/auth/login", {"email": "cat@example.com"})
    assert log_in(anyone).status == 200


def test_all_spellings_of_an_address_count_as_one_account(host_clock, anyone, cat):
    for spelling in ("cat@example.com", "CAT@example.com", " Cat@Example.com "):
        fail(anyone, 7, email=spelling)
    assert log_in(anyone).status == 429


def test_unknown_and_disabled_accounts_are_throttled_like_others(anyone, cat, person):
    person("dan").user.disable()
    bodies = set()
    for number, email in enumerate(("cat@example.com", "dan@example.com", "unknown@example.com")):
        address = f"10.0.{number}.1"
        assert fail(anyone, 21, email=email, address=address) == [401] * 20 + [429]
        bodies.add(log_in(anyone, email, address=address).raw)
    assert len(bodies) == 1


def test_throttling_does_not_affect_other_networks_and_accounts(anyone, cat, person):
    person("dan")
    fail(anyone, 20)
    assert log_in(anyone).status == 429
    assert log_in(anyone, address="10.0.0.1").status == 200
    assert log_in(anyone, "dan@example.com").status == 200


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("192.0.2.1", "192.0.2.254", True),
        ("192.0.2.1", "192.0.3.1", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.1", "192.0.2.9", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.3.1", False),
        ("unix socket", "unix socket", True),
        ("", "192.0.2.1", False),
        ("fe80::1%eth0", "192.0.2.1", False),
    ],
)
def test_network_is_24_bits_of_ipv4_and_64_of_ipv6(anyone, cat, first, second, is_same):
    assert fail(anyone, 20, address=first) == [401] * 20
    assert log_in(anyone, address=second).status == (429 if is_same else 200)


def test_account_limit_is_50_failures_an_hour_from_all_networks(host_clock, anyone, cat):
    fail(anyone, address="10.0.0.1")
    host_clock.forward(minutes=20)
    for number in range(1, 8):
        assert fail(anyone, 7, address=f"10.0.{number}.1") == [401] * 7
    reply = log_in(anyone, address="10.0.99.1")
    assert (reply.error, reply.headers["Retry-After"]) == ((429, "rate_limited"), "2400")
    host_clock.forward(minutes=39, seconds=59.999)
    assert log_in(anyone, address="10.0.99.1").headers["Retry-After"] == "1"
    host_clock.forward(seconds=0.001)
    assert fail(anyone, 2, address="10.0.99.1") == [401, 429]
    host_clock.forward(minutes=20)
    assert log_in(anyone, address="10.0.99.1").status == 200


def test_network_limit_is_100_failures_in_15_minutes_for_all_accounts(host_clock, anyone, cat):
    for number in range(100):
        assert fail(anyone, email=f"victim-{number}@example.com", address=f"10.0.0.{number}") == [401]
    reply = log_in(anyone, address="10.0.0.200")
    assert (reply.error, reply.headers["Retry-After"]) == ((429, "rate_limited"), "900")
    assert log_in(anyone, address="10.0.1.1").status == 200
    host_clock.forward(minutes=14, seconds=59.999)
    assert log_in(anyone, address="10.0.0.1").headers["Retry-After"] == "1"
    host_clock.forward(seconds=0.001)
    assert log_in(anyone, address="10.0.0.1").status == 200


def test_retry_after_is_the_longest_of_all_limits(host_clock, anyone, cat):
    for number in range(1, 4):
        fail(anyone, 10, address=f"10.0.{number}.1")
    fail(anyone, 20, address="10.0.9.1")
    reply = log_in(anyone, address="10.0.9.1")
    assert reply.headers["Retry-After"] == "3600", (
        "the limit of the network ends after 15 minutes, that of the account does not"
    )


def test_limits_are_configurable(anyone, cat, settings):
    strict = dataclasses.replace(settings, login_failures=2, login_failures_account=3, login_failures_network=4)
    client = Client(build_app(operations(), strict))
    assert fail(client, 3) == [401, 401, 429]
    assert fail(client, 2, address="10.0.0.1") == [401, 429]
    assert fail(client, 3, email="x@example.com") == [401, 401, 429]
    assert fail(client, 1, email="y@example.com") == [429]


def test_failures_persist_over_a_restart(host_clock, anyone, cat, settings):
    fail(anyone, 20)
    db.close_database()
    assert log_in(Client(app.build(settings))).status == 429


def test_old_failures_are_deleted(host_clock, anyone, cat):
    fail(anyone, 5)
    host_clock.forward(hours=1)
    fail(anyone)
    assert LoginAttempt.select().count() == 1


def test_concurrent_failures_count_like_consecutive_ones(anyone, cat):
    fail(anyone, 16)
    statuses = at_once(8, lambda _: fail(anyone)[0])
    assert sorted(statuses) == [401] * 4 + [429] * 4


# Bearer tokens


def forged(token):
    """Return a token with the same content, signed with another key."""
    body = signing.verify("access", token.removeprefix("cxa_"))
    signer = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return "cxa_" + URLSafeSerializer("0" * 64, salt="cx.access.v1", signer_kwargs=signer).dumps(body)


BAD_CREDENTIALS = {
    "nothing": lambda access, refresh: "",
    "no token": lambda access, refresh: "Bearer",
    "an empty token": lambda access, refresh: "Bearer ",
    "no scheme": lambda access, refresh: access,
    "another scheme": lambda access, refresh: f"Token {access}",
    "basic": lambda access, refresh: "Basic YWxpY2U6eA==",
    "a longer scheme": lambda access, refresh: f"BearerX {access}",
    "two tokens": lambda access, refresh: f"Bearer {access} {access}",
    "twice": lambda access, refresh: f"Bearer {access}, Bearer {access}",
    "rubbish": lambda access, refresh: "Bearer rubbish",
    "only a prefix": lambda access, refresh: "Bearer cxa_",
    "dots": lambda access, refresh: "Bearer cxa_...",
    "no prefix": lambda access, refresh: f"Bearer {access.removeprefix('cxa_')}",
    "two prefixes": lambda access, refresh: f"Bearer cxa_{access}",
    "a refresh token": lambda access, refresh: f"Bearer {refresh}",
    "a refresh token in disguise": lambda access, refresh: f"Bearer cxa_{refresh.removeprefix('cxr_')}",
    "an access token in disguise": lambda access, refresh: f"Bearer cxr_{access.removeprefix('cxa_')}",
    "a forged token": lambda access, refresh: f"Bearer {forged(access)}",
    "a cut token": lambda access, refresh: f"Bearer {access[:-1]}",
    "a longer token": lambda access, refresh: f"Bearer {access}A",
    "upper case": lambda access, refresh: f"Bearer {access.upper()}",
    "an unsigned token": lambda access, refresh: f"Bearer {access.rpartition('.')[0]}",
    "a cursor": lambda access, refresh: f"Bearer cxa_{signing.sign('cursor', ['x', 1, 'y'])}",
    "not ASCII": lambda access, refresh: "Bearer cxa_\u00e9\u00ff",
    "a NUL": lambda access, refresh: f"Bearer {access}\0",
    "very long": lambda access, refresh: "Bearer cxa_" + "A" * 60_000,
}


@every_guarded_operation
def test_bad_credentials_are_401_with_a_challenge_on_every_operation(operation, logged_in):
    access, refresh = logged_in.pair["access_token"], logged_in.pair["refresh_token"]
    with nothing_changes(*TABLES):
        for name, make in BAD_CREDENTIALS.items():
            header = {"authorization": make(access, refresh)} if name != "nothing" else {}
            reply = request(operation, logged_in.anyone, **header)
            assert reply.status == 401, name
            is_client = operation.basic and header.get("authorization", "").lower().startswith("basic ")
            expected = (
                ("Basic", ["invalid_client"]) if is_client else ("Bearer", ["missing_credentials", "invalid_token"])
            )
            assert challenge(reply).split()[0] == expected[0], name
            assert reply.error[1] in expected[1], name
            assert access not in str(reply.raw)
    assert logged_in.use() == VALID


@every_guarded_operation
def test_expired_and_revoked_tokens_are_401_on_every_operation(operation, host_clock, logged_in):
    header = {"authorization": f"Bearer {logged_in.pair['access_token']}"}
    host_clock.forward(hours=1)
    with nothing_changes(*TABLES):
        assert request(operation, logged_in.anyone, **header).error == (401, "invalid_token")
    fresh = log_in(logged_in.anyone).data["tokens"]["access_token"]
    LoginSession.end_all(logged_in.user.id)
    with nothing_changes(*TABLES):
        reply = request(operation, logged_in.anyone, authorization=f"Bearer {fresh}")
        assert reply.error == (401, "invalid_token")
        assert challenge(reply).startswith("Bearer")


def test_every_altered_token_is_refused(logged_in):
    token = logged_in.pair["access_token"]
    altered = {f"{token[:i]}{other}{token[i + 1 :]}" for i in range(len(token)) for other in "AZ09-_.!"} - {token}
    altered |= {token[:-1] + chr(code) for code in range(33, 127)} - {token}
    with nothing_changes(*TABLES):
        accepted = [text for text in altered if status_with(logged_in.anyone, text) != INVALID]
    assert accepted == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_scheme_is_case_insensitive(logged_in, scheme):
    header = f"{scheme} {logged_in.pair['access_token']}"
    assert logged_in.anyone.get(NO_CHAT, authorization=header).status == VALID


def test_credentials_are_checked_first(anyone):
    for path in (NO_CHAT, "/chats/nonsense/messages", f"{NO_CHAT}?limit=x"):
        assert anyone.get(path).error == (401, "missing_credentials")


def test_public_operations_ignore_credentials(logged_in):
    assert log_in(logged_in.anyone, authorization="Bearer rubbish").status == 200


def test_access_token_expires_after_one_hour(host_clock, logged_in):
    host_clock.forward(minutes=59, seconds=59.999)
    assert logged_in.use() == VALID
    host_clock.forward(seconds=0.001)
    assert logged_in.use() == INVALID
    assert logged_in.refresh().status == 200


def test_refresh_token_expires_after_thirty_days(host_clock, logged_in):
    host_clock.forward(days=29, hours=23, minutes=59, seconds=59.999)
    logged_in.rotate()
    assert logged_in.use() == VALID
    host_clock.forward(days=30)
    with nothing_changes(*TABLES):
        assert logged_in.refresh().error == (401, "invalid_token")


def test_each_refresh_extends_the_session_by_thirty_days(host_clock, logged_in):
    for _ in range(4):
        host_clock.forward(days=29)
        logged_in.rotate()
        assert logged_in.use() == VALID


def test_access_token_expires_with_its_session(host_clock, cat, settings):
    short = dataclasses.replace(settings, access_minutes=60 * 24 * 90, refresh_days=1)
    with db.write():
        pair = tokens.log_in(cat.user.id, short)
    host_clock.forward(days=1)
    assert status_with(cat, pair.access_token) == INVALID


def test_lifetimes_are_configurable(host_clock, cat, settings):
    short = dataclasses.replace(settings, access_minutes=5, refresh_days=2)
    session = Device(Client(build_app(operations(), short), user=cat.user))
    host_clock.forward(minutes=5)
    assert session.use() == INVALID
    host_clock.forward(days=2)
    assert session.refresh().status == INVALID


def test_tokens_are_valid_after_a_restart(logged_in, settings):
    db.close_database()
    logged_in.anyone = Client(app.build(settings))
    assert logged_in.use() == VALID
    assert logged_in.refresh().status == 200


def test_tokens_of_another_installation_are_invalid(logged_in, settings, tmp_path):
    db.close_database()
    elsewhere = Client(app.build(settings_at(tmp_path / "elsewhere")))
    assert status_with(elsewhere, logged_in.pair["access_token"]) == INVALID
    assert elsewhere.post("/auth/refresh", {"refresh_token": logged_in.pair["refresh_token"]}).status == 401


# The end of a session


def test_logout_ends_only_its_session(logged_in):
    other = logged_in.other_device()
    reply = logged_in.anyone.post("/auth/logout", authorization=f"Bearer {logged_in.pair['access_token']}")
    assert reply.data == {"logged_out": True}
    assert (logged_in.use(), logged_in.refresh().status) == (INVALID, 401)
    assert (other.use(), other.refresh().status) == (VALID, 200)


def test_global_logout_ends_all_sessions_of_the_user_only(logged_in, person):
    other, dan = logged_in.other_device(), person("dan")
    header = {"authorization": f"Bearer {logged_in.pair['access_token']}"}
    assert logged_in.anyone.post("/auth/logout", {"scope": "global"}, **header).status == 200
    for session in (logged_in, other):
        assert (session.use(), session.refresh().status) == (INVALID, 401)
    assert status_with(dan, dan.token) == VALID


@pytest.mark.parametrize("body", [{}, {"scope": "local"}, {"else": 1}])
def test_logout_is_local_by_default(logged_in, body):
    other = logged_in.other_device()
    logged_in.anyone.post("/auth/logout", body, authorization=f"Bearer {logged_in.pair['access_token']}")
    assert (logged_in.use(), other.use()) == (INVALID, VALID)


@pytest.mark.parametrize("raw", [b'{"scope": "universal"}', b'{"scope": null}', b'{"scope": 1}', b"[]", b"{"])
def test_invalid_logout_ends_no_session(logged_in, raw):
    with nothing_changes(*TABLES):
        reply = logged_in.anyone.post("/auth/logout", raw=raw, authorization=f"Bearer {logged_in.pair['access_token']}")
    assert reply.error[0] == 400
    assert logged_in.use() == VALID


def test_logout_with_the_old_token_ends_refreshed_tokens_too(logged_in):
    old = logged_in.rotate()
    logged_in.anyone.post("/auth/logout", authorization=f"Bearer {old['access_token']}")
    assert (logged_in.use(), logged_in.refresh().status) == (INVALID, 401)


def test_disabling_a_user_ends_all_sessions_permanently(logged_in):
    logged_in.user.disable()
    assert (logged_in.use(), logged_in.refresh().status, log_in(logged_in.anyone).status) == (INVALID, 401, 401)
    logged_in.user.enable()
    assert (logged_in.use(), logged_in.refresh().status) == (INVALID, 401)
    assert log_in(logged_in.anyone).status == 200


def test_password_change_ends_all_sessions_and_the_old_password(logged_in):
    other = logged_in.other_device()
    logged_in.user.change_password("$argon2id$another")
    for session in (logged_in, other):
        assert (session.use(), session.refresh().status) == (INVALID, 401)
    assert log_in(logged_in.anyone).status == 401


@pytest.mark.parametrize("command", ["disable", "password"])
def test_commands_end_sessions_while_the_service_runs(logged_in, settings, command, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("another password\n"))
    db.close_database()
    assert run(["user", command, "CAT@example.com", *flags_of(settings)]) == 0
    assert (logged_in.use(), logged_in.refresh().status) == (INVALID, 401)


def test_user_who_is_disabled_in_the_database_is_refused(logged_in):
    User.update(is_disabled=True).where(User.id == logged_in.user.id).execute()
    assert (logged_in.use(), logged_in.refresh().status) == (INVALID, 401)


# Refreshing


def test_refresh_returns_a_new_pair(host_clock, logged_in):
    host_clock.forward(minutes=1)
    reply = logged_in.refresh()
    assert set(reply.data) == {"tokens"} and set(reply.json) == {"success", "data"}
    pair = reply.data["tokens"]
    assert set(pair) == {"access_token", "refresh_token"}
    assert pair["access_token"].startswith("cxa_") and pair["refresh_token"].startswith("cxr_")
    assert not set(pair.values()) & set(logged_in.pair.values())
    assert logged_in.use(pair) == VALID
    assert reply.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("body", [{}, {"refresh_token": None}, {"refresh_token": 1}, {"token": "x"}])
def test_refresh_without_a_token_is_400(logged_in, body):
    with nothing_changes(*TABLES):
        assert logged_in.anyone.post("/auth/refresh", body).error == (400, "invalid_body")


def test_invalid_refresh_token_is_401_and_changes_nothing(logged_in):
    token, access = logged_in.pair["refresh_token"], logged_in.pair["access_token"]
    wrong = [
        "x",
        "cxr_",
        access,
        f"cxr_{access[4:]}",
        token[4:],
        f"cxa_{token[4:]}",
        token[:-1],
        f"{token}A",
        f" {token}",
    ]
    wrong += [token[:-1] + other for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_!=é"]
    with nothing_changes(*TABLES):
        for text in set(wrong) - {token}:
            reply = logged_in.refresh(text)
            assert reply.error == (401, "invalid_token")
            assert challenge(reply).startswith("Bearer")
    assert logged_in.refresh().status == 200


def test_previous_refresh_token_is_accepted_for_ten_seconds_even_after_its_successor_was_used(host_clock, logged_in):
    old = logged_in.rotate()
    assert logged_in.use() == VALID
    host_clock.forward(seconds=10)
    again = logged_in.refresh(old["refresh_token"])
    assert again.data["tokens"]["refresh_token"] == logged_in.pair["refresh_token"]
    assert logged_in.use(again.data["tokens"]) == VALID


def test_previous_refresh_token_with_a_used_successor_ends_the_session_after_ten_seconds(host_clock, logged_in):
    other, old = logged_in.other_device(), logged_in.rotate()
    assert logged_in.use() == VALID
    host_clock.forward(seconds=10.001)
    assert logged_in.refresh(old["refresh_token"]).error == (401, "invalid_token")
    assert (logged_in.use(), logged_in.refresh().status) == (INVALID, 401)
    assert (other.use(), other.refresh().status) == (VALID, 200)


def test_lost_response_does_not_end_the_session(host_clock, logged_in):
    lost = logged_in.refresh().data["tokens"]
    host_clock.forward(days=29)
    logged_in.rotate()
    assert logged_in.pair["refresh_token"] == lost["refresh_token"]
    assert logged_in.use() == VALID
    host_clock.forward(seconds=11)
    assert logged_in.refresh(logged_in.first["refresh_token"]).status == 401
    assert logged_in.use() == INVALID


def test_successor_is_used_when_its_refresh_token_is(host_clock, logged_in):
    logged_in.rotate(), logged_in.rotate()  # never an access token in between
    assert logged_in.refresh(logged_in.first["refresh_token"]).status == 401
    assert (logged_in.use(), logged_in.refresh().status) == (INVALID, 401)


def test_access_token_of_the_previous_pair_does_not_use_the_successor(host_clock, logged_in):
    old = logged_in.rotate()
    assert logged_in.use(old) == VALID
    host_clock.forward(minutes=5)
    assert logged_in.use(old) == VALID
    assert logged_in.refresh(old["refresh_token"]).status == 200


def test_token_older_than_the_previous_one_ends_the_session_at_once(logged_in):
    for _ in range(3):
        logged_in.rotate()
    assert logged_in.refresh(logged_in.first["refresh_token"]).error == (401, "invalid_token")
    assert (logged_in.use(), logged_in.refresh().status) == (INVALID, 401)


def test_concurrent_refreshes_of_one_token_get_one_successor(logged_in):
    replies = at_once(8, lambda _: logged_in.refresh())
    assert [reply.status for reply in replies] == [200] * 8
    assert len({reply.data["tokens"]["refresh_token"] for reply in replies}) == 1
    assert LoginSession.get(LoginSession.user_id == logged_in.user.id, LoginSession.generation > 1).generation == 2
    assert all(logged_in.use(reply.data["tokens"]) == VALID for reply in replies)


def test_refresh_ignores_other_credentials(host_clock, logged_in):
    host_clock.forward(hours=2)
    assert (
        logged_in.anyone.post(
            "/auth/refresh", {"refresh_token": logged_in.pair["refresh_token"]}, authorization="Bearer rubbish"
        ).status
        == 200
    )


# A clock that is set back


def test_tokens_are_valid_after_the_host_clock_is_set_back(host_clock, logged_in):
    host_clock.back(days=400)
    assert logged_in.use() == VALID
    logged_in.rotate()
    assert logged_in.use() == VALID
    assert log_in(logged_in.anyone).status == 200


def test_tokens_are_valid_after_a_restart_with_the_host_clock_set_back(host_clock, logged_in, settings):
    db.close_database()
    clock.reset()
    host_clock.back(days=400)
    logged_in.anyone = Client(app.build(settings))
    assert logged_in.use() == VALID
    logged_in.rotate()
    assert logged_in.use() == VALID


def test_timestamps_never_go_backwards_when_the_host_clock_does(host_clock, alice, session, say):
    stamps, identifiers = [], []
    for _ in range(3):
        message = say()
        stamps.append(message.created_at), identifiers.append(message.id)
        host_clock.back(hours=1)
    assert stamps == sorted(stamps) and identifiers == sorted(identifiers)
    assert [found.id for found in Message.select().order_by(Message.id)] == identifiers


def test_new_messages_sort_last_after_a_restart_with_the_host_clock_set_back(host_clock, session, say, settings):
    before = say()
    db.close_database()
    clock.reset()
    host_clock.back(days=400)
    app.build(settings)
    after = say(in_session=ChatSession.get_by_id(session.id))
    assert after.id > before.id
    assert after.created_at >= before.created_at


def test_refused_request_writes_nothing(anyone, cat):
    before = stored(*TABLES)
    anyone.get(NO_CHAT), anyone.post("/auth/refresh", {"refresh_token": "x"}), anyone.post("/auth/logout")
    assert stored(*TABLES) == before
