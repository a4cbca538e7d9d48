"""The profile: the document's sections 2.2, 2.4 and 4.4, the contract's section 7."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from service import transfer
from service.fields import MANY
from service.models import LoginSession, User
from tests.conftest import PASSWORD, PASSWORD_HASH, Client, Reply
from tests.watching import at_once, nothing_changes, statements

PATH = "/users/me"
LOW, HIGH = -(2**63), 2**63 - 1
USER = {
    "id": str,
    "email": str,
    "first_name": str,
    "last_name": str,
    "auth_provider": str,
    "created_at": str,
    "last_login_at": str | None,
    "is_anonymous": bool,
    "is_verified": bool,
    "location": list,
    "onboarding_completed": bool,
    "profile_image": str,
    "role": str,
    "user_type": str,
}
GOOD: dict[str, Any] = {
    "display_name": "Ali",
    "first_name": "Alice",
    "last_name": "Lindqvist",
    "locale": "en-GB",
    "location": [59, -18],
    "phone": "+46850000000",
    "timezone": "Europe/Stockholm",
}
EMPTY: dict[str, Any] = {**dict.fromkeys(GOOD, ""), "location": []}
SHOWN = {"first_name", "last_name", "location"}  # the others are not part of the document's User
NAMES = ["display_name", "first_name", "last_name"]

every_member = pytest.mark.parametrize("name", GOOD)
every_name = pytest.mark.parametrize("name", NAMES)


def profile(client: Client) -> dict[str, Any]:
    """The seven members as they are stored."""
    row = User.get_by_id(client.user.id)
    return {name: json.loads(row.location) if name == "location" else getattr(row, name) for name in GOOD}


def rest(client: Client) -> dict[str, Any]:
    """Everything else of the user."""
    return {name: value for name, value in User.get_by_id(client.user.id).__data__.items() if name not in GOOD}


def patch(client: Client, changes: Any, **more: Any) -> dict[str, Any]:
    """The User after a change, by which nothing but the profile changes."""
    before = rest(client)
    user = client.patch(PATH, changes, **more).data
    stored = profile(client)
    assert {name: user[name] for name in SHOWN} == {name: stored[name] for name in SHOWN}
    assert rest(client) == before
    return dict(user)


def refused(client: Client, changes: Any = None, **more: Any) -> Reply:
    """The refusal of a change, by which nothing changes."""
    with nothing_changes():
        reply = client.patch(PATH, changes, **more)
        assert reply.error[0] == 400
        assert reply.error[1] in ("invalid_body", "invalid_json")
    return reply


class TestAChange:
    def test_is_answered_with_the_user_as_the_document_has_it(self, alice):
        user = patch(alice, GOOD)
        assert list(user) == list(USER)
        assert all(isinstance(user[name], kind) for name, kind in USER.items())
        assert user["id"] == alice.user.id
        assert (user["first_name"], user["last_name"], user["location"]) == ("Alice", "Lindqvist", [59, -18])

    def test_is_what_login_tells_from_then_on(self, alice, anyone):
        user = patch(alice, GOOD)
        told = anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD}).data["user"]
        assert {**told, "last_login_at": None} == {**user, "last_login_at": None}

    @every_member
    def test_of_one_member_leaves_all_others(self, alice, name):
        patch(alice, {name: GOOD[name]})
        assert profile(alice) == {**EMPTY, "first_name": "Alice", name: GOOD[name]}

    def test_of_all_members_at_once_is_kept(self, alice):
        patch(alice, GOOD)
        assert profile(alice) == GOOD

    def test_with_null_or_nothing_clears(self, alice):
        for name in GOOD:
            for nothing in (None, EMPTY[name]):
                patch(alice, GOOD)
                patch(alice, {name: nothing})
                assert profile(alice) == {**GOOD, name: EMPTY[name]}

    def test_clears_everything_at_once(self, alice):
        patch(alice, GOOD)
        user = patch(alice, dict.fromkeys(GOOD))
        assert profile(alice) == EMPTY
        assert {name: user[name] for name in SHOWN} == {"first_name": "", "last_name": "", "location": []}

    @pytest.mark.parametrize("raw", [b"", b" \r\n", b"null", b" null\n"])
    def test_that_is_not_an_object_is_refused(self, alice, raw):
        with nothing_changes():
            assert alice.patch(PATH, raw=raw).error == (400, "invalid_body")

    @pytest.mark.parametrize("raw", [b"{}", b'{"nickname": "Al"}'])
    def test_that_says_nothing_changes_nothing(self, alice, raw):
        patch(alice, GOOD)
        with nothing_changes():
            assert alice.patch(PATH, raw=raw).data["first_name"] == "Alice"

    def test_that_says_nothing_writes_nothing(self, alice):
        with statements() as seen:
            alice.patch(PATH, {"role": "admin"})
        assert not [sql for sql, _ in seen if sql.startswith(("UPDATE", "INSERT"))]

    def test_is_safe_to_repeat(self, alice):
        first = patch(alice, GOOD)
        with nothing_changes():
            assert patch(alice, GOOD) == first

    def test_of_alices_changes_nothing_of_bobs(self, alice, bob):
        patch(bob, {**GOOD, "first_name": "Bob"})
        before = User.get_by_id(bob.user.id).__data__
        patch(alice, GOOD)
        patch(alice, dict.fromkeys(GOOD))
        assert User.get_by_id(bob.user.id).__data__ == before

    def test_leaves_the_settings_alone(self, alice):
        settings = alice.patch("/users/me/settings", {"appearance": {"language": "de"}}).data
        patch(alice, {**GOOD, "settings": {}})
        assert alice.get("/users/me/settings").data == settings

    def test_of_different_members_at_once_loses_nothing(self, alice):
        names = list(GOOD)
        replies = at_once(len(names), lambda index: alice.patch(PATH, {names[index]: GOOD[names[index]]}).status)
        assert replies == [200] * len(names)
        assert profile(alice) == GOOD


class TestProtectedMembers:
    ATTEMPTS: dict[str, Any] = {
        "id": "00000000-0000-4000-8000-000000000000",
        "email": "mallory@example.com",
        "auth_provider": "google",
        "created_at": "1999-01-01T00:00:00.000Z",
        "last_login_at": "1999-01-01T00:00:00.000Z",
        "is_anonymous": True,
        "is_verified": True,
        "onboarding_completed": True,
        "profile_image": "https://evil.example/a.png",
        "role": "admin",
        "user_type": "staff",
        "app_id": "00000000-0000-4000-8000-000000000000",
        "settings": {"chat_language": "de"},
        "is_disabled": True,
        "news_at": 5,
        "password": "another password entirely",
        "password_hash": "x",
    }

    def test_are_all_there_are_beside_the_seven(self, application):
        assert {column.name for column in User._meta.sorted_fields} == (self.ATTEMPTS.keys() | GOOD.keys()) - {
            "password"
        }

    def test_are_ignored_and_unchanged(self, alice):
        with nothing_changes():
            patch(alice, self.ATTEMPTS)
        patch(alice, {**self.ATTEMPTS, **GOOD})
        assert profile(alice) == GOOD

    @pytest.mark.parametrize("value", [None, "", 5, [], {"$set": "admin"}, "x" * 1000])
    def test_are_ignored_whatever_they_are(self, alice, value):
        with nothing_changes():
            patch(alice, dict.fromkeys(self.ATTEMPTS, value))

    @pytest.mark.parametrize(
        "name", ["First_Name", "firstName", "first-name", "first_name ", "user.first_name", "", "__proto__"]
    )
    def test_and_members_of_other_names_are_no_others(self, alice, name):
        with nothing_changes():
            patch(alice, {name: "Mallory"})


class TestWhoMay:
    def test_only_somebody(self, anyone, alice):
        with nothing_changes():
            assert anyone.patch(PATH, GOOD).error == (401, "missing_credentials")
            assert anyone.patch(PATH, raw=b"{").error == (401, "missing_credentials")

    @pytest.mark.parametrize("scopes", ["profile:read", "chats data-shares", ""])
    def test_no_token_that_is_too_narrow(self, alice, scopes):
        LoginSession.update(scopes=scopes).where(LoginSession.user_id == alice.user.id).execute()
        with nothing_changes():
            assert alice.patch(PATH, GOOD).error == (403, "insufficient_scope")
            assert alice.patch(PATH, raw=b"{").error == (403, "insufficient_scope")

    def test_a_token_of_the_scope_profile(self, alice):
        LoginSession.update(scopes="chats profile").where(LoginSession.user_id == alice.user.id).execute()
        patch(alice, GOOD)

    def test_staff_only_themselves(self, agent, admin, alice):
        before = User.get_by_id(alice.user.id).__data__
        for staff in (agent, admin):
            assert patch(staff, {**GOOD, "id": alice.user.id, "email": alice.user.email})["id"] == staff.user.id
        assert User.get_by_id(alice.user.id).__data__ == before


class TestWrongValues:
    @every_member
    def test_of_one_member_refuse_all(self, alice, name):
        for wrong in (5, True, 1.5, {}, [[1]], ["x"], "x" * 101):
            if name == "location" or not isinstance(wrong, str) or name in NAMES:
                message = refused(alice, {**GOOD, name: wrong}).message
                assert message.startswith((f"$.{name}: expected ", f"$.{name}[0]: expected int"))

    @pytest.mark.parametrize("raw", [b"[]", b'"Alice"', b"5", b"true", b'[{"first_name": "Alice"}]'])
    def test_that_are_no_object_are_refused(self, alice, raw):
        assert refused(alice, raw=raw).message == "$: expected object"

    @pytest.mark.parametrize(
        "raw",
        [
            b"{",
            b"first_name=Alice",
            b'{"first_name": "a", "first_name": "b"}',
            b'{"first_name": "a\\u0000b"}',
            b'{"first_name": "\\ud83c"}',
            b'{"first_name": "\xff"}',
            b'{"location": [NaN]}',
            b'{"location": [1e999]}',
            b'{"location": [' + b"9" * 5000 + b"]}",
            b'{"location": ' + b"[" * 100_000,
        ],
    )
    def test_that_are_no_json_are_refused(self, alice, raw):
        assert refused(alice, raw=raw).error == (400, "invalid_json")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"first_name": 5}, "$.first_name: expected str | null"),
            ({"location": "here"}, "$.location: expected array | null"),
            ({"location": [1, 2, "3"]}, "$.location[2]: expected int"),
            ({"location": [1, None]}, "$.location[1]: expected int"),
            ({"location": {"lat": 1}}, "$.location: expected array | null"),
            ({"locale": "en_US"}, "$.locale: expected a language tag such as en or pt-BR"),
            ({"timezone": "Berlin"}, "$.timezone: expected an IANA time zone such as Europe/Berlin"),
            ({"phone": "030 123456"}, "$.phone: expected a phone number such as +4930123456"),
            ({"last_name": "x" * 101}, "$.last_name: expected str of length <= 100"),
        ],
    )
    def test_are_told_at_their_place(self, alice, changes, message):
        assert refused(alice, {**GOOD, **changes}).message == message


class TestNames:
    @every_name
    @pytest.mark.parametrize("letter", ["x", "é", "名", "\U0001f35e", '"', "\u0301"])
    def test_have_at_most_100_characters(self, alice, name, letter):
        patch(alice, {name: letter * 100})
        assert profile(alice)[name] == letter * 100
        assert refused(alice, {name: letter * 101}).message == f"$.{name}: expected str of length <= 100"

    @pytest.mark.parametrize(
        "value",
        [
            "O'Brien; DROP TABLE user; --",
            "<script>alert(1)</script>",
            "Zoë Ångström-Ñúñez",
            "e\u0301",
            "王小明",
            "עברית",
            "👩\u200d👩\u200d👧",
            '\\"\n\r\t\b\f\x01\x1f\x7f/',
            "\u2028\u2029\ufeff\u202e",
            "%s {} ${x} null",
            " Alice ",
        ],
    )
    def test_are_kept_as_they_are(self, alice, value):
        patch(alice, dict.fromkeys(NAMES, value))
        assert [profile(alice)[name] for name in NAMES] == [value] * 3


class TestLocations:
    @pytest.mark.parametrize(
        "location",
        [
            [],
            [0],
            [-1, 1],
            [LOW, HIGH],
            [2**53, 2**53 + 1, -(2**53) - 1],
            [1, 1, 1],
            [255, 256, 0],
            list(range(MANY)),
        ],
    )
    def test_are_signed_64_bit_integers_in_and_out_unchanged(self, alice, location):
        reply = alice.patch(PATH, {"location": location})
        assert reply.data["location"] == location
        assert f'"location":{json.dumps(location, separators=(",", ":"))}'.encode() in reply.raw

    @pytest.mark.parametrize(
        "item", [HIGH + 1, LOW - 1, 2**64, 10**30, -(10**30), 1.0, 0.5, -0.0, True, False, "1", "", None, [1], {}]
    )
    def test_are_nothing_else(self, alice, item):
        assert refused(alice, {"location": [1, 2, item]}).message.startswith("$.location[2]: expected int")

    def test_are_no_more_than_1000(self, alice):
        assert MANY == 1000
        message = refused(alice, {"location": [0] * (MANY + 1)}).message
        assert message == "$.location: expected array of length <= 1000"

    @pytest.mark.parametrize("spelt", [b"1.0", b"1e2", b"1E0", b"-0.0"])
    def test_are_not_spelt_as_other_numbers(self, alice, spelt):
        assert refused(alice, raw=b'{"location": [' + spelt + b"]}").message == "$.location[0]: expected int"

    def test_are_no_text_even_if_it_is_empty(self, alice):
        patch(alice, GOOD)
        assert refused(alice, {"location": ""}).message.startswith("$.location: expected array")


class TestFormedTexts:
    """What each form takes is told in test_formats.py; here it is asked for."""

    @pytest.mark.parametrize(
        ("name", "good", "bad"),
        [
            (
                "locale",
                ["en", "EN-gb", "zh-Hant-TW", "sl-rozaj-biske-1994", "x-mine", "i-klingon", "x" + "-abcdef" * 9],
                ["en_US", "de-1901-1901", "en-a-bb-a-cc", "e", " ", "en ", "x" + "-abcdef" * 9 + "g"],
            ),
            (
                "timezone",
                ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+12", "Asia/Calcutta"],
                ["utc", "+01:00", "CEST", "Europe", "../UTC", "Europe/Berlin\n", "x" * 65],
            ),
            (
                "phone",
                ["+12", "+4930123456", "+123456789012345"],
                ["+1", "+1234567890123456", "030123456", "+49 30 123456", "+0123", "+49٣٠", "+" + "1" * 30],
            ),
        ],
    )
    def test_are_of_their_form_or_empty(self, alice, name, good, bad):
        for value in good:
            patch(alice, {name: value})
            assert profile(alice)[name] == value
        for value in bad:
            assert refused(alice, {name: value}).message.startswith(f"$.{name}: expected ")


@hypothesis_settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
)
@given(
    some.dictionaries(
        some.sampled_from([*GOOD, "role", "id", "email"]),
        some.none()
        | some.text(max_size=101)
        | some.sampled_from(["en", "UTC", "+4930123456"])
        | some.lists(some.integers() | some.integers(LOW, HIGH), max_size=4)
        | some.recursive(some.booleans() | some.floats(allow_nan=False), lambda inside: some.lists(inside, max_size=2)),
        max_size=4,
    )
)
def test_any_object_is_taken_or_refused(alice: Client, changes: dict[str, Any]) -> None:
    before, others = profile(alice), rest(alice)
    reply = alice.patch(PATH, changes)
    if reply.status == 200:
        given_ones = {name: value or EMPTY[name] for name, value in changes.items() if name in GOOD}
        assert profile(alice) == {**before, **given_ones}
    else:
        assert reply.error in ((400, "invalid_body"), (400, "invalid_json"))
        assert profile(alice) == before
    assert rest(alice) == others


class TestImportAndExport:
    def take_in(self, folder: Path, **columns: Any) -> list[str]:
        """The faults of a file with one user."""
        user = {"email": "cat@example.com", "password_hash": PASSWORD_HASH, **columns}
        file = folder / "users.jsonl"
        file.write_text(json.dumps({"user": user}) + "\n")
        return [fault.removeprefix(f"{folder}/") for fault in transfer.take_in([file])]

    @pytest.mark.parametrize(
        ("columns", "fault"),
        [
            ({"locale": "en_US"}, "$.user.locale: expected a language tag such as en or pt-BR"),
            ({"timezone": "Mars/Base"}, "$.user.timezone: expected an IANA time zone such as Europe/Berlin"),
            ({"phone": "0123"}, "$.user.phone: expected a phone number such as +4930123456"),
            ({"first_name": "x" * 101}, "$.user.first_name: expected str of length <= 100"),
            ({"display_name": None}, "$.user.display_name: expected str"),
            ({"location": [1, HIGH + 1]}, f"$.user.location[1]: expected int <= {HIGH}"),
            ({"location": [1.0]}, "$.user.location[0]: expected int"),
        ],
    )
    def test_faults_are_told_at_their_place(self, application, tmp_path, columns, fault):
        with nothing_changes():
            assert self.take_in(tmp_path, **{**GOOD, **columns}) == [f"users.jsonl:1: {fault}"]

    @pytest.mark.parametrize("columns", [GOOD, EMPTY, {"location": [LOW, HIGH], "first_name": "\u2028\n\U0001f35e"}])
    def test_what_came_in_goes_out_and_comes_in_again(self, application, tmp_path, columns):
        def export() -> bytes:
            lines: list[bytes] = []
            transfer.give_out(lines.append)
            return b"".join(lines)

        assert self.take_in(tmp_path, **copy.deepcopy(columns)) == []
        first = export()
        told = json.loads(first)["user"]
        assert {name: told[name] for name in columns} == columns
        file = tmp_path / "again.jsonl"
        file.write_bytes(first)
        User.delete().execute()
        assert transfer.take_in([file]) == []
        assert export() == first
