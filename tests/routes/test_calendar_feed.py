"""The feed of a calendar: its secret address, and what programs that subscribe to it are given (RFC 5545).

What is given is read by a library of others, and where the library forgives, held against the letter of the standard.
"""

import logging
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import icalendar
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service import clock, db
from service.http.application import build_app
from service.icalendar import calendar, escape, fold
from service.models import CalendarFeed, User
from service.operate import import_export
from service.routes import operations
from tests.support import server_process
from tests.support.client import Client
from tests.support.inbox import create_event, fill, timestamp, uuid
from tests.support.observe import at_once, nothing_changes
from tests.support.sample_operations import UNKNOWN_ID

pytestmark = pytest.mark.database


NOW = "2026-11-20T10:00:00.000Z"
CONTENT_LINE = re.compile(rb"[A-Z-]+(;[A-Z-]+=[^;:,\"\x00-\x08\x0a-\x1f\x7f]+)*:[^\x00-\x08\x0a-\x1f\x7f]*")
WINE = "🍷"


def subscribe(client):
    """A new address of a user's calendar, as a path for the test client."""
    parts = urlsplit(client.post("/events/feed").data["url"])
    return f"/{parts.path}?{parts.query}"


def lines_of(raw):
    """The content lines of a feed, unfolded; fails unless they are as section 3.1 says."""
    assert raw.endswith(b"\r\n")
    physical = raw.removesuffix(b"\r\n").split(b"\r\n")
    for line in physical:
        assert 0 < len(line) <= 75
        line.decode()  # no character is cut
    lines = raw.replace(b"\r\n ", b"").removesuffix(b"\r\n").split(b"\r\n")
    assert all(CONTENT_LINE.fullmatch(line) for line in lines), lines
    return [line.decode() for line in lines]


def read(raw):
    """The events of a feed, by their title."""
    lines_of(raw)
    found = icalendar.Calendar.from_ical(raw)
    assert not found.errors
    assert all(not event.errors for event in found.events)
    return {str(event["SUMMARY"]): event for event in found.events}


def row(**members):
    """An event as the list has it."""
    unset = dict.fromkeys(("ends_at", "reminder_at", "app_id", "source_event_id"))
    given = {"id": uuid(1), "title": "Call", "notes": "", "is_time_sensitive": False, "starts_at": timestamp(0)}
    return {**unset, **given, "created_at": timestamp(0), "updated_at": timestamp(0), **members}


@pytest.fixture
def now(host_clock, alice):
    """The clock stands at ten; Alice has logged in."""
    return host_clock


