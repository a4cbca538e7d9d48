"""What is done with notifications beside the document, and what makes them: others in a chat, and reminders.

Contract, section 8. The documented list and read-all are in tests/test_inbox.py.
"""

import dataclasses
import json
from contextlib import contextmanager

import peewee
import pytest

from service import clock, db, migrations, transfer
from service.models import CalendarFeed, Event, Notification
from service.models.chats import STATUSES
from service.routes import operations
from service.web import build_app
from tests import postgres
from tests.conftest import Client
from tests.samples import NOBODY
from tests.test_inbox import moment, plan, read_all, tell, titles, unread, uuid
from tests.watching import at_once, database_steps, nothing_changes, query_plan, statements

COUNT = "/notifications/unread-count"
CHANGES = [("put", "/read"), ("delete", "/read"), ("delete", "")]

every_change = pytest.mark.parametrize(("method", "end"), CHANGES)


@contextmanager
def read_only():
    """Nothing can be written."""
    if db.database.kind == "sqlite":
        db.database.pragma("query_only", 1, permanent=True)
        yield
        db.database.pragma("query_only", 0, permanent=True)
    else:
        db.database.execute_sql("SET default_transaction_read_only = on")
        yield
        db.database.execute_sql("RESET default_transaction_read_only")


def payload(notification):
    return json.loads(bytes(notification["payload"]))


def shown(client):
    """A user's notifications; asking for them reminds her."""
    return client.get("/notifications?limit=100").data


@pytest.fixture
def now(host_clock, alice):
    """The clock stands at ten; Alice has logged in."""
    return host_clock


class TestOne:
    def test_is_read_and_the_first_moment_stays(self, now, alice):
        told = tell(alice, "News")
        reply = alice.put(f"/notifications/{told.id}/read")
        assert (reply.data["is_read"], reply.data["read_at"]) == (True, moment(0))
        now.forward(seconds=5)
        assert alice.put(f"/notifications/{told.id}/read").data == reply.data
        assert shown(alice) == [reply.data]
        assert unread(alice) == 0

    def test_is_unread_again_as_often_as_one_likes(self, now, alice):
        told = tell(alice, "News", read_at=moment(-1))
        reply = alice.delete(f"/notifications/{told.id}/read")
        assert (reply.data["is_read"], reply.data["read_at"]) == (False, None)
        assert alice.delete(f"/notifications/{told.id}/read").data == reply.data
        assert unread(alice) == 1
        now.forward(seconds=5)
        assert alice.put(f"/notifications/{told.id}/read").data["read_at"] == moment(5)

    def test_changes_in_nothing_else_and_no_other_does(self, alice, session):
        told = tell(alice, "Grüße", body="b", payload="[1]", session_id=session.id, created_at=moment(-9))
        other = tell(alice, "Other")
        (before,) = [row for row in shown(alice) if row["id"] == told.id]
        after = alice.put(f"/notifications/{told.id}/read").data
        assert after == {**before, "is_read": True, "read_at": after["read_at"]}
        assert Notification.get_by_id(other.id).read_at is None

    def test_is_known_in_any_case(self, alice):
        told = tell(alice)
        assert alice.put(f"/notifications/{told.id.upper()}/read").data["id"] == told.id

    def test_that_was_read_alone_is_not_marked_with_the_others(self, now, alice):
        told, _ = tell(alice), tell(alice)
        alice.put(f"/notifications/{told.id}/read")
        now.forward(seconds=5)
        assert read_all(alice) == 1
        assert Notification.get_by_id(told.id).read_at == moment(0)

    def test_is_dismissed_for_good(self, alice):
        told, other = tell(alice, "old"), tell(alice, "new")
        assert alice.delete(f"/notifications/{told.id}").data == {"deleted": True}
        assert [row["id"] for row in shown(alice)] == [other.id]
        assert unread(alice) == 1
        with nothing_changes():
            for method, end in CHANGES:
                assert alice.call(method.upper(), f"/notifications/{told.id}{end}").error == (
                    404,
                    "notification_not_found",
                )

    @every_change
    def test_is_nobody_elses_whatever_their_role(self, alice, bob, agent, admin, method, end):
        told = tell(alice, read_at=moment(0))
        with nothing_changes():
            for other in (bob, agent, admin):
                reply = getattr(other, method)(f"/notifications/{told.id}{end}")
                assert reply.error == (403, "forbidden")

    @every_change
    def test_has_to_exist_and_to_be_named_as_it_should_be(self, alice, anyone, method, end):
        tell(alice)
        with nothing_changes():
            assert getattr(alice, method)(f"/notifications/{NOBODY}{end}").error == (404, "notification_not_found")
            for id in ("x", "read-all", f"{{{NOBODY}}}", NOBODY.replace("-", "")):
                assert getattr(alice, method)(f"/notifications/{id}{end}").error == (400, "invalid_id")
            assert getattr(anyone, method)(f"/notifications/x{end}").error == (401, "missing_credentials")

    @every_change
    def test_that_is_dismissed_in_the_same_moment_is_not_found(self, monkeypatch, alice, method, end):
        """Between being found and being changed."""
        told = tell(alice)
        real = Notification.reach

        def reach(caller, id, *above):
            found = real(caller, id, *above)
            Notification.delete().where(Notification.id == id).execute()
            return found

        monkeypatch.setattr(Notification, "reach", reach)
        reply = getattr(alice, method)(f"/notifications/{told.id}{end}")
        assert reply.error == (404, "notification_not_found")

    def test_read_and_dismissed_by_many_at_once_answers_each(self, alice):
        told, gone = tell(alice), tell(alice)
        replies = at_once(6, lambda index: alice.put(f"/notifications/{told.id}/read"))
        assert len({reply.raw for reply in replies}) == 1
        replies = at_once(6, lambda index: alice.delete(f"/notifications/{gone.id}"))
        assert sorted(reply.status for reply in replies) == [200, 404, 404, 404, 404, 404]


