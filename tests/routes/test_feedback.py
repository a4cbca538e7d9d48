"""Feedback: sections 2.11 and 4.6 of the specification."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service.models import Feedback, IdempotencyKey, LoginSession
from service.operate import import_export
from tests.support.client import Client
from tests.support.faults import full, locked, read_only
from tests.support.observe import at_once, nothing_changes, stored
from tests.support.sample_operations import UNKNOWN_ID

pytestmark = pytest.mark.usefixtures("host_clock")  # first, so that all tokens are issued at its time

NOW = "2026-11-20T10:00:00.000Z"
MAX_BYTES = 16 * 1024  # bytes of device_info
DEVICE = {"model": "Pixel 9", "os": {"name": "Android", "version": [16, 0]}, "größe": 6.3, "rooted": False, "sim": None}


def submit(client: Client, **members: Any) -> Any:
    """Submit feedback; return it."""
    reply = client.post("/feedback", {"description": "It hums.", **members})
    assert reply.status == 201, reply.json
    return reply.data


def compact(value: Any) -> bytes:
    """Return JSON without whitespace, as it is in responses."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def exported() -> dict[str, Any]:
    """Return the exported records by identifier."""
    written: list[bytes] = []
    import_export.export(written.append)
    records = [json.loads(line) for line in b"".join(written).splitlines()]
    return {record["feedback"]["id"]: record["feedback"] for record in records if "feedback" in record}


class TestFeedback:
    def test_response_has_every_member(self, alice):
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

    @pytest.mark.parametrize("unset", ["absent", None, ""])
    def test_only_the_description_is_required(self, alice, unset):
        texts = {} if unset == "absent" else dict.fromkeys(["app_version", "feedback_type", "screenshot_url"], unset)
        created = submit(alice, **texts, **({"device_info": None} if unset is None else {}))
        assert created["feedback_type"] == "general"
        assert (created["app_version"], created["screenshot_url"], created["device_info"]) == ("", "", [])

    def test_user_status_and_times_are_set_by_the_server(self, alice, bob):
        forged = {"id": UNKNOWN_ID, "user_id": bob.user.id, "status": "done", "created_at": "2020-01-01T00:00:00.000Z"}
        created = submit(alice, **forged, updated_at="soon", colour={"red": [1]})
        assert not created.items() & forged.items()
        assert (created["user_id"], created["status"], created["created_at"], created["updated_at"]) == (
            alice.user.id,
            "new",
            NOW,
            NOW,
        )

    @pytest.mark.parametrize("who", ["bob", "agent", "admin"])
    @pytest.mark.database
    def test_every_role_can_submit_feedback(self, who, request):
        client = request.getfixturevalue(who)
        assert submit(client)["user_id"] == client.user.id

    def test_submitting_requires_credentials(self, anyone):
        with nothing_changes():
            for raw in (b"{", b'{"description": "x"}'):
                assert anyone.post("/feedback", raw=raw).error == (401, "missing_credentials")

    def test_each_request_creates_a_record(self, alice):
        assert submit(alice)["id"] != submit(alice)["id"]

    def test_created_at_equals_updated_at(self, alice, host_clock, monkeypatch):
        monkeypatch.setattr("service.clock.host_time", lambda: host_clock.forward(seconds=1) or host_clock.now)
        created = submit(alice)
        assert created["created_at"] == created["updated_at"] > NOW

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
    def test_other_methods_are_405(self, alice, method):
        reply = alice.call(method, "/feedback", {"description": "x"})
        assert reply.error == (405, "method_not_allowed")

    @pytest.mark.parametrize("scopes", ["feedback", "feedback:read", "chats profile"])
    def test_submitting_requires_the_feedback_scope(self, alice, scopes):
        LoginSession.update(scopes=scopes).where(LoginSession.user_id == alice.user.id).execute()
        if scopes == "feedback":
            submit(alice)
            return
        with nothing_changes():
            assert alice.post("/feedback", raw=b"{").error == (403, "insufficient_scope")

    def test_concurrent_requests_are_all_stored(self, alice):
        created = at_once(6, lambda number: submit(alice, description=f"No. {number}"))
        assert {record["description"] for record in exported().values()} == {f"No. {number}" for number in range(6)}
        assert len({record["id"] for record in created}) == 6


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
    def test_are_returned_unchanged(self, alice, members):
        created = submit(alice, **members)
        assert created.items() >= members.items()

    def test_screenshot_url_is_never_fetched(self, alice, monkeypatch):
        def fail(*_: Any, **__: Any) -> None:
            raise AssertionError("a connection was opened")

        for name in ("connect", "connect_ex", "sendto"):
            monkeypatch.setattr(socket.socket, name, fail)
        monkeypatch.setattr(socket, "getaddrinfo", fail)
        for url in ("http://169.254.169.254/latest/meta-data", "http://127.0.0.1:1/", "https://nowhere.invalid/x.png"):
            assert submit(alice, screenshot_url=url)["screenshot_url"] == url


