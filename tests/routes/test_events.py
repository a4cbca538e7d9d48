"""Events that users add to their calendar, edit and delete.

The documented list is in tests/routes/test_inbox.py, reminders are in tests/routes/test_notifications.py.
"""

import pytest

from service.models import Event, LoginSession
from tests.support.client import walk
from tests.support.inbox import EVENT, create_event, timestamp, titles
from tests.support.observe import at_once, nothing_changes
from tests.support.sample_operations import UNKNOWN_ID

LEAST = {"title": "Call", "starts_at": timestamp(0)}
FOREIGN = {"source": "google", "source_event_id": "abc/1"}


def make(client, **members):
    """A new event."""
    reply = client.post("/events", LEAST | members)
    assert reply.status == 201, reply.raw
    return reply.data


def listed(client):
    return walk(client, "/events")


class TestANewEvent:
    def test_requires_title_and_start_and_has_defaults(self, alice, host_clock):
        event = alice.post("/events", LEAST).data
        assert list(event) == EVENT
        assert event == {
            "id": event["id"],
            "user_id": alice.user.id,
            "app_id": None,
            "title": "Call",
            "notes": "",
            "starts_at": timestamp(0),
            "ends_at": None,
            "reminder_at": None,
            "is_time_sensitive": False,
            "source": "manual",
            "source_event_id": None,
            "created_at": timestamp(0),
            "updated_at": timestamp(0),
        }
        assert listed(alice) == [event]

    def test_stores_all_members(self, alice, shop):
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

    def test_accepts_null_and_empty_text_for_unset_members(self, alice):
        unset = ("notes", "ends_at", "reminder_at", "is_time_sensitive", "source", "source_event_id", "app_id")
        plain = make(alice)
        empty = make(alice, **dict.fromkeys(unset))
        blank = make(alice, **dict.fromkeys(("notes", "source", "source_event_id", "ends_at", "reminder_at"), ""))
        for event in (empty, blank):
            assert {name: event[name] for name in unset} == {name: plain[name] for name in unset}

    def test_belongs_to_the_caller_whatever_the_body_has(self, alice, bob):
        event = make(
            alice, user_id=bob.user.id, id=UNKNOWN_ID, created_at=timestamp(-9), updated_at=timestamp(-9), owner="x"
        )
        assert event["user_id"] == alice.user.id
        assert event["id"] != UNKNOWN_ID
        assert event["created_at"] != timestamp(-9)
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
        ({"ends_at": timestamp(-0.001)}, "$.ends_at"),
        ({"reminder_at": "2026-11-20"}, "$.reminder_at"),
        ({"is_time_sensitive": "yes"}, "$.is_time_sensitive"),
        ({"is_time_sensitive": 1}, "$.is_time_sensitive"),
        ({"notes": ["a"]}, "$.notes"),
        ({"source": "two words"}, "$.source"),
        ({"source": "_x"}, "$.source"),
        ({"source_event_id": 7}, "$.source_event_id"),
        ({"app_id": "x"}, "$.app_id"),
        ({"app_id": UNKNOWN_ID}, "$.app_id"),
    )

    def test_that_is_invalid_is_400_with_the_place(self, alice):
        event = make(alice)
        with nothing_changes():
            for given, place in self.FAULTY:
                for reply in (alice.post("/events", LEAST | given), alice.patch(f"/events/{event['id']}", given)):
                    assert reply.error == (400, "invalid_body"), given
                    assert reply.message.startswith(place)

    @pytest.mark.parametrize("missing", ["title", "starts_at"])
    def test_without_a_required_member_is_400(self, alice, missing):
        with nothing_changes():
            reply = alice.post("/events", {name: value for name, value in LEAST.items() if name != missing})
            assert reply.error == (400, "invalid_body")
            assert missing in reply.message
            assert alice.post("/events").error == (400, "invalid_body")

    def test_can_end_when_it_starts(self, alice):
        assert make(alice, ends_at=timestamp(0))["ends_at"] == timestamp(0)

    def test_with_a_key_is_created_once(self, alice):
        first, again = (alice.post("/events", LEAST, idempotency_key="k") for _ in range(2))
        assert (again.raw, again.headers["Idempotency-Replayed"]) == (first.raw, "true")
        assert len(listed(alice)) == 1
        other = alice.post("/events", LEAST | {"title": "Other"}, idempotency_key="k")
        assert other.error == (400, "idempotency_key_reused")

    def test_without_a_key_is_created_each_time(self, alice):
        assert make(alice)["id"] != make(alice)["id"]
        assert len(listed(alice)) == 2

    def test_needs_credentials(self, anyone):
        with nothing_changes():
            assert anyone.post("/events", LEAST).error == (401, "missing_credentials")


