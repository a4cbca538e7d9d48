"""Operations on notifications beyond the specification, and their sources: status changes and reminders.

The documented list and read-all are in tests/routes/test_inbox.py.
"""

import dataclasses
import json
from contextlib import contextmanager

import peewee
import pytest

from service import clock, db
from service.db import migrations
from service.http.application import build_app
from service.models import CalendarFeed, Event, Notification
from service.models.chats import STATUSES
from service.operate import import_export
from service.routes import operations
from tests.support import postgres
from tests.support.client import Client
from tests.support.faults import disk_full
from tests.support.inbox import create_event, create_notification, read_all, timestamp, titles, unread, uuid
from tests.support.observe import at_once, database_steps, nothing_changes, query_plan, statements
from tests.support.sample_operations import UNKNOWN_ID

pytestmark = pytest.mark.database


COUNT = "/notifications/unread-count"
CHANGES = [("put", "/read"), ("delete", "/read"), ("delete", "")]

every_change = pytest.mark.parametrize(("method", "end"), CHANGES)


@contextmanager
def read_only():
    """Make the database read-only."""
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


def notifications_of(client):
    """Return the notifications of a user; this creates due reminders."""
    return client.get("/notifications?limit=100").data


@pytest.fixture
def now(host_clock, alice):
    """The clock stands at ten o'clock, and Alice is logged in."""
    return host_clock


class TestNotification:
    def test_repeated_reading_keeps_the_first_time(self, now, alice):
        notification = create_notification(alice, "News")
        reply = alice.put(f"/notifications/{notification.id}/read")
        assert (reply.data["is_read"], reply.data["read_at"]) == (True, timestamp(0))
        now.forward(seconds=5)
        assert alice.put(f"/notifications/{notification.id}/read").data == reply.data
        assert notifications_of(alice) == [reply.data]
        assert unread(alice) == 0

    def test_can_be_marked_unread_repeatedly(self, now, alice):
        notification = create_notification(alice, "News", read_at=timestamp(-1))
        reply = alice.delete(f"/notifications/{notification.id}/read")
        assert (reply.data["is_read"], reply.data["read_at"]) == (False, None)
        assert alice.delete(f"/notifications/{notification.id}/read").data == reply.data
        assert unread(alice) == 1
        now.forward(seconds=5)
        assert alice.put(f"/notifications/{notification.id}/read").data["read_at"] == timestamp(5)

    def test_reading_changes_no_other_member_or_notification(self, alice, session):
        notification = create_notification(
            alice, "Grüße", body="b", payload="[1]", session_id=session.id, created_at=timestamp(-9)
        )
        other = create_notification(alice, "Other")
        (before,) = [row for row in notifications_of(alice) if row["id"] == notification.id]
        after = alice.put(f"/notifications/{notification.id}/read").data
        assert after == {**before, "is_read": True, "read_at": after["read_at"]}
        assert Notification.get_by_id(other.id).read_at is None

    def test_identifier_is_case_insensitive(self, alice):
        notification = create_notification(alice)
        assert alice.put(f"/notifications/{notification.id.upper()}/read").data["id"] == notification.id

    def test_read_all_keeps_the_time_of_a_read_notification(self, now, alice):
        notification, _ = create_notification(alice), create_notification(alice)
        alice.put(f"/notifications/{notification.id}/read")
        now.forward(seconds=5)
        assert read_all(alice) == 1
        assert Notification.get_by_id(notification.id).read_at == timestamp(0)

    def test_deletion_is_permanent(self, alice):
        notification, other = create_notification(alice, "old"), create_notification(alice, "new")
        assert alice.delete(f"/notifications/{notification.id}").data == {"deleted": True}
        assert [row["id"] for row in notifications_of(alice)] == [other.id]
        assert unread(alice) == 1
        with nothing_changes():
            for method, end in CHANGES:
                assert alice.call(method.upper(), f"/notifications/{notification.id}{end}").error == (
                    404,
                    "notification_not_found",
                )

    @every_change
    def test_other_users_are_forbidden_whatever_their_role(self, alice, bob, agent, admin, method, end):
        notification = create_notification(alice, read_at=timestamp(0))
        with nothing_changes():
            for other in (bob, agent, admin):
                reply = getattr(other, method)(f"/notifications/{notification.id}{end}")
                assert reply.error == (403, "forbidden")

    @every_change
    def test_unknown_is_404_and_malformed_identifier_is_400(self, alice, anyone, method, end):
        create_notification(alice)
        with nothing_changes():
            assert getattr(alice, method)(f"/notifications/{UNKNOWN_ID}{end}").error == (404, "notification_not_found")
            for id in ("x", "read-all", f"{{{UNKNOWN_ID}}}", UNKNOWN_ID.replace("-", "")):
                assert getattr(alice, method)(f"/notifications/{id}{end}").error == (400, "invalid_id")
            assert getattr(anyone, method)(f"/notifications/x{end}").error == (401, "missing_credentials")

    @every_change
    def test_concurrently_deleted_is_404(self, monkeypatch, alice, method, end):
        """Another request deletes it between the lookup and the write."""
        notification = create_notification(alice)
        original = Notification.get_for

        def get_for(caller, id, *above):
            found = original(caller, id, *above)
            Notification.delete().where(Notification.id == id).execute()
            return found

        monkeypatch.setattr(Notification, "get_for", get_for)
        reply = getattr(alice, method)(f"/notifications/{notification.id}{end}")
        assert reply.error == (404, "notification_not_found")

    def test_concurrent_reads_and_deletions_all_get_a_response(self, alice):
        notification, gone = create_notification(alice), create_notification(alice)
        replies = at_once(6, lambda index: alice.put(f"/notifications/{notification.id}/read"))
        assert len({reply.raw for reply in replies}) == 1
        replies = at_once(6, lambda index: alice.delete(f"/notifications/{gone.id}"))
        assert sorted(reply.status for reply in replies) == [200, 404, 404, 404, 404, 404]