DEVICES = [
    {},
    DEVICE,
    {"a": [], "b": {}, "c": "", "": None},
    {"big": 10**30, "small": -1e-300, "whole": 1.0, "minus": -0.0},
    {"text": '\U0001f4f1 \u2028 \x01\x7f " \\ / é e\u0301'},
    {"\U0001f4f1": {"é": [[[{}]]]}},
    {"user_id": UNKNOWN_ID, "status": "done"},
]


class TestDeviceInfo:
    @pytest.mark.parametrize("device", DEVICES, ids=str)
    def test_is_returned_as_the_bytes_of_compact_json(self, alice, device):
        created = submit(alice, device_info=device)["device_info"]
        assert bytes(created) == compact(device)
        assert json.loads(bytes(created)) == device

    def test_empty_object_differs_from_unset(self, alice):
        assert submit(alice, device_info={})["device_info"] == [*b"{}"]
        assert submit(alice)["device_info"] == []

    def test_whitespace_and_escapes_are_removed_and_order_is_kept(self, alice):
        raw = b'{"description": "x", "device_info": { "z" : "\\u00fc\\/" ,\n "a" : [ 1 , 2 ] } }'
        assert bytes(alice.post("/feedback", raw=raw).data["device_info"]) == '{"z":"ü/","a":[1,2]}'.encode()

    @pytest.mark.parametrize("filling", ["x", "ü", "\U0001f4f1", '"'])
    def test_stored_size_is_at_most_16_kib(self, alice, filling):
        size = len(compact({"a": filling})) - len(compact({"a": ""}))
        device = {"a": filling * ((MAX_BYTES - 20) // size), "b": ""}
        device["b"] = "x" * (MAX_BYTES - len(compact(device)))
        assert len(submit(alice, device_info=device)["device_info"]) == len(compact(device)) == MAX_BYTES
        device["b"] += "x"
        with nothing_changes():
            reply = alice.post("/feedback", {"description": "x", "device_info": device})
            assert reply.error == (400, "invalid_body")
            assert reply.message == "$.device_info: expected at most 16384 bytes of JSON"

    def test_whitespace_does_not_count(self, alice):
        raw = b'{"description": "x", "device_info": {' + b" " * 2 * MAX_BYTES + b"}}"
        assert alice.post("/feedback", raw=raw).data["device_info"] == [*b"{}"]

    def test_nesting_is_limited_as_in_any_body(self, alice):
        device: Any = "end"
        for _ in range(98):
            device = [device]
        assert json.loads(bytes(submit(alice, device_info={"a": device})["device_info"])) == {"a": device}
        reply = alice.post("/feedback", {"description": "x", "device_info": {"a": [[device]]}})
        assert reply.error == (400, "invalid_json")


URL = "expected a URL that begins with http:// or https://"
WORD = "expected a word of letters, digits, _ and -"
ERRORS = [
    ({"description": None}, "$.description: expected str"),
    ({"description": ""}, "$.description: expected str of length >= 1"),
    ({"description": 7}, "$.description: expected str"),
    ({"description": ["x"]}, "$.description: expected str"),
    ({"description": "x" * 10_001}, "$.description: expected str of length <= 10000"),
    ({"description": "\U0001f514" * 10_001}, "$.description: expected str of length <= 10000"),
    ({"description": "a\0b"}, "$.description: NUL characters are not accepted"),
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
    ({"device_info": {"a": ["\0"]}}, "$.device_info.a[0]: NUL characters are not accepted"),
    ({"device_info": {"\0": 1}}, "$.device_info: NUL characters are not accepted"),
    ({"device_info": {"a": {"b": "\ud800"}}}, "$.device_info.a.b: lone surrogate"),
    ({"device_info": {"a": float("nan")}}, "The body is not JSON: NaN."),
    ({"device_info": {"a": float("inf")}}, "The body is not JSON: Infinity."),
]


class TestInvalidFeedback:
    def test_is_400_with_the_path_and_stores_nothing(self, alice):
        with nothing_changes():
            for members, reason in ERRORS:
                reply = alice.post("/feedback", {"description": "It hums.", **members})
                assert (reply.error[0], reply.message) == (400, reason)

    def test_missing_description_is_400(self, alice):
        with nothing_changes():
            reply = alice.post("/feedback", {"feedback_type": "bug"})
            assert reply.error == (400, "invalid_body")
            assert reply.message == "$: object missing required field description"

    def test_invalid_json_and_other_types_are_400(self, alice):
        twice = b'{"description": "a", "description": "b"}'
        deeply_twice = b'{"description": "a", "device_info": {"b": {"c": 1, "c": 2}}}'
        infinite = b'{"description": "a", "device_info": {"b": 1e999}}'
        with nothing_changes():
            for raw in (b"", b"null", b"[]", b"{", b'"x"', b"\xff", twice, deeply_twice, infinite):
                assert alice.post("/feedback", raw=raw).error[0] == 400
            form = {"raw": b"description=x", "content_type": "application/x-www-form-urlencoded"}
            assert alice.post("/feedback", **form).error == (400, "invalid_json")

    def test_large_body_is_413(self, alice):
        with nothing_changes():
            raw = b'{"description": "x"}' + b" " * 2**20
            assert alice.post("/feedback", raw=raw).error == (413, "body_too_large")


class TestIdempotencyKey:
    def test_repeated_request_creates_one_record(self, alice):
        first, second = (alice.post("/feedback", {"description": "x"}, idempotency_key="k") for _ in range(2))
        assert first.raw == second.raw
        assert (first.status, second.status) == (201, 201)
        assert second.headers["Idempotency-Replayed"] == "true"
        assert list(exported()) == [first.data["id"]]

    def test_another_body_is_400(self, alice):
        alice.post("/feedback", {"description": "x"}, idempotency_key="k")
        with nothing_changes():
            reply = alice.post("/feedback", {"description": "y"}, idempotency_key="k")
            assert reply.error == (400, "idempotency_key_reused")

    def test_concurrent_requests_create_one_record(self, alice):
        replies = at_once(4, lambda _: alice.post("/feedback", {"description": "x"}, idempotency_key="k"))
        assert {reply.status for reply in replies} == {201}
        assert len({reply.raw for reply in replies}) == len(exported()) == 1

    def test_errors_are_not_stored(self, alice):
        with nothing_changes():
            assert alice.post("/feedback", {"description": ""}, idempotency_key="k").error[0] == 400
        assert alice.post("/feedback", {"description": "x"}, idempotency_key="k").status == 201
        assert IdempotencyKey.select().count() == 1

    def test_same_key_of_another_operation_is_independent(self, alice):
        body = {"description": "x", "mcp_server_id": "x", "allowed_tools": ["x"]}
        created, granted = (alice.post(path, body, idempotency_key="k") for path in ("/feedback", "/data-shares"))
        assert (created.status, granted.status) == (201, 201)
        assert created.data["id"] != granted.data["id"]


class TestUnwritableDatabase:
    @pytest.mark.parametrize("fault", [locked, full, read_only])
    def test_request_is_503_and_succeeds_later(self, alice, fault):
        body, before = {"description": "x" * 10_000}, stored()
        with fault():
            for headers in ({}, {"idempotency_key": "k"}):
                reply = alice.post("/feedback", body, **headers)
                assert reply.error == (503, "storage_unavailable")
                assert int(reply.headers["Retry-After"]) > 0
            assert alice.post("/feedback", {"description": ""}).error == (400, "invalid_body")
        assert stored() == before
        assert alice.post("/feedback", body, idempotency_key="k").status == 201


# Generated bodies.

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TYPICAL = {
    "app_version": TEXT,
    "device_info": st.dictionaries(TEXT, JSON, max_size=4),
    "feedback_type": st.sampled_from(["bug", "praise", "", "no word"]),
    "screenshot_url": st.sampled_from(["https://example.com/ü", "http://[::1]:8", "", "ftp://example.com"]),
}
BODIES = st.fixed_dictionaries(
    {"description": st.one_of(*[TEXT] * 9, JSON)},
    optional={name: st.one_of(*[typical] * 5, JSON) for name, typical in TYPICAL.items()},
)
UNSET = {"app_version": "", "device_info": None, "feedback_type": "general", "screenshot_url": ""}


@hypothesis_settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=[*HealthCheck], derandomize=True
)
@given(BODIES)
def test_any_body_is_returned_unchanged_or_refused(alice, body):
    before = Feedback.select().count()
    reply = alice.post("/feedback", body)
    assert Feedback.select().count() == before + (reply.status == 201)
    if reply.status == 400:
        return
    assert reply.status == 201
    returned = dict(reply.data)
    returned["device_info"] = json.loads(bytes(returned["device_info"]) or b"null")
    for name, unset in UNSET.items():
        sent = body.get(name)
        assert returned[name] == (unset if sent is None or sent == "" else sent)
    assert returned["description"] == body["description"]


# Import and export.


@pytest.fixture
def import_feedback(tmp_path):
    """Return a function that imports feedback and return the errors."""

    def run(*records: dict[str, Any]) -> list[str]:
        path = Path(tmp_path, "in.jsonl")
        path.write_text("".join(json.dumps({"feedback": record}) + "\n" for record in records))
        return [error.replace(str(path), "FILE") for error in import_export.import_files([path])]

    return run


class TestImportAndExport:
    def test_exported_records_are_imported_unchanged(self, alice, bob, import_feedback):
        for device in DEVICES:
            submit(alice, device_info=device, screenshot_url="https://example.com/ü", feedback_type="bug")
        submit(bob, description="\U0001f514\n\"\\'\u2028", app_version="1")
        first = exported()
        assert len(first) == len(DEVICES) + 1
        Feedback.delete().execute()
        assert import_feedback(*first.values()) == []
        assert exported() == first
        assert import_feedback(*first.values()) == []
        assert exported() == first

    def test_import_requires_user_and_description_only(self, alice, import_feedback):
        assert import_feedback({"user_id": alice.user.id, "description": "x"}) == []
        ((id, record),) = exported().items()
        assert record == {**submit(alice, description="x"), "id": id}

    def test_import_accepts_device_info_in_any_form(self, alice, import_feedback):
        forms = [DEVICE, [*compact(DEVICE)], None, [], "Pixel", [1, "x"], [-(2**63), 2**63 - 1]]
        stored_forms = [
            [*compact(DEVICE)],
            [*compact(DEVICE)],
            [],
            [],
            [*b'"Pixel"'],
            [*b'[1,"x"]'],
            [-(2**63), 2**63 - 1],
        ]
        for form, expected in zip(forms, stored_forms, strict=True):
            Feedback.delete().execute()
            assert import_feedback({"user_id": alice.user.id, "description": "x", "device_info": form}) == []
            (record,) = exported().values()
            assert record["device_info"] == expected

    def test_import_keeps_status_and_updated_at(self, alice, import_feedback):
        created = submit(alice)
        after = {"status": "planned", "updated_at": "2027-01-01T00:00:00.000Z"}
        assert import_feedback({**created, **after}) == []
        assert exported() == {created["id"]: {**created, **after}}

    def test_import_errors_have_line_and_path(self, alice, import_feedback):
        errors = [(members, reason) for members, reason in ERRORS if members.keys().isdisjoint({"device_info"})]
        errors = [(members, reason.replace(" | null", "")) for members, reason in errors if members.values() != {""}]
        errors += [
            ({"device_info": {"a": "x" * MAX_BYTES}}, "$.device_info: expected at most 16384 bytes of JSON"),
            ({"device_info": [0] * (MAX_BYTES + 1)}, "$.device_info: expected at most 16384 bytes of JSON"),
            ({"device_info": [2**63]}, "$.device_info: expected signed 64-bit integers"),
            ({"status": "no word"}, f"$.status: {WORD}"),
            ({"created_at": None}, "$.created_at: expected str"),
            ({"colour": "red"}, "$: object contains unknown field colour"),
            ({"user_id": UNKNOWN_ID}, f"$.user_id: refers to a missing record: {UNKNOWN_ID}"),
        ]
        valid = {"user_id": alice.user.id, "description": "x"}
        with nothing_changes():
            for members, reason in errors:
                assert import_feedback(valid, {**valid, **members}) == [
                    f"FILE:2: {reason.replace('$', '$.feedback', 1)}"
                ]
            assert import_feedback({"user_id": alice.user.id}) == [
                "FILE:1: $.feedback: missing required member description"
            ]
            assert import_feedback({"description": "x"}) == ["FILE:1: $.feedback: missing required member user_id"]
