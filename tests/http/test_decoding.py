"""Bodies and query strings: valid and invalid ones, and the position in error messages."""

import json
import random
import secrets
import time
from typing import Annotated
from urllib.parse import parse_qsl

import pytest
from msgspec import Meta, Struct

from service import clock
from service.api.parameter_types import Form
from service.api.schemas import convert
from service.console import sign_in
from service.db import Position
from service.errors import InvalidBody, InvalidJson, InvalidParameter
from service.http import decoding
from service.http.decoding import read_form, read_json, read_query
from service.models import Notification
from tests.support.malformed_bodies import NOT_JSON, nested
from tests.support.sample_operations import UNKNOWN_ID, Everything, eve_fixture  # noqa: F401

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
    def test_that_are_not_valid_json_are_400(self, eve, kind):
        reply = eve.put("/everything", raw=NOT_JSON[kind])
        assert reply.error == (400, "invalid_json")
        assert len(reply.message) < 200

    @pytest.mark.parametrize("fault", WRONG_TYPES)
    def test_of_wrong_types_are_400_with_the_path_of_the_member(self, eve, fault):
        reply = eve.put("/everything", WRONG_TYPES[fault])
        assert reply.error == (400, "invalid_body")
        assert reply.message == fault.rstrip()

    @pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
    def test_integers_are_at_most_64_bits_wide(self, eve, number):
        reply = eve.put("/everything", {"location": [number]})
        assert reply.error == (400, "invalid_body")
        assert reply.message.startswith("$.location[0]: ")

    def test_integers_of_64_bits_are_returned_unchanged(self, eve):
        ends = [2**63 - 1, -(2**63), 0]
        assert eve.put("/everything", {"location": ends}).data["location"] == ends

    def test_syntax_errors_are_400_with_their_position(self, eve):
        for raw, place in (
            (b'{"anything": [{"deep": "a\\u0000"}]}', "$.anything[0].deep"),
            (b'{"location": [1e999]}', "$.location[0]"),
            (b'{"x": "y",\n "z" 1}', "line 2, column 6"),
            (b'{"twin": 1, "twin": 2}', '"twin"'),
        ):
            assert place in eve.put("/everything", raw=raw).message

    def test_error_messages_have_a_maximum_length(self, eve):
        long = b"x" * 100_000
        for raw in (b'{"kind": "%s"}', b'{"%s": "\\u0000"}', b'{"x%s": 1, "x%s": 2}', b'{"x": %s}'):
            assert len(eve.put("/everything", raw=raw.replace(b"%s", long)).message) <= 500
        warned = eve.patch("/inbox", raw=b'{"%s": 1, "%s": 2}'.replace(b"%s", long)).headers["X-Request-Warning"]
        assert len(warned) < 600

    @pytest.mark.slow
    def test_nesting_below_long_names_does_not_increase_the_cost(self):
        text = b'{"%s": {"%s": [%s]}}' % (b"x" * 350_000, b"y" * 350_000, b",".join([b'""'] * 100_000))
        short = b'{"x": {"y": [%s]}}' % b",".join([b'""'] * 100_000)
        costs = [min(processor_seconds(read_json, one) for _ in range(3)) for one in (short, text)]
        assert costs[1] < 20 * costs[0]  # formatting the path of each value would cost thousands of times as much

    def test_content_does_not_change_the_path_in_the_message(self, eve):
        for word in ("cat - at `$.name`", "cat - at `$.name`s", "`, got `int`"):
            assert eve.put("/everything", {"kind": word}).message.startswith("$.kind: ")

    def test_of_100_levels_are_accepted(self, eve):
        for core in (b"", b"1", b'"x"'):
            assert eve.put("/everything", raw=nested(100, core=core)).status == 200

    def test_text_is_returned_unchanged(self, eve):
        text = '\U0001f35e \u2028 "quoted" \\ \t\n é e\u0301 \ufeff </script> \x7f'
        for raw in (json.dumps({"name": text}), json.dumps({"name": text}, ensure_ascii=False)):
            assert eve.put("/everything", raw=raw.encode()).data["name"] == text

    def test_unknown_members_are_ignored(self, eve):
        assert eve.put("/everything", {"name": "x", "id": 5, "role": "admin", "": None}).data == {"name": "x"}

    @pytest.mark.parametrize("raw", [b"null", b" null\n"])
    def test_are_never_null(self, eve, raw):
        for path in ("/everything", "/users/me", "/users/me/settings"):
            assert eve.call("PUT" if path == "/everything" else "PATCH", path, raw=raw).error == (400, "invalid_body")

    @pytest.mark.parametrize("raw", [b"", b" \r\n", b"{}"])
    def test_may_be_omitted_if_no_member_is_required(self, eve, raw):
        assert eve.put("/everything", raw=raw).data == {}

    @pytest.mark.parametrize("raw", [b"", b" \r\n", b"null", b"{}"])
    def test_may_not_be_omitted_otherwise(self, eve, raw):
        assert eve.post("/sample-apps", raw=raw).error == (400, "invalid_body")

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
    def test_are_json_or_have_no_content_type(self, eve, kind):
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
    def test_with_another_content_type_are_400(self, eve, kind):
        reply = eve.put("/everything", {"name": "x"}, content_type=f"{kind}x" if kind.endswith("\n") else kind)
        assert reply.error == (400, "invalid_json")
        assert reply.message.startswith("Content-Type: ")
        assert len(reply.message) < 200

    def test_up_to_1_mib_are_accepted_and_larger_ones_are_413(self, eve):
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


