"""Keys that sign tokens and cursors: other instances make them too, and each learns of them in time."""

import secrets
from collections.abc import Callable

import msgspec
import pytest

import app
from service import clock, db
from service.auth import signing, tokens
from service.models import LoginSession, SigningKey
from service.settings import Settings
from tests.conftest import Client
from tests.serving import ALICE, chat, fill, serving, where
from tests.watching import at_once, nothing_changes, statements


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock that nobody sets, which stands still here; its first item is the time in seconds."""
    standing = [1000.0]
    monkeypatch.setattr(signing, "monotonic", lambda: standing[0])
    signing.forget_keys()
    return standing


@pytest.fixture
def elsewhere(application: object) -> Callable[[str, list[object]], str]:
    """Signs as another instance does, which has made a key."""
    old = signing._keys()
    newest = max(key.id for key in SigningKey.select())
    new = SigningKey.create(id=clock.ulid(after=newest), secret=secrets.token_hex(32)).secret

    def sign(purpose: str, value: list[object]) -> str:
        return signing._sign(purpose, (*old, new), msgspec.json.encode(value))

    return sign


def questions(seen: list[tuple[str, object]]) -> int:
    """How often the keys were asked for."""
    return sum('FROM "signing_key"' in sql for sql, _ in seen)


def test_what_another_instance_signed_with_a_new_key_is_understood_at_once(alice, elapsed, elsewhere):
    assert alice.get("/users/me").status == 200
    kind, *rest = signing.verify("access", alice.token.removeprefix("cxa_"))
    token = "cxa_" + elsewhere("access", [kind, *rest])
    assert token != alice.token
    assert Client(alice.application, token).get("/users/me").status == 200
    assert alice.get("/users/me").status == 200, "older keys verify for ever"


def test_a_new_key_signs_within_a_minute(elapsed, elsewhere):
    before = signing.sign("cursor", [1])
    elapsed[0] += signing.KNOWN - 0.001
    assert signing.sign("cursor", [1]) == before != elsewhere("cursor", [1])
    elapsed[0] += 0.001
    assert signing.sign("cursor", [1]) == elsewhere("cursor", [1])
    assert signing.verify("cursor", before) == [1]


def test_a_host_that_is_set_back_learns_of_keys_all_the_same(elapsed, host_clock, elsewhere):
    signing.sign("cursor", [1])
    host_clock.back(days=30)
    elapsed[0] += signing.KNOWN
    assert signing.sign("cursor", [1]) == elsewhere("cursor", [1])


def test_keys_are_asked_for_once_a_minute(application, elapsed):
    with statements() as seen:
        for _ in range(50):
            signing.verify("cursor", signing.sign("cursor", [1]))
        assert questions(seen) == 1
        elapsed[0] += signing.KNOWN
        for _ in range(50):
            signing.verify("cursor", signing.sign("cursor", [1]))
        assert questions(seen) == 2


def test_forged_tokens_ask_for_keys_once_a_second(anyone, alice, elapsed):
    signing.sign("cursor", [1])
    forged = Client(anyone.application, "cxa_" + alice.token[4:-6] + "AAAAAA")
    with nothing_changes(), statements() as seen:
        for second in range(3):
            for _ in range(20):
                elapsed[0] += 0.04
                assert forged.get("/users/me").status == 401
            assert questions(seen) == second + 1
            elapsed[0] += 0.21
    assert alice.get("/users/me").status == 200


@pytest.mark.parametrize("text", ["", ".", "x", "a.b", "WzFd.", "WzFd.é", "WzFd.AAAA\0", "\ud800", "WzFd.A" * 1000])
def test_rubbish_is_nobodys(text, elapsed, application):
    signing.sign("cursor", [1])
    with pytest.raises(ValueError, match="not a text of ours"):
        signing.verify("cursor", text)
    with statements() as seen, pytest.raises(ValueError, match="not a text of ours"):
        signing.verify("cursor", text)
    assert questions(seen) == 0


def test_of_many_at_once_one_asks_and_nobody_is_told_of_the_old_keys(elapsed, elsewhere):
    signing.sign("cursor", [1])
    text = elsewhere("cursor", [2])
    with statements() as seen:
        assert at_once(8, lambda _: signing.verify("cursor", text)) == [[2]] * 8
    assert questions(seen) == 1


def test_where_keys_cannot_be_read_one_asks_and_the_others_go_on(application, elapsed, monkeypatch):
    signing.sign("cursor", [1])
    elapsed[0] += signing.KNOWN
    asked = []

    def secrets_of_nobody() -> list[str]:
        asked.append(1)
        raise OSError("no database")

    with monkeypatch.context() as broken:
        broken.setattr(SigningKey, "secrets", secrets_of_nobody)
        found = at_once(8, lambda _: signing.sign("cursor", [1]))
        assert len(asked) == 1
        assert sum(isinstance(text, OSError) for text in found) == 1
    assert len({text for text in found if isinstance(text, str)}) == 1
    elapsed[0] += signing.KNOWN
    assert signing.sign("cursor", [1]) in found


def test_instances_that_begin_at_once_share_one_key(application):
    SigningKey.delete().execute()
    assert at_once(8, lambda _: SigningKey.ensure()) == [None] * 8
    assert SigningKey.select().count() == 1


@pytest.mark.slow
def test_a_running_server_understands_what_another_signs_with_a_new_key(tmp_path, settings):
    data = tmp_path / "served"
    fill(data, chat())
    with serving(data) as server:
        old = server.log_in()
        assert server.call("GET", "/api/v1/users/me", token=old).status == 200
        app.prepare(Settings(data=data, database=where(data).get("CX_DATABASE", "")), create=True)
        SigningKey.create(secret=secrets.token_hex(32))
        signing.forget_keys()
        with db.write(ALICE):
            pair = tokens.begin(ALICE, settings)
        assert LoginSession.select().count() == 2
        db.close_database()
        assert server.call("GET", "/api/v1/users/me", token=pair.access_token).status == 200
        assert server.call("GET", "/api/v1/users/me", token=old).status == 200
