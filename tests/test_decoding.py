"""Bodies and query strings: what is taken, what is refused and where the fault is said to be (contract, section 2)."""

import json
import secrets
import time
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from service import clock, decoding
from service.auth import sign_in
from service.db import Position
from service.decoding import read_form, read_json, read_query
from service.errors import InvalidBody, InvalidJson, InvalidParameter
from service.models import Notification
from service.shapes import convert
from service.signature import Form
from tests.samples import NOBODY, Everything, eve_fixture  # noqa: F401


def nested(levels, opening=b"[", closing=b"]", core=b""):
    """An object that holds lists within lists, `levels` deep with itself."""
    return b'{"anything":' + opening * (levels - 1) + core + closing * (levels - 1) + b"}"


NOT_JSON = {
    "a word": b"nonsense",
    "cut off": b'{"name": "x',
    "two": b"{} {}",
    "single quotes": b"{'name': 'x'}",
    "trailing comma": b'{"name": "x",}',
    "comment": b"{} // x",
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "Latin-1": '{"name": "é"}'.encode("latin-1"),
    "overlong UTF-8": b'{"name": "\xc0\xaf"}',
    "surrogate in UTF-8": b'{"name": "\xed\xa0\x80"}',
    "duplicate member": b'{"name": "x", "name": "y"}',
    "duplicate member inside": b'{"inner": {"numbers": [1], "numbers": [2]}}',
    "duplicate after unescaping": b'{"name": "x", "n\\u0061me": "y"}',
    "NaN": b'{"score": NaN}',
    "Infinity": b'{"score": Infinity}',
    "-Infinity": b'{"score": -Infinity}',
    "1e999": b'{"score": 1e999}',
    "-1e999 where nobody looks": b'{"unknown": [[-1e999]]}',
    "lone surrogate": b'{"name": "\\ud800"}',
    "lone low surrogate": b'{"name": "\\udc00x"}',
    "lone surrogate in a name": b'{"\\ud800": 1}',
    "NUL": b'{"name": "a\\u0000b"}',
    "NUL in a name": b'{"a\\u0000b": 1}',
    "raw control character": b'{"name": "a\nb"}',
    "raw NUL": b'{"name": "a\0b"}',
    "leading zero": b'{"score": 01}',
    "5,000 digits": b'{"location": [' + b"9" * 5000 + b"]}",
    "5,000 digits where nobody looks": b'{"unknown": ' + b"9" * 5000 + b"}",
    "101 levels": nested(101),
    "101 levels with text in it": nested(101, core=b'"x"'),
    "101 levels of objects": nested(101, b'{"a":', b"}", b"1"),
    "100,000 levels": nested(100_000),
    "100,000 openings": b"[" * 100_000,
    "100,000 objects": b'{"a":' * 100_000,
}

WRONG_TYPES = {
    "$.location[2]: expected int": {"location": [1, 2, "3"]},
    "$.location[0]: expected int": {"location": [True]},
    "$.location[1]: expected int": {"location": [1, None]},
    "$.location: expected array": {"location": "1,2"},
    "$.name: expected str": {"name": 5},
    "$.is_open: expected bool": {"is_open": "true"},
    "$.is_open: expected bool ": {"is_open": 1},
    "$.score: expected float": {"score": "1"},
    "$.kind: invalid enum value 'cat'": {"kind": "cat"},
    "$.inner.numbers[1]: expected int": {"inner": {"numbers": [0, 1.5]}},
    "$.inner: object missing required field numbers": {"inner": {}},
    "$: expected object": [],
    "$: expected object ": "text",
    "$: expected object  ": 5,
}


def processor_seconds(action, *arguments):
    begun = time.thread_time()
    action(*arguments)
    return time.thread_time() - begun