class TestTheCount:
    def test_is_of_all_unread_ones_of_the_caller(self, alice, bob):
        for number in range(30):
            tell(alice, read_at=moment(0) if number % 3 == 0 else None)
        tell(bob)
        assert alice.get(COUNT).data == {"unread_count": 20}
        assert bob.get(COUNT).data == {"unread_count": 1}
        assert unread(alice) == 20

    def test_is_told_again_only_when_it_has_changed(self, alice):
        tell(alice)
        first = alice.get(COUNT)
        tag = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "private, no-cache"
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = alice.get(COUNT, if_none_match=known)
            assert (again.status, again.raw) == (304, b"")
            assert (again.headers["ETag"], again.headers["Cache-Control"]) == (tag, "private, no-cache")
            assert "Content-Type" not in again.headers
        told = tell(alice)
        changed = alice.get(COUNT, if_none_match=tag)
        assert (changed.status, changed.data) == (200, {"unread_count": 2})
        assert changed.headers["ETag"] != tag
        alice.put(f"/notifications/{told.id}/read")
        assert alice.get(COUNT, if_none_match=tag).status == 304

    def test_is_told_to_whoever_knows_something_else(self, alice):
        for known in ("", "x", '"', '""', "W/", ", ,", '"\\"', "\xff" * 9):
            assert alice.get(COUNT, if_none_match=known).data == {"unread_count": 0}

    def test_is_not_told_to_strangers_who_know_it(self, alice, anyone):
        tag = alice.get(COUNT).headers["ETag"]
        assert anyone.get(COUNT, if_none_match=tag).error == (401, "missing_credentials")

    def test_comes_without_a_tag_in_the_documented_list(self, alice):
        reply = alice.get("/notifications", if_none_match="*")
        assert reply.status == 200
        assert "ETag" not in reply.headers