class TestTheAddress:
    def test_needs_no_credentials(self, alice, anyone):
        create_event(alice, "Call", starts_at="2999-01-01T00:00:00.000Z")
        reply = anyone.get(subscribe(alice))
        assert reply.status == 200
        assert reply.headers["Content-Type"] == "text/calendar; charset=utf-8"
        assert set(read(reply.raw)) == {"Call"}

    def test_is_a_random_secret_of_which_a_digest_is_stored(self, alice):
        address = subscribe(alice)
        token = address.partition("token=")[2]
        assert re.fullmatch(r"cxf_[A-Za-z0-9_-]{32}", token)
        assert token not in repr(list(CalendarFeed.select().tuples()))
        if db.database.kind == "sqlite":
            for file in Path(db.database.database).parent.iterdir():
                assert token.encode() not in file.read_bytes()

    def test_is_absolute(self, alice, settings):
        [url] = alice.post("/events/feed", host="chat.example:8443").data.values()
        assert url.startswith("http://chat.example:8443/api/v1/events.ics?token=cxf_")
        public = Client(build_app(operations(), replace(settings, public_url="https://c.example/")), alice.token)
        [url] = public.post("/events/feed", host="evil.example").data.values()
        assert url.startswith("https://c.example/api/v1/events.ics?token=cxf_")

    def test_is_replaced_by_a_new_one(self, alice, anyone):
        first, second = subscribe(alice), subscribe(alice)
        assert first != second
        assert anyone.get(first).error == (404, "feed_not_found")
        assert anyone.get(second).status == 200

    def test_can_be_revoked_repeatedly(self, alice, anyone):
        address = subscribe(alice)
        for _ in range(2):
            assert alice.delete("/events/feed").data == {"revoked": True}
            assert anyone.get(address).error == (404, "feed_not_found")
        assert anyone.get(subscribe(alice)).status == 200

    def test_of_other_users_is_not_affected(self, alice, bob, anyone):
        address = subscribe(bob)
        subscribe(alice)
        alice.delete("/events/feed")
        assert anyone.get(address).status == 200

    def test_of_the_last_of_concurrent_requests_is_valid(self, alice, anyone):
        addresses = at_once(6, lambda index: subscribe(alice))
        assert len(set(addresses)) == 6
        assert sorted(anyone.get(address).status for address in addresses) == [200] + [404] * 5

    def test_is_never_stored_with_an_idempotency_key(self, alice):
        first, again = (alice.post("/events/feed", idempotency_key="k").data["url"] for _ in range(2))
        assert first != again

    def test_that_is_unknown_is_404(self, alice, anyone):
        subscribe(alice)
        for token in ("x", "cxf_", "cxf_" + "A" * 32, "'", "%F0%9F%8D%B7", "a" * 100):
            reply = anyone.get(f"/events.ics?token={token}")
            assert reply.error == (404, "feed_not_found")
            assert "WWW-Authenticate" not in reply.headers  # calendar programs would ask for a password

    def test_that_is_malformed_is_400_and_names_the_parameter(self, anyone):
        queries = ("", "token=", "token", "token=a&token=b", "token=%FF", "token=%00", "token=" + "a" * 101)
        for query in queries:
            reply = anyone.get(f"/events.ics?{query}")
            assert reply.error == (400, "invalid_parameter"), query
            assert reply.message.startswith("token: ")

    def test_is_case_sensitive(self, alice, anyone):
        address = subscribe(alice)
        for other in (address.swapcase().replace("TOKEN", "token"), address + "A", address[:-1]):
            path = "/events.ics?token=" + other.partition("=")[2]
            assert anyone.get(path).error == (404, "feed_not_found")

    def test_is_no_credential_for_anything_else(self, alice, anyone):
        token = subscribe(alice).partition("token=")[2]
        for path in (f"/events?token={token}", "/events", "/notifications"):
            assert anyone.get(path, authorization=f"Bearer {token}").error == (401, "invalid_token")

    def test_is_not_accepted_as_an_access_token(self, alice, anyone):
        assert anyone.get(f"/events.ics?token={alice.token}").error[0] in (400, 404)
        assert alice.get("/events.ics").error == (400, "invalid_parameter")

    def test_is_suspended_while_its_user_is_disabled(self, alice, anyone):
        address = subscribe(alice)
        user = User.get_by_id(alice.user.id)
        user.disable()
        assert anyone.get(address).error == (404, "feed_not_found")
        user.enable()
        assert anyone.get(address).status == 200

    def test_is_not_logged(self, alice, anyone, caplog):
        with caplog.at_level(logging.DEBUG):
            address = subscribe(alice)
            anyone.get(address)
            alice.delete("/events/feed")
            anyone.get(address)
        assert "/api/v1/events.ics 200" in caplog.text
        assert "cxf_" not in caplog.text

    def test_is_not_exported(self, alice):
        subscribe(alice)
        written = []
        import_export.export(written.append)
        digest = CalendarFeed.get().digest
        assert digest.encode() not in b"".join(written)

    def test_needs_credentials_to_be_created_or_revoked(self, alice, anyone):
        subscribe(alice)
        with nothing_changes():
            assert anyone.post("/events/feed").error == (401, "missing_credentials")
            assert anyone.delete("/events/feed").error == (401, "missing_credentials")

    def test_hides_no_event_of_that_name(self, alice):
        assert alice.get("/events/feed").error == (400, "invalid_id")
        assert alice.patch("/events/feed", {}).error == (400, "invalid_id")
        assert alice.get(f"/events/{UNKNOWN_ID}").error == (404, "event_not_found")