class TestBodies:
    @pytest.mark.parametrize("kind", NOT_JSON)
    def test_that_are_not_acceptable_json_are_400(self, eve, kind):
        reply = eve.put("/everything", raw=NOT_JSON[kind])
        assert reply.error == (400, "invalid_json")
        assert len(reply.message) < 200

    @pytest.mark.parametrize("fault", WRONG_TYPES)
    def test_of_wrong_types_are_400_with_the_place_of_the_fault(self, eve, fault):
        reply = eve.put("/everything", WRONG_TYPES[fault])
        assert reply.error == (400, "invalid_body")
        assert reply.message == fault.rstrip()

    @pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
    def test_integers_are_at_most_64_bits_wide(self, eve, number):
        reply = eve.put("/everything", {"location": [number]})
        assert reply.error == (400, "invalid_body")
        assert reply.message.startswith("$.location[0]: ")

    def test_integers_of_64_bits_come_back_unchanged(self, eve):
        ends = [2**63 - 1, -(2**63), 0]
        assert eve.put("/everything", {"location": ends}).data["location"] == ends

    def test_the_place_of_json_faults_is_told_too(self, eve):
        for raw, place in (
            (b'{"anything": [{"deep": "a\\u0000"}]}', "$.anything[0].deep"),
            (b'{"location": [1e999]}', "$.location[0]"),
            (b'{"x": "y",\n "z" 1}', "line 2, column 6"),
            (b'{"twin": 1, "twin": 2}', '"twin"'),
        ):
            assert place in eve.put("/everything", raw=raw).message

    def test_faults_are_told_briefly_however_long_they_are(self, eve):
        long = b"x" * 100_000
        for raw in (b'{"kind": "%s"}', b'{"%s": "\\u0000"}', b'{"x%s": 1, "x%s": 2}', b'{"x": %s}'):
            assert len(eve.put("/everything", raw=raw.replace(b"%s", long)).message) <= 500
        warned = eve.patch("/inbox", raw=b'{"%s": 1, "%s": 2}'.replace(b"%s", long)).headers["X-Request-Warning"]
        assert len(warned) < 600

    def test_cost_no_more_for_being_deep_below_long_names(self):
        text = b'{"%s": {"%s": [%s]}}' % (b"x" * 350_000, b"y" * 350_000, b",".join([b'""'] * 100_000))
        short = b'{"x": {"y": [%s]}}' % b",".join([b'""'] * 100_000)
        costs = [min(processor_seconds(read_json, one) for _ in range(3)) for one in (short, text)]
        assert costs[1] < 20 * costs[0]  # names of 350,000 characters in each of 100,000 places would be thousands

    def test_what_was_sent_does_not_change_the_place_of_the_fault(self, eve):
        for word in ("cat - at `$.name`", "cat - at `$.name`s", "`, got `int`"):
            assert eve.put("/everything", {"kind": word}).message.startswith("$.kind: ")

    def test_of_100_levels_are_taken(self, eve):
        for core in (b"", b"1", b'"x"'):
            assert eve.put("/everything", raw=nested(100, core=core)).status == 200

    def test_keep_text_as_it_is(self, eve):
        text = '\U0001f35e \u2028 "quoted" \\ \t\n é e\u0301 \ufeff </script> \x7f'
        for raw in (json.dumps({"name": text}), json.dumps({"name": text}, ensure_ascii=False)):
            assert eve.put("/everything", raw=raw.encode()).data["name"] == text

    def test_members_that_nobody_asked_for_are_ignored(self, eve):
        assert eve.put("/everything", {"name": "x", "id": 5, "role": "admin", "": None}).data == {"name": "x"}

    @pytest.mark.parametrize("raw", [b"null", b" null\n"])
    def test_are_never_null(self, eve, raw):
        for path in ("/everything", "/users/me", "/users/me/settings"):
            assert eve.call("PUT" if path == "/everything" else "PATCH", path, raw=raw).error == (400, "invalid_body")

    @pytest.mark.parametrize("raw", [b"", b" \r\n", b"{}"])
    def test_may_be_left_out_where_no_member_is_required(self, eve, raw):
        assert eve.put("/everything", raw=raw).data == {}

    @pytest.mark.parametrize("raw", [b"", b" \r\n", b"null", b"{}"])
    def test_may_not_be_left_out_otherwise(self, eve, raw):
        assert eve.post("/apps", raw=raw).error == (400, "invalid_body")

    @pytest.mark.parametrize(
        "kind",
        [
            "",
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/merge-patch+json",
            " application/json ",
        ],
    )
    def test_are_json_or_say_nothing(self, eve, kind):
        assert eve.put("/everything", {"name": "x"}, content_type=kind).status == 200

    @pytest.mark.parametrize(
        "kind",
        [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/jsonp",
            "application/json, text/plain",
            "x" * 5000,
            "é",
            "application/json\n",
        ],
    )
    def test_that_say_they_are_something_else_are_400(self, eve, kind):
        reply = eve.put("/everything", {"name": "x"}, content_type=f"{kind}x" if kind.endswith("\n") else kind)
        assert reply.error == (400, "invalid_json")
        assert reply.message.startswith("Content-Type: ")
        assert len(reply.message) < 200

    def test_up_to_1_mib_are_taken_and_larger_ones_are_413(self, eve):
        largest = {"name": "x" * (2**20 - len('{"name": ""}'))}
        assert eve.put("/everything", largest).status == 200
        reply = eve.put("/everything", raw=json.dumps(largest).encode() + b" ")
        assert reply.error == (413, "body_too_large")
        assert eve.put("/everything", raw=b"x" * 2**22).error == (413, "body_too_large")

    def test_too_large_ones_are_not_read(self, anyone):
        class Untouchable:
            def read(self, size):
                assert size <= 2**20 + 1
                return b"x" * size

        statuses = []
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/api/v1/auth/login", "CONTENT_LENGTH": str(10**12)}
        anyone.application(
            environ | {"wsgi.url_scheme": "http", "wsgi.input": Untouchable()},
            lambda status, *_: statuses.append(status[:3]),
        )
        assert statuses == ["413"]

    def test_read_json_and_convert_work_without_a_request(self):
        assert convert(read_json(b'{"name": "x"}'), Everything).name == "x"
        with pytest.raises(InvalidJson):
            read_json(b"{")
        with pytest.raises(InvalidBody, match="expected object, got nothing"):
            read_json(b" ")