class TestUnreadCount:
    def test_counts_all_unread_notifications_of_the_caller(self, alice, bob):
        for number in range(30):
            create_notification(alice, read_at=timestamp(0) if number % 3 == 0 else None)
        create_notification(bob)
        assert alice.get(COUNT).data == {"unread_count": 20}
        assert bob.get(COUNT).data == {"unread_count": 1}
        assert unread(alice) == 20

    def test_unchanged_count_is_304(self, alice):
        create_notification(alice)
        first = alice.get(COUNT)
        tag = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "private, no-cache"
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = alice.get(COUNT, if_none_match=known)
            assert (again.status, again.raw) == (304, b"")
            assert (again.headers["ETag"], again.headers["Cache-Control"]) == (tag, "private, no-cache")
            assert "Content-Type" not in again.headers
        notification = create_notification(alice)
        changed = alice.get(COUNT, if_none_match=tag)
        assert (changed.status, changed.data) == (200, {"unread_count": 2})
        assert changed.headers["ETag"] != tag
        alice.put(f"/notifications/{notification.id}/read")
        assert alice.get(COUNT, if_none_match=tag).status == 304

    def test_other_etags_get_the_count(self, alice):
        for known in ("", "x", '"', '""', "W/", ", ,", '"\\"', "\xff" * 9):
            assert alice.get(COUNT, if_none_match=known).data == {"unread_count": 0}

    def test_matching_etag_requires_credentials(self, alice, anyone):
        tag = alice.get(COUNT).headers["ETag"]
        assert anyone.get(COUNT, if_none_match=tag).error == (401, "missing_credentials")

    def test_documented_list_has_no_etag(self, alice):
        reply = alice.get("/notifications", if_none_match="*")
        assert reply.status == 200
        assert "ETag" not in reply.headers


