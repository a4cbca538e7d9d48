"""The profile: sections 2.2, 2.4 and 4.4 of the specification."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service.fields import MAX_ITEMS
from service.models import LoginSession, User
from service.operate import import_export
from tests.support.client import Client, Reply
from tests.support.observe import at_once, nothing_changes, statements
from tests.support.passwords import PASSWORD, PASSWORD_HASH

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
VALID: dict[str, Any] = {
    "display_name": "Ali",
    "first_name": "Alice",
    "last_name": "Lindqvist",
    "locale": "en-GB",
    "location": [59, -18],
    "phone": "+46850000000",
    "timezone": "Europe/Stockholm",
}
EMPTY: dict[str, Any] = {**dict.fromkeys(VALID, ""), "location": []}
SHOWN = {"first_name", "last_name", "location"}  # the others are not members of the documented User
NAMES = ["display_name", "first_name", "last_name"]

every_member = pytest.mark.parametrize("name", VALID)
every_name = pytest.mark.parametrize("name", NAMES)


def profile(client: Client) -> dict[str, Any]:
    """Return the seven members as stored."""
    row = User.get_by_id(client.user.id)
    return {name: json.loads(row.location) if name == "location" else getattr(row, name) for name in VALID}


def other_columns(client: Client) -> dict[str, Any]:
    """Return all other columns of the user, except the search text, which follows from the names."""
    columns = User.get_by_id(client.user.id).__data__
    return {name: value for name, value in columns.items() if name not in {*VALID, "search_text"}}


def patch(client: Client, changes: Any, **more: Any) -> dict[str, Any]:
    """Patch the profile; return the user. Fails if any other column changes."""
    before = other_columns(client)
    user = client.patch(PATH, changes, **more).data
    stored = profile(client)
    assert {name: user[name] for name in SHOWN} == {name: stored[name] for name in SHOWN}
    assert other_columns(client) == before
    return dict(user)


def refused_patch(client: Client, changes: Any = None, **more: Any) -> Reply:
    """Send an invalid patch; return the response. Fails if anything changes."""
    with nothing_changes():
        reply = client.patch(PATH, changes, **more)
        assert reply.error[0] == 400
        assert reply.error[1] in ("invalid_body", "invalid_json")
    return reply


class TestPatch:
    def test_response_is_the_documented_user(self, alice):
        user = patch(alice, VALID)
        assert list(user) == list(USER)
        assert all(isinstance(user[name], kind) for name, kind in USER.items())
        assert user["id"] == alice.user.id
        assert (user["first_name"], user["last_name"], user["location"]) == ("Alice", "Lindqvist", [59, -18])

    def test_login_returns_the_changed_user(self, alice, anyone):
        user = patch(alice, VALID)
        found = anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD}).data["user"]
        assert {**found, "last_login_at": None} == {**user, "last_login_at": None}

    @every_member
    def test_of_one_member_keeps_all_others(self, alice, name):
        patch(alice, {name: VALID[name]})
        assert profile(alice) == {**EMPTY, "first_name": "Alice", name: VALID[name]}

    def test_of_all_members_is_stored(self, alice):
        patch(alice, VALID)
        assert profile(alice) == VALID

    def test_null_or_empty_value_clears_a_member(self, alice):
        for name in VALID:
            for nothing in (None, EMPTY[name]):
                patch(alice, VALID)
                patch(alice, {name: nothing})
                assert profile(alice) == {**VALID, name: EMPTY[name]}

    def test_null_clears_all_members(self, alice):
        patch(alice, VALID)
        user = patch(alice, dict.fromkeys(VALID))
        assert profile(alice) == EMPTY
        assert {name: user[name] for name in SHOWN} == {"first_name": "", "last_name": "", "location": []}

    @pytest.mark.parametrize("raw", [b"", b" \r\n", b"null", b" null\n"])
    def test_body_that_is_not_an_object_is_refused(self, alice, raw):
        with nothing_changes():
            assert alice.patch(PATH, raw=raw).error == (400, "invalid_body")

    @pytest.mark.parametrize("raw", [b"{}", b'{"nickname": "Al"}'])
    def test_patch_without_known_members_changes_nothing(self, alice, raw):
        patch(alice, VALID)
        with nothing_changes():
            assert alice.patch(PATH, raw=raw).data["first_name"] == "Alice"

    def test_patch_without_known_members_writes_nothing(self, alice):
        with statements() as seen:
            alice.patch(PATH, {"role": "admin"})
        assert not [sql for sql, _ in seen if sql.startswith(("UPDATE", "INSERT"))]

    def test_is_idempotent(self, alice):
        first = patch(alice, VALID)
        with nothing_changes():
            assert patch(alice, VALID) == first

    def test_changes_only_the_caller(self, alice, bob):
        patch(bob, {**VALID, "first_name": "Bob"})
        before = User.get_by_id(bob.user.id).__data__
        patch(alice, VALID)
        patch(alice, dict.fromkeys(VALID))
        assert User.get_by_id(bob.user.id).__data__ == before

    def test_does_not_change_the_settings(self, alice):
        settings = alice.patch("/users/me/settings", {"appearance": {"language": "de"}}).data
        patch(alice, {**VALID, "settings": {}})
        assert alice.get("/users/me/settings").data == settings

    def test_concurrent_patches_are_all_stored(self, alice):
        names = list(VALID)
        replies = at_once(len(names), lambda index: alice.patch(PATH, {names[index]: VALID[names[index]]}).status)
        assert replies == [200] * len(names)
        assert profile(alice) == VALID


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
        "revision": 5,
        "password": "another password entirely",
        "password_hash": "x",
        "search_text": "x",
    }

    def test_are_all_columns_but_the_seven_of_the_profile(self, application):
        assert {column.name for column in User._meta.sorted_fields} == (self.ATTEMPTS.keys() | VALID.keys()) - {
            "password"
        }

    def test_are_ignored(self, alice):
        with nothing_changes():
            patch(alice, self.ATTEMPTS)
        patch(alice, {**self.ATTEMPTS, **VALID})
        assert profile(alice) == VALID

    @pytest.mark.parametrize("value", [None, "", 5, [], {"$set": "admin"}, "x" * 1000])
    def test_are_ignored_whatever_their_value(self, alice, value):
        with nothing_changes():
            patch(alice, dict.fromkeys(self.ATTEMPTS, value))

    @pytest.mark.parametrize(
        "name", ["First_Name", "firstName", "first-name", "first_name ", "user.first_name", "", "__proto__"]
    )
    def test_similar_names_are_ignored(self, alice, name):
        with nothing_changes():
            patch(alice, {name: "Mallory"})


class TestAccess:
    def test_credentials_are_required(self, anyone, alice):
        with nothing_changes():
            assert anyone.patch(PATH, VALID).error == (401, "missing_credentials")
            assert anyone.patch(PATH, raw=b"{").error == (401, "missing_credentials")

    @pytest.mark.parametrize("scopes", ["profile:read", "chats data-shares", ""])
    def test_other_scopes_are_insufficient(self, alice, scopes):
        LoginSession.update(scopes=scopes).where(LoginSession.user_id == alice.user.id).execute()
        with nothing_changes():
            assert alice.patch(PATH, VALID).error == (403, "insufficient_scope")
            assert alice.patch(PATH, raw=b"{").error == (403, "insufficient_scope")

    def test_scope_profile_is_sufficient(self, alice):
        LoginSession.update(scopes="chats profile").where(LoginSession.user_id == alice.user.id).execute()
        patch(alice, VALID)

    def test_staff_can_change_only_their_own_profile(self, agent, admin, alice):
        before = User.get_by_id(alice.user.id).__data__
        for staff in (agent, admin):
            assert patch(staff, {**VALID, "id": alice.user.id, "email": alice.user.email})["id"] == staff.user.id
        assert User.get_by_id(alice.user.id).__data__ == before


class TestInvalidValues:
    @every_member
    def test_of_one_member_refuse_the_whole_patch(self, alice, name):
        for wrong in (5, True, 1.5, {}, [[1]], ["x"], "x" * 101):
            if name == "location" or not isinstance(wrong, str) or name in NAMES:
                message = refused_patch(alice, {**VALID, name: wrong}).message
                assert message.startswith((f"$.{name}: expected ", f"$.{name}[0]: expected int"))

    @pytest.mark.parametrize("raw", [b"[]", b'"Alice"', b"5", b"true", b'[{"first_name": "Alice"}]'])
    def test_other_json_types_are_refused(self, alice, raw):
        assert refused_patch(alice, raw=raw).message == "$: expected object"

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
    def test_invalid_json_is_refused(self, alice, raw):
        assert refused_patch(alice, raw=raw).error == (400, "invalid_json")

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
    def test_errors_have_the_path(self, alice, changes, message):
        assert refused_patch(alice, {**VALID, **changes}).message == message


class TestNames:
    @every_name
    @pytest.mark.parametrize("letter", ["x", "é", "名", "\U0001f35e", '"', "\u0301"])
    def test_have_at_most_100_characters(self, alice, name, letter):
        patch(alice, {name: letter * 100})
        assert profile(alice)[name] == letter * 100
        assert refused_patch(alice, {name: letter * 101}).message == f"$.{name}: expected str of length <= 100"

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
    def test_are_stored_unchanged(self, alice, value):
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
            list(range(MAX_ITEMS)),
        ],
    )
    def test_are_signed_64_bit_integers_returned_unchanged(self, alice, location):
        reply = alice.patch(PATH, {"location": location})
        assert reply.data["location"] == location
        assert f'"location":{json.dumps(location, separators=(",", ":"))}'.encode() in reply.raw

    @pytest.mark.parametrize(
        "item", [HIGH + 1, LOW - 1, 2**64, 10**30, -(10**30), 1.0, 0.5, -0.0, True, False, "1", "", None, [1], {}]
    )
    def test_other_items_are_refused(self, alice, item):
        assert refused_patch(alice, {"location": [1, 2, item]}).message.startswith("$.location[2]: expected int")

    def test_have_at_most_1000_items(self, alice):
        assert MAX_ITEMS == 1000
        message = refused_patch(alice, {"location": [0] * (MAX_ITEMS + 1)}).message
        assert message == "$.location: expected array of length <= 1000"

    @pytest.mark.parametrize("notation", [b"1.0", b"1e2", b"1E0", b"-0.0"])
    def test_integers_in_other_notations_are_refused(self, alice, notation):
        assert refused_patch(alice, raw=b'{"location": [' + notation + b"]}").message == "$.location[0]: expected int"

    def test_empty_text_is_refused(self, alice):
        patch(alice, VALID)
        assert refused_patch(alice, {"location": ""}).message.startswith("$.location: expected array")


class TestFormattedTexts:
    """The formats themselves are tested in test_validators.py."""

    @pytest.mark.parametrize(
        ("name", "valid", "invalid"),
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
    def test_have_their_format_or_are_empty(self, alice, name, valid, invalid):
        for value in valid:
            patch(alice, {name: value})
            assert profile(alice)[name] == value
        for value in invalid:
            assert refused_patch(alice, {name: value}).message.startswith(f"$.{name}: expected ")


@hypothesis_settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
)
@given(
    st.dictionaries(
        st.sampled_from([*VALID, "role", "id", "email"]),
        st.none()
        | st.text(max_size=101)
        | st.sampled_from(["en", "UTC", "+4930123456"])
        | st.lists(st.integers() | st.integers(LOW, HIGH), max_size=4)
        | st.recursive(st.booleans() | st.floats(allow_nan=False), lambda inside: st.lists(inside, max_size=2)),
        max_size=4,
    )
)
def test_any_object_is_stored_or_refused(alice: Client, changes: dict[str, Any]) -> None:
    before, others = profile(alice), other_columns(alice)
    reply = alice.patch(PATH, changes)
    if reply.status == 200:
        expected = {name: value or EMPTY[name] for name, value in changes.items() if name in VALID}
        assert profile(alice) == {**before, **expected}
    else:
        assert reply.error in ((400, "invalid_body"), (400, "invalid_json"))
        assert profile(alice) == before
    assert other_columns(alice) == others


class TestImportAndExport:
    def import_user(self, folder: Path, **columns: Any) -> list[str]:
        """Import a user; return the errors."""
        user = {"email": "cat@example.com", "password_hash": PASSWORD_HASH, **columns}
        file = folder / "users.jsonl"
        file.write_text(json.dumps({"user": user}) + "\n")
        return [error.removeprefix(f"{folder}/") for error in import_export.import_files([file])]

    @pytest.mark.parametrize(
        ("columns", "error"),
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
    def test_import_errors_have_the_path(self, application, tmp_path, columns, error):
        with nothing_changes():
            assert self.import_user(tmp_path, **{**VALID, **columns}) == [f"users.jsonl:1: {error}"]

    @pytest.mark.parametrize("columns", [VALID, EMPTY, {"location": [LOW, HIGH], "first_name": "\u2028\n\U0001f35e"}])
    def test_imported_users_are_exported_and_imported_again(self, application, tmp_path, columns):
        def export() -> bytes:
            lines: list[bytes] = []
            import_export.export(lines.append)
            return b"".join(lines)

        assert self.import_user(tmp_path, **copy.deepcopy(columns)) == []
        first = export()
        found = json.loads(first)["user"]
        assert {name: found[name] for name in columns} == columns
        file = tmp_path / "again.jsonl"
        file.write_bytes(first)
        User.delete().execute()
        assert import_export.import_files([file]) == []
        assert export() == first
