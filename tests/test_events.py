"""Events that users put on their calendar themselves, change and delete (contract, section 8).

The documented list is in tests/test_inbox.py, reminders are in tests/test_notifications.py.
"""

import pytest

from service.models import Event, LoginSession
from tests.conftest import walk
from tests.samples import NOBODY
from tests.test_inbox import EVENT, moment, plan, titles
from tests.watching import at_once, nothing_changes

LEAST = {"title": "Call", "starts_at": moment(0)}
FOREIGN = {"source": "google", "source_event_id": "abc/1"}


def make(client, **members):
    """A new event."""
    reply = client.post("/events", LEAST | members)
    assert reply.status == 201, reply.raw
    return reply.data


def listed(client):
    return walk(client, "/events")


class TestANewEvent:
    def test_needs_a_title_and_a_start_and_takes_the_defaults_for_the_rest(self, alice, host_clock):
        event = alice.post("/events", LEAST).data
        assert list(event) == EVENT
        assert event == {
            "id": event["id"],
            "user_id": alice.user.id,
            "app_id": None,
            "title": "Call",
            "notes": "",
            "starts_at": moment(0),
            "ends_at": None,
            "reminder_at": None,
            "is_time_sensitive": False,
            "source": "manual",
            "source_event_id": None,
            "created_at": moment(0),
            "updated_at": moment(0),
        }
        assert listed(alice) == [event]

    def test_keeps_what_it_is_given(self, alice, shop):
        given = {
            "title": "Tasting 🍷",
            "notes": 'bring "a"\nglass',
            "starts_at": "2026-11-20T11:00:00.5+01:00",
            "ends_at": "2026-11-20t10:00:00.500z",
            "reminder_at": "2026-11-19T23:59:59.9999Z",
            "is_time_sensitive": True,
            "app_id": shop.id.upper(),
            **FOREIGN,
        }
        event = make(alice, **given)
        times = {
            "starts_at": "2026-11-20T10:00:00.500Z",
            "ends_at": "2026-11-20T10:00:00.500Z",
            "reminder_at": "2026-11-19T23:59:59.999Z",
        }
        assert {name: event[name] for name in given} == {**given, **times, "app_id": shop.id}
        assert alice.get(f"/events/{event['id']}").data == event

    def test_takes_null_and_nothing_for_what_is_unset(self, alice):
        unset = ("notes", "ends_at", "reminder_at", "is_time_sensitive", "source", "source_event_id", "app_id")
        plain = make(alice)
        empty = make(alice, **dict.fromkeys(unset))
        blank = make(alice, **dict.fromkeys(("notes", "source", "source_event_id", "ends_at", "reminder_at"), ""))
        for event in (empty, blank):
            assert {name: event[name] for name in unset} == {name: plain[name] for name in unset}

    def test_is_the_callers_whatever_it_says(self, alice, bob):
        event = make(alice, user_id=bob.user.id, id=NOBODY, created_at=moment(-9), updated_at=moment(-9), owner="x")
        assert event["user_id"] == alice.user.id
        assert event["id"] != NOBODY
        assert event["created_at"] != moment(-9)
        assert listed(bob) == []

    @pytest.mark.parametrize(
        ("member", "most"), [("title", 200), ("notes", 10_000), ("source", 64), ("source_event_id", 255)]
    )
    def test_has_texts_of_a_limited_length(self, alice, member, most):
        text = "x" * most if member == "source" else "🍷" * most
        assert make(alice, **{member: text})[member] == text
        with nothing_changes():
            reply = alice.post("/events", LEAST | {member: text + "x"})
            assert reply.error == (400, "invalid_body")
            assert f"$.{member}" in reply.message

    FAULTY = (
        ({"title": ""}, "$.title"),
        ({"title": None}, "$.title"),
        ({"title": 5}, "$.title"),
        ({"starts_at": ""}, "$.starts_at"),
        ({"starts_at": None}, "$.starts_at"),
        ({"starts_at": "2026-11-20"}, "$.starts_at"),
        ({"starts_at": "2026-11-20T10:00:00"}, "$.starts_at"),
        ({"starts_at": "2026-02-30T10:00:00Z"}, "$.starts_at"),
        ({"starts_at": 1_700_000_000}, "$.starts_at"),
        ({"ends_at": "soon"}, "$.ends_at"),
        ({"ends_at": moment(-0.001)}, "$.ends_at"),
        ({"reminder_at": "2026-11-20"}, "$.reminder_at"),
        ({"is_time_sensitive": "yes"}, "$.is_time_sensitive"),
        ({"is_time_sensitive": 1}, "$.is_time_sensitive"),
        ({"notes": ["a"]}, "$.notes"),
        ({"source": "two words"}, "$.source"),
        ({"source": "_x"}, "$.source"),
        ({"source_event_id": 7}, "$.source_event_id"),
        ({"app_id": "x"}, "$.app_id"),
        ({"app_id": NOBODY}, "$.app_id"),
    )

    def test_that_cannot_be_is_refused_with_the_place(self, alice):
        event = make(alice)
        with nothing_changes():
            for given, place in self.FAULTY:
                for reply in (alice.post("/events", LEAST | given), alice.patch(f"/events/{event['id']}", given)):
                    assert reply.error == (400, "invalid_body"), given
                    assert reply.message.startswith(place)

    @pytest.mark.parametrize("missing", ["title", "starts_at"])
    def test_without_what_is_required_is_refused(self, alice, missing):
        with nothing_changes():
            reply = alice.post("/events", {name: value for name, value in LEAST.items() if name != missing})
            assert reply.error == (400, "invalid_body")
            assert missing in reply.message
            assert alice.post("/events").error == (400, "invalid_body")

    def test_may_end_when_it_starts(self, alice):
        assert make(alice, ends_at=moment(0))["ends_at"] == moment(0)

    def test_with_a_key_is_made_once(self, alice):
        first, again = (alice.post("/events", LEAST, idempotency_key="k") for _ in range(2))
        assert (again.raw, again.headers["Idempotency-Replayed"]) == (first.raw, "true")
        assert len(listed(alice)) == 1
        other = alice.post("/events", LEAST | {"title": "Other"}, idempotency_key="k")
        assert other.error == (400, "idempotency_key_reused")

    def test_without_a_key_is_another_each_time(self, alice):
        assert make(alice)["id"] != make(alice)["id"]
        assert len(listed(alice)) == 2

    def test_needs_a_caller(self, anyone):
        with nothing_changes():
            assert anyone.post("/events", LEAST).error == (401, "missing_credentials")