class TestStatusChangeByAnotherUser:
    def test_notifies_the_owner(self, now, alice, agent, session):
        for status in reversed(STATUSES):
            now.forward(seconds=1)
            agent.put(f"/chats/{session.id}/status", {"status": status})
            notification, *_ = notifications_of(alice)
            assert notification["type"] == "chat_status"
            assert notification["title"] == f"Your chat is {status.replace('_', ' ')}"
            assert (notification["session_id"], notification["conversation_id"]) == (
                session.id,
                session.conversation_id,
            )
            assert (notification["body"], payload(notification), notification["is_read"]) == (
                "",
                {"status": status},
                False,
            )
        assert len(notifications_of(alice)) == len(STATUSES)

    def test_every_operation_and_role_notifies_the_owner(self, now, alice, agent, admin, session):
        for staff, method, end, body in (
            (agent, "POST", "/end", None),
            (admin, "POST", "/archive", None),
            (agent, "PUT", "/status", {"status": "open"}),
            (admin, "DELETE", "", None),
        ):
            now.forward(seconds=1)
            assert staff.call(method, f"/chats/{session.id}{end}", body).status == 200
        assert [payload(notification)["status"] for notification in notifications_of(alice)] == [
            "archived",
            "open",
            "archived",
            "resolved",
        ]

    def test_notifies_once(self, alice, agent, session):
        for _ in range(3):
            assert agent.post(f"/chats/{session.id}/end").data == {"status": "resolved"}
        assert len(notifications_of(alice)) == 1
        replies = at_once(6, lambda index: agent.post(f"/chats/{session.id}/archive"))
        assert {reply.status for reply in replies} == {200}
        assert len(notifications_of(alice)) == 2

    def test_notifies_no_other_user(self, alice, bob, agent, other_agent, admin, session):
        agent.post(f"/chats/{session.id}/end")
        assert [len(notifications_of(client)) for client in (alice, bob, agent, other_agent, admin)] == [1, 0, 0, 0, 0]

    def test_by_the_owner_does_not_notify(self, person, alice, session, shop):
        with nothing_changes(Notification):
            alice.post(f"/chats/{session.id}/end")
            alice.put(f"/chats/{session.id}/status", {"status": "open"})
            alice.delete(f"/chats/{session.id}")

    def test_refused_change_does_not_notify(self, alice, bob, other_agent, agent, session):
        with nothing_changes():
            assert bob.post(f"/chats/{session.id}/end").error == (403, "forbidden")
            assert other_agent.delete(f"/chats/{session.id}").error == (403, "forbidden")
            assert agent.put(f"/chats/{session.id}/status", {"status": "gone"}).error == (400, "unknown_status")

    def test_fails_if_the_notification_fails(self, monkeypatch, alice, agent, session):
        def fail(*arguments, **columns):
            raise RuntimeError

        monkeypatch.setattr(Notification, "create", fail)
        agent.may_crash = True
        with nothing_changes():
            assert agent.post(f"/chats/{session.id}/end").error == (500, "internal_error")

    def test_muted_users_are_notified_in_the_list(self, alice, agent, session):
        """The settings apply to delivery only, not to the list."""
        quiet = {"muted_until": "2999-01-01T00:00:00Z", "push_enabled": False, "email_enabled": False}
        alice.patch("/users/me/settings", {"notifications": quiet})
        agent.post(f"/chats/{session.id}/end")
        assert len(notifications_of(alice)) == 1


