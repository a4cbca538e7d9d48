"""Time and identifiers: never backwards, whatever the host's clock does."""

import re

import pytest

from service import clock
from service.models import Message
from service.models.keeping import hold_clock
from tests.watching import at_once

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@pytest.mark.parametrize("back", [{"seconds": 0}, {"seconds": 0.001}, {"hours": 1}, {"days": 4000}])
def test_a_clock_that_is_set_back_stands_still_until_it_has_caught_up(host_clock, back):
    first = clock.now()
    host_clock.back(**back)
    assert (clock.now(), clock.timestamp()) == (first, "2026-11-20T10:00:00.000Z")
    host_clock.forward(**back)
    host_clock.forward(seconds=1)
    assert clock.now() == first + clock.SECOND


def test_identifiers_rise_while_the_clock_stands_still_and_when_it_is_set_back(host_clock):
    made = []
    for _ in range(4):
        made += [clock.ulid() for _ in range(50)]
        host_clock.back(minutes=1)
    made += [clock.ulid() for _ in range(50)]
    assert made == sorted(set(made))
    assert {clock.ulid_time(identifier) for identifier in made} == {clock.now()}


def test_identifiers_rise_with_the_clock(host_clock):
    made = []
    for _ in range(20):
        made.append(clock.ulid())
        host_clock.forward(seconds=0.001)
    assert made == sorted(set(made))


def test_identifiers_of_another_moment_do_not_disturb_those_of_now(host_clock):
    for _ in range(20):
        before = clock.ulid()
        past = clock.ulid(clock.milliseconds("2020-01-01T00:00:00.000Z"))
        assert past < before < clock.ulid()


def test_identifiers_of_one_past_moment_rise_too(host_clock):
    moment = clock.milliseconds("2020-01-01T00:00:00.000Z")
    made = [clock.ulid(moment) for _ in range(50)]
    assert made == sorted(set(made))
    assert {clock.ulid_time(identifier) for identifier in made} == {moment}


def test_an_identifier_can_be_made_to_follow_another(host_clock):
    newest = clock.ulid(clock.now() + clock.HOUR)
    assert clock.ulid(after=newest) > newest
    assert clock.ulid(after="01ARZ3NDEKTSV4RRFFQ69G5FAV") > "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_an_identifier_from_the_future_draws_no_others_with_it(host_clock):
    far = clock.ulid(clock.now() + clock.DAY)
    behind = {clock.ulid(after=far) for _ in range(20)}
    assert len(behind) == 20 and min(behind) > far
    assert clock.ulid_time(clock.ulid()) == clock.now()


def test_identifiers_of_many_threads_are_all_different(host_clock):
    made = [identifier for found in at_once(8, lambda _: [clock.ulid() for _ in range(200)]) for identifier in found]
    assert len(set(made)) == len(made) == 1600


def test_the_clock_is_held_at_the_newest_row(host_clock):
    host_clock.back(days=1)
    clock.not_before(clock.milliseconds("2026-11-20T10:00:00.000Z"))
    assert clock.timestamp() == "2026-11-20T10:00:00.000Z"
    clock.not_before(0)
    assert clock.timestamp() == "2026-11-20T10:00:00.000Z"


def test_a_message_from_the_future_does_not_stop_the_clock(host_clock, alice, session, say):
    far = clock.ulid(host_clock.now + 3650 * clock.DAY)
    Message.update(id=far).where(Message.id == say().id).execute()
    clock.forget()
    hold_clock()
    assert clock.now() == host_clock.now


def test_a_restart_on_a_host_that_was_set_back_goes_on_from_the_newest_message(host_clock, alice, session, say):
    host_clock.forward(minutes=50)
    newest = say()
    host_clock.back(days=4000)
    clock.forget()
    hold_clock()
    assert clock.now() == clock.ulid_time(newest.id)


def test_timestamps_have_three_decimals_and_sort_as_time_does():
    moments = [0, 1, 999, 1000, 60_000, 951_782_400_000, 1_795_168_800_000, 253_402_300_799_999]
    stamps = [clock.timestamp(moment) for moment in moments]
    assert stamps == sorted(stamps)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp) for stamp in stamps)
    assert [clock.milliseconds(stamp) for stamp in stamps] == moments
    assert (stamps[0], stamps[-1]) == ("1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")


def test_identifiers_are_uppercase_ulids_and_lowercase_uuids():
    identifier = clock.ulid()
    assert len(identifier) == 26 and set(identifier) <= set(ALPHABET)
    assert clock.read_ulid(identifier.lower()) == identifier
    other = clock.uuid()
    assert other == other.lower() == clock.read_uuid(other.upper())
