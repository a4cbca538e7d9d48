"""Signing keys: other instances create them too, and each instance loads them in time."""

import secrets
from collections.abc import Callable

import msgspec
import pytest

import app
from service import clock, db, signing
from service.auth import tokens
from service.models import LoginSession, SigningKey
from service.settings import Settings
from tests.support.client import Client
from tests.support.observe import at_once, nothing_changes, statements
from tests.support.server_process import ALICE, chat, database_variables, fill, serving


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A monotonic clock that does not advance; its first item is the time in seconds."""
    frozen = [1000.0]
    monkeypatch.setattr(signing, "monotonic", lambda: frozen[0])
    signing.forget_keys()
    return frozen


@pytest.fixture
def other_instance(application: object) -> Callable[[str, list[object]], str]:
    """Sign as another instance that has created a key."""
    old = signing._keys()
    newest = max(key.id for key in SigningKey.select())
    new = SigningKey.create(id=clock.ulid(after=newest), secret=secrets.token_hex(32)).secret

    def sign(purpose: str, value: list[object]) -> str:
        return signing._sign(purpose, (*old, new), msgspec.json.encode(value))

    return sign


def key_queries(seen: list[tuple[str, object]]) -> int:
    """The number of times the keys were loaded."""
    return sum('FROM "signing_key"' in sql for sql, _ in seen)


def test_text_signed_with_a_new_key_of_another_instance_is_valid_at_once(alice, elapsed, other_instance):
    assert alice.get("/users/me").status == 200
    kind, *rest = signing.verify("access", alice.token.removeprefix("cxa_"))
    token = "cxa_" + other_instance("access", [kind, *rest])
    assert token != alice.token
    assert Client(alice.application, token).get("/users/me").status == 200
    assert alice.get("/users/me").status == 200, "old keys remain valid"


def test_new_key_signs_within_a_minute(elapsed, other_instance):
    before = signing.sign("cursor", [1])
    elapsed[0] += signing.KEY_LIFETIME - 0.001
    assert signing.sign("cursor", [1]) == before != other_instance("cursor", [1])
    elapsed[0] += 0.001
    assert signing.sign("cursor", [1]) == other_instance("cursor", [1])
    assert signing.verify("cursor", before) == [1]


def test_keys_are_reloaded_although_the_clock_is_set_back(elapsed, host_clock, other_instance):
    signing.sign("cursor", [1])
    host_clock.back(days=30)
    elapsed[0] += signing.KEY_LIFETIME
    assert signing.sign("cursor", [1]) == other_instance("cursor", [1])


def test_keys_are_loaded_once_a_minute(application, elapsed):
    with statements() as seen:
        for _ in range(50):
            signing.verify("cursor", signing.sign("cursor", [1]))
        assert key_queries(seen) == 1
        elapsed[0] += signing.KEY_LIFETIME
        for _ in range(50):
            signing.verify("cursor", signing.sign("cursor", [1]))
        assert key_queries(seen) == 2


def test_forged_tokens_load_keys_at_most_once_a_second(anyone, alice, elapsed):
    signing.sign("cursor", [1])
    forged = Client(anyone.application, "cxa_" + alice.token[4:-6] + "AAAAAA")
    with nothing_changes(), statements() as seen:
        for second in range(3):
            for _ in range(20):
                elapsed[0] += 0.04
                assert forged.get("/users/me").status == 401
            assert key_queries(seen) == second + 1
            elapsed[0] += 0.21
    assert alice.get("/users/me").status == 200


@pytest.mark.parametrize("text", ["", ".", "x", "a.b", "WzFd.", "WzFd.é", "WzFd.AAAA\0", "\ud800", "WzFd.A" * 1000])
def test_malformed_texts_are_invalid(text, elapsed, application):
    signing.sign("cursor", [1])
    with pytest.raises(ValueError, match="not a valid signed text"):
        signing.verify("cursor", text)
    with statements() as seen, pytest.raises(ValueError, match="not a valid signed text"):
        signing.verify("cursor", text)
    assert key_queries(seen) == 0


def test_concurrent_threads_load_keys_once_and_none_uses_old_ones(elapsed, other_instance):
    signing.sign("cursor", [1])
    text = other_instance("cursor", [2])
    with statements() as seen:
        assert at_once(8, lambda _: signing.verify("cursor", text)) == [[2]] * 8
    assert key_queries(seen) == 1


def test_after_a_failure_to_load_keys_other_threads_do_not_retry(application, elapsed, monkeypatch):
    signing.sign("cursor", [1])
    elapsed[0] += signing.KEY_LIFETIME
    attempts = []

    def fail_to_load() -> list[str]:
        attempts.append(1)
        raise OSError("no database")

    with monkeypatch.context() as broken:
        broken.setattr(SigningKey, "secrets", fail_to_load)
        found = at_once(8, lambda _: signing.sign("cursor", [1]))
        assert len(attempts) == 1
        assert sum(isinstance(text, OSError) for text in found) == 1
    assert len({text for text in found if isinstance(text, str)}) == 1
    elapsed[0] += signing.KEY_LIFETIME
    assert signing.sign("cursor", [1]) in found


def test_instances_that_start_at_the_same_time_share_one_key(application):
    SigningKey.delete().execute()
    assert at_once(8, lambda _: SigningKey.ensure()) == [None] * 8
    assert SigningKey.select().count() == 1


@pytest.mark.slow
def test_running_server_accepts_texts_signed_with_a_new_key_of_another(tmp_path, settings):
    data = tmp_path / "served"
    fill(data, chat())
    with serving(data) as server:
        old = server.log_in()
        assert server.call("GET", "/api/v1/users/me", token=old).status == 200
        app.prepare(Settings(data=data, database=database_variables(data).get("CX_DATABASE", "")), create=True)
        SigningKey.create(secret=secrets.token_hex(32))
        signing.forget_keys()
        with db.write(ALICE):
            pair = tokens.log_in(ALICE, settings)
        assert LoginSession.select().count() == 2
        db.close_database()
        assert server.call("GET", "/api/v1/users/me", token=pair.access_token).status == 200
        assert server.call("GET", "/api/v1/users/me", token=old).status == 200