class TestReminders:
    def test_appear_at_their_time(self, now, alice):
        event = alice.post(
            "/events", {"title": "Lünch 🍲", "starts_at": timestamp(900), "reminder_at": timestamp(10)}
        ).data
        now.forward(seconds=9.999)
        assert notifications_of(alice) == []
        now.forward(seconds=0.001)
        [notification] = notifications_of(alice)
        assert (notification["type"], notification["title"], notification["body"]) == ("event_reminder", "Lünch 🍲", "")
        assert payload(notification) == {"event_id": event["id"]}
        assert (notification["session_id"], notification["conversation_id"], notification["is_read"]) == (
            None,
            None,
            False,
        )
        assert notification["created_at"] == timestamp(10)

    @pytest.mark.parametrize(
        "path", ["/notifications", "/notifications?unread_only=true", "/notifications?limit=0", COUNT]
    )
    def test_appear_once_in_whichever_response_is_first(self, now, alice, path):
        create_reminder(alice, 10)
        now.forward(seconds=60)
        for _ in range(3):
            alice.get(path)
        assert Notification.select().count() == 1
        assert alice.get(COUNT).data == {"unread_count": 1}
        assert unread(alice) == 1

    def test_are_created_without_a_request_once(self, now, alice, bob):
        for client in (alice, bob):
            create_reminder(client, 10)
        now.forward(seconds=9)
        assert Notification.remind_all() == 0
        now.forward(seconds=1)

        def remind(number):
            Notification.remind_all()
            db.close_database()

        at_once(3, remind)
        assert Notification.select().count() == 2
        assert Notification.remind_all() == 0

    def test_created_at_is_the_time_of_the_row_so_pagination_and_read_all_stay_exact(self, now, alice):
        for number in range(4):
            create_notification(alice, str(number), created_at=timestamp(number))
        create_reminder(alice, 2)
        first = alice.get("/notifications?limit=2")
        now.forward(seconds=60)
        rest = alice.get(f"/notifications?limit=2&cursor={first.meta['next_cursor']}")
        assert titles(first) + titles(rest) == ["3", "2", "1", "0"]
        assert read_all(alice, {"before": timestamp(4)}) == 4
        assert [row["title"] for row in notifications_of(alice) if not row["is_read"]] == ["in 2"]

    def test_read_all_does_not_mark_reminders_never_returned(self, now, alice):
        create_reminder(alice, 10)
        now.forward(seconds=60)
        assert read_all(alice) == 0
        assert unread(alice) == 1

    def test_of_several_events_all_appear(self, now, alice):
        for seconds in (30, 10, 20):
            create_reminder(alice, seconds)
        now.forward(seconds=60)
        assert set(titles(notifications_of(alice))) == {"in 10", "in 20", "in 30"}

    def test_belong_to_the_owner_only(self, now, alice, bob, agent, admin):
        create_reminder(alice, 10)
        now.forward(seconds=60)
        for other in (bob, agent, admin):
            assert notifications_of(other) == []
            assert other.get(COUNT).data == {"unread_count": 0}
        assert len(notifications_of(alice)) == 1

    def test_appear_once_for_concurrent_readers(self, now, alice):
        for seconds in range(5):
            create_reminder(alice, seconds)
        now.forward(seconds=60)
        paths = ("/notifications", COUNT)
        replies = at_once(8, lambda index: alice.get(paths[index % 2]))
        assert {reply.status for reply in replies} == {200}
        assert Notification.select().count() == 5

    def test_do_not_repeat_when_the_clock_is_set_back(self, now, alice):
        create_reminder(alice, 10)
        now.forward(seconds=60)
        assert len(notifications_of(alice)) == 1
        now.back(seconds=120)
        clock.reset()
        assert len(notifications_of(alice)) == 1
        now.forward(seconds=240)
        assert len(notifications_of(alice)) == 1

    def test_do_not_return_after_deletion(self, now, alice):
        create_reminder(alice, 10)
        now.forward(seconds=60)
        [notification] = notifications_of(alice)
        alice.delete(f"/notifications/{notification['id']}")
        assert notifications_of(alice) == []

    def test_of_a_deleted_event_do_not_appear(self, now, alice):
        event = create_reminder(alice, 10)
        alice.delete(f"/events/{event['id']}")
        now.forward(seconds=60)
        assert notifications_of(alice) == []

    def test_stay_when_their_event_is_deleted_later(self, now, alice):
        event = create_reminder(alice, 10)
        now.forward(seconds=60)
        before = notifications_of(alice)
        alice.delete(f"/events/{event['id']}")
        assert notifications_of(alice) == before

    def test_new_time_creates_another_reminder(self, now, alice):
        event = create_reminder(alice, 10)
        now.forward(seconds=60)
        assert len(notifications_of(alice)) == 1
        alice.patch(f"/events/{event['id']}", {"reminder_at": timestamp(100), "title": "again"})
        assert len(notifications_of(alice)) == 1
        now.forward(seconds=60)
        assert titles(notifications_of(alice)) == ["again", "in 10"]

    def test_same_time_or_another_change_creates_no_reminder(self, now, alice):
        event = create_reminder(alice, 10)
        now.forward(seconds=60)
        notifications_of(alice)
        alice.patch(f"/events/{event['id']}", {"reminder_at": event["reminder_at"]})
        alice.patch(f"/events/{event['id']}", {"title": "x", "starts_at": timestamp(90_000)})
        assert len(notifications_of(alice)) == 1

    @pytest.mark.parametrize("later", [None, "2999-01-01T00:00:00Z"])
    def test_postponed_or_removed_do_not_appear(self, now, alice, later):
        event = create_reminder(alice, 10)
        alice.patch(f"/events/{event['id']}", {"reminder_at": later})
        now.forward(seconds=60)
        assert notifications_of(alice) == []

    @pytest.mark.parametrize(
        ("starts", "reminds", "comes"),
        [(60, -10, True), (60, 0, True), (0, 0, False), (0, -10, False), (-5, 10, True), (-10, -5, False)],
    )
    def test_late_reminders_appear_at_once_unless_the_event_has_started(self, now, alice, starts, reminds, comes):
        """A calendar that is copied from another system includes past events."""
        event = alice.post(
            "/events", {"title": "x", "starts_at": timestamp(starts), "reminder_at": timestamp(reminds)}
        ).data
        assert event["reminder_at"] == timestamp(reminds)
        now.forward(seconds=10)
        assert len(notifications_of(alice)) == comes

    def test_more_than_100_appear_in_several_responses(self, now, alice):
        with db.write():
            for number in range(150):
                create_event(alice, str(number), timestamp(90), reminder_at=timestamp(5), reminder_due=timestamp(5))
        now.forward(seconds=60)
        assert [alice.get(COUNT).data["unread_count"] for _ in range(3)] == [100, 150, 150]

    def test_wait_while_the_database_is_read_only(self, now, alice):
        create_reminder(alice, 10)
        now.forward(seconds=60)
        with read_only():
            assert notifications_of(alice) == []
            assert alice.get(COUNT).data == {"unread_count": 0}
        assert len(notifications_of(alice)) == 1

    def test_are_not_lost_when_creation_fails(self, monkeypatch, now, alice):
        create_reminder(alice, 10)
        create_reminder(alice, 20)
        now.forward(seconds=60)
        original, created = Notification.create, []

        def create(**columns):
            created.append(original(**columns))
            if len(created) == 2:
                raise disk_full()
            return created[-1]

        with monkeypatch.context() as broken:
            broken.setattr(Notification, "create", create)
            assert notifications_of(alice) == []
        assert len(notifications_of(alice)) == 2

    def test_unexpected_errors_are_500(self, monkeypatch, now, alice):
        def fail(user_id):
            raise peewee.IntegrityError

        create_reminder(alice, 0)
        monkeypatch.setattr(Event, "claim_due_reminders", fail)
        alice.may_crash = True
        assert alice.get("/notifications").error == (500, "internal_error")

    def test_are_the_same_with_documented_operations_only(self, now, alice, settings):
        """Several instances may share a database: stored rows must not depend on the instance."""
        create_reminder(alice, 10)
        now.forward(seconds=60)
        narrow = dataclasses.replace(settings, documented_only=True)
        reader = Client(build_app(operations(documented_only=True), narrow), alice.token)
        assert reader.get("/notifications").raw == alice.get("/notifications").raw
        assert titles(notifications_of(alice)) == ["in 10"]

    def test_due_reminders_are_found_with_an_index(self, now, alice):
        with statements() as seen:
            alice.get(COUNT)
        [due_query] = [statement for statement in seen if "reminder_due" in statement[0]]
        (index,) = query_plan(*due_query).ranges
        # PostgreSQL may take the index for the reminders of all users instead; few are due at a time.
        also_valid = ["event_reminders_due"] if postgres.is_chosen() else []
        assert index in ["event_reminder_due", *also_valid]

    def test_work_does_not_grow_with_future_reminders(self, now, alice):
        def add(number):
            with db.write():
                for _ in range(number):
                    create_event(alice, reminder_at=timestamp(900), reminder_due=timestamp(900))

        add(10)
        steps = database_steps(lambda: Event.due_reminders(alice.user.id).count())
        add(500)
        assert database_steps(lambda: Event.due_reminders(alice.user.id).count()) <= steps < 60


