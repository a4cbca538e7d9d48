"""Events and notifications: sections 2.9, 2.10, 4.7 and 4.8 of the specification.

Their operations list no 400: invalid parameters are not refused, and never select more rows than valid ones.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service import db
from service.auth import tokens
from service.fields import as_bytes, compact_json
from service.models import Event, Notification, User
from service.operate import import_export
from tests.support import server_process
from tests.support.client import Client, Reply, walk
from tests.support.inbox import (
    EVENT,
    WARNING,
    create_event,
    create_notification,
    fill,
    read_all,
    timestamp,
    titles,
    unread,
    uuid,
)
from tests.support.observe import at_once, database_steps, nothing_changes, query_plan, reads_a_page, statements

pytestmark = pytest.mark.database


NOTIFICATION = [
    *("id", "type", "title", "body", "conversation_id", "session_id", "payload", "is_read", "read_at", "created_at")
]
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"

both_lists = pytest.mark.parametrize("path", ["/events", "/notifications"])


def next_cursor(client: Client, path: str) -> str:
    cursor = client.get(path).meta["next_cursor"]
    assert cursor
    return str(cursor)


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
        create_event(alice, **columns)
        [event] = alice.get("/events").data
        assert list(event) == EVENT
        assert event == {**columns, "user_id": alice.user.id}

    def test_unset_members_are_null_or_empty(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        row = create_event(alice)
        [event] = alice.get("/events").data
        assert event == {
            "id": row.id,
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
            "created_at": "2026-11-20T10:00:00.000Z",
            "updated_at": "2026-11-20T10:00:00.000Z",
        }

    @pytest.mark.parametrize("who", ["alice", "bob", "agent", "admin"])
    def test_are_the_callers_only(self, request, alice, bob, agent, admin, who):
        for client in (alice, bob, agent, admin):
            create_event(client, client.user.first_name)
        client = request.getfixturevalue(who)
        for query in ("", f"?user_id={alice.user.id}", f"?user={alice.user.id}&app_id=x"):
            reply = client.get(f"/events{query}")
            assert (titles(reply), reply.meta["total"]) == ([client.user.first_name], 1)

    def test_are_ordered_by_start_then_identifier(self, alice):
        for number, starts_at in ((5, 2), (2, 1), (4, 1), (1, 3), (3, 1)):
            create_event(alice, str(number), timestamp(starts_at), id=uuid(number))
        assert titles(alice.get("/events")) == ["2", "3", "4", "5", "1"]

    def test_meta_has_every_member(self, alice):
        assert alice.get("/events").meta == {"next_cursor": "", "page": 1, "per_page": 25, "total": 0}
        fill(alice, 30)
        meta = alice.get("/events").meta
        assert re.fullmatch(r"[A-Za-z0-9._-]+", meta.pop("next_cursor"))
        assert meta == {"page": 1, "per_page": 25, "total": 30}

    @pytest.mark.parametrize(
        ("requested", "used"), [("", 25), ("limit=200", 200), ("limit=201", 200), ("limit=0", 1), ("limit=-3", 1)]
    )
    def test_a_page_has_25_by_default_and_at_most_200(self, alice, requested, used):
        fill(alice, 201)
        reply = alice.get(f"/events?{requested}")
        assert (len(reply.data), reply.meta["per_page"], reply.meta["total"]) == (used, used, 201)
        assert WARNING not in reply.headers

    def test_time_sensitive_only_selects_time_sensitive_events(self, alice):
        for number in range(6):
            create_event(alice, str(number), timestamp(number), is_time_sensitive=number % 2 == 0)
        reply = alice.get("/events?time_sensitive_only=true&limit=2")
        assert (titles(reply), reply.meta["total"]) == (["0", "2"], 3)
        assert titles(walk(alice, "/events", time_sensitive_only="true", limit=1)) == ["0", "2", "4"]
        assert len(alice.get("/events?time_sensitive_only=false").data) == 6


class TestBounds:
    """`from` and `to` are the bounds of `starts_at`, inclusive."""

    @pytest.fixture(autouse=True)
    def calendar(self, alice):
        for stamp in (
            "2026-11-19T23:59:59.999Z",
            "2026-11-20T00:00:00.000Z",
            "2026-11-20T10:00:00.000Z",
            "2026-11-20T23:59:59.999Z",
            "2026-11-21T00:00:00.000Z",
        ):
            create_event(alice, stamp[8:13] + stamp[19:23], stamp)

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

    def test_apply_to_every_page_and_the_total(self, alice):
        query = {"from": "2026-11-20", "to": "2026-11-20"}
        assert titles(walk(alice, "/events", limit=1, **query)) == self.ALL[1:4]
        path = "/events?from=2026-11-20&to=2026-11-20&limit=2"
        reply = alice.get(f"{path}&cursor={next_cursor(alice, path)}")
        assert reply.meta == {"next_cursor": "", "page": 2, "per_page": 2, "total": 3}

    def test_can_change_their_form_between_two_pages(self, alice):
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
        create_notification(alice, payload=compact_json(as_bytes({"text": "👋"})), **columns)
        [notification] = alice.get("/notifications").data
        assert list(notification) == NOTIFICATION
        assert json.loads(bytes(notification.pop("payload"))) == {"text": "👋"}
        assert notification == {**columns, "is_read": True}

    def test_unset_members_are_null_or_empty(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        row = create_notification(alice)
        [notification] = alice.get("/notifications").data
        assert notification == {
            "id": row.id,
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
            create_notification(client, client.user.first_name)
        client = request.getfixturevalue(who)
        for query in ("", f"?user_id={alice.user.id}", "?unread_only=true"):
            reply = client.get(f"/notifications{query}")
            assert (titles(reply), reply.meta["unread_count"]) == ([client.user.first_name], 1)

    def test_are_ordered_newest_first_then_by_identifier(self, alice):
        for number, created_at in ((5, 2), (2, 1), (4, 1), (1, 3), (3, 1)):
            create_notification(alice, str(number), created_at=timestamp(created_at), id=uuid(number))
        assert titles(alice.get("/notifications")) == ["1", "5", "4", "3", "2"]

    def test_order_is_kept_when_the_clock_is_set_back(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        create_notification(alice, "first", id=uuid(1))
        host_clock.back(hours=3)
        create_notification(alice, "second", id=uuid(2))
        host_clock.forward(hours=3, minutes=30)
        create_notification(alice, "third", id=uuid(0))
        assert titles(alice.get("/notifications")) == ["third", "second", "first"]

    @pytest.mark.parametrize(
        ("requested", "used"), [("", 25), ("limit=100", 100), ("limit=101", 100), ("limit=0", 1), ("limit=-3", 1)]
    )
    def test_a_page_has_25_by_default_and_at_most_100(self, alice, requested, used):
        fill(alice, 101)
        reply = alice.get(f"/notifications?{requested}")
        assert len(reply.data) == used
        assert set(reply.meta) == {"next_cursor", "per_page", "unread_count"}
        assert (reply.meta["per_page"], reply.meta["unread_count"]) == (used, 101)
        assert WARNING not in reply.headers

    def test_unread_only_selects_unread_notifications(self, alice):
        for number in range(6):
            create_notification(
                alice, str(number), created_at=timestamp(number), read_at=None if number % 2 else timestamp(9)
            )
        assert titles(alice.get("/notifications?unread_only=true")) == ["5", "3", "1"]
        assert titles(walk(alice, "/notifications", unread_only="TRUE", limit=1)) == ["5", "3", "1"]
        assert len(alice.get("/notifications?unread_only=false").data) == 6

    def test_unread_count_ignores_pages_filters_and_cursors(self, alice, bob):
        assert alice.get("/notifications").meta == {"next_cursor": "", "per_page": 25, "unread_count": 0}
        for number in range(6):
            create_notification(
                alice, str(number), created_at=timestamp(number), read_at=None if number % 3 else timestamp(9)
            )
        create_notification(bob)
        cursor = next_cursor(alice, "/notifications?limit=2")
        for query in ("", "limit=1", "unread_only=true", f"limit=2&cursor={cursor}", "cursor=x", "unread_only=x"):
            assert alice.get(f"/notifications?{query}").meta["unread_count"] == 4, query


class TestPagination:
    @both_lists
    def test_returns_every_row_once_also_with_equal_times(self, alice, path):
        fill(alice, 10)
        by = "starts_at" if path == "/events" else "created_at"
        for limit in (1, 2, 3, 4, 7, 10, 25):
            found = walk(alice, path, limit=limit)
            assert found == sorted(found, key=lambda row: (row[by], row["id"]), reverse=path == "/notifications")
            assert sorted(map(int, titles(found))) == list(range(10))

    @both_lists
    def test_ends_with_an_empty_cursor_also_after_a_full_page(self, alice, path):
        fill(alice, 4)
        assert alice.get(f"{path}?limit=4").meta["next_cursor"] == ""
        cursor = next_cursor(alice, f"{path}?limit=2")
        assert alice.get(f"{path}?limit=2&cursor={cursor}").meta["next_cursor"] == ""
        assert titles(alice.get(f"{path}?cursor=")) == titles(alice.get(path))

    @both_lists
    def test_continues_after_deletions_also_of_the_last_row(self, alice, path):
        fill(alice, 9)
        first = alice.get(f"{path}?limit=4")
        rest = titles(walk(alice, path))[4:]
        table = Event if path == "/events" else Notification
        table.delete().where(table.id.in_([first.data[-1]["id"], first.data[0]["id"]])).execute()
        table.delete().where(table.title == rest[1]).execute()
        second = alice.get(f"{path}?limit=25&cursor={first.meta['next_cursor']}")
        assert titles(second) == [rest[0], *rest[2:]]

    def test_of_events_returns_rows_added_behind_the_cursor_and_none_twice(self, alice):
        for number in range(4):
            create_event(alice, str(number), timestamp(number), id=uuid(number))
        first = alice.get("/events?limit=2")
        create_event(alice, "before", timestamp(0), id=uuid(50))
        create_event(alice, "at the same time, before", timestamp(1), id=uuid(0).replace("4000", "4001"))
        create_event(alice, "at the same time, after", timestamp(1), id=uuid(2).replace("8000", "8001"))
        second = alice.get(f"/events?limit=25&cursor={first.meta['next_cursor']}")
        assert titles(first) == ["0", "1"]
        assert [title for title in titles(second) if title in "0123"] == ["2", "3"]
        assert "at the same time, after" in titles(second)
        assert "before" not in titles(second)
        assert second.meta["total"] == 7

    def test_of_notifications_ignores_new_ones(self, alice):
        for number in range(6):
            create_notification(alice, str(number), created_at=timestamp(number))
        found, cursor = [], ""
        for number in range(3):
            reply = alice.get(f"/notifications?limit=2&cursor={cursor}")
            found += titles(reply)
            cursor = reply.meta["next_cursor"]
            create_notification(alice, "new", created_at=timestamp(10 + number))
        assert found == ["5", "4", "3", "2", "1", "0"]
        assert cursor == ""

    def test_of_unread_notifications_continues_when_they_are_read(self, alice):
        for number in range(6):
            create_notification(alice, str(number), created_at=timestamp(number))
        path = "/notifications?unread_only=true&limit=2"
        cursor = next_cursor(alice, path)
        read_all(alice, {"before": timestamp(3)})
        create_notification(alice, "late", created_at=timestamp(-1))
        reply = alice.get(f"{path}&cursor={cursor}")
        assert titles(reply) == ["3", "late"]

    @both_lists
    def test_page_size_can_change_between_pages(self, alice, path):
        fill(alice, 9)
        everything = titles(walk(alice, path))
        cursor = next_cursor(alice, f"{path}?limit=2")
        assert titles(alice.get(f"{path}?limit=5&cursor={cursor}")) == everything[2:7]


class TestReadAll:
    @pytest.fixture(autouse=True)
    def inbox(self, alice):
        """Five notifications a second apart; the first was read long ago."""
        for number in range(5):
            create_notification(
                alice, str(number), created_at=timestamp(number), read_at=timestamp(100) if number == 0 else None
            )

    @pytest.mark.parametrize("raw", [b"", b"{}", b" \r\n\t", b'{"before": null}', b'{"other": 1}'])
    def test_marks_all_without_a_time(self, alice, raw):
        assert read_all(alice, raw=raw) == 4
        assert unread(alice) == 0
        assert all(row["is_read"] for row in alice.get("/notifications").data)

    @pytest.mark.parametrize("raw", [b"null", b" null\n"])
    def test_null_body_marks_nothing(self, alice, raw):
        reply = alice.patch("/notifications/read-all", raw=raw)
        assert reply.data == {"marked_read": 0}
        assert reply.headers[WARNING] == "body: $: expected object"
        assert unread(alice) == 4

    @pytest.mark.parametrize(
        "kind", ["", "application/json", "application/json; charset=utf-8", "application/merge-patch+json"]
    )
    @pytest.mark.parametrize("raw", [b"", b"{}"])
    def test_accepts_every_json_content_type(self, alice, raw, kind):
        assert read_all(alice, raw=raw, content_type=kind) == 4

    def test_empty_body_accepts_any_content_type(self, alice):
        assert read_all(alice, raw=b"", content_type="application/x-www-form-urlencoded") == 4

    def test_sets_the_time_of_the_request(self, alice, host_clock, settings):
        host_clock.forward(days=3)
        log_in_again(alice, settings)
        read_all(alice)
        assert {row["read_at"] for row in alice.get("/notifications?limit=4").data} == {"2026-11-23T10:00:00.000Z"}

    @pytest.mark.parametrize(
        ("before", "read"),
        [
            (timestamp(3), ["1", "2"]),
            (timestamp(3).replace(".000", ".001"), ["1", "2", "3"]),
            (timestamp(3).replace(".000", ".000999"), ["1", "2"]),
            (timestamp(1), []),
            (timestamp(5), ["1", "2", "3", "4"]),
            ("2026-11-20T12:00:03+02:00", ["1", "2"]),
            ("2026-11-20t05:00:03.5-05:00", ["1", "2", "3"]),
            ("2026-11-20", []),
            ("2026-11-21", ["1", "2", "3", "4"]),
            ("0001-01-01", []),
            ("9999-12-31T23:59:59.999Z", ["1", "2", "3", "4"]),
        ],
    )
    def test_marks_notifications_created_before_the_time(self, alice, before, read):
        assert read_all(alice, {"before": before}) == len(read)
        marked = [row for row in reversed(alice.get("/notifications").data) if row["is_read"]]
        assert titles(marked) == ["0", *read]
        assert unread(alice) == 4 - len(read)

    def test_repetition_marks_none_and_keeps_the_time(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        assert read_all(alice) == 4
        host_clock.forward(minutes=5)
        with nothing_changes(Notification):
            assert read_all(alice) == 0
        assert {row["read_at"] for row in alice.get("/notifications?limit=4").data} == {"2026-11-20T10:00:00.000Z"}

    def test_keeps_the_time_of_notifications_already_read(self, alice):
        read_all(alice)
        assert alice.get("/notifications").data[-1]["read_at"] == timestamp(100)

    def test_marks_only_the_callers_notifications(self, alice, bob, admin):
        others = [create_notification(client).id for client in (bob, admin)]
        read_all(alice)
        assert Notification.select().where(Notification.id.in_(others), Notification.read_at.is_null()).count() == 2
        assert read_all(admin) == 1
        assert unread(bob) == 1

    def test_changes_only_the_time_of_reading(self, alice):
        before = [dict(row, read_at=None, is_read=None) for row in alice.get("/notifications").data]
        read_all(alice)
        assert [dict(row, read_at=None, is_read=None) for row in alice.get("/notifications").data] == before

    def test_concurrent_requests_count_each_notification_once(self, alice):
        with db.write():
            for _ in range(60):
                create_notification(alice)
        counts = at_once(6, lambda _: read_all(alice))
        assert sum(counts) == 64
        assert unread(alice) == 0

    def test_later_notifications_are_unread(self, alice, host_clock, settings):
        log_in_again(alice, settings)
        read_all(alice)
        host_clock.back(hours=1)
        create_notification(alice, "later")
        assert unread(alice) == 1
        assert titles(alice.get("/notifications?unread_only=true")) == ["later"]
        assert read_all(alice) == 1

    def test_nonexistent_time_marks_nothing(self, alice):
        with nothing_changes(Notification):
            for before in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-11-20T23:59:60Z"):
                reply = alice.patch("/notifications/read-all", {"before": before})
                assert (reply.data, reply.headers[WARNING]) == (
                    {"marked_read": 0},
                    "body: $.before: no such date or time",
                )


# Invalid parameters are not refused, and do not select more rows.

INVALID_BOUNDS = [
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
INVALID_BODIES = [
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
INVALID_CURSORS = ["garbage", "", "%ff", "%00", "null", "é", "x" * 5000, "{}", "[]", "a.b.c", "..", "cxa_x"]


@pytest.fixture
def filled_inbox(alice, bob):
    """Six events and six notifications of Alice and of Bob each, half of them time-sensitive or read; returns Alice."""
    for client in (alice, bob):
        for number in range(6):
            title = f"{client.user.first_name} {number}"
            create_event(client, title, timestamp(number), is_time_sensitive=number % 2 == 0)
            create_notification(
                client, title, created_at=timestamp(number), read_at=timestamp(99) if number % 2 else None
            )
    return alice


def as_wsgi(query: str) -> str:
    """Return a query string in the form of a WSGI server."""
    return query.encode().decode("latin-1")


def expect_empty(reply: Reply, *parameters: str) -> None:
    """Fail unless a response is empty and warns of exactly these parameters."""
    assert (reply.status, reply.data, reply.meta["next_cursor"]) == (200, [], "")
    expect_warning(reply, *parameters)


def expect_warning(reply: Reply, *parameters: str) -> None:
    """Fail unless a response warns of exactly these parameters, in a valid header."""
    warning = reply.headers[WARNING]
    assert re.fullmatch(r"[\x20-\x7e]{1,2000}", warning)
    assert [error.partition(": ")[0] for error in warning.split("; ")] == list(parameters)
    assert all(error.partition(": ")[2] for error in warning.split("; "))


class TestInvalidRequests:
    @pytest.mark.parametrize("name", ["from", "to"])
    def test_invalid_bound_selects_nothing(self, filled_inbox, name):
        for text in INVALID_BOUNDS:
            reply = filled_inbox.get(as_wsgi(f"/events?{name}={text}"))
            expect_empty(reply, name)
            assert reply.meta == {"next_cursor": "", "page": 1, "per_page": 25, "total": 0}

    def test_invalid_bound_selects_nothing_beside_a_valid_one(self, filled_inbox):
        for query in ("from=x&to=2026-11-21", "from=x&to=9999-12-31", "from=x&time_sensitive_only=true&limit=200"):
            expect_empty(filled_inbox.get(f"/events?{query}"), "from")
        for query in ("to=x&from=2026-11-19", "to=x&from=0001-01-01"):
            expect_empty(filled_inbox.get(f"/events?{query}"), "to")
        expect_empty(filled_inbox.get("/events?to=x&from=x"), "from", "to")

    @pytest.mark.parametrize("name", ["from", "to"])
    def test_repeated_bound_selects_nothing(self, filled_inbox, name):
        for query in (f"{name}=2026-11-20&{name}=2026-11-20", f"{name}=&{name}=2026-11-20", f"{name}&{name}"):
            expect_empty(filled_inbox.get(f"/events?{query}"), name)

    @pytest.mark.parametrize("path", ["/events?limit=2", "/notifications?limit=2"])
    def test_invalid_cursor_selects_nothing_and_has_no_next_page(self, filled_inbox, path):
        cursor = next_cursor(filled_inbox, path)
        wrong = [
            *INVALID_CURSORS,
            cursor[:-1],
            cursor[1:],
            cursor + "A",
            cursor.swapcase(),
            f"{cursor}%0a",
            f"%20{cursor}",
        ]
        wrong += [filled_inbox.token, cursor[: len(cursor) // 2], cursor.replace(".", "..")]
        wrong += [f"{cursor}&cursor={cursor}", f"{cursor}&cursor=", "&cursor="]
        for text in filter(None, wrong):
            reply = filled_inbox.get(as_wsgi(f"{path}&cursor={text}"))
            expect_empty(reply, "cursor")
            assert reply.meta.get("page", 1) == 1

    @pytest.mark.parametrize("path", ["/events?limit=2", "/notifications?limit=2"])
    def test_altered_cursor_selects_nothing(self, filled_inbox, path):
        cursor = next_cursor(filled_inbox, path)
        for place in range(len(cursor)):
            altered = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
            expect_empty(filled_inbox.get(f"{path}&cursor={altered}"), "cursor")

    def test_cursor_of_another_user_or_list_selects_nothing(self, filled_inbox, bob, session, say):
        for path in ("/events?limit=2", "/notifications?limit=2"):
            expect_empty(filled_inbox.get(f"{path}&cursor={next_cursor(bob, path)}"), "cursor")
        say(), say()
        for path, other in (
            ("/events", "/notifications?limit=2"),
            ("/notifications", "/events?limit=2"),
            ("/notifications", f"/chats/{session.id}/messages?limit=1"),
        ):
            expect_empty(filled_inbox.get(f"{path}?limit=2&cursor={next_cursor(filled_inbox, other)}"), "cursor")

    @pytest.mark.parametrize(
        ("original", "other"),
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
    def test_cursor_of_another_filter_selects_nothing(self, filled_inbox, original, other):
        cursor = next_cursor(filled_inbox, f"{original}&limit=1")
        reply = filled_inbox.get(f"{other}&limit=1&cursor={cursor}")
        assert (reply.status, reply.data, reply.meta["next_cursor"]) == (200, [], "")
        assert reply.headers[WARNING].endswith("cursor: The cursor was altered, or belongs to another list.")

    @both_lists
    def test_invalid_limit_falls_back_to_the_default(self, filled_inbox, path):
        fill(filled_inbox, 30)
        for size in ("", "x", "1.5", "+1", "1e2", "0x10", "٣", "%ff", "1%00", "1&limit=1", "9" * 1001):
            reply = filled_inbox.get(as_wsgi(f"{path}?limit={size}"))
            assert (len(reply.data), reply.meta["per_page"]) == (25, 25)
            expect_warning(reply, "limit")

    @pytest.mark.parametrize("path", ["/events?time_sensitive_only", "/notifications?unread_only"])
    def test_invalid_boolean_falls_back_to_the_default(self, filled_inbox, path):
        """The response can have more rows than requested; the warning reports it."""
        for word in ("", "maybe", "yes", "on", "2", "-1", "true%20", "tru%C3%A9", "%ff", "true%00", "t"):
            reply = filled_inbox.get(f"{path}={word}")
            assert len(reply.data) == 6
            expect_warning(reply, path.partition("?")[2])

    def test_repeated_boolean_falls_back_to_the_default(self, filled_inbox):
        reply = filled_inbox.get("/notifications?unread_only=true&unread_only=true")
        assert len(reply.data) == 6
        expect_warning(reply, "unread_only")

    def test_warning_has_every_error_of_the_query(self, filled_inbox):
        reply = filled_inbox.get("/events?limit=x&time_sensitive_only=x&to=x&from=x&cursor=x")
        expect_empty(reply, "from", "to", "time_sensitive_only", "limit", "cursor")
        assert reply.meta == {"next_cursor": "", "page": 1, "per_page": 25, "total": 0}

    @both_lists
    def test_unknown_parameters_are_ignored(self, filled_inbox, path):
        usual = filled_inbox.get(path)
        for query in (
            "From=x&LIMIT=1",
            "limit%00=1",
            "from%20=x",
            "cursor[]=x",
            "%ff=%ff&&&=;",
            "unread=x",
            "?limit=1",
        ):
            reply = filled_inbox.get(f"{path}?{query}")
            assert (reply.data, reply.meta) == (usual.data, usual.meta)
            assert WARNING not in reply.headers

    def test_escaped_parameter_names_are_decoded(self, filled_inbox):
        expect_empty(filled_inbox.get("/events?%66%72om=x"), "from")

    def test_invalid_body_marks_nothing(self, filled_inbox):
        with nothing_changes():
            for raw, kind in INVALID_BODIES:
                reply = filled_inbox.patch("/notifications/read-all", raw=raw, content_type=kind)
                assert (reply.status, reply.json) == (200, {"success": True, "data": {"marked_read": 0}}), raw[:40]
                expect_warning(reply, "body")

    def test_large_body_is_413_and_marks_nothing(self, filled_inbox):
        with nothing_changes():
            for raw in (b" " * (2**20 + 1), b'{"before": null, "x": "' + b"x" * 2**20 + b'"}'):
                reply = filled_inbox.patch("/notifications/read-all", raw=raw)
                assert reply.error == (413, "body_too_large")
        assert read_all(filled_inbox, raw=b"{}" + b" " * (2**20 - 2)) == 3

    @pytest.mark.parametrize("path", ["/users/me/settings", "/data-shares", "/events", "/notifications"])
    def test_unknown_parameters_and_invalid_headers_do_not_matter(self, filled_inbox, path):
        usual = filled_inbox.get(path).data
        for query in ("%ff", "=", "&&&", "id=x&id=y", "\xff=\xff", "%00=%00", ";", "x" * 10_000):
            assert filled_inbox.get(f"{path}?{query}").data == usual
        for headers in ({"idempotency_key": "x" * 500}, {"content_type": "é/\0"}, {"if_none_match": "\xff"}):
            assert filled_inbox.get(path, **headers).data == usual

    def test_read_all_ignores_query_and_idempotency_key(self, filled_inbox):
        assert read_all(filled_inbox, idempotency_key="x" * 500) == 3
        assert filled_inbox.patch("/notifications/read-all?before=%ff&cursor=x").data == {"marked_read": 0}

    @both_lists
    def test_credentials_are_required(self, anyone, path):
        for query in ("", "?from=x", "?cursor=%ff", "?limit=&limit="):
            assert anyone.get(f"{path}{query}").error == (401, "missing_credentials")
        assert anyone.patch("/notifications/read-all", raw=b"{").error == (401, "missing_credentials")


# Generated requests. The tables give the meaning of each value, None for an invalid one.

BOUNDS: dict[str, str | None] = {
    timestamp(2): timestamp(2),
    "2026-11-20T12:00:03+02:00": timestamp(3),
    "2026-11-20T10:00:03": timestamp(3),
    "2026-11-20": None,  # the meaning depends on the bound: see `meaning`
    timestamp(9): timestamp(9),
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
many_examples = hypothesis_settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
)


def meaning(given: list[tuple[str, str]], name: str) -> Any:
    """Return the meaning of the values of a parameter: None if invalid, "" if absent."""
    values = [value for found, value in given if found == name]
    if len(values) != 1:
        return None if values else ""
    if values == ["2026-11-20"]:
        return f"2026-11-20T{'00:00:00.000' if name == 'from' else '23:59:59.999'}Z"
    return VALUES[name][values[0]]


def escaped(given: list[tuple[str, str]]) -> str:
    return "&".join(f"{name}={quote(value, errors='surrogateescape')}" for name, value in given)


@many_examples
@given(given_parameters=st.lists(parameters, max_size=4))
def test_valid_parameters_apply_beside_invalid_ones(filled_inbox: Client, given_parameters: Any) -> None:
    limit, first, last = (meaning(given_parameters, name) for name in ("limit", "from", "to"))
    expected_numbers = (
        [] if None in (first, last) else [n for n in range(6) if (first or "") <= timestamp(n) <= (last or "~")]
    )
    if meaning(given_parameters, "time_sensitive_only"):
        expected_numbers = [number for number in expected_numbers if number % 2 == 0]
    reply = filled_inbox.get(f"/events?{escaped(given_parameters)}")
    assert reply.status == 200
    assert titles(reply) == [f"Alice {number}" for number in expected_numbers[: limit or 25]]
    assert (reply.meta["total"], reply.meta["per_page"]) == (len(expected_numbers), min(limit or 25, 200))
    known = {name for name, _ in given_parameters} - {"unread_only"}
    assert (WARNING in reply.headers) == any(meaning(given_parameters, name) is None for name in known)

    expected_numbers = [
        number for number in range(5, -1, -1) if not (meaning(given_parameters, "unread_only") and number % 2)
    ]
    reply = filled_inbox.get(f"/notifications?{escaped(given_parameters)}")
    assert titles(reply) == [f"Alice {number}" for number in expected_numbers[: limit or 25]]
    assert (reply.meta["unread_count"], reply.meta["per_page"]) == (3, min(limit or 25, 100))


@many_examples
@given(query=st.text(st.characters(max_codepoint=255)) | st.text(alphabet="from=tocurslimt&%20f-:TZ"))
def test_any_query_returns_only_rows_of_the_caller(filled_inbox: Client, query: str) -> None:
    for path in ("/events", "/notifications"):
        reply = filled_inbox.get(f"{path}?{query}")
        assert reply.status == 200
        assert set(titles(reply)) <= {f"Alice {number}" for number in range(6)}


def cut_off(raw: bytes) -> str | None:
    """Return the time before which a body marks notifications, "~" for all, None if invalid."""
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
    return meaning([("from", before)], "from") if isinstance(before, str) and before in BOUNDS else None


@many_examples
@given(raw=bodies)
def test_any_body_marks_at_most_the_requested_notifications(filled_inbox: Client, raw: bytes) -> None:
    with db.database.atomic() as transaction:
        reply = filled_inbox.patch("/notifications/read-all", raw=raw)
        transaction.rollback()
    assert reply.status == 200
    before = cut_off(raw)
    requested = 0 if before is None else sum(timestamp(number) < before for number in (0, 2, 4))
    assert reply.data["marked_read"] == (0 if WARNING in reply.headers else requested)
    assert before is not None or WARNING in reply.headers


# Import and export


@pytest.fixture
def import_records(application, tmp_path):
    """Return a function that imports records from a file named `FILE` and return the errors."""

    def run_import(*records: dict[str, Any]) -> list[str]:
        path = tmp_path / "FILE"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return [error.replace(str(path), "FILE") for error in import_export.import_files([path])]

    return run_import


def export() -> bytes:
    written: list[bytes] = []
    import_export.export(written.append)
    return b"".join(written)


def record(client: Client, **columns: Any) -> dict[str, Any]:
    """Return the record of an event."""
    return {"event": {"user_id": client.user.id, "starts_at": timestamp(0), **columns}}


class TestImportedEvents:
    def test_require_a_start_and_a_user(self, alice, import_records):
        without = record(alice)
        del without["event"]["starts_at"]
        assert import_records(without) == ["FILE:1: $.event: missing required member starts_at"]
        assert import_records(record(alice, starts_at=None)) == ["FILE:1: $.event.starts_at: expected str"]
        assert import_records({"event": {"starts_at": timestamp(0)}}) == [
            "FILE:1: $.event: missing required member user_id"
        ]
        for name in ("user_id", "app_id"):
            fault = f"FILE:1: $.event.{name}: refers to a missing record: {UNKNOWN_ID}"
            assert import_records(record(alice, **{name: UNKNOWN_ID})) == [fault]
        assert Event.select().count() == 0

    def test_missing_members_have_defaults(self, alice, import_records):
        assert import_records(record(alice)) == []
        [event] = alice.get("/events").data
        assert (event["title"], event["source"], event["source_event_id"]) == ("", "manual", None)
        assert (event["is_time_sensitive"], event["created_at"]) == (False, event["updated_at"])

    @pytest.mark.parametrize(
        ("name", "max_length"), [("title", 200), ("notes", 10_000), ("source", 64), ("source_event_id", 255)]
    )
    def test_have_texts_of_a_limited_length(self, alice, import_records, name, max_length):
        assert import_records(record(alice, **{name: "x" * (max_length + 1)})) == [
            f"FILE:1: $.event.{name}: expected str of length <= {max_length}"
        ]
        assert import_records(record(alice, **{name: "x" * max_length})) == []
        assert alice.get("/events").data[0][name] == "x" * max_length

    @pytest.mark.parametrize("source", ["a b", "ä", "a/b", "-a"])
    def test_source_is_a_word(self, alice, import_records, source):
        [fault] = import_records(record(alice, source=source))
        assert fault == "FILE:1: $.event.source: expected a word of letters, digits, _ and -"

    def test_times_can_have_any_offset(self, alice, import_records):
        assert import_records(record(alice, starts_at="2026-11-20T12:00:00.1239+02:00")) == []
        assert alice.get("/events").data[0]["starts_at"] == "2026-11-20T10:00:00.123Z"

    def test_source_and_source_event_id_are_unique_per_user(self, alice, bob, import_records):
        known = {"source": "calendar", "source_event_id": "1"}
        assert import_records(record(alice, id=uuid(1), **known)) == []
        fault = "$.event.source_event_id: another event has this value"
        before = export()
        assert import_records(record(alice), record(alice, id=uuid(2), **known)) == [f"FILE:2: {fault}"]
        twice = {"source": "calendar", "source_event_id": "2"}
        assert import_records(record(alice, **twice), record(bob), record(alice, **twice)) == [f"FILE:3: {fault}"]
        assert export() == before

    def test_other_users_and_sources_can_have_the_same_identifier(self, alice, bob, import_records):
        known = {"source": "calendar", "source_event_id": "1"}
        others = [record(alice, **known), record(bob, **known), record(alice, **{**known, "source": "mail"})]
        assert import_records(*others, record(alice, **{**known, "source_event_id": "1 "})) == []
        assert Event.select().count() == 4

    def test_without_source_event_id_are_always_distinct(self, alice, import_records):
        assert import_records(*[record(alice, source="calendar")] * 3) == []
        assert alice.get("/events").meta["total"] == 3

    def test_replace_the_whole_event_with_the_same_id(self, alice, bob, import_records):
        known = {"id": uuid(1), "source": "calendar", "source_event_id": "1"}
        assert import_records(record(alice, title="first", notes="long", **known)) == []
        assert import_records(record(alice, title="second", **known)) == []
        [event] = alice.get("/events").data
        assert (event["title"], event["notes"], event["source_event_id"]) == ("second", "", "1")
        assert import_records(record(bob, **{**known, "source_event_id": "2"})) == []
        assert (alice.get("/events").data, len(bob.get("/events").data)) == ([], 1)

    def test_exported_events_are_imported_unchanged(self, alice, bob, shop, import_records):
        create_event(
            alice, "Tasting 🍷\n", timestamp(3), app_id=shop.id, source="calendar", source_event_id="1", notes='"'
        )
        create_event(bob, is_time_sensitive=True, ends_at=timestamp(9), reminder_at=timestamp(-9))
        before = export()
        assert import_records(*map(json.loads, before.splitlines())) == []
        assert export() == before
        assert sum(b'{"event":' in line for line in before.splitlines()) == 2


class TestImportedNotifications:
    def test_require_a_user_and_are_imported_unchanged_after_an_export(self, alice, import_records):
        notification = {
            "id": uuid(1),
            "user_id": alice.user.id,
            "title": "Hilda",
            "payload": {"a": "ü"},
            "type": "reminder",
        }
        assert (
            import_records({"notification": {**notification, "read_at": timestamp(2), "created_at": timestamp(1)}})
            == []
        )
        [notification] = alice.get("/notifications").data
        assert (notification["type"], notification["is_read"], notification["read_at"]) == (
            "reminder",
            True,
            timestamp(2),
        )
        assert json.loads(bytes(notification["payload"])) == {"a": "ü"}
        before = export()
        assert import_records(*map(json.loads, before.splitlines())) == []
        assert export() == before
        assert import_records({"notification": {"title": "x"}}) == [
            "FILE:1: $.notification: missing required member user_id"
        ]

    @pytest.mark.parametrize(("name", "max_length"), [("type", 64), ("title", 200), ("body", 10_000)])
    def test_have_texts_of_a_limited_length(self, alice, import_records, name, max_length):
        def import_length(length: int) -> list[str]:
            return list(import_records({"notification": {"user_id": alice.user.id, name: "x" * length}}))

        assert import_length(max_length + 1) == [
            f"FILE:1: $.notification.{name}: expected str of length <= {max_length}"
        ]
        assert import_length(max_length) == []

    def test_is_read_without_read_at_sets_created_at(self, alice, import_records):
        notification = {"user_id": alice.user.id, "is_read": True, "created_at": timestamp(1)}
        assert import_records({"notification": notification}) == []
        assert alice.get("/notifications").data[0]["read_at"] == timestamp(1)
        assert read_all(alice) == 0


# Speed: the work for a page does not grow with the number of rows.

LISTS = {
    "events": "/events?",
    "events from a day on": "/events?from=2026-11-20",
    "time-sensitive events": "/events?time_sensitive_only=true",
    "notifications": "/notifications?",
    "unread notifications": "/notifications?unread_only=true",
}


def selects(client: Client, path: str) -> tuple[Any, Any]:
    """Return the query that counts a list and the query that reads its page, both parts of one statement."""
    with statements() as seen:
        assert client.get(path).status == 200
    sql, values = seen[-1]
    both = r"SELECT page\.\*, \((SELECT count\(\*\) .*?)\) FROM \((.*)\) AS page"
    counts = []
    while found := re.fullmatch(both, sql, re.S):
        count, sql = found.groups()
        parameter_count = count.count(db.database.param)
        counts.append((count, values[:parameter_count]))
        values = values[parameter_count:]
    assert reads_a_page((sql, values))
    return counts[-1], (sql, values)


def steps(statement: Any) -> int:
    return database_steps(lambda: db.database.execute_sql(*statement).fetchall())


def cursor_of_page_two(client: Client, path: str) -> str:
    """Return the cursor after a page of the maximum size."""
    return next_cursor(client, f"{path}&limit={200 if 'events' in path else 100}")


class TestLargeLists:
    @pytest.fixture
    def large_lists(self, alice, bob):
        """2,000 events and notifications of Alice among 300 of Bob; returns Alice."""
        fill(bob, 300)
        fill(alice, 2_000)
        return alice

    @pytest.mark.sqlite_only
    @pytest.mark.parametrize("name", LISTS)
    def test_work_for_a_page_does_not_grow_with_the_list(self, large_lists, name):
        path = LISTS[name]
        first = steps(selects(large_lists, path)[1])
        deep = steps(selects(large_lists, f"{path}&cursor={cursor_of_page_two(large_lists, path)}")[1])
        fill(large_lists, 4_000)
        assert steps(selects(large_lists, path)[1]) <= first + 50
        assert steps(selects(large_lists, f"{path}&cursor={cursor_of_page_two(large_lists, path)}")[1]) <= deep + 50
        assert max(first, deep) < 4_000

    @pytest.mark.sqlite_only
    def test_work_for_a_filtered_page_does_not_grow_with_the_list(self, large_lists):
        """Few rows of many match."""
        Event.update(is_time_sensitive=False).where(Event.title != "1997").execute()
        Notification.update(read_at=timestamp(0)).where(Notification.title != "3").execute()
        for path in ("/events?time_sensitive_only=true", "/notifications?unread_only=true"):
            assert [steps(statement) < 500 for statement in selects(large_lists, path)] == [True, True]

    @pytest.mark.parametrize("name", LISTS)
    def test_pages_and_counts_use_indexes(self, large_lists, name):
        path = LISTS[name]
        for query in (path, f"{path}&cursor={cursor_of_page_two(large_lists, path)}"):
            for statement in selects(large_lists, query):
                found = query_plan(*statement)
                assert found.ranges and not found.scans and not found.sorts, found

    @pytest.mark.sqlite_only
    def test_counting_takes_a_few_steps_per_row(self, large_lists):
        for path in LISTS.values():
            count, _ = selects(large_lists, path)
            assert steps(count) < 6 * 2_000

    @pytest.mark.sqlite_only
    def test_unread_count_uses_a_covering_index(self, large_lists):
        count, _ = selects(large_lists, "/notifications")
        assert "USING COVERING INDEX notification_unread_session" in query_plan(*count).steps[0]

    @pytest.mark.sqlite_only
    def test_sending_does_not_depend_on_the_number_of_unread_notifications(self, large_lists, session):
        assert unread(large_lists) == 2_000

        def send() -> None:
            assert large_lists.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}}).status == 201

        send()  # the first message of a chat takes more
        with_unread = database_steps(send)
        read_all(large_lists)
        assert with_unread < database_steps(send) + 200

    @pytest.mark.sqlite_only
    def test_read_all_does_not_read_notifications_already_read(self, large_lists):
        read_all(large_lists)
        create_notification(large_lists, created_at=timestamp(-1))
        for body in ({"before": timestamp(0)}, {}):
            assert database_steps(lambda body=body: read_all(large_lists, body)) < 1_000
        assert unread(large_lists) == 0


def log_in_again(client: Client, settings: Any) -> None:
    """Give a client a token issued at the time of the test's clock."""
    with db.write():
        client.token = tokens.log_in(client.user.id, settings).access_token


def test_disabled_user_cannot_read_lists(alice: Client, bob: Client) -> None:
    create_notification(alice)
    create_event(alice)
    User.get_by_id(alice.user.id).disable()
    for path in ("/events", "/notifications"):
        assert alice.get(path).error == (401, "invalid_token")
        assert bob.get(path).data == []


@pytest.mark.slow
def test_bounds_and_bodies_are_the_same_over_http(tmp_path: Path) -> None:
    """A literal plus, bytes that are not UTF-8, and chunked bodies, with a real server."""
    known = {"user_id": server_process.ALICE, "title": "x"}
    notifications = [{"notification": {**known, "created_at": timestamp(number)}} for number in range(3)]
    server_process.fill(
        tmp_path / "data", [*server_process.chat(0), *notifications, {"event": {**known, "starts_at": timestamp(0)}}]
    )
    with server_process.serving(tmp_path / "data", "--verify-answers") as server:
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