class TestASource:
    def test_has_an_event_once(self, alice):
        first = make(alice, **FOREIGN)
        with nothing_changes():
            reply = alice.post("/events", LEAST | FOREIGN)
            assert reply.error == (400, "event_exists")
            assert first["id"] in reply.message

    def test_is_compared_exactly(self, alice, bob):
        make(alice, **FOREIGN)
        make(bob, **FOREIGN)
        make(alice, **FOREIGN | {"source": "outlook"})
        make(alice, **FOREIGN | {"source_event_id": "ABC/1"})
        assert (len(listed(alice)), len(listed(bob))) == (3, 1)

    def test_can_have_any_number_of_events_without_an_identifier(self, alice):
        for _ in range(3):
            make(alice, source="google")
        assert len(listed(alice)) == 3

    def test_has_an_event_once_with_concurrent_requests(self, alice):
        replies = at_once(6, lambda index: alice.post("/events", LEAST | FOREIGN))
        assert sorted(reply.status for reply in replies) == [201] + [400] * 5
        assert {reply.error for reply in replies if reply.status == 400} == {(400, "event_exists")}
        assert len(listed(alice)) == 1

    def test_cannot_be_duplicated_by_a_change(self, alice):
        make(alice, **FOREIGN)
        other = make(alice, source="google", source_event_id="abc/2")
        loose = make(alice, source_event_id="abc/1")
        with nothing_changes():
            assert alice.patch(f"/events/{other['id']}", {"source_event_id": "abc/1"}).error == (400, "event_exists")
            assert alice.patch(f"/events/{loose['id']}", {"source": "google"}).error == (400, "event_exists")

    def test_can_reuse_the_identifier_of_a_deleted_or_detached_event(self, alice):
        first = make(alice, **FOREIGN)
        alice.patch(f"/events/{first['id']}", {"source_event_id": None})
        second = make(alice, **FOREIGN)
        alice.delete(f"/events/{second['id']}")
        make(alice, **FOREIGN)
        assert len(listed(alice)) == 2


class TestAChange:
    def test_sets_the_given_members_only(self, alice, host_clock):
        event = make(alice, notes="n", ends_at=timestamp(60), is_time_sensitive=True)
        host_clock.forward(seconds=5)
        after = alice.patch(f"/events/{event['id']}", {"title": "Lünch", "starts_at": timestamp(30)}).data
        assert after == {**event, "title": "Lünch", "starts_at": timestamp(30), "updated_at": timestamp(5)}
        assert listed(alice) == [after]

    def test_clears_members_with_null_or_empty_text(self, alice, shop):
        event = make(alice, notes="n", ends_at=timestamp(9), reminder_at=timestamp(9), app_id=shop.id, **FOREIGN)
        names = ("notes", "ends_at", "reminder_at", "app_id", "source", "source_event_id")
        after = alice.patch(f"/events/{event['id']}", dict.fromkeys(names)).data
        plain = make(alice)
        assert {name: after[name] for name in names} == {name: plain[name] for name in names}

    @pytest.mark.parametrize(
        "body", [{}, {"title": "Call"}, {"user_id": UNKNOWN_ID, "id": UNKNOWN_ID, "created_at": "x"}]
    )
    def test_without_a_difference_writes_nothing(self, alice, host_clock, body):
        event = make(alice)
        host_clock.forward(seconds=5)
        with nothing_changes():
            assert alice.patch(f"/events/{event['id']}", body).data == event

    @pytest.mark.parametrize("raw", [b"", b" ", b"null"])
    def test_that_is_not_an_object_is_400(self, alice, raw):
        event = make(alice)
        with nothing_changes():
            assert alice.patch(f"/events/{event['id']}", raw=raw).error == (400, "invalid_body")

    def test_cannot_move_the_end_before_the_start(self, alice):
        event = make(alice, ends_at=timestamp(60))
        path = f"/events/{event['id']}"
        with nothing_changes():
            for body in (
                {"starts_at": timestamp(61)},
                {"ends_at": timestamp(-1)},
                {"title": "x", "ends_at": timestamp(-1)},
            ):
                reply = alice.patch(path, body)
                assert reply.error == (400, "invalid_body")
                assert reply.message.startswith("$.ends_at")
        assert alice.patch(path, {"starts_at": timestamp(60)}).status == 200
        assert alice.patch(path, {"starts_at": timestamp(90), "ends_at": timestamp(91)}).status == 200

    def test_of_other_members_is_permitted_for_an_imported_event_that_is_invalid(self, alice):
        odd = create_event(alice, title="", starts_at=timestamp(0), ends_at=timestamp(-60))
        assert alice.patch(f"/events/{odd.id}", {"notes": "n"}).data["ends_at"] == timestamp(-60)
        assert alice.patch(f"/events/{odd.id}", {"title": "t"}).data["title"] == "t"

    def test_moves_an_event_in_the_list(self, alice):
        first, _ = make(alice, title="a"), make(alice, title="b", starts_at=timestamp(5))
        alice.patch(f"/events/{first['id']}", {"starts_at": timestamp(9)})
        assert titles(listed(alice)) == ["b", "a"]

    def test_concurrent_with_others_loses_nothing(self, alice):
        event = make(alice, ends_at=timestamp(900))
        bodies = [
            {"title": "T"},
            {"notes": "N"},
            {"is_time_sensitive": True},
            {"source": "S"},
            {"starts_at": timestamp(9)},
        ]
        replies = at_once(len(bodies), lambda index: alice.patch(f"/events/{event['id']}", bodies[index]))
        assert {reply.status for reply in replies} == {200}
        [after] = listed(alice)
        for body in bodies:
            assert body.items() <= after.items()

    def test_of_start_and_end_concurrently_keeps_their_order(self, alice):
        for _ in range(3):
            event = make(alice, ends_at=timestamp(100))
            bodies = [{"starts_at": timestamp(80)}, {"ends_at": timestamp(20)}]
            replies = at_once(2, lambda index: alice.patch(f"/events/{event['id']}", bodies[index]))  # noqa: B023
            assert sorted(reply.status for reply in replies) == [200, 400]
            after = alice.get(f"/events/{event['id']}").data
            assert after["starts_at"] <= after["ends_at"]