class TestImportedReminders:
    @pytest.fixture
    def import_records(self, tmp_path):
        def run_import(*records):
            path = tmp_path / "records.jsonl"
            path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
            assert not import_export.import_files([path])

        return run_import

    def event(self, client, reminder_at, **more):
        columns = {"user_id": client.user.id, "title": "x", "starts_at": timestamp(900), "reminder_at": reminder_at}
        return {"event": columns | more}

    def test_future_reminders_appear(self, now, alice, import_records):
        import_records(*(self.event(alice, timestamp(seconds), title=str(seconds)) for seconds in (-9, 0, 1, 60, 61)))
        now.forward(seconds=60)
        assert set(titles(notifications_of(alice))) == {"1", "60"}

    def test_times_can_have_any_offset(self, now, alice, import_records):
        import_records(self.event(alice, "2026-11-20T12:00:10+02:00"))
        now.forward(seconds=10)
        assert len(notifications_of(alice)) == 1

    def test_do_not_repeat_after_an_export_is_imported_again(self, now, alice, import_records):
        create_reminder(alice, 10)
        now.forward(seconds=60)
        before = notifications_of(alice)
        exported = []
        import_export.export(exported.append)
        assert not [line for line in exported if b"reminder_due" in line]
        import_records(*map(json.loads, exported))
        assert notifications_of(alice) == before

    def test_appear_after_an_export_is_imported_elsewhere(self, now, alice, import_records):
        event = create_reminder(alice, 10)
        exported = []
        import_export.export(exported.append)
        Event.delete().execute()
        import_records(*map(json.loads, exported))
        now.forward(seconds=60)
        [notification] = notifications_of(alice)
        assert payload(notification) == {"event_id": event["id"]}