class TestASource:
    def test_has_an_event_once(self, alice):
        first = make(alice, **FOREIGN)
        with nothing_changes():
            reply = alice.post("/events", LEAST | FOREIGN)
            assert reply.error == (400, "event_exists")
            assert first["id"] in reply.message

    def test_is_told_apart_from_others_and_letter_for_letter(self, alice, bob):
        make(alice, **FOREIGN)
        make(bob, **FOREIGN)
        make(alice, **FOREIGN | {"source": "outlook"})
        make(alice, **FOREIGN | {"source_event_id": "ABC/1"})
        assert (len(listed(alice)), len(listed(bob))) == (3, 1)

    def test_may_have_any_number_of_events_without_an_identifier(self, alice):
        for _ in range(3):
            make(alice, source="google")
        assert len(listed(alice)) == 3

    def test_has_an_event_once_when_it_comes_many_times_at_once(self, alice):
        replies = at_once(6, lambda index: alice.post("/events", LEAST | FOREIGN))
        assert sorted(reply.status for reply in replies) == [201] + [400] * 5
        assert {reply.error for reply in replies if reply.status == 400} == {(400, "event_exists")}
        assert len(listed(alice)) == 1

    def test_does_not_get_one_twice_by_a_change(self, alice):
        make(alice, **FOREIGN)
        other = make(alice, source="google", source_event_id="abc/2")
        loose = make(alice, source_event_id="abc/1")
        with nothing_changes():
            assert alice.patch(f"/events/{other['id']}", {"source_event_id": "abc/1"}).error == (400, "event_exists")
            assert alice.patch(f"/events/{loose['id']}", {"source": "google"}).error == (400, "event_exists")

    def test_may_have_an_event_again_that_was_deleted_or_let_go(self, alice):
        first = make(alice, **FOREIGN)
        alice.patch(f"/events/{first['id']}", {"source_event_id": None})
        second = make(alice, **FOREIGN)
        alice.delete(f"/events/{second['id']}")
        make(alice, **FOREIGN)
        assert len(listed(alice)) == 2


