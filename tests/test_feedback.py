"""Feedback: sections 2.11 and 4.6 of the document, sections 2, 7 and 9 of the contract."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service import transfer
from service.models import Feedback, KeptAnswer, LoginSession
from tests.conftest import Client
from tests.samples import NOBODY
from tests.trouble import full, locked, read_only
from tests.watching import at_once, nothing_changes, stored

pytestmark = pytest.mark.usefixtures("host_clock")  # first, so that all tokens are of its time

NOW = "2026-11-20T10:00:00.000Z"
MOST = 16 * 1024  # bytes of device_info
DEVICE = {"model": "Pixel 9", "os": {"name": "Android", "version": [16, 0]}, "größe": 6.3, "rooted": False, "sim": None}


def tell(client: Client, **members: Any) -> Any:
    """New feedback of a client's."""
    reply = client.post("/feedback", {"description": "It hums.", **members})
    assert reply.status == 201, reply.json
    return reply.data


def compact(value: Any) -> bytes:
    """JSON without blanks, as the contract has it on the wire."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def exported() -> dict[str, Any]:
    """Every record as it leaves, by its identifier."""
    written: list[bytes] = []
    transfer.give_out(written.append)
    records = [json.loads(line) for line in b"".join(written).splitlines()]
    return {record["feedback"]["id"]: record["feedback"] for record in records if "feedback" in record}


class TestFeedback:
    def test_is_answered_with_every_member(self, alice):
        sent = {
            "app_version": "4.2.0-beta+7",
            "description": "The bell rings twice. \U0001f514\n\tIt should not.",
            "device_info": DEVICE,
            "feedback_type": "bug",
            "screenshot_url": "https://example.com/shot.png?at=1#top",
        }
        reply = alice.post("/feedback", sent)
        assert reply.status == 201
        assert set(reply.json) == {"success", "data"}
        assert list(reply.data.items()) == [
            ("id", reply.data["id"]),
            ("user_id", alice.user.id),
            ("feedback_type", "bug"),
            ("description", sent["description"]),
            ("app_version", "4.2.0-beta+7"),
            ("device_info", [*compact(DEVICE)]),
            ("screenshot_url", sent["screenshot_url"]),
            ("status", "new"),
            ("created_at", NOW),
            ("updated_at", NOW),
        ]
        assert exported() == {reply.data["id"]: reply.data}

    @pytest.mark.parametrize("unset", ["left out", None, ""])
    def test_needs_a_description_only(self, alice, unset):
        texts = {} if unset == "left out" else dict.fromkeys(["app_version", "feedback_type", "screenshot_url"], unset)
        told = tell(alice, **texts, **({"device_info": None} if unset is None else {}))
        assert told["feedback_type"] == "general"
        assert (told["app_version"], told["screenshot_url"], told["device_info"]) == ("", "", [])

    def test_is_of_the_caller_and_new_whatever_it_says(self, alice, bob):
        forged = {"id": NOBODY, "user_id": bob.user.id, "status": "done", "created_at": "2020-01-01T00:00:00.000Z"}
        told = tell(alice, **forged, updated_at="soon", colour={"red": [1]})
        assert not told.items() & forged.items()
        assert (told["user_id"], told["status"], told["created_at"], told["updated_at"]) == (
            alice.user.id,
            "new",
            NOW,
            NOW,
        )

    @pytest.mark.parametrize("who", ["bob", "agent", "admin"])
    def test_may_come_from_anybody_who_is_known(self, who, request):
        client = request.getfixturevalue(who)
        assert tell(client)["user_id"] == client.user.id

    def test_may_not_come_from_a_stranger(self, anyone):
        with nothing_changes():
            for raw in (b"{", b'{"description": "x"}'):
                assert anyone.post("/feedback", raw=raw).error == (401, "missing_credentials")

    def test_is_a_record_each_time(self, alice):
        assert tell(alice)["id"] != tell(alice)["id"]

    def test_has_one_moment_in_which_it_was_made(self, alice, host_clock, monkeypatch):
        monkeypatch.setattr("service.clock.host_time", lambda: host_clock.forward(seconds=1) or host_clock.now)
        told = tell(alice)
        assert told["created_at"] == told["updated_at"] > NOW

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
    def test_is_posted_and_listed_only(self, alice, method):
        reply = alice.call(method, "/feedback", {"description": "x"})
        assert reply.error == (405, "method_not_allowed")

    @pytest.mark.parametrize("scopes", ["feedback", "feedback:read", "chats profile"])
    def test_needs_a_token_that_reaches_so_far(self, alice, scopes):
        LoginSession.update(scopes=scopes).where(LoginSession.user_id == alice.user.id).execute()
        if scopes == "feedback":
            tell(alice)
            return
        with nothing_changes():
            assert alice.post("/feedback", raw=b"{").error == (403, "insufficient_scope")

    def test_may_come_from_many_at_once(self, alice):
        told = at_once(6, lambda number: tell(alice, description=f"No. {number}"))
        assert {record["description"] for record in exported().values()} == {f"No. {number}" for number in range(6)}
        assert len({record["id"] for record in told}) == 6


class TestTexts:
    @pytest.mark.parametrize(
        "members",
        [
            {"description": "x"},
            {"description": " "},
            {"description": "x" * 10_000},
            {"description": "\U0001f514" * 10_000},
            {"description": "e\u0301\u202e\u2028\x01\x7f\"\\</script>'; DROP TABLE feedback --\ufeff\uffff\U0010ffff"},
            {"app_version": "x" * 64},
            {"app_version": "\U0001f514" * 64},
            {"app_version": "4.2 (build\t7)"},
            {"feedback_type": "x" * 64},
            {"feedback_type": "Feature_request-2"},
            {"feedback_type": "0"},
            {"screenshot_url": "http://example.com"},
            {"screenshot_url": "HTTPS://EXAMPLE.COM:8443/Ü?q=%20#ü"},
            {"screenshot_url": "http://[::1]/a"},
            {"screenshot_url": "https://user@example.com/"},
            {"screenshot_url": f"https://example.com/{'x' * 2028}"},
            {"screenshot_url": f"https://example.com/{'ü' * 2028}"},
        ],
        ids=str,
    )
    def test_come_back_as_they_were(self, alice, members):
        told = tell(alice, **members)
        assert told.items() >= members.items()

    def test_that_name_a_picture_never_make_the_service_fetch_it(self, alice, monkeypatch):
        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("somebody was called")

        for name in ("connect", "connect_ex", "sendto"):
            monkeypatch.setattr(socket.socket, name, refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        for url in ("http://169.254.169.254/latest/meta-data", "http://127.0.0.1:1/", "https://nowhere.invalid/x.png"):
            assert tell(alice, screenshot_url=url)["screenshot_url"] == url


DEVICES = [
    {},
    DEVICE,
    {"a": [], "b": {}, "c": "", "": None},
    {"big": 10**30, "small": -1e-300, "whole": 1.0, "minus": -0.0},
    {"text": '\U0001f4f1 \u2028 \x01\x7f " \\ / é e\u0301'},
    {"\U0001f4f1": {"é": [[[{}]]]}},
    {"user_id": NOBODY, "status": "done"},
]


class TestTheDevice:
    @pytest.mark.parametrize("device", DEVICES, ids=str)
    def test_comes_back_as_the_bytes_of_compact_json(self, alice, device):
        told = tell(alice, device_info=device)["device_info"]
        assert bytes(told) == compact(device)
        assert json.loads(bytes(told)) == device

    def test_that_is_empty_is_not_one_that_is_unset(self, alice):
        assert tell(alice, device_info={})["device_info"] == [*b"{}"]
        assert tell(alice)["device_info"] == []

    def test_loses_blanks_and_escapes_and_keeps_its_order(self, alice):
        raw = b'{"description": "x", "device_info": { "z" : "\\u00fc\\/" ,\n "a" : [ 1 , 2 ] } }'
        assert bytes(alice.post("/feedback", raw=raw).data["device_info"]) == '{"z":"ü/","a":[1,2]}'.encode()

    @pytest.mark.parametrize("filling", ["x", "ü", "\U0001f4f1", '"'])
    def test_has_at_most_16_kib_as_it_is_kept(self, alice, filling):
        size = len(compact({"a": filling})) - len(compact({"a": ""}))
        device = {"a": filling * ((MOST - 20) // size), "b": ""}
        device["b"] = "x" * (MOST - len(compact(device)))
        assert len(tell(alice, device_info=device)["device_info"]) == len(compact(device)) == MOST
        device["b"] += "x"
        with nothing_changes():
            reply = alice.post("/feedback", {"description": "x", "device_info": device})
            assert reply.error == (400, "invalid_body")
            assert reply.message == "$.device_info: expected at most 16384 bytes of JSON"

    def test_may_be_sent_with_more_blanks_than_that(self, alice):
        raw = b'{"description": "x", "device_info": {' + b" " * 2 * MOST + b"}}"
        assert alice.post("/feedback", raw=raw).data["device_info"] == [*b"{}"]

    def test_may_be_nested_as_deep_as_any_body(self, alice):
        device: Any = "end"
        for _ in range(98):
            device = [device]
        assert json.loads(bytes(tell(alice, device_info={"a": device})["device_info"])) == {"a": device}
        reply = alice.post("/feedback", {"description": "x", "device_info": {"a": [[device]]}})
        assert reply.error == (400, "invalid_json")


URL = "expected a URL that begins with http:// or https://"
WORD = "expected a word of letters, digits, _ and -"
FAULTS = [
    ({"description": None}, "$.description: expected str"),
    ({"description": ""}, "$.description: expected str of length >= 1"),
    ({"description": 7}, "$.description: expected str"),
    ({"description": ["x"]}, "$.description: expected str"),
    ({"description": "x" * 10_001}, "$.description: expected str of length <= 10000"),
    ({"description": "\U0001f514" * 10_001}, "$.description: expected str of length <= 10000"),
    ({"description": "a\0b"}, "$.description: NUL characters are not taken"),
    ({"description": "\udcff"}, "$.description: lone surrogate"),
    ({"feedback_type": "two words"}, f"$.feedback_type: {WORD}"),
    ({"feedback_type": "-bug"}, f"$.feedback_type: {WORD}"),
    ({"feedback_type": "bug\n"}, f"$.feedback_type: {WORD}"),
    ({"feedback_type": "b\u00fcg"}, f"$.feedback_type: {WORD}"),
    ({"feedback_type": " "}, f"$.feedback_type: {WORD}"),
    ({"feedback_type": "x" * 65}, "$.feedback_type: expected str of length <= 64"),
    ({"feedback_type": 1}, "$.feedback_type: expected str | null"),
    ({"app_version": "x" * 65}, "$.app_version: expected str of length <= 64"),
    ({"app_version": 4.2}, "$.app_version: expected str | null"),
    ({"screenshot_url": "example.com/x.png"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "//example.com/x.png"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "ftp://example.com/x"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "file:///etc/passwd"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "javascript:alert(1)"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "data:image/png;base64,AA=="}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "https://"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "https:///x.png"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": " https://example.com"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "https://example.com/a b"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "https://example.com\n"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": "https://example.com/\r\nSet-Cookie: a=b"}, f"$.screenshot_url: {URL}"),
    ({"screenshot_url": f"https://example.com/{'x' * 2029}"}, "$.screenshot_url: expected str of length <= 2048"),
    ({"screenshot_url": {"url": "https://example.com"}}, "$.screenshot_url: expected str | null"),
    ({"device_info": "Pixel"}, "$.device_info: expected object | null"),
    ({"device_info": ""}, "$.device_info: expected object | null"),
    ({"device_info": 7}, "$.device_info: expected object | null"),
    ({"device_info": False}, "$.device_info: expected object | null"),
    ({"device_info": []}, "$.device_info: expected object | null"),
    ({"device_info": [123, 125]}, "$.device_info: expected object | null"),
    ({"device_info": [{}]}, "$.device_info: expected object | null"),
    ({"device_info": {"a": ["\0"]}}, "$.device_info.a[0]: NUL characters are not taken"),
    ({"device_info": {"\0": 1}}, "$.device_info: NUL characters are not taken"),
    ({"device_info": {"a": {"b": "\ud800"}}}, "$.device_info.a.b: lone surrogate"),
    ({"device_info": {"a": float("nan")}}, "The body is not JSON: NaN."),
    ({"device_info": {"a": float("inf")}}, "The body is not JSON: Infinity."),
]


class TestFaultyFeedback:
    def test_is_400_with_the_place_and_nothing_is_stored(self, alice):
        with nothing_changes():
            for members, reason in FAULTS:
                reply = alice.post("/feedback", {"description": "It hums.", **members})
                assert (reply.error[0], reply.message) == (400, reason)

    def test_lacks_a_description(self, alice):
        with nothing_changes():
            reply = alice.post("/feedback", {"feedback_type": "bug"})
            assert reply.error == (400, "invalid_body")
            assert reply.message == "$: object missing required field description"

    def test_is_not_an_object(self, alice):
        twice = b'{"description": "a", "description": "b"}'
        deeply_twice = b'{"description": "a", "device_info": {"b": {"c": 1, "c": 2}}}'
        infinite = b'{"description": "a", "device_info": {"b": 1e999}}'
        with nothing_changes():
            for raw in (b"", b"null", b"[]", b"{", b'"x"', b"\xff", twice, deeply_twice, infinite):
                assert alice.post("/feedback", raw=raw).error[0] == 400
            form = {"raw": b"description=x", "content_type": "application/x-www-form-urlencoded"}
            assert alice.post("/feedback", **form).error == (400, "invalid_json")

    def test_is_larger_than_any_body_may_be(self, alice):
        with nothing_changes():
            raw = b'{"description": "x"}' + b" " * 2**20
            assert alice.post("/feedback", raw=raw).error == (413, "body_too_large")


class TestRepeatingWithAKey:
    def test_tells_once(self, alice):
        first, second = (alice.post("/feedback", {"description": "x"}, idempotency_key="k") for _ in range(2))
        assert first.raw == second.raw
        assert (first.status, second.status) == (201, 201)
        assert second.headers["Idempotency-Replayed"] == "true"
        assert list(exported()) == [first.data["id"]]

    def test_is_refused_for_another_body(self, alice):
        alice.post("/feedback", {"description": "x"}, idempotency_key="k")
        with nothing_changes():
            reply = alice.post("/feedback", {"description": "y"}, idempotency_key="k")
            assert reply.error == (400, "idempotency_key_reused")

    def test_tells_once_when_both_come_at_the_same_time(self, alice):
        replies = at_once(4, lambda _: alice.post("/feedback", {"description": "x"}, idempotency_key="k"))
        assert {reply.status for reply in replies} == {201}
        assert len({reply.raw for reply in replies}) == len(exported()) == 1

    def test_keeps_no_refusal(self, alice):
        with nothing_changes():
            assert alice.post("/feedback", {"description": ""}, idempotency_key="k").error[0] == 400
        assert alice.post("/feedback", {"description": "x"}, idempotency_key="k").status == 201
        assert KeptAnswer.select().count() == 1

    def test_is_apart_from_grants_with_the_same_key(self, alice):
        body = {"description": "x", "mcp_server_id": "x", "allowed_tools": ["x"]}
        told, granted = (alice.post(path, body, idempotency_key="k") for path in ("/feedback", "/data-shares"))
        assert (told.status, granted.status) == (201, 201)
        assert told.data["id"] != granted.data["id"]


class TestADatabaseThatCannotWrite:
    @pytest.mark.parametrize("trouble", [locked, full, read_only])
    def test_is_503_and_keeps_nothing_and_later_it_works(self, alice, trouble):
        body, before = {"description": "x" * 10_000}, stored()
        with trouble():
            for headers in ({}, {"idempotency_key": "k"}):
                reply = alice.post("/feedback", body, **headers)
                assert reply.error == (503, "storage_unavailable")
                assert int(reply.headers["Retry-After"]) > 0
            assert alice.post("/feedback", {"description": ""}).error == (400, "invalid_body")
        assert stored() == before
        assert alice.post("/feedback", body, idempotency_key="k").status == 201


# Whatever is sent.

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
LIKELY = {
    "app_version": TEXT,
    "device_info": st.dictionaries(TEXT, JSON, max_size=4),
    "feedback_type": st.sampled_from(["bug", "praise", "", "no word"]),
    "screenshot_url": st.sampled_from(["https://example.com/ü", "http://[::1]:8", "", "ftp://example.com"]),
}
BODIES = st.fixed_dictionaries(
    {"description": st.one_of(*[TEXT] * 9, JSON)},
    optional={name: st.one_of(*[likely] * 5, JSON) for name, likely in LIKELY.items()},
)
UNSET = {"app_version": "", "device_info": None, "feedback_type": "general", "screenshot_url": ""}


@hypothesis_settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=[*HealthCheck], derandomize=True
)
@given(BODIES)
def test_whatever_is_sent_is_answered_as_it_came_or_refused(alice, body):
    before = Feedback.select().count()
    reply = alice.post("/feedback", body)
    assert Feedback.select().count() == before + (reply.status == 201)
    if reply.status == 400:
        return
    assert reply.status == 201
    answered = dict(reply.data)
    answered["device_info"] = json.loads(bytes(answered["device_info"]) or b"null")
    for name, unset in UNSET.items():
        sent = body.get(name)
        assert answered[name] == (unset if sent is None or sent == "" else sent)
    assert answered["description"] == body["description"]


# Import and export.


@pytest.fixture
def take_in(tmp_path):
    """Imports feedback; the faults, as they stand in a file."""

    def run(*records: dict[str, Any]) -> list[str]:
        path = Path(tmp_path, "in.jsonl")
        path.write_text("".join(json.dumps({"feedback": record}) + "\n" for record in records))
        return [fault.replace(str(path), "FILE") for fault in transfer.take_in([path])]

    return run


class TestTransfer:
    def test_brings_every_record_back_as_it_was(self, alice, bob, take_in):
        for device in DEVICES:
            tell(alice, device_info=device, screenshot_url="https://example.com/ü", feedback_type="bug")
        tell(bob, description="\U0001f514\n\"\\'\u2028", app_version="1")
        first = exported()
        assert len(first) == len(DEVICES) + 1
        Feedback.delete().execute()
        assert take_in(*first.values()) == []
        assert exported() == first
        assert take_in(*first.values()) == []
        assert exported() == first

    def test_takes_the_least(self, alice, take_in):
        assert take_in({"user_id": alice.user.id, "description": "x"}) == []
        ((id, record),) = exported().items()
        assert record == {**tell(alice, description="x"), "id": id}

    def test_takes_the_device_in_any_form(self, alice, take_in):
        forms = [DEVICE, [*compact(DEVICE)], None, [], "Pixel", [1, "x"], [-(2**63), 2**63 - 1]]
        kept = [[*compact(DEVICE)], [*compact(DEVICE)], [], [], [*b'"Pixel"'], [*b'[1,"x"]'], [-(2**63), 2**63 - 1]]
        for form, bytes_ in zip(forms, kept, strict=True):
            Feedback.delete().execute()
            assert take_in({"user_id": alice.user.id, "description": "x", "device_info": form}) == []
            (record,) = exported().values()
            assert record["device_info"] == bytes_

    def test_keeps_what_became_of_it(self, alice, take_in):
        told = tell(alice)
        after = {"status": "planned", "updated_at": "2027-01-01T00:00:00.000Z"}
        assert take_in({**told, **after}) == []
        assert exported() == {told["id"]: {**told, **after}}

    def test_tells_where_the_fault_is(self, alice, take_in):
        faults = [(given, why) for given, why in FAULTS if given.keys().isdisjoint({"device_info"})]
        faults = [(given, why.replace(" | null", "")) for given, why in faults if given.values() != {""}]
        faults += [
            ({"device_info": {"a": "x" * MOST}}, "$.device_info: expected at most 16384 bytes of JSON"),
            ({"device_info": [0] * (MOST + 1)}, "$.device_info: expected at most 16384 bytes of JSON"),
            ({"device_info": [2**63]}, "$.device_info: expected signed 64-bit integers"),
            ({"status": "no word"}, f"$.status: {WORD}"),
            ({"created_at": None}, "$.created_at: expected str"),
            ({"colour": "red"}, "$: object contains unknown field colour"),
            ({"user_id": NOBODY}, f"$.user_id: refers to nothing: {NOBODY}"),
        ]
        sound = {"user_id": alice.user.id, "description": "x"}
        with nothing_changes():
            for members, reason in faults:
                assert take_in(sound, {**sound, **members}) == [f"FILE:2: {reason.replace('$', '$.feedback', 1)}"]
            assert take_in({"user_id": alice.user.id}) == ["FILE:1: $.feedback: missing required member description"]
            assert take_in({"description": "x"}) == ["FILE:1: $.feedback: missing required member user_id"]