class TestAnEvent:
    def test_is_deleted_permanently(self, alice):
        event, other = make(alice), make(alice)
        assert alice.delete(f"/events/{event['id']}").data == {"deleted": True}
        assert listed(alice) == [other]
        with nothing_changes():
            for method in ("GET", "PATCH", "DELETE"):
                assert alice.call(method, f"/events/{event['id']}").error == (404, "event_not_found")

    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    def test_is_404_for_other_users_whatever_their_role(self, alice, bob, agent, admin, anyone, shop, method):
        event = make(alice, app_id=shop.id)
        with nothing_changes():
            for other in (bob, agent, admin):
                assert other.call(method, f"/events/{event['id']}", {"title": "x"}).error == (403, "forbidden")
            assert anyone.call(method, f"/events/{event['id']}").error == (401, "missing_credentials")

    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    def test_has_to_exist_and_needs_a_valid_identifier(self, alice, method):
        with nothing_changes():
            assert alice.call(method, f"/events/{UNKNOWN_ID}").error == (404, "event_not_found")
            for id in ("x", f"urn:uuid:{UNKNOWN_ID}", f"{UNKNOWN_ID}0", "%20"):
                assert alice.call(method, f"/events/{id}").error == (400, "invalid_id")

    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    def test_that_is_deleted_concurrently_is_404(self, monkeypatch, alice, method):
        """Between being found and being shown or changed."""
        event = make(alice)
        real = Event.get_for

        def get_for(caller, id, *above):
            found = real(caller, id, *above)
            Event.delete().where(Event.id == id).execute()
            return found

        monkeypatch.setattr(Event, "get_for", get_for)
        reply = alice.call(method, f"/events/{event['id']}", {} if method == "PATCH" else None)
        assert reply.error == (404, "event_not_found")

    def test_that_is_deleted_concurrently_by_many_is_deleted_once(self, alice):
        event = make(alice)
        replies = at_once(6, lambda index: alice.delete(f"/events/{event['id']}"))
        assert sorted(reply.status for reply in replies) == [200, 404, 404, 404, 404, 404]

    def test_can_be_read_with_a_read_only_token(self, alice):
        event = make(alice)
        LoginSession.update(scopes="events:read").execute()
        assert alice.get(f"/events/{event['id']}").data == event
        with nothing_changes():
            for method, path in (("POST", ""), ("PATCH", f"/{event['id']}"), ("DELETE", f"/{event['id']}")):
                assert alice.call(method, f"/events{path}", LEAST).error == (403, "insufficient_scope")
