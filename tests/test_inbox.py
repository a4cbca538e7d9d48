"""Events and notifications: the document's sections 2.9, 2.10, 4.7 and 4.8, the contract's section 8.

Their operations list no 400: no garbage is refused, and none of it selects more than a readable request would.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service import clock, db, transfer
from service.auth import tokens
from service.fields import as_bytes, compact_json
from service.models import Event, Notification, User
from tests import serving
from tests.conftest import Client, Reply, walk
from tests.postgres import on_sqlite_alone
from tests.watching import at_once, database_steps, is_of_a_page, nothing_changes, query_plan, statements

EVENT = [
    *("id", "user_id", "app_id", "title", "notes", "starts_at", "ends_at", "reminder_at", "is_time_sensitive"),
    *("source", "source_event_id", "created_at", "updated_at"),
]
NOTIFICATION = [
    *("id", "type", "title", "body", "conversation_id", "session_id", "payload", "is_read", "read_at", "created_at")
]
NOBODY = "00000000-0000-4000-8000-000000000000"
WARNING = "X-Request-Warning"

both_lists = pytest.mark.parametrize("path", ["/events", "/notifications"])


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def moment(number: int) -> str:
    """The timestamps of the tests: seconds after ten o'clock."""
    return clock.timestamp(clock.milliseconds("2026-11-20T10:00:00.000Z") + number * clock.SECOND)


def plan(client: Client, title: str = "Call", starts_at: str = moment(0), **columns: Any) -> Event:
    """Puts an event on somebody's calendar."""
    return Event.create(user_id=client.user.id, title=title, starts_at=starts_at, **columns)


def tell(client: Client, title: str = "News", **columns: Any) -> Notification:
    """Notifies somebody."""
    return Notification.create(user_id=client.user.id, title=title, **columns)