class TestTheAnswer:
    @pytest.fixture
    def address(self, alice):
        create_event(alice, "Call", starts_at="2999-01-01T00:00:00.000Z")
        return subscribe(alice)

    def test_is_304_until_an_event_changes(self, alice, anyone, address):
        first = anyone.get(address)
        assert anyone.get(address).raw == first.raw
        again = anyone.get(address, if_none_match=first.headers["ETag"])
        assert (again.status, again.raw, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
        [event] = alice.get("/events").data
        alice.patch(f"/events/{event['id']}", {"title": "Other"})
        changed = anyone.get(address, if_none_match=first.headers["ETag"])
        assert (changed.status, set(read(changed.raw))) == (200, {"Other"})

    def test_is_privately_cacheable(self, anyone, address):
        reply = anyone.get(address)
        assert reply.headers["Cache-Control"] == "private, no-cache"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in reply.headers["Content-Security-Policy"]

    def test_to_head_has_no_body(self, anyone, address):
        reply = anyone.call("HEAD", address)
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/calendar; charset=utf-8")

    def test_is_404_after_the_address_was_revoked_also_with_an_etag(self, alice, anyone, address):
        alice.delete("/events/feed")
        assert anyone.get(address, if_none_match="*").error == (404, "feed_not_found")


class TestWhichEvents:
    def test_are_those_of_the_owner(self, alice, bob, agent, admin, anyone):
        everybody = (alice, bob, agent, admin)
        for client in everybody:
            create_event(client, client.user.first_name, starts_at="2999-01-01T00:00:00.000Z")
        for client in everybody:
            assert set(read(anyone.get(subscribe(client)).raw)) == {client.user.first_name}

    def test_start_from_90_days_ago_on(self, now, alice, anyone):
        first = clock.milliseconds(NOW) - 90 * clock.DAY
        for title, start in (("out", first - 1), ("in", first), ("future", first + 9000 * clock.DAY)):
            create_event(alice, title, starts_at=clock.timestamp(start))
        assert set(read(anyone.get(subscribe(alice)).raw)) == {"in", "future"}

    def test_are_at_most_1000_by_start(self, now, alice, bob, anyone):
        fill(bob, 10)
        fill(alice, 1_001)
        found = icalendar.Calendar.from_ical(anyone.get(subscribe(alice)).raw).events
        assert len(found) == 1_000
        starts = [event.start for event in found]
        assert starts == sorted(starts)

    def test_can_be_empty(self, alice, anyone):
        reply = anyone.get(subscribe(alice))
        assert read(reply.raw) == {}
        lines = lines_of(reply.raw)
        assert lines.count("BEGIN:VTIMEZONE") == 1  # a calendar holds something (section 3.6)
        create_event(alice, starts_at="2999-01-01T00:00:00.000Z")
        assert "BEGIN:VTIMEZONE" not in lines_of(anyone.get(subscribe(alice)).raw)


class TestTheCalendar:
    def test_has_all_members_of_an_event(self, now, alice, anyone):
        event = alice.post(
            "/events",
            {
                "title": f"Tasting, with {WINE}; \\o/",
                "notes": 'bring:\n- "a" glass\r\n- a friend',
                "starts_at": "2026-11-21T11:00:00.999+01:00",
                "ends_at": "2026-11-21T12:00:00Z",
                "reminder_at": "2026-11-21T09:45:00Z",
                "is_time_sensitive": True,
            },
        ).data
        now.forward(minutes=1)
        event = alice.patch(f"/events/{event['id']}", {"source": "trip"}).data
        [found] = read(anyone.get(subscribe(alice)).raw).values()
        assert str(found["UID"]) == event["id"]
        assert str(found["SUMMARY"]) == event["title"]
        assert str(found["DESCRIPTION"]) == 'bring:\n- "a" glass\n- a friend'
        assert found.start == datetime(2026, 11, 21, 10, tzinfo=UTC)
        assert found.end == datetime(2026, 11, 21, 12, tzinfo=UTC)
        assert found["DTSTAMP"].dt == found["LAST-MODIFIED"].dt == datetime(2026, 11, 20, 10, 1, tzinfo=UTC)
        assert found["CREATED"].dt == datetime(2026, 11, 20, 10, tzinfo=UTC)
        assert (found["PRIORITY"], str(found["CLASS"])) == (1, "PRIVATE")
        [alarm] = found.walk("VALARM")
        assert alarm["TRIGGER"].dt == datetime(2026, 11, 21, 9, 45, tzinfo=UTC)
        assert (str(alarm["ACTION"]), str(alarm["DESCRIPTION"])) == ("DISPLAY", event["title"])

    def test_omits_unset_members(self):
        raw = calendar([row()])
        [found] = read(raw).values()
        assert set(found) == {"UID", "DTSTAMP", "CREATED", "LAST-MODIFIED", "DTSTART", "SUMMARY", "CLASS"}
        assert found.walk("VALARM") == []

    def test_has_times_in_utc(self):
        given = row(ends_at=timestamp(5), reminder_at=timestamp(-5), updated_at=timestamp(7))
        times = [line for line in lines_of(calendar([given])) if re.search(r":\d{8}T", line)]
        assert len(times) == 6
        assert all(re.search(r":\d{8}T\d{6}Z$", line) for line in times)

    @pytest.mark.parametrize(
        ("ends_at", "seconds"),
        [(timestamp(0), None), (timestamp(0.999), None), (timestamp(-5), None), (timestamp(1), 1)],
    )
    def test_has_an_end_only_if_it_is_after_the_start(self, ends_at, seconds):
        [found] = read(calendar([row(ends_at=ends_at)])).values()
        assert found.get("DTEND") is None if seconds is None else found.duration == timedelta(seconds=seconds)

    @pytest.mark.parametrize(
        "stamp", ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2016-12-31T23:59:59.000Z"]
    )
    def test_supports_any_time_of_an_event(self, stamp):
        [found] = read(calendar([row(starts_at=stamp)])).values()
        assert found.start == datetime.fromisoformat(stamp).replace(microsecond=0)

    def test_has_the_standard_first_and_last_lines(self):
        lines = lines_of(calendar([row(id=uuid(1)), row(id=uuid(2))]))
        assert lines[:2] == ["BEGIN:VCALENDAR", "VERSION:2.0"]
        assert lines[-1] == "END:VCALENDAR"
        assert sum(line.startswith("PRODID:") for line in lines) == 1
        assert [line for line in lines if line.startswith("UID:")] == [f"UID:{uuid(1)}", f"UID:{uuid(2)}"]

    @pytest.mark.parametrize(
        "title", ["x" * 66, "x" * 67, "x" * 68, "x" * 200, WINE * 200, "é" * 200, "x" + "é" * 199, "xx" + "€" * 198]
    )
    def test_folds_long_lines_between_characters(self, title):
        assert set(read(calendar([row(title=title, notes=title * 50)]))) == {title}

    def test_folds_at_the_maximum_length(self):
        assert fold("x" * 75) == b"x" * 75
        assert fold("x" * 76) == b"x" * 75 + b"\r\n x"
        assert fold("x" * 150) == b"x" * 75 + b"\r\n " + b"x" * 74 + b"\r\n x"
        assert fold("x" * 74 + "é") == b"x" * 74 + b"\r\n " + "é".encode()
        assert fold("") == b""

    @pytest.mark.parametrize(
        ("text", "written"),
        [
            ('a,b;c\\d:e"f', 'a\\,b\\;c\\\\d:e"f'),
            ("a\nb\r\nc\rd", "a\\nb\\nc\\nd"),
            ("a\\nb", "a\\\\nb"),
            ("a\x0bb\x0cc\x1cd\u2028e\u2029f\x85g", "a\\nb\\nc\\nd\\ne\\nf\\ng"),
            ("a\tb\x01c\x7fd\x1be", "a\tbcde"),
            ("END:VEVENT\r\nBEGIN:VEVENT", "END:VEVENT\\nBEGIN:VEVENT"),
            ("", ""),
        ],
    )
    def test_escapes_special_characters(self, text, written):
        assert escape(text) == written

    def test_a_title_cannot_add_lines(self, now, alice, anyone):
        hostile = "x\r\nEND:VEVENT\r\nEND:VCALENDAR\nBEGIN:VCALENDAR\rATTENDEE:mailto:eve@example.com"
        alice.post("/events", {"title": hostile, "notes": hostile, "starts_at": NOW, "reminder_at": NOW})
        lines = lines_of(anyone.get(subscribe(alice)).raw)
        assert [line for line in lines if line.startswith(("BEGIN:", "END:", "ATTENDEE"))] == [
            *("BEGIN:VCALENDAR", "BEGIN:VEVENT", "BEGIN:VALARM", "END:VALARM", "END:VEVENT", "END:VCALENDAR")
        ]

    @given(st.text(max_size=200), st.text(max_size=1_000))
    @hypothesis_settings(deadline=None, max_examples=20)
    def test_preserves_text_except_line_ends_and_control_characters(self, title, notes):
        title, notes = (text.encode(errors="replace").decode() for text in (title, notes))
        [found] = icalendar.Calendar.from_ical(calendar([row(title=title, notes=notes)])).events
        lines_of(calendar([row(title=title, notes=notes)]))
        for name, text in (("SUMMARY", title), ("DESCRIPTION", notes)):
            shown = "\n".join(re.sub(r"[\x00-\x08\x0e-\x1f\x7f]", "", line) for line in text.splitlines())
            assert str(found.get(name, "")) == shown


@pytest.mark.slow
def test_over_http_a_program_subscribes_to_a_calendar(tmp_path):
    """Past a real server: its address, its 304, and a log without the secret."""
    server_process.fill(tmp_path / "data", server_process.chat(0))
    with server_process.serving(tmp_path / "data", "--verify-answers") as server:
        token = server.log_in()
        body = b'{"title": "Call", "starts_at": "2999-01-01T00:00:00Z"}'
        headers = {"Content-Type": "application/json"}
        assert server.call("POST", "/api/v1/events", body, token, headers=headers).status == 201
        url = server.call("POST", "/api/v1/events/feed", token=token).data["url"]
        assert url.startswith(server.url)
        path = url.removeprefix(server.url)
        first = server.call("GET", path)
        assert set(read(first.raw)) == {"Call"}
        tag = {name.lower(): value for name, value in first.headers.items()}["etag"]
        assert server.call("GET", path, headers={"If-None-Match": tag}).status == 304
        assert server.call("DELETE", "/api/v1/events/feed", token=token).status == 200
        assert server.call("GET", path).error == (404, "feed_not_found")
        assert server.logged("/api/v1/events.ics 304")
        assert "cxf_" not in server.errors