def create_reminder(client, seconds):
    """Create an event in an hour with a reminder in some seconds; return the event."""
    body = {"title": f"in {seconds}", "starts_at": timestamp(3600), "reminder_at": timestamp(seconds)}
    return client.post("/events", body).data


@pytest.fixture
def older(tmp_path, monkeypatch):
    """A database with the schema before reminders, for `migrate` to update."""
    data = tmp_path / "older"
    url = postgres.database_of(data)
    db.open_database(data, url, create=True)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", migrations.STEPS[:2])
        migrations.migrate()
    yield
    db.close_database()
    if url:
        postgres.drop(url)


def test_migration_creates_future_reminders(older, host_clock):
    user_id, parameter = uuid(2), db.database.param
    user = {"id": user_id, "email": "a@example.com", "created_at": timestamp(0), "role": "user", "location": "[]"}
    user |= dict.fromkeys(("first_name", "last_name", "auth_provider", "profile_image", "user_type"), "")
    user |= dict.fromkeys(("display_name", "phone", "locale", "timezone", "password_hash"), "")
    user |= dict.fromkeys(("is_anonymous", "is_verified", "onboarding_completed", "is_disabled"), False)
    rows = [("user", {**user, "settings": "{}"})]
    for number, reminder_at in enumerate((None, timestamp(-1), timestamp(0), timestamp(1), timestamp(60))):
        event = {"id": uuid(10 + number), "user_id": user_id, "title": str(number), "notes": "", "source": "manual"}
        event |= dict.fromkeys(("starts_at", "created_at", "updated_at"), timestamp(0))
        rows.append(("event", {**event, "reminder_at": reminder_at, "is_time_sensitive": False}))
    with db.write():
        for table, row in rows:
            parameters = ", ".join([parameter] * len(row))
            sql = f'INSERT INTO "{table}" ({", ".join(row)}) VALUES ({parameters})'
            db.database.execute_sql(sql, tuple(row.values()))
    assert migrations.migrate() > 0
    host_clock.forward(seconds=60)
    assert Notification.count_unread(user_id) == 2
    assert {notification.title for notification in Notification.select()} == {"3", "4"}
    assert CalendarFeed.owner(CalendarFeed.renew(user_id)) == user_id