class TestAChange:
    def test_sets_what_it_names_and_nothing_else(self, alice, host_clock):
        event = make(alice, notes="n", ends_at=moment(60), is_time_sensitive=True)
        host_clock.forward(seconds=5)
        after = alice.patch(f"/events/{event['id']}", {"title": "Lünch", "starts_at": moment(30)}).data
        assert after == {**event, "title": "Lünch", "starts_at": moment(30), "updated_at": moment(5)}
        assert listed(alice) == [after]

    def test_clears_with_null_or_nothing(self, alice, shop):
        event = make(alice, notes="n", ends_at=moment(9), reminder_at=moment(9), app_id=shop.id, **FOREIGN)
        names = ("notes", "ends_at", "reminder_at", "app_id", "source", "source_event_id")
        after = alice.patch(f"/events/{event['id']}", dict.fromkeys(names)).data
        plain = make(alice)
        assert {name: after[name] for name in names} == {name: plain[name] for name in names}

    @pytest.mark.parametrize("body", [{}, {"title": "Call"}, {"user_id": NOBODY, "id": NOBODY, "created_at": "x"}])
    def test_that_says_nothing_new_writes_nothing(self, alice, host_clock, body):
        event = make(alice)
        host_clock.forward(seconds=5)
        with nothing_changes():
            assert alice.patch(f"/events/{event['id']}", body).data == event

    @pytest.mark.parametrize("raw", [b"", b" ", b"null"])
    def test_that_is_not_an_object_is_refused(self, alice, raw):
        event = make(alice)
        with nothing_changes():
            assert alice.patch(f"/events/{event['id']}", raw=raw).error == (400, "invalid_body")

    def test_must_leave_the_end_behind_the_start(self, alice):
        event = make(alice, ends_at=moment(60))
        path = f"/events/{event['id']}"
        with nothing_changes():
            for body in ({"starts_at": moment(61)}, {"ends_at": moment(-1)}, {"title": "x", "ends_at": moment(-1)}):
                reply = alice.patch(path, body)
                assert reply.error == (400, "invalid_body")
                assert reply.message.startswith("$.ends_at")
        assert alice.patch(path, {"starts_at": moment(60)}).status == 200
        assert alice.patch(path, {"starts_at": moment(90), "ends_at": moment(91)}).status == 200

    def test_of_something_else_leaves_an_imported_oddity_alone(self, alice):
        odd = plan(alice, title="", starts_at=moment(0), ends_at=moment(-60))
        assert alice.patch(f"/events/{odd.id}", {"notes": "n"}).data["ends_at"] == moment(-60)
        assert alice.patch(f"/events/{odd.id}", {"title": "t"}).data["title"] == "t"

    def test_moves_an_event_in_the_list(self, alice):
        first, _ = make(alice, title="a"), make(alice, title="b", starts_at=moment(5))
        alice.patch(f"/events/{first['id']}", {"starts_at": moment(9)})
        assert titles(listed(alice)) == ["b", "a"]

    def test_by_several_at_once_loses_nothing(self, alice):
        event = make(alice, ends_at=moment(900))
        bodies = [
            {"title": "T"},
            {"notes": "N"},
            {"is_time_sensitive": True},
            {"source": "S"},
            {"starts_at": moment(9)},
        ]
        replies = at_once(len(bodies), lambda index: alice.patch(f"/events/{event['id']}", bodies[index]))
        assert {reply.status for reply in replies} == {200}
        [after] = listed(alice)
        for body in bodies:
            assert body.items() <= after.items()

    def test_of_both_ends_at_once_never_crosses_them(self, alice):
        for _ in range(3):
            event = make(alice, ends_at=moment(100))
            bodies = [{"starts_at": moment(80)}, {"ends_at": moment(20)}]
            replies = at_once(2, lambda index: alice.patch(f"/events/{event['id']}", bodies[index]))  # noqa: B023
            assert sorted(reply.status for reply in replies) == [200, 400]
            after = alice.get(f"/events/{event['id']}").data
            assert after["starts_at"] <= after["ends_at"]


class TestAnEvent:
    def test_is_deleted_for_good(self, alice):
        event, other = make(alice), make(alice)
        assert alice.delete(f"/events/{event['id']}").data == {"deleted": True}
        assert listed(alice) == [other]
        with nothing_changes():
            for method in ("GET", "PATCH", "DELETE"):
                assert alice.call(method, f"/events/{event['id']}").error == (404, "event_not_found")

    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    def test_is_nobody_elses_whatever_their_role(self, alice, bob, agent, admin, anyone, shop, method):
        event = make(alice, app_id=shop.id)
        with nothing_changes():
            for other in (bob, agent, admin):
                assert other.call(method, f"/events/{event['id']}", {"title": "x"}).error == (403, "forbidden")
            assert anyone.call(method, f"/events/{event['id']}").error == (401, "missing_credentials")

    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    def test_has_to_exist_and_to_be_named_as_it_should_be(self, alice, method):
        with nothing_changes():
            assert alice.call(method, f"/events/{NOBODY}").error == (404, "event_not_found")
            for id in ("x", f"urn:uuid:{NOBODY}", f"{NOBODY}0", "%20"):
                assert alice.call(method, f"/events/{id}").error == (400, "invalid_id")

    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    def test_that_is_deleted_in_the_same_moment_is_not_found(self, monkeypatch, alice, method):
        """Between being found and being shown or changed."""
        event = make(alice)
        real = Event.reach

        def reach(caller, id, *above):
            found = real(caller, id, *above)
            Event.delete().where(Event.id == id).execute()
            return found

        monkeypatch.setattr(Event, "reach", reach)
        reply = alice.call(method, f"/events/{event['id']}", {} if method == "PATCH" else None)
        assert reply.error == (404, "event_not_found")

    def test_that_many_delete_at_once_is_deleted_once(self, alice):
        event = make(alice)
        replies = at_once(6, lambda index: alice.delete(f"/events/{event['id']}"))
        assert sorted(reply.status for reply in replies) == [200, 404, 404, 404, 404, 404]

    def test_is_read_with_a_token_that_may_only_read(self, alice):
        event = make(alice)
        LoginSession.update(scopes="events:read").execute()
        assert alice.get(f"/events/{event['id']}").data == event
        with nothing_changes():
            for method, path in (("POST", ""), ("PATCH", f"/{event['id']}"), ("DELETE", f"/{event['id']}")):
                assert alice.call(method, f"/events{path}", LEAST).error == (403, "insufficient_scope")