def understood(client, query):
    """What the query string was read as."""
    return client.get(f"/filters?app_id={NOBODY}&{query}").data


def refused(client, query):
    """The message of a query string that is refused."""
    reply = client.get(f"/filters?app_id={NOBODY}&{query}")
    assert reply.error == (400, "invalid_parameter"), query
    return reply.message


class TestQueries:
    @pytest.mark.parametrize(
        ("asked", "used"),
        [("1", 1), ("100", 100), ("101", 100), ("0", 1), ("-5", 1), ("007", 7), ("9" * 900, 100), ("-" + "9" * 900, 1)],
    )
    def test_page_sizes_are_clamped_and_meta_says_what_was_used(self, eve, asked, used):
        assert eve.get(f"/apps?app_id={NOBODY}&per_page={asked}").meta["per_page"] == used

    @pytest.mark.parametrize(
        "size", ["", "x", "1.0", "1e1", "+1", "%2B1", "0x10", "1_0", "٣", "%D9%A3", "1%0a", " 1", "null"]
    )
    def test_other_page_sizes_are_malformed(self, eve, size):
        assert refused(eve, f"per_page={size.encode().decode('latin-1')}") == "per_page: expected a whole number."

    @pytest.mark.parametrize(
        ("text", "value"), [("true", True), ("TRUE", True), ("1", True), ("false", False), ("0", False)]
    )
    def test_booleans(self, eve, text, value):
        assert understood(eve, f"featured_only={text}")["featured_only"] is value

    @pytest.mark.parametrize("text", ["", "yes", "on", "2", "tru", "true%00", "true%20", "null"])
    def test_other_booleans_are_malformed(self, eve, text):
        assert refused(eve, f"featured_only={text}").startswith("featured_only: expected ")

    def test_choices(self, eve):
        assert understood(eve, "kind=bot&presence=away&mood=glad")["presence"] == "away"
        assert refused(eve, "kind=Bot") == "kind: expected one of bot, nobot."
        assert refused(eve, "presence=cat") == "presence: expected one of online, away."
        assert refused(eve, "mood=%0d%0aSet-Cookie:x") == "mood: expected one of glad."

    def test_uuids_are_case_insensitive(self, eve):
        shouted = "ABCDEF00-0000-4000-8000-000000000000"
        assert eve.get(f"/filters?app_id={shouted}").data["app_id"] == shouted.lower()

    @pytest.mark.parametrize(
        "wrong", ["", "x", f"{{{NOBODY}}}", f"urn:uuid:{NOBODY}", NOBODY.replace("-", ""), f"{NOBODY}%0a"]
    )
    def test_other_uuids_are_malformed_and_never_404(self, eve, wrong):
        reply = eve.get(f"/filters?app_id={wrong}")
        assert reply.error == (400, "invalid_parameter")
        assert reply.message == "app_id: expected a UUID."

    def test_a_required_parameter_must_be_there(self, eve):
        reply = eve.get("/filters?per_page=5")
        assert reply.error == (400, "invalid_parameter")
        assert reply.message == "app_id: required."

    @pytest.mark.parametrize(
        ("text", "start", "end"),
        [
            ("2026-11-20", "2026-11-20T00:00:00.000Z", "2026-11-20T23:59:59.999Z"),
            ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00.000Z", "2026-11-20T10:00:00.000Z"),
            ("2026-11-20T10:00:00.5%2B02:00", "2026-11-20T08:00:00.500Z", "2026-11-20T08:00:00.500Z"),
            ("2026-11-20T10:00:00+02:00", "2026-11-20T08:00:00.000Z", "2026-11-20T08:00:00.000Z"),
            ("2026-11-20t23:30:00.1239-01:00", "2026-11-21T00:30:00.123Z", "2026-11-21T00:30:00.123Z"),
            ("2026-11-20T10:00:00.5", "2026-11-20T10:00:00.500Z", "2026-11-20T10:00:00.500Z"),
            ("2024-02-29", "2024-02-29T00:00:00.000Z", "2024-02-29T23:59:59.999Z"),
        ],
    )
    def test_bounds_take_any_offset_and_a_bare_date(self, eve, text, start, end):
        found = understood(eve, f"from={text}&to={text}")
        assert (found["starts"], found["ends"]) == (start, end)

    @pytest.mark.parametrize(
        "text", ["", "today", "2026", "2026-13-01", "2025-02-29", "2026-11-20T10:00", "2026-11-20T25:00:00Z"]
    )
    def test_other_bounds_are_malformed_and_named_as_on_the_wire(self, eve, text):
        assert refused(eve, f"from={text}").startswith("from: ")
        assert refused(eve, f"to={text}").startswith("to: ")

    @pytest.mark.parametrize("name", ["per_page", "featured_only", "from", "search", "kind"])
    def test_a_parameter_given_twice_is_refused(self, eve, name):
        value = {"from": "2026-01-01", "kind": "bot"}.get(name, "1")
        assert refused(eve, f"{name}={value}&{name}={value}") == f"{name}: given more than once."

    def test_a_cursor_given_twice_is_refused(self, eve):
        assert eve.get(f"/filters?app_id={NOBODY}&cursor=a&cursor=a").status == 400

    def test_unknown_parameters_are_ignored_however_they_look(self, eve):
        usual = understood(eve, "")
        assert understood(eve, "utm=%ff&utm=1&limit=x&=&%ff=1&;&%00=%00&[]=1&per_page%00=x") == usual

    def test_text_is_unescaped(self, eve):
        assert understood(eve, "search=a%20b+c%2B%26%3D")["search"] == "a b c+&="
        assert understood(eve, "search=%C3%A9")["search"] == "é"
        assert understood(eve, "search=" + "é".encode().decode("latin-1"))["search"] == "é"
        assert understood(eve, "search=%5C%25_%27%22;--")["search"] == "\\%_'\";--"

    @pytest.mark.parametrize("text", ["%ff", "\xff", "%C3", "%ED%A0%80", "a%00b", "%c0%af"])
    def test_unreadable_text_is_malformed(self, eve, text):
        assert refused(eve, f"search={text}") == "search: expected readable UTF-8."

    def test_more_than_100_parameters_are_refused_before_any_is_unescaped(self, eve, monkeypatch):
        many = "&".join(["a=%61"] * 98)
        usual = understood(eve, "")
        assert understood(eve, f"{many}&a") == usual  # with app_id they are 100
        monkeypatch.setattr(decoding, "parse_qsl", None)
        for query in (f"{many}&a&a", "&" * 30_000, "%61&" * 7_700):
            assert refused(eve, query) == "There are more than 100 parameters."

    def test_too_many_parameters_are_refused_on_a_page_without_being_unescaped(self, anyone, monkeypatch):
        anyone.get("//sign-in")
        monkeypatch.setattr(decoding, "parse_qsl", None)
        monkeypatch.setattr(sign_in, "parse_qsl", None)
        reply = anyone.get("//sign-in?" + "%61&" * 7_700, sec_fetch_mode="navigate")
        assert reply.status == 400
        assert "There are more than 100 parameters." in reply.raw.decode()

    def test_text_that_is_too_long_is_malformed(self, eve):
        assert refused(eve, f"search={'x' * 21}").startswith("search: ")

    def test_the_message_never_repeats_what_was_sent(self, eve):
        for name in ("per_page", "featured_only", "from", "kind", "search", "presence"):
            assert "zzzzzzzzzzzzzzzzzzzzzzzz" not in refused(eve, f"{name}=zzzzzzzzzzzzzzzzzzzzzzzz")

    def test_a_present_operation_keeps_these_rules(self, alice, session):
        path = f"/chats/{session.id}/messages"
        assert alice.get(f"{path}?limit=1000").meta["per_page"] == 200
        for query in ("limit=x", "direction=sideways", "limit=1&limit=1", "direction=", "direction=%ff"):
            assert alice.get(f"{path}?{query}").error == (400, "invalid_parameter")
        assert alice.get(f"{path}?cursor=x").error == (400, "invalid_cursor")
        assert alice.get(f"{path}?nonsense=%ff&nonsense").status == 200