class TestAChatThatSomebodyElseChanges:
    def test_is_told_to_its_owner(self, now, alice, agent, session):
        for status in reversed(STATUSES):
            now.forward(seconds=1)
            agent.put(f"/chats/{session.id}/status", {"status": status})
            told, *_ = shown(alice)
            assert told["type"] == "chat_status"
            assert told["title"] == f"Your chat is {status.replace('_', ' ')}"
            assert (told["session_id"], told["conversation_id"]) == (session.id, session.conversation_id)
            assert (told["body"], payload(told), told["is_read"]) == ("", {"status": status}, False)
        assert len(shown(alice)) == len(STATUSES)

    def test_is_told_whatever_the_operation_and_the_staff(self, now, alice, agent, admin, session):
        for staff, method, end, body in (
            (agent, "POST", "/end", None),
            (admin, "POST", "/archive", None),
            (agent, "PUT", "/status", {"status": "open"}),
            (admin, "DELETE", "", None),
        ):
            now.forward(seconds=1)
            assert staff.call(method, f"/chats/{session.id}{end}", body).status == 200
        assert [payload(told)["status"] for told in shown(alice)] == ["archived", "open", "archived", "resolved"]

    def test_is_told_once(self, alice, agent, session):
        for _ in range(3):
            assert agent.post(f"/chats/{session.id}/end").data == {"status": "resolved"}
        assert len(shown(alice)) == 1
        replies = at_once(6, lambda index: agent.post(f"/chats/{session.id}/archive"))
        assert {reply.status for reply in replies} == {200}
        assert len(shown(alice)) == 2

    def test_is_told_to_nobody_else(self, alice, bob, agent, other_agent, admin, session):
        agent.post(f"/chats/{session.id}/end")
        assert [len(shown(client)) for client in (alice, bob, agent, other_agent, admin)] == [1, 0, 0, 0, 0]

    def test_is_not_told_to_an_owner_who_did_it(self, person, alice, session, shop):
        with nothing_changes(Notification):
            alice.post(f"/chats/{session.id}/end")
            alice.put(f"/chats/{session.id}/status", {"status": "open"})
            alice.delete(f"/chats/{session.id}")

    def test_tells_nothing_when_it_is_refused(self, alice, bob, other_agent, agent, session):
        with nothing_changes():
            assert bob.post(f"/chats/{session.id}/end").error == (403, "forbidden")
            assert other_agent.delete(f"/chats/{session.id}").error == (403, "forbidden")
            assert agent.put(f"/chats/{session.id}/status", {"status": "gone"}).error == (400, "unknown_status")

    def test_stays_as_it_was_if_nobody_can_be_told(self, monkeypatch, alice, agent, session):
        def fail(*arguments, **columns):
            raise RuntimeError

        monkeypatch.setattr(Notification, "create", fail)
        agent.may_crash = True
        with nothing_changes():
            assert agent.post(f"/chats/{session.id}/end").error == (500, "internal_error")

    def test_is_told_to_those_who_want_no_push_and_no_mail_too(self, alice, agent, session):
        """The settings are about delivery; the list is where one looks afterwards."""
        quiet = {"muted_until": "2999-01-01T00:00:00Z", "push_enabled": False, "email_enabled": False}
        alice.patch("/users/me/settings", {"notifications": quiet})
        agent.post(f"/chats/{session.id}/end")
        assert len(shown(alice)) == 1