def parsed(client, query):
    """The parsed query string."""
    return client.get(f"/filters?app_id={UNKNOWN_ID}&{query}").data


def error_message(client, query):
    """The error message for an invalid query string."""
    reply = client.get(f"/filters?app_id={UNKNOWN_ID}&{query}")
    assert reply.error == (400, "invalid_parameter"), query
    return reply.message


class TestQueries:
    @pytest.mark.parametrize(
        ("requested", "used"),
        [("1", 1), ("100", 100), ("101", 100), ("0", 1), ("-5", 1), ("007", 7), ("9" * 900, 100), ("-" + "9" * 900, 1)],
    )
    def test_page_sizes_are_clamped_and_reported_in_meta(self, eve, requested, used):
        assert eve.get(f"/sample-apps?app_id={UNKNOWN_ID}&per_page={requested}").meta["per_page"] == used

    @pytest.mark.parametrize(
        "size", ["", "x", "1.0", "1e1", "+1", "%2B1", "0x10", "1_0", "٣", "%D9%A3", "1%0a", " 1", "null"]
    )
    def test_other_page_sizes_are_malformed(self, eve, size):
        assert error_message(eve, f"per_page={size.encode().decode('latin-1')}") == "per_page: expected a whole number."

    @pytest.mark.parametrize(
        ("text", "value"), [("true", True), ("TRUE", True), ("1", True), ("false", False), ("0", False)]
    )
    def test_booleans(self, eve, text, value):
        assert parsed(eve, f"featured_only={text}")["featured_only"] is value

    @pytest.mark.parametrize("text", ["", "yes", "on", "2", "tru", "true%00", "true%20", "null"])
    def test_other_booleans_are_malformed(self, eve, text):
        assert error_message(eve, f"featured_only={text}").startswith("featured_only: expected ")

    def test_choices(self, eve):
        assert parsed(eve, "kind=bot&presence=away&rating=good")["presence"] == "away"
        assert error_message(eve, "kind=Bot") == "kind: expected one of bot, nobot."
        assert error_message(eve, "presence=cat") == "presence: expected one of online, away."
        assert error_message(eve, "rating=%0d%0aSet-Cookie:x") == "rating: expected one of good."

    def test_uuids_are_case_insensitive(self, eve):
        shouted = "ABCDEF00-0000-4000-8000-000000000000"
        assert eve.get(f"/filters?app_id={shouted}").data["app_id"] == shouted.lower()

    @pytest.mark.parametrize(
        "wrong",
        ["", "x", f"{{{UNKNOWN_ID}}}", f"urn:uuid:{UNKNOWN_ID}", UNKNOWN_ID.replace("-", ""), f"{UNKNOWN_ID}%0a"],
    )
    def test_other_uuids_are_malformed_and_never_404(self, eve, wrong):
        reply = eve.get(f"/filters?app_id={wrong}")
        assert reply.error == (400, "invalid_parameter")
        assert reply.message == "app_id: expected a UUID."

    def test_required_parameters_may_not_be_omitted(self, eve):
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
    def test_bounds_accept_any_offset_and_a_date(self, eve, text, start, end):
        found = parsed(eve, f"from={text}&to={text}")
        assert (found["starts"], found["ends"]) == (start, end)

    @pytest.mark.parametrize(
        "text", ["", "today", "2026", "2026-13-01", "2025-02-29", "2026-11-20T10:00", "2026-11-20T25:00:00Z"]
    )
    def test_errors_of_other_bounds_contain_the_name_of_the_parameter(self, eve, text):
        assert error_message(eve, f"from={text}").startswith("from: ")
        assert error_message(eve, f"to={text}").startswith("to: ")

    @pytest.mark.parametrize("name", ["per_page", "featured_only", "from", "search", "kind"])
    def test_repeated_parameters_are_errors(self, eve, name):
        value = {"from": "2026-01-01", "kind": "bot"}.get(name, "1")
        assert error_message(eve, f"{name}={value}&{name}={value}") == f"{name}: given more than once."

    def test_repeated_cursors_are_errors(self, eve):
        assert eve.get(f"/filters?app_id={UNKNOWN_ID}&cursor=a&cursor=a").status == 400

    def test_unknown_parameters_are_ignored_even_if_malformed(self, eve):
        usual = parsed(eve, "")
        assert parsed(eve, "utm=%ff&utm=1&limit=x&=&%ff=1&;&%00=%00&[]=1&per_page%00=x") == usual

    def test_text_is_unescaped(self, eve):
        assert parsed(eve, "search=a%20b+c%2B%26%3D")["search"] == "a b c+&="
        assert parsed(eve, "search=%C3%A9")["search"] == "é"
        assert parsed(eve, "search=" + "é".encode().decode("latin-1"))["search"] == "é"
        assert parsed(eve, "search=%5C%25_%27%22;--")["search"] == "\\%_'\";--"

    @pytest.mark.parametrize("text", ["%ff", "\xff", "%C3", "%ED%A0%80", "a%00b", "%c0%af"])
    def test_invalid_utf_8_is_malformed(self, eve, text):
        assert error_message(eve, f"search={text}") == "search: expected valid UTF-8 without NUL."

    def test_names_and_values_are_unescaped_as_by_the_standard_library(self):
        pieces = [*"%=&+;aF0_ \n\r\t", "%41", "%3D", "%c3%a9", "%ff", "%0a"]
        for _ in range(5_000):
            text = "".join(random.choices(pieces, k=random.randint(0, 12)))
            expected = dict[str, list[str]]()
            for name, value in parse_qsl(text, keep_blank_values=True, errors="surrogateescape"):
                expected.setdefault(name, []).append(value)
            assert decoding.read_parameters(text) == expected, text

    def test_more_than_100_parameters_are_refused_before_any_is_unescaped(self, eve, monkeypatch):
        many = "&".join(["a=%61"] * 98)
        usual = parsed(eve, "")
        assert parsed(eve, f"{many}&a") == usual  # 100 with app_id
        monkeypatch.setattr(decoding, "unescape", None)
        for query in (f"{many}&a&a", "&" * 30_000, "%61&" * 7_700):
            assert error_message(eve, query) == "There are more than 100 parameters."

    def test_too_many_parameters_are_refused_on_a_page_without_being_unescaped(self, anyone, monkeypatch):
        anyone.get("//sign-in")
        monkeypatch.setattr(decoding, "unescape", None)
        monkeypatch.setattr(sign_in, "parse_qsl", None)
        reply = anyone.get("//sign-in?" + "%61&" * 7_700, sec_fetch_mode="navigate")
        assert reply.status == 400
        assert "There are more than 100 parameters." in reply.raw.decode()

    def test_text_that_is_too_long_is_malformed(self, eve):
        assert error_message(eve, f"search={'x' * 21}").startswith("search: ")

    def test_messages_do_not_contain_the_invalid_value(self, eve):
        for name in ("per_page", "featured_only", "from", "kind", "search", "presence"):
            assert "zzzzzzzzzzzzzzzzzzzzzzzz" not in error_message(eve, f"{name}=zzzzzzzzzzzzzzzzzzzzzzzz")

    def test_rules_apply_to_existing_operations(self, alice, session):
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