@pytest.fixture
def inbox(alice):
    """Three of Alice's notifications a day apart, the oldest read."""
    for day in (1, 2, 3):
        at = f"2026-11-0{day}T12:00:00.000Z"
        Notification.create(title=f"{day}", user_id=alice.user.id, created_at=at, read_at=at if day == 1 else None)


def seen(reply):
    return [notice["title"] for notice in reply.data]


class TestWhereTheDocumentListsNo400:
    def test_readable_values_select(self, eve, inbox):
        assert seen(eve.get("/inbox")) == ["3", "2", "1"]
        assert seen(eve.get("/inbox?since=2026-11-02&until=2026-11-02")) == ["2"]
        assert seen(eve.get("/inbox?until=2026-11-02T12:00:00Z")) == ["2", "1"]
        assert "X-Request-Warning" not in eve.get("/inbox?since=2026-11-02&unknown=%ff").headers

    @pytest.mark.parametrize(
        ("query", "name"),
        [
            ("since=garbage", "since"),
            ("until=garbage", "until"),
            ("since=", "since"),
            ("until=", "until"),
            ("since=%ff", "since"),
            ("until=2026-11-03&until=2026-11-03", "until"),
            ("since=2026-13-01&until=2026-12-01", "since"),
            ("cursor=garbage", "cursor"),
            ("cursor=a&cursor=a", "cursor"),
            ("cursor=%ff%00", "cursor"),
        ],
    )
    def test_an_unreadable_bound_or_cursor_selects_nothing(self, eve, inbox, query, name):
        reply = eve.get(f"/inbox?{query}")
        assert (reply.status, reply.data, reply.meta["next_cursor"]) == (200, [], "")
        assert reply.headers["X-Request-Warning"].startswith(f"{name}: ")

    def test_more_than_100_parameters_select_nothing_and_none_is_unescaped(self, eve, inbox, monkeypatch):
        monkeypatch.setattr(decoding, "parse_qsl", None)
        reply = eve.get("/inbox?" + "limit=1&" * 100)
        assert (reply.status, reply.data, reply.meta["next_cursor"]) == (200, [], "")
        assert reply.headers["X-Request-Warning"].startswith("query: more than 100 parameters.; cursor: ")

    @pytest.mark.parametrize("query", ["limit=x", "limit=", "limit=1&limit=2", "unread_only=maybe", "unread_only=%ff"])
    def test_an_unreadable_size_or_boolean_falls_back_to_its_default(self, eve, inbox, query):
        reply = eve.get(f"/inbox?{query}")
        assert seen(reply) == ["3", "2", "1"]
        assert reply.meta["per_page"] == 25
        assert reply.headers["X-Request-Warning"].startswith(query.partition("=")[0] + ": ")

    def test_sizes_are_clamped_without_a_warning(self, eve, inbox):
        reply = eve.get("/inbox?limit=0")
        assert (seen(reply), reply.meta["per_page"]) == (["3"], 1)
        assert "X-Request-Warning" not in reply.headers

    def test_each_fault_is_warned_of(self, eve, inbox):
        warned = eve.get("/inbox?limit=x&unread_only=x&since=x&cursor=x").headers["X-Request-Warning"]
        assert warned.count("; ") == 3
        assert warned.startswith(
            "limit: expected a whole number.; unread_only: expected true or false.; since: expected"
        )

    @pytest.mark.parametrize("raw", [b"", b"{}", b" \n"])
    def test_a_missing_body_means_all(self, eve, inbox, raw):
        assert eve.patch("/inbox", raw=raw).data == {"count": 3}

    def test_a_readable_body_selects(self, eve, inbox):
        assert eve.patch("/inbox", {"before": "2026-11-02T12:00:00Z"}).data == {"count": 1}

    @pytest.mark.parametrize(
        ("raw", "kind"),
        [
            (b"{", ""),
            (b"[]", ""),
            (b'{"before": 5}', ""),
            (b'{"before": null}', ""),
            (b'{"before": "yesterday"}', ""),
            (b'{"before": "\\ud800"}', ""),
            (b"\xff", ""),
            (b"before=2026", "application/x-www-form-urlencoded"),
            (b'{"before": "x", "before": "y"}', ""),
            ('{"☃": 1, "☃": "\r\nSet-Cookie: a=b"'.encode(), ""),
            (b"[" * 100_000, ""),
        ],
    )
    def test_an_unreadable_body_selects_nothing(self, eve, inbox, raw, kind):
        reply = eve.patch("/inbox", raw=raw, content_type=kind)
        assert reply.data == {"count": 0}
        assert reply.headers["X-Request-Warning"].startswith("body: ")
        assert reply.headers["X-Request-Warning"].isprintable()
        assert reply.headers["X-Request-Warning"].isascii()

    def test_a_body_that_is_too_large_is_413_even_so(self, eve, inbox):
        assert eve.patch("/inbox", raw=b" " * 2**21).error == (413, "body_too_large")

    def test_credentials_are_asked_for_even_so(self, anyone, eve):
        eve.token = ""
        assert eve.get("/inbox?since=x").error == (401, "missing_credentials")


