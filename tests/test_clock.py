"""The clock and identifiers: they never go backwards, even if the host's clock does."""

import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis.strategies import integers
from ulid import ULID

from service import clock
from service.models import Message
from service.models.clock_state import restore_clock
from service.routes import health
from tests.support.observe import at_once
from tests.support.paths import ROOT

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def pass_time(host_clock, *, seconds: float) -> None:
    """Let time pass, also on the clock of the host."""
    host_clock.forward(seconds=seconds)
    host_clock.monotonic += int(seconds * 1e9)


@pytest.mark.parametrize("back", [{"seconds": 0}, {"seconds": 0.001}, {"hours": 1}, {"days": 4000}])
def test_time_does_not_go_backwards_when_the_clock_is_set_back(host_clock, back):
    first = clock.now()
    host_clock.back(**back)
    assert (clock.now(), clock.timestamp()) == (first, "2026-11-20T10:00:00.000Z")
    host_clock.forward(**back)
    host_clock.forward(seconds=1)
    assert clock.now() == first + clock.SECOND


def test_time_passes_at_half_speed_until_a_clock_that_was_set_back_has_caught_up(host_clock):
    first = clock.now()
    host_clock.back(seconds=10)
    seen = []
    for _ in range(30):
        pass_time(host_clock, seconds=1)
        seen.append((clock.now() - first) / clock.SECOND)
    assert seen == [number / 2 for number in range(1, 21)] + [float(number) for number in range(11, 21)]


def test_half_of_very_short_times_adds_up(host_clock):
    first = clock.now()
    host_clock.back(hours=1)
    for _ in range(10_000):
        host_clock.monotonic += 10_001
        clock.now()
    assert clock.now() == first + 50


WORKER = """
import os
from service import clock
moment = clock.now()
clock.host_time = lambda: moment + clock.DAY
if os.fork() == 0:
    clock.now()
    os._exit(0)
os.wait()
clock.host_time = lambda: moment
print(clock.now() - moment - clock.DAY)
"""


def test_workers_share_one_clock_even_if_only_one_read_it_while_it_was_ahead():
    done = subprocess.run([sys.executable, "-c", WORKER], cwd=ROOT, capture_output=True, check=True)
    assert 0 <= int(done.stdout) < clock.HOUR


def test_a_login_throttle_that_began_while_the_clock_was_ahead_ends(host_clock, anyone, settings):
    guess = {"email": "eve@example.com", "password": "guessed"}
    host_clock.forward(days=365)
    statuses = [anyone.post("/auth/login", guess).status for _ in range(settings.login_failures + 1)]
    host_clock.back(days=365)
    statuses.append(anyone.post("/auth/login", guess).status)
    pass_time(host_clock, seconds=2 * 15 * 60)
    statuses.append(anyone.post("/auth/login", guess).status)
    assert statuses == [401] * settings.login_failures + [429, 429, 401]


def test_identifiers_increase_while_the_clock_stands_still_and_when_it_is_set_back(host_clock):
    made = []
    for _ in range(4):
        made += [clock.ulid() for _ in range(50)]
        host_clock.back(minutes=1)
    made += [clock.ulid() for _ in range(50)]
    assert made == sorted(set(made))
    assert {clock.ulid_time(identifier) for identifier in made} == {clock.now()}


def test_identifiers_increase_with_the_clock(host_clock):
    made = []
    for _ in range(20):
        made.append(clock.ulid())
        host_clock.forward(seconds=0.001)
    assert made == sorted(set(made))


def test_identifiers_of_another_time_do_not_affect_current_ones(host_clock):
    for _ in range(20):
        before = clock.ulid()
        past = clock.ulid(clock.milliseconds("2020-01-01T00:00:00.000Z"))
        assert past < before < clock.ulid()


def test_identifiers_of_one_past_time_increase(host_clock):
    moment = clock.milliseconds("2020-01-01T00:00:00.000Z")
    made = [clock.ulid(moment) for _ in range(50)]
    assert made == sorted(set(made))
    assert {clock.ulid_time(identifier) for identifier in made} == {moment}