def fill(client: Client, number: int) -> None:
    """Many events, one of three time-sensitive, and as many notifications; three at each moment."""
    rows = [(clock.uuid(), client.user.id, str(place), moment(place // 3), place % 3 == 0) for place in range(number)]
    events = [(*row, "", "manual", row[3], row[3]) for row in rows]
    event = "event (id, user_id, title, starts_at, is_time_sensitive, notes, source, created_at, updated_at)"
    notifications = [(*row[:4], "chat_message", "", "[]") for row in rows]
    notification = "notification (id, user_id, title, created_at, type, body, payload)"
    with db.write():
        for table, values in ((event, events), (notification, notifications)):
            marks = ", ".join([db.database.param] * len(values[0]))
            db.database.cursor().executemany(f"INSERT INTO {table} VALUES ({marks})", values)


def titles(reply: Reply | Iterable[dict[str, Any]]) -> list[str]:
    """The titles of a page, or of the rows of a walk."""
    return [row["title"] for row in (reply.data if isinstance(reply, Reply) else reply)]


def next_cursor(client: Client, path: str) -> str:
    cursor = client.get(path).meta["next_cursor"]
    assert cursor
    return str(cursor)


def read_all(client: Client, body: Any = None, **more: Any) -> int:
    """How many a read-all has marked, without a warning."""
    reply = client.patch("/notifications/read-all", body, **more)
    assert WARNING not in reply.headers
    assert set(reply.data) == {"marked_read"}
    return int(reply.data["marked_read"])


def unread(client: Client) -> int:
    return int(client.get("/notifications?limit=1").meta["unread_count"])


class TestEvents:
    def test_have_every_member_of_the_document_and_no_other(self, alice, shop):
        columns = {
            "id": uuid(1),
            "app_id": shop.id,
            "title": "Tasting 🍷",
            "notes": 'bring "a"\nglass',
            "starts_at": "2026-11-20T10:00:00.000Z",
            "ends_at": "2026-11-20T11:00:00.000Z",
            "reminder_at": "2026-11-20T09:45:00.000Z",
            "is_time_sensitive": True,
            "source": "calendar",
            "source_event_id": "abc/1",
            "created_at": "2026-11-01T00:00:00.000Z",
            "updated_at": "2026-11-02T00:00:00.000Z",
        }
        plan(alice, **columns)
        [event] = alice.get("/events").data
        assert list(event) == EVENT
        assert event == {**columns, "user_id": alice.user.id}

    def test_show_what_is_unset_as_null_or_empty(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        made = plan(alice)
        [event] = alice.get("/events").data
        assert event == {
            "id": made.id,
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
            "created_at": "2026-11-20T10:00:00.000Z",
            "updated_at": "2026-11-20T10:00:00.000Z",
        }

    @pytest.mark.parametrize("who", ["alice", "bob", "agent", "admin"])
    def test_are_the_callers_only(self, request, alice, bob, agent, admin, who):
        for client in (alice, bob, agent, admin):
            plan(client, client.user.first_name)
        asking = request.getfixturevalue(who)
        for query in ("", f"?user_id={alice.user.id}", f"?user={alice.user.id}&app_id=x"):
            reply = asking.get(f"/events{query}")
            assert (titles(reply), reply.meta["total"]) == ([asking.user.first_name], 1)

    def test_come_by_their_start_then_by_identifier(self, alice):
        for number, starts_at in ((5, 2), (2, 1), (4, 1), (1, 3), (3, 1)):
            plan(alice, str(number), moment(starts_at), id=uuid(number))
        assert titles(alice.get("/events")) == ["2", "3", "4", "5", "1"]

    def test_fill_every_member_of_meta(self, alice):
        assert alice.get("/events").meta == {"next_cursor": "", "page": 1, "per_page": 25, "total": 0}
        fill(alice, 30)
        meta = alice.get("/events").meta
        assert re.fullmatch(r"[A-Za-z0-9._-]+", meta.pop("next_cursor"))
        assert meta == {"page": 1, "per_page": 25, "total": 30}

    @pytest.mark.parametrize(
        ("asked", "used"), [("", 25), ("limit=200", 200), ("limit=201", 200), ("limit=0", 1), ("limit=-3", 1)]
    )
    def test_are_25_a_page_or_as_many_as_asked_for_up_to_200(self, alice, asked, used):
        fill(alice, 201)
        reply = alice.get(f"/events?{asked}")
        assert (len(reply.data), reply.meta["per_page"], reply.meta["total"]) == (used, used, 201)
        assert WARNING not in reply.headers

    def test_may_be_only_the_time_sensitive_ones(self, alice):
        for number in range(6):
            plan(alice, str(number), moment(number), is_time_sensitive=number % 2 == 0)
        reply = alice.get("/events?time_sensitive_only=true&limit=2")
        assert (titles(reply), reply.meta["total"]) == (["0", "2"], 3)
        assert titles(walk(alice, "/events", time_sensitive_only="true", limit=1)) == ["0", "2", "4"]
        assert len(alice.get("/events?time_sensitive_only=false").data) == 6


class TestBounds:
    """`from` and `to` bound `starts_at`, both included."""

    @pytest.fixture(autouse=True)
    def calendar(self, alice):
        for stamp in (
            "2026-11-19T23:59:59.999Z",
            "2026-11-20T00:00:00.000Z",
            "2026-11-20T10:00:00.000Z",
            "2026-11-20T23:59:59.999Z",
            "2026-11-21T00:00:00.000Z",
        ):
            plan(alice, stamp[8:13] + stamp[19:23], stamp)

    ALL = ["19T23.999", "20T00.000", "20T10.000", "20T23.999", "21T00.000"]

    @pytest.mark.parametrize(
        ("query", "first", "last"),
        [
            ("", 0, 5),
            ("from=2026-11-20T10:00:00Z", 2, 5),
            ("from=2026-11-20T10:00:00.001Z", 3, 5),
            ("to=2026-11-20T10:00:00Z", 0, 3),
            ("to=2026-11-20T09:59:59.999Z", 0, 2),
            ("from=2026-11-20T10:00:00Z&to=2026-11-20T10:00:00Z", 2, 3),
            ("from=2026-11-20", 1, 5),
            ("to=2026-11-20", 0, 4),
            ("from=2026-11-20&to=2026-11-20", 1, 4),
            ("from=2026-11-21&to=2026-11-19", 0, 0),
            ("from=2026-11-20T10:00:00.001Z&to=2026-11-20T10:00:00Z", 0, 0),
            ("from=2026-11-20T12:00:00%2B02:00&to=2026-11-20T12:00:00%2B02:00", 2, 3),
            ("from=2026-11-20T12:00:00+02:00&to=2026-11-20T12:00:00+02:00", 2, 3),
            ("from=2026-11-20%2012:00:00%2002:00&to=2026-11-20t12:00:00+02:00", 2, 3),
            ("from=2026-11-20T05:00:00-05:00&to=2026-11-20T04:30:00-05:30", 2, 3),
            ("from=2026-11-20T10:00:00-00:00&to=2026-11-20T10:00:00z", 2, 3),
            ("from=2026-11-20T23:59:00%2B23:59", 1, 5),
            ("to=2026-11-20T23:59:59.999999999Z", 0, 4),
            ("from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59.999Z", 0, 5),
            ("from=0001-01-01&to=9999-12-31", 0, 5),
            ("from=9999-12-31", 0, 0),
            ("to=0001-01-01", 0, 0),
        ],
    )
    def test_select(self, alice, query, first, last):
        reply = alice.get(f"/events?{query}")
        assert titles(reply) == self.ALL[first:last]
        assert reply.meta["total"] == last - first
        assert WARNING not in reply.headers

    def test_hold_on_every_page_and_the_total_with_them(self, alice):
        query = {"from": "2026-11-20", "to": "2026-11-20"}
        assert titles(walk(alice, "/events", limit=1, **query)) == self.ALL[1:4]
        path = "/events?from=2026-11-20&to=2026-11-20&limit=2"
        reply = alice.get(f"{path}&cursor={next_cursor(alice, path)}")
        assert reply.meta == {"next_cursor": "", "page": 2, "per_page": 2, "total": 3}

    def test_may_be_spelled_otherwise_in_the_middle_of_a_walk(self, alice):
        cursor = next_cursor(alice, "/events?from=2026-11-20&limit=1")
        reply = alice.get(f"/events?from=2026-11-20T01:00:00%2B01:00&limit=1&cursor={cursor}")
        assert titles(reply) == self.ALL[2:3]


class TestNotifications:
    def test_have_every_member_of_the_document_and_no_other(self, alice, session):
        columns = {
            "id": uuid(1),
            "type": "chat_message",
            "title": "Hilda",
            "body": "Grüße 👋\n",
            "conversation_id": session.conversation_id,
            "session_id": session.id,
            "read_at": "2026-11-20T10:00:01.000Z",
            "created_at": "2026-11-20T10:00:00.000Z",
        }
        tell(alice, payload=compact_json(as_bytes({"text": "👋"})), **columns)
        [notification] = alice.get("/notifications").data
        assert list(notification) == NOTIFICATION
        assert json.loads(bytes(notification.pop("payload"))) == {"text": "👋"}
        assert notification == {**columns, "is_read": True}

    def test_show_what_is_unset_as_null_or_empty(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        made = tell(alice)
        [notification] = alice.get("/notifications").data
        assert notification == {
            "id": made.id,
            "type": "chat_message",
            "title": "News",
            "body": "",
            "conversation_id": None,
            "session_id": None,
            "payload": [],
            "is_read": False,
            "read_at": None,
            "created_at": "2026-11-20T10:00:00.000Z",
        }

    @pytest.mark.parametrize("who", ["alice", "bob", "agent", "admin"])
    def test_are_the_callers_only(self, request, alice, bob, agent, admin, who):
        for client in (alice, bob, agent, admin):
            tell(client, client.user.first_name)
        asking = request.getfixturevalue(who)
        for query in ("", f"?user_id={alice.user.id}", "?unread_only=true"):
            reply = asking.get(f"/notifications{query}")
            assert (titles(reply), reply.meta["unread_count"]) == ([asking.user.first_name], 1)

    def test_come_newest_first_then_by_identifier(self, alice):
        for number, created_at in ((5, 2), (2, 1), (4, 1), (1, 3), (3, 1)):
            tell(alice, str(number), created_at=moment(created_at), id=uuid(number))
        assert titles(alice.get("/notifications")) == ["1", "5", "4", "3", "2"]

    def test_stay_newest_first_when_the_clock_is_set_back(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        tell(alice, "first", id=uuid(1))
        host_clock.back(hours=3)
        tell(alice, "second", id=uuid(2))
        host_clock.forward(hours=3, minutes=30)
        tell(alice, "third", id=uuid(0))
        assert titles(alice.get("/notifications")) == ["third", "second", "first"]

    @pytest.mark.parametrize(
        ("asked", "used"), [("", 25), ("limit=100", 100), ("limit=101", 100), ("limit=0", 1), ("limit=-3", 1)]
    )
    def test_are_25_a_page_or_as_many_as_asked_for_up_to_100(self, alice, asked, used):
        fill(alice, 101)
        reply = alice.get(f"/notifications?{asked}")
        assert len(reply.data) == used
        assert set(reply.meta) == {"next_cursor", "per_page", "unread_count"}
        assert (reply.meta["per_page"], reply.meta["unread_count"]) == (used, 101)
        assert WARNING not in reply.headers

    def test_may_be_only_the_unread_ones(self, alice):
        for number in range(6):
            tell(alice, str(number), created_at=moment(number), read_at=None if number % 2 else moment(9))
        assert titles(alice.get("/notifications?unread_only=true")) == ["5", "3", "1"]
        assert titles(walk(alice, "/notifications", unread_only="TRUE", limit=1)) == ["5", "3", "1"]
        assert len(alice.get("/notifications?unread_only=false").data) == 6

    def test_are_counted_over_all_pages_filters_and_cursors(self, alice, bob):
        assert alice.get("/notifications").meta == {"next_cursor": "", "per_page": 25, "unread_count": 0}
        for number in range(6):
            tell(alice, str(number), created_at=moment(number), read_at=None if number % 3 else moment(9))
        tell(bob)
        cursor = next_cursor(alice, "/notifications?limit=2")
        for query in ("", "limit=1", "unread_only=true", f"limit=2&cursor={cursor}", "cursor=x", "unread_only=x"):
            assert alice.get(f"/notifications?{query}").meta["unread_count"] == 4, query


class TestWalks:
    @both_lists
    def test_meet_everything_once_also_where_many_share_a_moment(self, alice, path):
        fill(alice, 10)
        by = "starts_at" if path == "/events" else "created_at"
        for limit in (1, 2, 3, 4, 7, 10, 25):
            found = walk(alice, path, limit=limit)
            assert found == sorted(found, key=lambda row: (row[by], row["id"]), reverse=path == "/notifications")
            assert sorted(map(int, titles(found))) == list(range(10))

    @both_lists
    def test_end_with_an_empty_cursor_also_when_the_last_page_is_full(self, alice, path):
        fill(alice, 4)
        assert alice.get(f"{path}?limit=4").meta["next_cursor"] == ""
        cursor = next_cursor(alice, f"{path}?limit=2")
        assert alice.get(f"{path}?limit=2&cursor={cursor}").meta["next_cursor"] == ""
        assert titles(alice.get(f"{path}?cursor=")) == titles(alice.get(path))

    @both_lists
    def test_survive_that_something_is_deleted_also_where_they_stand(self, alice, path):
        fill(alice, 9)
        first = alice.get(f"{path}?limit=4")
        rest = titles(walk(alice, path))[4:]
        table = Event if path == "/events" else Notification
        table.delete().where(table.id.in_([first.data[-1]["id"], first.data[0]["id"]])).execute()
        table.delete().where(table.title == rest[1]).execute()
        second = alice.get(f"{path}?limit=25&cursor={first.meta['next_cursor']}")
        assert titles(second) == [rest[0], *rest[2:]]

    def test_of_events_meet_what_is_put_in_further_on_and_never_repeat(self, alice):
        for number in range(4):
            plan(alice, str(number), moment(number), id=uuid(number))
        first = alice.get("/events?limit=2")
        plan(alice, "before", moment(0), id=uuid(50))
        plan(alice, "at the same moment, before", moment(1), id=uuid(0).replace("4000", "4001"))
        plan(alice, "at the same moment, after", moment(1), id=uuid(2).replace("8000", "8001"))
        second = alice.get(f"/events?limit=25&cursor={first.meta['next_cursor']}")
        assert titles(first) == ["0", "1"]
        assert [title for title in titles(second) if title in "0123"] == ["2", "3"]
        assert "at the same moment, after" in titles(second)
        assert "before" not in titles(second)
        assert second.meta["total"] == 7

    def test_of_notifications_are_not_disturbed_by_new_ones(self, alice):
        for number in range(6):
            tell(alice, str(number), created_at=moment(number))
        found, cursor = [], ""
        for number in range(3):
            reply = alice.get(f"/notifications?limit=2&cursor={cursor}")
            found += titles(reply)
            cursor = reply.meta["next_cursor"]
            tell(alice, "new", created_at=moment(10 + number))
        assert found == ["5", "4", "3", "2", "1", "0"]
        assert cursor == ""

    def test_of_unread_ones_go_on_when_they_are_read_meanwhile(self, alice):
        for number in range(6):
            tell(alice, str(number), created_at=moment(number))
        path = "/notifications?unread_only=true&limit=2"
        cursor = next_cursor(alice, path)
        read_all(alice, {"before": moment(3)})
        tell(alice, "late", created_at=moment(-1))
        reply = alice.get(f"{path}&cursor={cursor}")
        assert titles(reply) == ["3", "late"]

    @both_lists
    def test_may_change_the_size_of_their_pages(self, alice, path):
        fill(alice, 9)
        everything = titles(walk(alice, path))
        cursor = next_cursor(alice, f"{path}?limit=2")
        assert titles(alice.get(f"{path}?limit=5&cursor={cursor}")) == everything[2:7]


class TestReadAll:
    @pytest.fixture(autouse=True)
    def inbox(self, alice):
        """Five notifications a second apart; the first was read long ago."""
        for number in range(5):
            tell(alice, str(number), created_at=moment(number), read_at=moment(100) if number == 0 else None)

    @pytest.mark.parametrize("raw", [b"", b"{}", b" \r\n\t", b'{"before": null}', b'{"other": 1}'])
    def test_marks_all_without_a_cut_off(self, alice, raw):
        assert read_all(alice, raw=raw) == 4
        assert unread(alice) == 0
        assert all(row["is_read"] for row in alice.get("/notifications").data)

    @pytest.mark.parametrize("raw", [b"null", b" null\n"])
    def test_null_is_no_body_and_marks_nothing(self, alice, raw):
        reply = alice.patch("/notifications/read-all", raw=raw)
        assert reply.data == {"marked_read": 0}
        assert reply.headers[WARNING] == "body: $: expected object"
        assert unread(alice) == 4

    @pytest.mark.parametrize(
        "kind", ["", "application/json", "application/json; charset=utf-8", "application/merge-patch+json"]
    )
    @pytest.mark.parametrize("raw", [b"", b"{}"])
    def test_takes_any_spelling_of_json(self, alice, raw, kind):
        assert read_all(alice, raw=raw, content_type=kind) == 4

    def test_without_a_body_may_be_of_any_type(self, alice):
        assert read_all(alice, raw=b"", content_type="application/x-www-form-urlencoded") == 4

    def test_marks_with_the_moment_of_the_request(self, alice, host_clock, settings):
        host_clock.forward(days=3)
        log_in_again(alice, settings)
        read_all(alice)
        assert {row["read_at"] for row in alice.get("/notifications?limit=4").data} == {"2026-11-23T10:00:00.000Z"}

    @pytest.mark.parametrize(
        ("before", "read"),
        [
            (moment(3), ["1", "2"]),
            (moment(3).replace(".000", ".001"), ["1", "2", "3"]),
            (moment(3).replace(".000", ".000999"), ["1", "2"]),
            (moment(1), []),
            (moment(5), ["1", "2", "3", "4"]),
            ("2026-11-20T12:00:03+02:00", ["1", "2"]),
            ("2026-11-20t05:00:03.5-05:00", ["1", "2", "3"]),
            ("2026-11-20", []),
            ("2026-11-21", ["1", "2", "3", "4"]),
            ("0001-01-01", []),
            ("9999-12-31T23:59:59.999Z", ["1", "2", "3", "4"]),
        ],
    )
    def test_marks_what_was_created_strictly_earlier(self, alice, before, read):
        assert read_all(alice, {"before": before}) == len(read)
        marked = [row for row in reversed(alice.get("/notifications").data) if row["is_read"]]
        assert titles(marked) == ["0", *read]
        assert unread(alice) == 4 - len(read)

    def test_a_second_time_marks_none_and_keeps_the_first_moment(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        assert read_all(alice) == 4
        host_clock.forward(minutes=5)
        with nothing_changes(Notification):
            assert read_all(alice) == 0
        assert {row["read_at"] for row in alice.get("/notifications?limit=4").data} == {"2026-11-20T10:00:00.000Z"}

    def test_keeps_when_the_others_were_read(self, alice):
        read_all(alice)
        assert alice.get("/notifications").data[-1]["read_at"] == moment(100)

    def test_leaves_everybody_elses_alone(self, alice, bob, admin):
        theirs = [tell(client).id for client in (bob, admin)]
        read_all(alice)
        assert Notification.select().where(Notification.id.in_(theirs), Notification.read_at.is_null()).count() == 2
        assert read_all(admin) == 1
        assert unread(bob) == 1

    def test_changes_nothing_but_the_moment(self, alice):
        before = [dict(row, read_at=None, is_read=None) for row in alice.get("/notifications").data]
        read_all(alice)
        assert [dict(row, read_at=None, is_read=None) for row in alice.get("/notifications").data] == before

    def test_at_the_same_moment_counts_each_once(self, alice):
        with db.write():
            for _ in range(60):
                tell(alice)
        counts = at_once(6, lambda _: read_all(alice))
        assert sum(counts) == 64
        assert unread(alice) == 0

    def test_counts_those_that_arrive_afterwards_as_unread(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        read_all(alice)
        host_clock.back(hours=1)
        tell(alice, "later")
        assert unread(alice) == 1
        assert titles(alice.get("/notifications?unread_only=true")) == ["later"]
        assert read_all(alice) == 1

    def test_reads_a_moment_that_is_no_moment_as_nothing(self, alice):
        with nothing_changes(Notification):
            for before in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-11-20T23:59:60Z"):
                reply = alice.patch("/notifications/read-all", {"before": before})
                assert (reply.data, reply.headers[WARNING]) == (
                    {"marked_read": 0},
                    "body: $.before: no such date or time",
                )


# Nothing unreadable is refused, and nothing unreadable selects more (contract, section 2).

UNREADABLE_BOUNDS = [
    "",
    "garbage",
    "2026",
    "2026-11",
    "20261120",
    "2026-11-31",
    "2026-02-29",
    "0000-01-01",
    "2026-11-20T10:00",
    "2026-11-20 10:00:00",
    "2026-11-20T25:00:00Z",
    "2026-11-20T10:00:00%2B24:00",
    "2026-11-20T10:00:00.Z",
    "2026-11-20T10:00:00.1234567890Z",
    "2026-11-20T10:00:00Z%00",
    "2026-11-20T10:00:00Z%0a",
    "%202026-11-20",
    "-001-01-01",
    "٢٠٢٦-11-20",
    "1795168800",
    "null",
    "~",
    "%ff",
    "%ED%A0%80",
    "'%20OR%201=1--",
    "9" * 5000,
]
UNREADABLE_BODIES = [
    (b"{", ""),
    (b"[]", ""),
    (b'""', ""),
    (b"0", ""),
    (b"true", ""),
    (b"false", ""),
    (b"[null]", ""),
    (b"NULL", ""),
    (b"nullnull", ""),
    (b"\0", ""),
    (b"\x0b", ""),
    (b"\x0cnull", ""),
    (b"\xc2\xa0", ""),
    (b"\xef\xbb\xbf{}", ""),
    ("{}".encode("utf-16"), ""),
    (b"\xff", ""),
    (b"{} {}", ""),
    (b'{"before": 5}', ""),
    (b'{"before": true}', ""),
    (b'{"before": ""}', ""),
    (b'{"before": []}', ""),
    (b'{"before": {}}', ""),
    (b'{"before": "yesterday"}', ""),
    (b'{"before": "2026-02-30"}', ""),
    (b'{"before": "2026-11-21T00:00"}', ""),
    (b'{"before": "2026-11-21 "}', ""),
    (b'{"before": "~"}', ""),
    (b'{"before": NaN}', ""),
    (b'{"before": "\\ud800"}', ""),
    (b'{"before": "2026-11-21\\u0000"}', ""),
    (b'{"before": null, "before": null}', ""),
    (b'{"before": "2026-11-21", "before": "2026-11-21"}', ""),
    (b'{"other": NaN}', ""),
    (b'{"other": 1e999}', ""),
    (b'{"other": 1, "other": 1}', ""),
    ('{"☃": 1, "☃": "\r\nSet-Cookie: a=b"}'.encode(), ""),
    (b"[" * 100_000, ""),
    (b"9" * 10_000, ""),
    (b'{"before": "' + b"9" * 100_000 + b'"}', ""),
    (b"before=2026-11-21", "application/x-www-form-urlencoded"),
    (b"{}", "text/plain"),
    (b"null", "text/plain;charset=UTF-8"),
    (b'{"before": "2026-11-21"}', "text/plain"),
    (b'{"before": null}', "application/xml"),
]
GARBAGE = ["garbage", "", "%ff", "%00", "null", "é", "x" * 5000, "{}", "[]", "a.b.c", "..", "cxa_x"]


@pytest.fixture
def furnished(alice, bob):
    """Alice and Bob each have six events and six notifications, half of them read or time-sensitive."""
    for client in (alice, bob):
        for number in range(6):
            title = f"{client.user.first_name} {number}"
            plan(client, title, moment(number), is_time_sensitive=number % 2 == 0)
            tell(client, title, created_at=moment(number), read_at=moment(99) if number % 2 else None)
    return alice


def as_wsgi(query: str) -> str:
    """A query string as a server hands it over."""
    return query.encode().decode("latin-1")


def expect_nothing(reply: Reply, *parameters: str) -> None:
    """Fail unless an answer is empty and warns of exactly these parameters."""
    assert (reply.status, reply.data, reply.meta["next_cursor"]) == (200, [], "")
    expect_warning(reply, *parameters)


def expect_warning(reply: Reply, *parameters: str) -> None:
    """Fail unless an answer warns of exactly these parameters, in a header that can be sent."""
    warning = reply.headers[WARNING]
    assert re.fullmatch(r"[\x20-\x7e]{1,2000}", warning)
    assert [fault.partition(": ")[0] for fault in warning.split("; ")] == list(parameters)
    assert all(fault.partition(": ")[2] for fault in warning.split("; "))


class TestAnUnreadableRequest:
    @pytest.mark.parametrize("name", ["from", "to"])
    def test_for_a_bound_selects_nothing(self, furnished, name):
        for text in UNREADABLE_BOUNDS:
            reply = furnished.get(as_wsgi(f"/events?{name}={text}"))
            expect_nothing(reply, name)
            assert reply.meta == {"next_cursor": "", "page": 1, "per_page": 25, "total": 0}

    def test_for_one_bound_is_not_mended_by_the_other(self, furnished):
        for query in ("from=x&to=2026-11-21", "from=x&to=9999-12-31", "from=x&time_sensitive_only=true&limit=200"):
            expect_nothing(furnished.get(f"/events?{query}"), "from")
        for query in ("to=x&from=2026-11-19", "to=x&from=0001-01-01"):
            expect_nothing(furnished.get(f"/events?{query}"), "to")
        expect_nothing(furnished.get("/events?to=x&from=x"), "from", "to")

    @pytest.mark.parametrize("name", ["from", "to"])
    def test_for_a_bound_given_twice_selects_nothing(self, furnished, name):
        for query in (f"{name}=2026-11-20&{name}=2026-11-20", f"{name}=&{name}=2026-11-20", f"{name}&{name}"):
            expect_nothing(furnished.get(f"/events?{query}"), name)

    @pytest.mark.parametrize("path", ["/events?limit=2", "/notifications?limit=2"])
    def test_for_a_cursor_selects_nothing_and_ends_the_walk(self, furnished, path):
        cursor = next_cursor(furnished, path)
        wrong = [*GARBAGE, cursor[:-1], cursor[1:], cursor + "A", cursor.swapcase(), f"{cursor}%0a", f"%20{cursor}"]
        wrong += [furnished.token, cursor[: len(cursor) // 2], cursor.replace(".", "..")]
        wrong += [f"{cursor}&cursor={cursor}", f"{cursor}&cursor=", "&cursor="]
        for text in filter(None, wrong):
            reply = furnished.get(as_wsgi(f"{path}&cursor={text}"))
            expect_nothing(reply, "cursor")
            assert reply.meta.get("page", 1) == 1

    @pytest.mark.parametrize("path", ["/events?limit=2", "/notifications?limit=2"])
    def test_for_a_cursor_altered_anywhere_selects_nothing(self, furnished, path):
        cursor = next_cursor(furnished, path)
        for place in range(len(cursor)):
            altered = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
            expect_nothing(furnished.get(f"{path}&cursor={altered}"), "cursor")

    def test_for_somebody_elses_cursor_selects_nothing(self, furnished, bob, session, say):
        for path in ("/events?limit=2", "/notifications?limit=2"):
            expect_nothing(furnished.get(f"{path}&cursor={next_cursor(bob, path)}"), "cursor")
        say(), say()
        for path, other in (
            ("/events", "/notifications?limit=2"),
            ("/notifications", "/events?limit=2"),
            ("/notifications", f"/chats/{session.id}/messages?limit=1"),
        ):
            expect_nothing(furnished.get(f"{path}?limit=2&cursor={next_cursor(furnished, other)}"), "cursor")

    @pytest.mark.parametrize(
        ("made", "used"),
        [
            ("/events?from=2026-11-20", "/events?"),
            ("/events?from=2026-11-20", "/events?from=2026-11-19"),
            ("/events?from=2026-11-20", "/events?to=2026-11-20"),
            ("/events?to=2026-11-20", "/events?"),
            ("/events?time_sensitive_only=true", "/events?"),
            ("/events?time_sensitive_only=true", "/events?time_sensitive_only=maybe"),
            ("/events?from=2026-11-20", "/events?from=x"),
            ("/notifications?unread_only=true", "/notifications?"),
            ("/notifications?unread_only=true", "/notifications?unread_only=maybe"),
            ("/notifications?", "/notifications?unread_only=true"),
        ],
    )
    def test_for_a_cursor_of_another_filter_selects_nothing(self, furnished, made, used):
        cursor = next_cursor(furnished, f"{made}&limit=1")
        reply = furnished.get(f"{used}&limit=1&cursor={cursor}")
        assert (reply.status, reply.data, reply.meta["next_cursor"]) == (200, [], "")
        assert reply.headers[WARNING].endswith("cursor: The cursor was altered, or comes from another list.")

    @both_lists
    def test_for_a_size_falls_back_to_the_default(self, furnished, path):
        fill(furnished, 30)
        for size in ("", "x", "1.5", "+1", "1e2", "0x10", "٣", "%ff", "1%00", "1&limit=1", "9" * 1001):
            reply = furnished.get(as_wsgi(f"{path}?limit={size}"))
            assert (len(reply.data), reply.meta["per_page"]) == (25, 25)
            expect_warning(reply, "limit")

    @pytest.mark.parametrize("path", ["/events?time_sensitive_only", "/notifications?unread_only"])
    def test_for_a_boolean_falls_back_to_the_default(self, furnished, path):
        """More than the sender meant, as the contract says; the warning tells."""
        for word in ("", "maybe", "yes", "on", "2", "-1", "true%20", "tru%C3%A9", "%ff", "true%00", "t"):
            reply = furnished.get(f"{path}={word}")
            assert len(reply.data) == 6
            expect_warning(reply, path.partition("?")[2])

    def test_for_a_boolean_given_twice_falls_back_too(self, furnished):
        reply = furnished.get("/notifications?unread_only=true&unread_only=true")
        assert len(reply.data) == 6
        expect_warning(reply, "unread_only")

    def test_is_told_every_fault_of_a_query(self, furnished):
        reply = furnished.get("/events?limit=x&time_sensitive_only=x&to=x&from=x&cursor=x")
        expect_nothing(reply, "from", "to", "time_sensitive_only", "limit", "cursor")
        assert reply.meta == {"next_cursor": "", "page": 1, "per_page": 25, "total": 0}

    @both_lists
    def test_ignores_parameters_that_nobody_knows(self, furnished, path):
        usual = furnished.get(path)
        for query in (
            "From=x&LIMIT=1",
            "limit%00=1",
            "from%20=x",
            "cursor[]=x",
            "%ff=%ff&&&=;",
            "unread=x",
            "?limit=1",
        ):
            reply = furnished.get(f"{path}?{query}")
            assert (reply.data, reply.meta) == (usual.data, usual.meta)
            assert WARNING not in reply.headers

    def test_knows_a_parameter_however_it_is_escaped(self, furnished):
        expect_nothing(furnished.get("/events?%66%72om=x"), "from")

    def test_to_mark_marks_nothing(self, furnished):
        with nothing_changes():
            for raw, kind in UNREADABLE_BODIES:
                reply = furnished.patch("/notifications/read-all", raw=raw, content_type=kind)
                assert (reply.status, reply.json) == (200, {"success": True, "data": {"marked_read": 0}}), raw[:40]
                expect_warning(reply, "body")

    def test_that_is_too_large_marks_nothing_and_is_413(self, furnished):
        with nothing_changes():
            for raw in (b" " * (2**20 + 1), b'{"before": null, "x": "' + b"x" * 2**20 + b'"}'):
                reply = furnished.patch("/notifications/read-all", raw=raw)
                assert reply.error == (413, "body_too_large")
        assert read_all(furnished, raw=b"{}" + b" " * (2**20 - 2)) == 3

    @pytest.mark.parametrize("path", ["/users/me/settings", "/data-shares", "/events", "/notifications"])
    def test_is_answered_where_there_is_nothing_to_read_at_all(self, furnished, path):
        usual = furnished.get(path).data
        for query in ("%ff", "=", "&&&", "id=x&id=y", "\xff=\xff", "%00=%00", ";", "x" * 10_000):
            assert furnished.get(f"{path}?{query}").data == usual
        for headers in ({"idempotency_key": "x" * 500}, {"content_type": "é/\0"}, {"if_none_match": "\xff"}):
            assert furnished.get(path, **headers).data == usual

    def test_to_mark_is_carried_out_whatever_its_query_and_its_key(self, furnished):
        assert read_all(furnished, idempotency_key="x" * 500) == 3
        assert furnished.patch("/notifications/read-all?before=%ff&cursor=x").data == {"marked_read": 0}

    @both_lists
    def test_still_needs_a_caller(self, anyone, path):
        for query in ("", "?from=x", "?cursor=%ff", "?limit=&limit="):
            assert anyone.get(f"{path}{query}").error == (401, "missing_credentials")
        assert anyone.patch("/notifications/read-all", raw=b"{").error == (401, "missing_credentials")


# The same, for whatever comes to mind. Each value stands beside what it means: None where it means nothing.

BOUNDS: dict[str, str | None] = {
    moment(2): moment(2),
    "2026-11-20T12:00:03+02:00": moment(3),
    "2026-11-20T10:00:03": moment(3),
    "2026-11-20": None,  # another moment as a lower than as an upper bound: see `meant`
    moment(9): moment(9),
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00.000Z",
    **dict.fromkeys(("x", "", "2026-11-20T10:00", "2026-13-01", "~", "\0")),
}
BOOLEANS = {"true": True, "1": True, "False": False, "0": False, **dict.fromkeys(("", "maybe", "on", "\udcff"))}
SIZES = {"1": 1, "3": 3, "0": 1, "-7": 1, "1000": 1000, **dict.fromkeys(("", "x", "1.0", "٣"))}
VALUES = {"from": BOUNDS, "to": BOUNDS, "time_sensitive_only": BOOLEANS, "unread_only": BOOLEANS, "limit": SIZES}

parameters = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(sorted(VALUES[name])))
)
small_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("before"), inner),
    max_leaves=5,
)
bodies = (
    st.binary(max_size=20)
    | st.sampled_from([b"", b"{}", b"null", b" \n"])
    | small_json.map(lambda value: json.dumps(value).encode())
    | st.sampled_from(sorted(BOUNDS)).map(lambda text: json.dumps({"before": text}).encode("utf-8", "replace"))
)
often = hypothesis_settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
)


def meant(given: list[tuple[str, str]], name: str) -> Any:
    """What the values of a parameter mean together: None where they cannot be read; "" where there are none."""
    values = [value for found, value in given if found == name]
    if len(values) != 1:
        return None if values else ""
    if values == ["2026-11-20"]:
        return f"2026-11-20T{'00:00:00.000' if name == 'from' else '23:59:59.999'}Z"
    return VALUES[name][values[0]]


def escaped(given: list[tuple[str, str]]) -> str:
    return "&".join(f"{name}={quote(value, errors='surrogateescape')}" for name, value in given)


@often
@given(given_parameters=st.lists(parameters, max_size=4))
def test_a_query_selects_what_its_readable_parts_say(furnished: Client, given_parameters: Any) -> None:
    limit, first, last = (meant(given_parameters, name) for name in ("limit", "from", "to"))
    chosen = [] if None in (first, last) else [n for n in range(6) if (first or "") <= moment(n) <= (last or "~")]
    if meant(given_parameters, "time_sensitive_only"):
        chosen = [number for number in chosen if number % 2 == 0]
    reply = furnished.get(f"/events?{escaped(given_parameters)}")
    assert reply.status == 200
    assert titles(reply) == [f"Alice {number}" for number in chosen[: limit or 25]]
    assert (reply.meta["total"], reply.meta["per_page"]) == (len(chosen), min(limit or 25, 200))
    known = {name for name, _ in given_parameters} - {"unread_only"}
    assert (WARNING in reply.headers) == any(meant(given_parameters, name) is None for name in known)

    chosen = [number for number in range(5, -1, -1) if not (meant(given_parameters, "unread_only") and number % 2)]
    reply = furnished.get(f"/notifications?{escaped(given_parameters)}")
    assert titles(reply) == [f"Alice {number}" for number in chosen[: limit or 25]]
    assert (reply.meta["unread_count"], reply.meta["per_page"]) == (3, min(limit or 25, 100))


@often
@given(query=st.text(st.characters(max_codepoint=255)) | st.text(alphabet="from=tocurslimt&%20f-:TZ"))
def test_any_query_at_all_is_answered_with_nothing_but_ones_own(furnished: Client, query: str) -> None:
    for path in ("/events", "/notifications"):
        reply = furnished.get(f"{path}?{query}")
        assert reply.status == 200
        assert set(titles(reply)) <= {f"Alice {number}" for number in range(6)}


def cut_off(raw: bytes) -> str | None:
    """The moment before which a body asks to mark, "~" for all; None where it cannot be read."""
    text = raw.strip(b" \t\r\n")
    if not text:
        return "~"
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    before = value.get("before")
    if before is None:
        return "~"
    return meant([("from", before)], "from") if isinstance(before, str) and before in BOUNDS else None


@often
@given(raw=bodies)
def test_any_body_at_all_marks_no_more_than_it_says(furnished: Client, raw: bytes) -> None:
    with db.database.atomic() as transaction:
        reply = furnished.patch("/notifications/read-all", raw=raw)
        transaction.rollback()
    assert reply.status == 200
    before = cut_off(raw)
    asked = 0 if before is None else sum(moment(number) < before for number in (0, 2, 4))
    assert reply.data["marked_read"] == (0 if WARNING in reply.headers else asked)
    assert before is not None or WARNING in reply.headers


# Import and export


@pytest.fixture
def take_in(application, tmp_path):
    """Imports records as `FILE`; the faults."""

    def run_import(*records: dict[str, Any]) -> list[str]:
        path = tmp_path / "FILE"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return [fault.replace(str(path), "FILE") for fault in transfer.take_in([path])]

    return run_import


def export() -> bytes:
    written: list[bytes] = []
    transfer.give_out(written.append)
    return b"".join(written)


def record(client: Client, **columns: Any) -> dict[str, Any]:
    """An event to import."""
    return {"event": {"user_id": client.user.id, "starts_at": moment(0), **columns}}


class TestImportedEvents:
    def test_need_a_start_and_a_user(self, alice, take_in):
        without = record(alice)
        del without["event"]["starts_at"]
        assert take_in(without) == ["FILE:1: $.event: missing required member starts_at"]
        assert take_in(record(alice, starts_at=None)) == ["FILE:1: $.event.starts_at: expected str"]
        assert take_in({"event": {"starts_at": moment(0)}}) == ["FILE:1: $.event: missing required member user_id"]
        for name in ("user_id", "app_id"):
            fault = f"FILE:1: $.event.{name}: refers to nothing: {NOBODY}"
            assert take_in(record(alice, **{name: NOBODY})) == [fault]
        assert Event.select().count() == 0

    def test_take_the_defaults_for_what_is_missing(self, alice, take_in):
        assert take_in(record(alice)) == []
        [event] = alice.get("/events").data
        assert (event["title"], event["source"], event["source_event_id"]) == ("", "manual", None)
        assert (event["is_time_sensitive"], event["created_at"]) == (False, event["updated_at"])

    @pytest.mark.parametrize(
        ("name", "most"), [("title", 200), ("notes", 10_000), ("source", 64), ("source_event_id", 255)]
    )
    def test_have_texts_of_a_limited_length(self, alice, take_in, name, most):
        assert take_in(record(alice, **{name: "x" * (most + 1)})) == [
            f"FILE:1: $.event.{name}: expected str of length <= {most}"
        ]
        assert take_in(record(alice, **{name: "x" * most})) == []
        assert alice.get("/events").data[0][name] == "x" * most

    @pytest.mark.parametrize("source", ["a b", "ä", "a/b", "-a"])
    def test_name_their_source_in_a_word(self, alice, take_in, source):
        [fault] = take_in(record(alice, source=source))
        assert fault == "FILE:1: $.event.source: expected a word of letters, digits, _ and -"

    def test_may_say_when_in_any_offset(self, alice, take_in):
        assert take_in(record(alice, starts_at="2026-11-20T12:00:00.1239+02:00")) == []
        assert alice.get("/events").data[0]["starts_at"] == "2026-11-20T10:00:00.123Z"

    def test_of_one_source_are_told_apart_by_their_identifier_there(self, alice, bob, take_in):
        known = {"source": "calendar", "source_event_id": "1"}
        assert take_in(record(alice, id=uuid(1), **known)) == []
        fault = "$.event.source_event_id: another event has it already"
        before = export()
        assert take_in(record(alice), record(alice, id=uuid(2), **known)) == [f"FILE:2: {fault}"]
        twice = {"source": "calendar", "source_event_id": "2"}
        assert take_in(record(alice, **twice), record(bob), record(alice, **twice)) == [f"FILE:3: {fault}"]
        assert export() == before

    def test_of_other_users_and_sources_may_share_an_identifier(self, alice, bob, take_in):
        known = {"source": "calendar", "source_event_id": "1"}
        others = [record(alice, **known), record(bob, **known), record(alice, **{**known, "source": "mail"})]
        assert take_in(*others, record(alice, **{**known, "source_event_id": "1 "})) == []
        assert Event.select().count() == 4

    def test_without_an_identifier_elsewhere_are_never_the_same(self, alice, take_in):
        assert take_in(*[record(alice, source="calendar")] * 3) == []
        assert alice.get("/events").meta["total"] == 3

    def test_replace_the_one_with_their_id_as_a_whole(self, alice, bob, take_in):
        known = {"id": uuid(1), "source": "calendar", "source_event_id": "1"}
        assert take_in(record(alice, title="first", notes="long", **known)) == []
        assert take_in(record(alice, title="second", **known)) == []
        [event] = alice.get("/events").data
        assert (event["title"], event["notes"], event["source_event_id"]) == ("second", "", "1")
        assert take_in(record(bob, **{**known, "source_event_id": "2"})) == []
        assert (alice.get("/events").data, len(bob.get("/events").data)) == ([], 1)

    def test_come_back_from_an_export_as_they_were(self, alice, bob, shop, take_in):
        plan(alice, "Tasting 🍷\n", moment(3), app_id=shop.id, source="calendar", source_event_id="1", notes='"')
        plan(bob, is_time_sensitive=True, ends_at=moment(9), reminder_at=moment(-9))
        before = export()
        assert take_in(*map(json.loads, before.splitlines())) == []
        assert export() == before
        assert sum(b'{"event":' in line for line in before.splitlines()) == 2


class TestImportedNotifications:
    def test_belong_to_a_user_and_come_back_from_an_export(self, alice, take_in):
        told = {"id": uuid(1), "user_id": alice.user.id, "title": "Hilda", "payload": {"a": "ü"}, "type": "reminder"}
        assert take_in({"notification": {**told, "read_at": moment(2), "created_at": moment(1)}}) == []
        [notification] = alice.get("/notifications").data
        assert (notification["type"], notification["is_read"], notification["read_at"]) == ("reminder", True, moment(2))
        assert json.loads(bytes(notification["payload"])) == {"a": "ü"}
        before = export()
        assert take_in(*map(json.loads, before.splitlines())) == []
        assert export() == before
        assert take_in({"notification": {"title": "x"}}) == ["FILE:1: $.notification: missing required member user_id"]

    @pytest.mark.parametrize(("name", "most"), [("type", 64), ("title", 200), ("body", 10_000)])
    def test_have_texts_of_a_limited_length(self, alice, take_in, name, most):
        def told(length: int) -> list[str]:
            return list(take_in({"notification": {"user_id": alice.user.id, name: "x" * length}}))

        assert told(most + 1) == [f"FILE:1: $.notification.{name}: expected str of length <= {most}"]
        assert told(most) == []

    def test_may_say_only_that_they_are_read(self, alice, take_in):
        told = {"user_id": alice.user.id, "is_read": True, "created_at": moment(1)}
        assert take_in({"notification": told}) == []
        assert alice.get("/notifications").data[0]["read_at"] == moment(1)
        assert read_all(alice) == 0


# Speed: the work for a page does not grow with what lies behind it.

LISTS = {
    "events": "/events?",
    "events from a day on": "/events?from=2026-11-20",
    "time-sensitive events": "/events?time_sensitive_only=true",
    "notifications": "/notifications?",
    "unread notifications": "/notifications?unread_only=true",
}


def selects(client: Client, path: str) -> tuple[Any, Any]:
    """With what a list is counted, and with what its page is read, which one statement does."""
    with statements() as seen:
        assert client.get(path).status == 200
    sql, values = seen[-1]
    both = r"SELECT page\.\*, \((SELECT count\(\*\) .*?)\) FROM \((.*)\) AS page"
    counts = []
    while found := re.fullmatch(both, sql, re.S):
        count, sql = found.groups()
        marks = count.count(db.database.param)
        counts.append((count, values[:marks]))
        values = values[marks:]
    assert is_of_a_page((sql, values))
    return counts[-1], (sql, values)


def steps(statement: Any) -> int:
    return database_steps(lambda: db.database.execute_sql(*statement).fetchall())


def cursor_behind(client: Client, path: str) -> str:
    """The cursor of a page far down in a list."""
    return next_cursor(client, f"{path}&limit={200 if 'events' in path else 100}")


class TestThousandsOfThem:
    @pytest.fixture
    def crowded(self, alice, bob):
        """Alice has many, among Bob's."""
        fill(bob, 300)
        fill(alice, 2_000)
        return alice

    @on_sqlite_alone
    @pytest.mark.parametrize("name", LISTS)
    def test_cost_no_more_for_a_page_than_few_do(self, crowded, name):
        path = LISTS[name]
        first = steps(selects(crowded, path)[1])
        deep = steps(selects(crowded, f"{path}&cursor={cursor_behind(crowded, path)}")[1])
        fill(crowded, 4_000)
        assert steps(selects(crowded, path)[1]) <= first + 50
        assert steps(selects(crowded, f"{path}&cursor={cursor_behind(crowded, path)}")[1]) <= deep + 50
        assert max(first, deep) < 4_000

    @on_sqlite_alone
    def test_cost_no_more_where_only_some_are_asked_for(self, crowded):
        """Few of many: they are not looked for among the others."""
        Event.update(is_time_sensitive=False).where(Event.title != "1997").execute()
        Notification.update(read_at=moment(0)).where(Notification.title != "3").execute()
        for path in ("/events?time_sensitive_only=true", "/notifications?unread_only=true"):
            assert [steps(statement) < 500 for statement in selects(crowded, path)] == [True, True]

    @pytest.mark.parametrize("name", LISTS)
    def test_are_found_and_counted_through_indexes(self, crowded, name):
        path = LISTS[name]
        for query in (path, f"{path}&cursor={cursor_behind(crowded, path)}"):
            for statement in selects(crowded, query):
                found = query_plan(*statement)
                assert found.ranges and not found.scans and not found.sorts, found

    @on_sqlite_alone
    def test_are_counted_in_a_few_steps_each(self, crowded):
        for path in LISTS.values():
            count, _ = selects(crowded, path)
            assert steps(count) < 6 * 2_000

    @on_sqlite_alone
    def test_that_are_unread_are_counted_in_an_index_alone(self, crowded):
        count, _ = selects(crowded, "/notifications")
        assert "USING COVERING INDEX notification_told" in query_plan(*count).words[0]

    @on_sqlite_alone
    def test_that_are_unread_make_no_message_dearer(self, crowded, session):
        assert unread(crowded) == 2_000
        say = f"/chats/{session.id}/messages"
        assert database_steps(lambda: crowded.post(say, {"content": {"text": "Hello"}})) < 2_000

    @on_sqlite_alone
    def test_are_marked_without_looking_at_those_that_were_read(self, crowded):
        read_all(crowded)
        tell(crowded, created_at=moment(-1))
        for body in ({"before": moment(0)}, {}):
            assert database_steps(lambda body=body: read_all(crowded, body)) < 1_000
        assert unread(crowded) == 0


def log_in_again(client: Client, settings: Any) -> None:
    """A token of the time that the test has set."""
    with db.write():
        client.token = tokens.begin(client.user.id, settings).access_token


def test_a_user_who_is_gone_leaves_nothing_to_find(alice: Client, bob: Client) -> None:
    tell(alice)
    plan(alice)
    User.get_by_id(alice.user.id).disable()
    for path in ("/events", "/notifications"):
        assert alice.get(path).error == (401, "invalid_token")
        assert bob.get(path).data == []


@pytest.mark.slow
def test_over_http_bounds_and_bodies_mean_the_same(tmp_path: Path) -> None:
    """A literal plus, bytes that are not UTF-8, and bodies that come in chunks, past a real server."""
    known = {"user_id": serving.ALICE, "title": "x"}
    told = [{"notification": {**known, "created_at": moment(number)}} for number in range(3)]
    serving.fill(tmp_path / "data", [*serving.chat(0), *told, {"event": {**known, "starts_at": moment(0)}}])
    with serving.serving(tmp_path / "data", "--verify-answers") as server:
        token = server.log_in()
        for query, found in (
            ("from=2026-11-20T12:00:00+02:00&to=2026-11-20T12:00:00+02:00", 1),
            ("from=2026-11-20T12:00:00.001+02:00", 0),
            ("from=%FF", 0),
            ("from=2026-11-20&from=2026-11-20", 0),
        ):
            assert len(server.call("GET", f"/api/v1/events?{query}", token=token).data) == found, query
        for parts, marked in (
            ([b"{", b"]"], 0),
            ([b" ", b'{"before": "20', b'26-11-19"}'], 0),
            ([b'{"before": ', b'"2026-11-20T12:00:01+02:00"}'], 1),
            ([b"nu", b"ll"], 0),
            ([b" ", b"\n"], 2),
        ):
            reply = server.call("PATCH", "/api/v1/notifications/read-all", iter(parts), token, encode_chunked=True)
            assert reply.data == {"marked_read": marked}, parts