class TestLenientOperations:
    def test_valid_values_select(self, eve, inbox):
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
    def test_a_malformed_bound_or_cursor_selects_nothing(self, eve, inbox, query, name):
        reply = eve.get(f"/inbox?{query}")
        assert (reply.status, reply.data, reply.meta["next_cursor"]) == (200, [], "")
        assert reply.headers["X-Request-Warning"].startswith(f"{name}: ")

    def test_more_than_100_parameters_select_nothing_and_none_is_unescaped(self, eve, inbox, monkeypatch):
        monkeypatch.setattr(decoding, "unescape", None)
        reply = eve.get("/inbox?" + "limit=1&" * 100)
        assert (reply.status, reply.data, reply.meta["next_cursor"]) == (200, [], "")
        assert reply.headers["X-Request-Warning"].startswith("query: more than 100 parameters.; cursor: ")

    @pytest.mark.parametrize("query", ["limit=x", "limit=", "limit=1&limit=2", "unread_only=maybe", "unread_only=%ff"])
    def test_a_malformed_size_or_boolean_becomes_the_default(self, eve, inbox, query):
        reply = eve.get(f"/inbox?{query}")
        assert seen(reply) == ["3", "2", "1"]
        assert reply.meta["per_page"] == 25
        assert reply.headers["X-Request-Warning"].startswith(query.partition("=")[0] + ": ")

    def test_sizes_are_clamped_without_a_warning(self, eve, inbox):
        reply = eve.get("/inbox?limit=0")
        assert (seen(reply), reply.meta["per_page"]) == (["3"], 1)
        assert "X-Request-Warning" not in reply.headers

    def test_each_error_is_in_the_warning(self, eve, inbox):
        warned = eve.get("/inbox?limit=x&unread_only=x&since=x&cursor=x").headers["X-Request-Warning"]
        assert warned.count("; ") == 3
        assert warned.startswith(
            "limit: expected a whole number.; unread_only: expected true or false.; since: expected"
        )

    @pytest.mark.parametrize("raw", [b"", b"{}", b" \n"])
    def test_a_missing_body_means_all(self, eve, inbox, raw):
        assert eve.patch("/inbox", raw=raw).data == {"count": 3}

    def test_a_valid_body_selects(self, eve, inbox):
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
    def test_a_malformed_body_selects_nothing(self, eve, inbox, raw, kind):
        reply = eve.patch("/inbox", raw=raw, content_type=kind)
        assert reply.data == {"count": 0}
        assert reply.headers["X-Request-Warning"].startswith("body: ")
        assert reply.headers["X-Request-Warning"].isprintable()
        assert reply.headers["X-Request-Warning"].isascii()

    def test_a_body_that_is_too_large_is_still_413(self, eve, inbox):
        assert eve.patch("/inbox", raw=b" " * 2**21).error == (413, "body_too_large")

    def test_credentials_are_still_required(self, anyone, eve):
        eve.token = ""
        assert eve.get("/inbox?since=x").error == (401, "missing_credentials")