class TestReminders:
    def test_come_when_their_time_has_come(self, now, alice):
        event = alice.post("/events", {"title": "Lünch 🍲", "starts_at": moment(900), "reminder_at": moment(10)}).data
        now.forward(seconds=9.999)
        assert shown(alice) == []
        now.forward(seconds=0.001)
        [told] = shown(alice)
        assert (told["type"], told["title"], told["body"]) == ("event_reminder", "Lünch 🍲", "")
        assert payload(told) == {"event_id": event["id"]}
        assert (told["session_id"], told["conversation_id"], told["is_read"]) == (None, None, False)
        assert told["created_at"] == moment(10)

    @pytest.mark.parametrize(
        "path", ["/notifications", "/notifications?unread_only=true", "/notifications?limit=0", COUNT]
    )
    def test_come_with_whatever_is_read_first_and_once(self, now, alice, path):
        plan_reminder(alice, 10)
        now.forward(seconds=60)
        for _ in range(3):
            alice.get(path)
        assert Notification.select().count() == 1
        assert alice.get(COUNT).data == {"unread_count": 1}
        assert unread(alice) == 1

    def test_are_created_when_they_are_made_so_that_no_walk_and_no_cut_off_misses_them(self, now, alice):
        for number in range(4):
            tell(alice, str(number), created_at=moment(number))
        plan_reminder(alice, 2)
        first = alice.get("/notifications?limit=2")
        now.forward(seconds=60)
        rest = alice.get(f"/notifications?limit=2&cursor={first.meta['next_cursor']}")
        assert titles(first) + titles(rest) == ["3", "2", "1", "0"]
        assert read_all(alice, {"before": moment(4)}) == 4
        assert [row["title"] for row in shown(alice) if not row["is_read"]] == ["in 2"]

    def test_that_nobody_has_seen_are_not_marked_as_read(self, now, alice):
        plan_reminder(alice, 10)
        now.forward(seconds=60)
        assert read_all(alice) == 0
        assert unread(alice) == 1

    def test_of_several_events_come_all(self, now, alice):
        for seconds in (30, 10, 20):
            plan_reminder(alice, seconds)
        now.forward(seconds=60)
        assert set(titles(shown(alice))) == {"in 10", "in 20", "in 30"}

    def test_are_the_owners_only(self, now, alice, bob, agent, admin):
        plan_reminder(alice, 10)
        now.forward(seconds=60)
        for other in (bob, agent, admin):
            assert shown(other) == []
            assert other.get(COUNT).data == {"unread_count": 0}
        assert len(shown(alice)) == 1

    def test_come_once_to_many_readers_at_once(self, now, alice):
        for seconds in range(5):
            plan_reminder(alice, seconds)
        now.forward(seconds=60)
        paths = ("/notifications", COUNT)
        replies = at_once(8, lambda index: alice.get(paths[index % 2]))
        assert {reply.status for reply in replies} == {200}
        assert Notification.select().count() == 5

    def test_do_not_come_twice_when_the_clock_is_set_back(self, now, alice):
        plan_reminder(alice, 10)
        now.forward(seconds=60)
        assert len(shown(alice)) == 1
        now.back(seconds=120)
        clock.forget()
        assert len(shown(alice)) == 1
        now.forward(seconds=240)
        assert len(shown(alice)) == 1

    def test_do_not_come_back_when_they_are_dismissed(self, now, alice):
        plan_reminder(alice, 10)
        now.forward(seconds=60)
        [told] = shown(alice)
        alice.delete(f"/notifications/{told['id']}")
        assert shown(alice) == []

    def test_do_not_come_for_an_event_that_was_deleted_before(self, now, alice):
        event = plan_reminder(alice, 10)
        alice.delete(f"/events/{event['id']}")
        now.forward(seconds=60)
        assert shown(alice) == []

    def test_stay_when_their_event_is_deleted_afterwards(self, now, alice):
        event = plan_reminder(alice, 10)
        now.forward(seconds=60)
        before = shown(alice)
        alice.delete(f"/events/{event['id']}")
        assert shown(alice) == before

    def test_are_armed_again_by_another_time(self, now, alice):
        event = plan_reminder(alice, 10)
        now.forward(seconds=60)
        assert len(shown(alice)) == 1
        alice.patch(f"/events/{event['id']}", {"reminder_at": moment(100), "title": "again"})
        assert len(shown(alice)) == 1
        now.forward(seconds=60)
        assert titles(shown(alice)) == ["again", "in 10"]

    def test_are_not_armed_again_by_the_same_time_or_another_change(self, now, alice):
        event = plan_reminder(alice, 10)
        now.forward(seconds=60)
        shown(alice)
        alice.patch(f"/events/{event['id']}", {"reminder_at": event["reminder_at"]})
        alice.patch(f"/events/{event['id']}", {"title": "x", "starts_at": moment(90_000)})
        assert len(shown(alice)) == 1

    @pytest.mark.parametrize("later", [None, "2999-01-01T00:00:00Z"])
    def test_that_are_put_off_or_taken_away_do_not_come(self, now, alice, later):
        event = plan_reminder(alice, 10)
        alice.patch(f"/events/{event['id']}", {"reminder_at": later})
        now.forward(seconds=60)
        assert shown(alice) == []

    @pytest.mark.parametrize(
        ("starts", "reminds", "comes"),
        [(60, -10, True), (60, 0, True), (0, 0, False), (0, -10, False), (-5, 10, True), (-10, -5, False)],
    )
    def test_that_are_late_come_at_once_unless_the_event_has_begun(self, now, alice, starts, reminds, comes):
        """A calendar that is copied here from elsewhere brings its past along."""
        event = alice.post("/events", {"title": "x", "starts_at": moment(starts), "reminder_at": moment(reminds)}).data
        assert event["reminder_at"] == moment(reminds)
        now.forward(seconds=10)
        assert len(shown(alice)) == comes

    def test_more_than_a_hundred_come_with_several_readings(self, now, alice):
        with db.write():
            for number in range(150):
                plan(alice, str(number), moment(90), reminder_at=moment(5), reminder_due=moment(5))
        now.forward(seconds=60)
        assert [alice.get(COUNT).data["unread_count"] for _ in range(3)] == [100, 150, 150]

    def test_wait_while_nothing_can_be_written(self, now, alice):
        plan_reminder(alice, 10)
        now.forward(seconds=60)
        with read_only():
            assert shown(alice) == []
            assert alice.get(COUNT).data == {"unread_count": 0}
        assert len(shown(alice)) == 1

    def test_that_cannot_be_told_are_not_lost(self, monkeypatch, now, alice):
        plan_reminder(alice, 10)
        plan_reminder(alice, 20)
        now.forward(seconds=60)
        real, made = Notification.create, []

        def create(**columns):
            made.append(real(**columns))
            if len(made) == 2:
                raise peewee.OperationalError("database or disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(Notification, "create", create)
            assert shown(alice) == []
        assert len(shown(alice)) == 2

    def test_that_fail_for_another_reason_fail_aloud(self, monkeypatch, now, alice):
        def fail(user_id):
            raise peewee.IntegrityError

        plan_reminder(alice, 0)
        monkeypatch.setattr(Event, "take_due", fail)
        alice.may_crash = True
        assert alice.get("/notifications").error == (500, "internal_error")

    def test_are_the_same_with_the_documented_operations_only(self, now, alice, settings):
        """Several instances may share a database: what is stored must not depend on which of them is asked."""
        plan_reminder(alice, 10)
        now.forward(seconds=60)
        narrow = dataclasses.replace(settings, documented_only=True)
        reader = Client(build_app(operations(documented_only=True), narrow), alice.token)
        assert reader.get("/notifications").raw == alice.get("/notifications").raw
        assert titles(shown(alice)) == ["in 10"]

    def test_are_looked_for_in_an_index(self, now, alice):
        with statements() as seen:
            alice.get(COUNT)
        [asked] = [statement for statement in seen if "reminder_due" in statement[0]]
        assert query_plan(*asked).ranges == ["event_reminder_due"]

    def test_cost_a_few_steps_however_many_are_still_to_come(self, now, alice):
        def add(number):
            with db.write():
                for _ in range(number):
                    plan(alice, reminder_at=moment(900), reminder_due=moment(900))

        add(10)
        few = database_steps(lambda: Event.due(alice.user.id).count())
        add(500)
        assert database_steps(lambda: Event.due(alice.user.id).count()) <= few < 60


class TestImportedReminders:
    @pytest.fixture
    def take_in(self, tmp_path):
        def run_import(*records):
            path = tmp_path / "records.jsonl"
            path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
            assert not transfer.take_in([path])

        return run_import

    def event(self, client, reminder_at, **more):
        columns = {"user_id": client.user.id, "title": "x", "starts_at": moment(900), "reminder_at": reminder_at}
        return {"event": columns | more}

    def test_come_if_their_time_was_still_to_come(self, now, alice, take_in):
        take_in(*(self.event(alice, moment(seconds), title=str(seconds)) for seconds in (-9, 0, 1, 60, 61)))
        now.forward(seconds=60)
        assert set(titles(shown(alice))) == {"1", "60"}

    def test_come_in_any_offset(self, now, alice, take_in):
        take_in(self.event(alice, "2026-11-20T12:00:10+02:00"))
        now.forward(seconds=10)
        assert len(shown(alice)) == 1

    def test_do_not_come_twice_when_an_export_is_taken_in_again(self, now, alice, take_in):
        plan_reminder(alice, 10)
        now.forward(seconds=60)
        before = shown(alice)
        exported = []
        transfer.give_out(exported.append)
        assert not [line for line in exported if b"reminder_due" in line]
        take_in(*map(json.loads, exported))
        assert shown(alice) == before

    def test_come_from_an_export_that_was_taken_in_elsewhere(self, now, alice, take_in):
        event = plan_reminder(alice, 10)
        exported = []
        transfer.give_out(exported.append)
        Event.delete().execute()
        take_in(*map(json.loads, exported))
        now.forward(seconds=60)
        [told] = shown(alice)
        assert payload(told) == {"event_id": event["id"]}


def plan_reminder(client, seconds):
    """An event in an hour, with a reminder in some seconds; the event."""
    body = {"title": f"in {seconds}", "starts_at": moment(3600), "reminder_at": moment(seconds)}
    return client.post("/events", body).data


@pytest.fixture
def older(tmp_path, monkeypatch):
    """A database from before there were reminders, which `migrate` brings up to date."""
    data = tmp_path / "older"
    url = postgres.database_of(data)
    db.open_database(data, url, create=True)
    with monkeypatch.context() as then:
        then.setattr(migrations, "STEPS", migrations.STEPS[:2])
        migrations.migrate()
    yield
    db.close_database()
    if url:
        postgres.drop(url)


def test_a_database_from_before_reminds_of_what_is_still_to_come(older, host_clock):
    user_id, mark = uuid(2), db.database.param
    person = {"id": user_id, "email": "a@example.com", "created_at": moment(0), "role": "user", "location": "[]"}
    person |= dict.fromkeys(("first_name", "last_name", "auth_provider", "profile_image", "user_type"), "")
    person |= dict.fromkeys(("display_name", "phone", "locale", "timezone", "password_hash"), "")
    person |= dict.fromkeys(("is_anonymous", "is_verified", "onboarding_completed", "is_disabled"), False)
    rows = [("user", {**person, "settings": "{}"})]
    for number, reminder_at in enumerate((None, moment(-1), moment(0), moment(1), moment(60))):
        event = {"id": uuid(10 + number), "user_id": user_id, "title": str(number), "notes": "", "source": "manual"}
        event |= dict.fromkeys(("starts_at", "created_at", "updated_at"), moment(0))
        rows.append(("event", {**event, "reminder_at": reminder_at, "is_time_sensitive": False}))
    with db.write():
        for table, row in rows:
            marks = ", ".join([mark] * len(row))
            sql = f'INSERT INTO "{table}" ({", ".join(row)}) VALUES ({marks})'
            db.database.execute_sql(sql, tuple(row.values()))
    assert migrations.migrate() > 0
    host_clock.forward(seconds=60)
    assert Notification.count_unread(user_id) == 2
    assert {told.title for told in Notification.select()} == {"3", "4"}
    assert CalendarFeed.owner(CalendarFeed.renew(user_id)) == user_id