def test_an_identifier_can_be_required_to_be_greater_than_another(host_clock):
    newest = clock.ulid(clock.now() + clock.HOUR)
    assert clock.ulid(after=newest) > newest
    assert clock.ulid(after="01ARZ3NDEKTSV4RRFFQ69G5FAV") > "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_an_identifier_from_the_future_does_not_affect_later_ones(host_clock):
    far = clock.ulid(clock.now() + clock.DAY)
    behind = {clock.ulid(after=far) for _ in range(20)}
    assert len(behind) == 20 and min(behind) > far
    assert clock.ulid_time(clock.ulid()) == clock.now()


def test_identifiers_of_many_threads_are_all_different(host_clock):
    made = [identifier for found in at_once(8, lambda _: [clock.ulid() for _ in range(200)]) for identifier in found]
    assert len(set(made)) == len(made) == 1600


def test_the_clock_is_never_before_the_newest_row(host_clock):
    host_clock.back(days=1)
    clock.advance_to(clock.milliseconds("2026-11-20T10:00:00.000Z"))
    assert clock.timestamp() == "2026-11-20T10:00:00.000Z"
    clock.advance_to(0)
    assert clock.timestamp() == "2026-11-20T10:00:00.000Z"


def test_a_message_from_the_future_does_not_stop_the_clock(host_clock, alice, session, say):
    far = clock.ulid(host_clock.now + 3650 * clock.DAY)
    Message.update(id=far).where(Message.id == say().id).execute()
    clock.reset()
    restore_clock()
    assert clock.now() == host_clock.now


def test_after_a_restart_with_the_clock_set_back_time_continues_from_the_newest_message(
    host_clock, alice, session, say
):
    host_clock.forward(minutes=50)
    newest = say()
    host_clock.back(days=4000)
    clock.reset()
    restore_clock()
    assert clock.now() == clock.ulid_time(newest.id) + 1


@pytest.mark.parametrize(
    "act",
    [
        lambda alice: alice.post("/auth/login", {"email": "a", "password": "b"}),
        lambda alice: alice.post("/feedback", {"description": "a"}, idempotency_key="k"),
        lambda alice: alice.get("//readyz"),
    ],
    ids=["a failed login", "an idempotency key", "a readiness check"],
)
def test_after_a_restart_with_the_clock_set_back_time_continues_from_the_latest_write(
    host_clock, alice, act, monkeypatch
):
    monkeypatch.setattr(health, "_ready_at", float("-inf"))  # a recent check would be reused
    host_clock.forward(minutes=50)
    act(alice)
    newest = clock.now()
    host_clock.back(days=400)
    clock.reset()
    restore_clock()
    assert clock.now() == newest


def test_timestamps_have_three_decimals_and_sort_chronologically():
    moments = [0, 1, 999, 1000, 60_000, 951_782_400_000, 1_795_168_800_000, 253_402_300_799_999]
    stamps = [clock.timestamp(moment) for moment in moments]
    assert stamps == sorted(stamps)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp) for stamp in stamps)
    assert [clock.milliseconds(stamp) for stamp in stamps] == moments
    assert (stamps[0], stamps[-1]) == ("1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")


@given(integers(0, 2**128 - 1))
@example(0)
@example(2**128 - 1)
def test_ulids_are_those_of_the_reference_implementation(number):
    assert clock.ulid_of(number) == str(ULID.from_int(number))
    assert clock.ulid_number(clock.ulid_of(number)) == number


@pytest.mark.parametrize("number", [-1, 2**128])
def test_numbers_beyond_those_of_ulids_are_refused(number):
    with pytest.raises(OverflowError):
        clock.ulid_of(number)


def test_identifiers_are_uppercase_ulids_and_lowercase_uuids():
    identifier = clock.ulid()
    assert len(identifier) == 26 and set(identifier) <= set(ALPHABET)
    assert clock.read_ulid(identifier.lower()) == identifier
    other = clock.uuid()
    assert other == other.lower() == clock.read_uuid(other.upper())