def test_timestamps_read_are_timestamps_written() -> None:
    for stamp in ("2026-11-20T10:00:00.000Z", "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"):
        assert clock.read_timestamp(stamp) == stamp
        assert clock.timestamp(clock.milliseconds(stamp)) == stamp


looked_at: list[str] = []  # the texts that were read, each time


def look_at(text: str) -> str:
    looked_at.append(text)
    return text


class Searched(Struct):
    q: Annotated[str, Meta(), look_at] = ""


class Told(Form):
    password: Annotated[str, Meta(), look_at] = ""


def query_of(text):
    return read_query(text, Searched, False, lambda *_: Position())[0]


def test_what_a_query_says_is_read_once_and_given_to_each_who_asks():
    text = secrets.token_hex()
    query_of(f"q={text}").q = "changed"
    assert query_of(f"q={text}").q == text
    assert looked_at.count(text) == 1


@pytest.mark.parametrize(("length", "times"), [(200, 1), (201, 3)])
def test_a_long_query_is_not_kept(length, times):
    text = secrets.token_hex().ljust(length - len("q="), "x")
    assert [query_of(f"q={text}").q for _ in range(3)] == [text] * 3
    assert looked_at.count(text) == times


def test_no_form_is_kept():
    text = secrets.token_hex()
    for _ in range(3):
        assert read_form(f"password={text}".encode(), "application/x-www-form-urlencoded", Told).password == text
    assert looked_at.count(text) == 3


def test_form_of_more_than_100_parameters_is_refused_before_any_is_unescaped(monkeypatch):
    class Told(Form):
        password: str

    kind = "application/x-www-form-urlencoded"
    assert read_form(b"password=x" + b"&a" * 99, kind, Told).password == "x"
    monkeypatch.setattr(decoding, "parse_qsl", None)
    with pytest.raises(InvalidParameter):
        read_form(b"password=x" + b"&a" * 100, kind, Told)