def test_parsed_timestamps_are_formatted_unchanged() -> None:
    for stamp in ("2026-11-20T10:00:00.000Z", "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"):
        assert clock.read_timestamp(stamp) == stamp
        assert clock.timestamp(clock.milliseconds(stamp)) == stamp


checked: list[str] = []  # the checked texts, in order


def check(text: str) -> str:
    checked.append(text)
    return text


class SearchQuery(Struct):
    q: Annotated[str, Meta(), check] = ""


class PasswordForm(Form):
    password: Annotated[str, Meta(), check] = ""


def query_of(text):
    return read_query(text, SearchQuery, False, lambda *_: Position())[0]


def test_decoded_queries_are_memoized():
    text = secrets.token_hex()
    query_of(f"q={text}").q = "changed"
    assert query_of(f"q={text}").q == text
    assert checked.count(text) == 1


@pytest.mark.parametrize(("length", "times"), [(200, 1), (201, 3)])
def test_long_queries_are_not_memoized(length, times):
    text = secrets.token_hex().ljust(length - len("q="), "x")
    assert [query_of(f"q={text}").q for _ in range(3)] == [text] * 3
    assert checked.count(text) == times


def test_forms_are_not_memoized():
    text = secrets.token_hex()
    for _ in range(3):
        assert (
            read_form(f"password={text}".encode(), "application/x-www-form-urlencoded", PasswordForm).password == text
        )
    assert checked.count(text) == 3


def test_form_of_more_than_100_parameters_is_refused_before_any_is_unescaped(monkeypatch):
    class PasswordForm(Form):
        password: str

    kind = "application/x-www-form-urlencoded"
    assert read_form(b"password=x" + b"&a" * 99, kind, PasswordForm).password == "x"
    monkeypatch.setattr(decoding, "unescape", None)
    with pytest.raises(InvalidParameter):
        read_form(b"password=x" + b"&a" * 100, kind, PasswordForm)
