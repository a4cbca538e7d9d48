"""Settings: sections 2.5 and 4.4 of the specification; patches follow RFC 7396."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service import clock, preferences, validators
from service.api import schemas
from service.errors import InvalidBody
from service.fields import compact_json
from service.models import LoginSession, User
from service.operate import import_export
from service.routes.users import SettingsPatch
from tests.support.client import Client, Reply
from tests.support.observe import at_once, nothing_changes, statements
from tests.support.passwords import PASSWORD_HASH

PATH = "/users/me/settings"
NOW = "2026-11-20T10:00:00.000Z"
KIB = 1024
DEFAULTS: dict[str, Any] = {
    "appearance": {"language": "en", "theme": "system"},
    "chat_language": "",
    "notifications": {
        "email_enabled": True,
        "marketing_enabled": False,
        "muted_until": None,
        "push_enabled": True,
    },
    "privacy": {
        "share_analytics": False,
        "share_crash_reports": False,
        "show_read_receipts": True,
        "show_typing_indicator": True,
    },
    "updated_at": None,
}
CHANGED: dict[str, Any] = {  # every member differs from its default
    "appearance": {"language": "pt-BR", "theme": "dark"},
    "chat_language": "de",
    "notifications": {"email_enabled": False, "marketing_enabled": True, "muted_until": NOW, "push_enabled": False},
    "privacy": {
        "share_analytics": True,
        "share_crash_reports": True,
        "show_read_receipts": False,
        "show_typing_indicator": False,
    },
}
MEMBERS = [
    (group, name) for group, members in CHANGED.items() for name in (members if isinstance(members, dict) else [""])
]
BOOLEANS = [(group, name) for group, name in MEMBERS if name and isinstance(CHANGED[group][name], bool)]

every_language = pytest.mark.parametrize(("group", "name"), [("appearance", "language"), ("chat_language", "")])


def patch_of(group: str, name: str, value: Any) -> dict[str, Any]:
    """Return the patch that sets one member."""
    return {group: {name: value}} if name else {group: value}


def member_of(document: dict[str, Any], group: str, name: str) -> Any:
    return document[group][name] if name else document[group]


def path_of(group: str, name: str) -> str:
    return f"$.{group}.{name}" if name else f"$.{group}"


def patch(client: Client, changes: Any) -> dict[str, Any]:
    """Patch the settings; return them. Fails if a GET returns others."""
    found = client.patch(PATH, changes).data
    assert text(found) == text(shown(client))
    return dict(found)


def shown(client: Client) -> dict[str, Any]:
    return dict(client.get(PATH).data)


def own(client: Client) -> dict[str, Any]:
    """Return the settings without `updated_at`."""
    return {name: value for name, value in shown(client).items() if name != "updated_at"}


def settings_after(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings after a patch of the defaults, without a request."""
    return preferences.complete(preferences.check(preferences.merge({}, changes)))


def error_of(changes: dict[str, Any]) -> str:
    """Return the error message for a patch of the defaults."""
    with pytest.raises(InvalidBody) as error:
        settings_after(changes)
    return str(error.value)


def text(value: Any) -> str:
    """Return JSON, in which 1, 1.0 and true differ; in Python they are equal."""
    return json.dumps(value, sort_keys=True)


def refused_patch(client: Client, changes: Any = None, **more: Any) -> Reply:
    """Send an invalid patch; return the response. Fails if anything changes."""
    with nothing_changes():
        reply = client.patch(PATH, changes, **more)
        assert reply.status == 400
        assert reply.error[1] in ("invalid_body", "invalid_json")
    return reply


def nested(levels: int, inside: Any = 1) -> Any:
    """Return nested objects."""
    for _ in range(levels):
        inside = {"a": inside}
    return inside


def limit_scopes(client: Client, *scopes: str) -> None:
    """Limit the token of a client to some scopes."""
    LoginSession.update(scopes=" ".join(scopes)).where(LoginSession.user_id == client.user.id).execute()


class TestDefaults:
    def test_unchanged_settings_are_the_defaults(self, alice):
        assert text(shown(alice)) == text(DEFAULTS)

    def test_reading_stores_nothing(self, alice):
        with nothing_changes():
            shown(alice)

    def test_settings_are_complete_after_one_change(self, alice):
        expected = copy.deepcopy(DEFAULTS)
        expected["privacy"]["share_analytics"] = True
        assert text({**patch(alice, {"privacy": {"share_analytics": True}}), "updated_at": None}) == text(expected)
        assert json.loads(User.get_by_id(alice.user.id).settings).keys() == {"privacy", "updated_at"}


class TestReading:
    @pytest.mark.parametrize("query", ["", "?theme=neon", "?limit=x&limit=y", "?%ff=%00", "?" + "a" * 5000])
    def test_never_returns_400(self, alice, query):
        for raw in (b"", b"{", b"\xff", b"[]"):
            reply = alice.call("GET", PATH + query, raw=raw, content_type="text/nonsense")
            assert reply.status == 200
            assert text(reply.data) == text(DEFAULTS)

    def test_is_private(self, alice):
        assert alice.get(PATH).headers["Cache-Control"] == "private, no-cache"

    def test_reads_the_user_once(self, alice):
        with statements() as seen:
            shown(alice)
        assert len([sql for sql, _ in seen if '"settings"' in sql and '"login_session"' not in sql]) == 1
        assert not [sql for sql, _ in seen if sql.startswith(("BEGIN IMMEDIATE", "UPDATE", "INSERT"))]

    def test_reading_and_changing_require_credentials(self, anyone):
        with nothing_changes():
            assert anyone.get(PATH).error == (401, "missing_credentials")
            assert anyone.patch(PATH, {"chat_language": "de"}).error == (401, "missing_credentials")
            assert anyone.patch(PATH, raw=b"{").status == 401


class TestScopes:
    def test_profile_read_permits_reading_only(self, alice):
        limit_scopes(alice, "chats", "profile:read")
        assert alice.get(PATH).status == 200
        with nothing_changes():
            assert alice.patch(PATH, {"chat_language": "de"}).error == (403, "insufficient_scope")
            assert alice.patch(PATH, raw=b"[").error == (403, "insufficient_scope")

    def test_profile_permits_reading_and_changing(self, alice):
        limit_scopes(alice, "profile")
        assert patch(alice, {"chat_language": "de"})["chat_language"] == "de"

    @pytest.mark.parametrize("scope", ["", "chats", "profiles", "profile:write", "PROFILE"])
    def test_other_scopes_permit_neither(self, alice, scope):
        limit_scopes(alice, scope)
        assert alice.get(PATH).error == (403, "insufficient_scope")
        assert alice.patch(PATH, {}).error == (403, "insufficient_scope")


class TestMerging:
    """RFC 7396."""

    @pytest.mark.parametrize(
        ("document", "changes", "result"),
        [
            ({"a": "b"}, {"a": "c"}, {"a": "c"}),
            ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
            ({"a": "b"}, {"a": None}, {}),
            ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
            ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
            ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
            ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
            ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
            (["a", "b"], ["c", "d"], ["c", "d"]),
            ({"a": "b"}, ["c"], ["c"]),
            ({"a": "foo"}, None, None),
            ({"a": "foo"}, "bar", "bar"),
            ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
            ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
            ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ],
    )
    def test_follows_the_examples_of_appendix_a(self, document, changes, result):
        before = copy.deepcopy((document, changes))
        assert text(preferences.merge(document, changes)) == text(result)
        assert (document, changes) == before

    def test_follows_the_example_of_section_3(self):
        document = {
            "title": "Goodbye!",
            "author": {"givenName": "John", "familyName": "Doe"},
            "tags": ["example", "sample"],
            "content": "This will be unchanged",
        }
        changes = {
            "title": "Hello!",
            "phoneNumber": "+01-123-456-7890",
            "author": {"familyName": None},
            "tags": ["example"],
        }
        assert preferences.merge(document, changes) == {
            "title": "Hello!",
            "author": {"givenName": "John"},
            "tags": ["example"],
            "content": "This will be unchanged",
            "phoneNumber": "+01-123-456-7890",
        }

    def test_null_in_arrays_is_kept(self):
        assert preferences.merge({}, {"a": [None, {"b": None}]}) == {"a": [None, {"b": None}]}


class TestPatch:
    def test_can_change_every_member(self, host_clock, alice):
        assert text(patch(alice, CHANGED)) == text({**CHANGED, "updated_at": NOW})

    def test_of_one_member_keeps_all_others(self, alice):
        expected = copy.deepcopy({**DEFAULTS, "mine": [1]})
        del expected["updated_at"]
        patch(alice, {"mine": [1]})
        for group, name in MEMBERS:
            value = member_of(CHANGED, group, name)
            expected.update({group: {**expected[group], name: value}} if name else {group: value})
            patch(alice, patch_of(group, name, value))
            assert text(own(alice)) == text(expected)
        assert text(expected) == text({**CHANGED, "mine": [1]})

    def test_null_resets_a_member_to_its_default(self, alice):
        patch(alice, CHANGED)
        expected = copy.deepcopy(CHANGED)
        for group, name in MEMBERS:
            default = member_of(DEFAULTS, group, name)
            expected.update({group: {**expected[group], name: default}} if name else {group: default})
            patch(alice, patch_of(group, name, None))
            assert text(own(alice)) == text(expected)

    def test_null_resets_a_group_with_its_unknown_members(self, alice):
        for group in ("appearance", "notifications", "privacy"):
            patch(alice, {**CHANGED, group: {**CHANGED[group], "mine": 1}})
            patch(alice, {group: None})
            assert text(own(alice)) == text({**CHANGED, group: DEFAULTS[group]})

    @pytest.mark.parametrize("raw", [b"", b" \r\n", b"null", b" null\n"])
    def test_body_that_is_not_an_object_is_refused(self, alice, raw):
        with nothing_changes():
            assert alice.patch(PATH, raw=raw).error == (400, "invalid_body")

    @pytest.mark.parametrize("raw", [b"{}", b'{"appearance": {}}', b'{"privacy": null}'])
    def test_empty_patch_changes_nothing(self, alice, raw):
        with nothing_changes():
            assert text(alice.patch(PATH, raw=raw).data) == text(DEFAULTS)

    @pytest.mark.parametrize("raw", [b"{}", b'{"appearance": {}}', b'{"absent": null, "privacy": {"x": null}}'])
    def test_empty_patch_keeps_updated_at(self, host_clock, alice, raw):
        before = patch(alice, CHANGED)
        host_clock.forward(minutes=5)
        with nothing_changes():
            assert text(alice.patch(PATH, raw=raw).data) == text(before)

    def test_is_idempotent(self, host_clock, alice):
        changes = {**CHANGED, "mine": {"list": [1, None, {"x": None}], "gone": None}}
        first = patch(alice, changes)
        host_clock.forward(minutes=5)
        with nothing_changes():
            assert text(patch(alice, changes)) == text(first)

    @pytest.mark.parametrize(
        "raw", [b"[]", b'"dark"', b"5", b"true", b"[null]", b'[{"op": "remove", "path": "/appearance"}]']
    )
    def test_other_json_types_are_refused(self, alice, raw):
        assert refused_patch(alice, raw=raw).message == "$: expected object"

    @pytest.mark.parametrize(
        "kind", ["", "application/json", "application/merge-patch+json", "application/merge-patch+json; charset=utf-8"]
    )
    def test_json_and_merge_patch_content_types_are_accepted(self, alice, kind):
        assert alice.patch(PATH, {"chat_language": "de"}, content_type=kind).data["chat_language"] == "de"

    def test_other_content_types_are_refused(self, alice):
        refused_patch(alice, {"chat_language": "de"}, content_type="application/x-www-form-urlencoded")

    def test_changes_only_settings_of_the_caller(self, alice, bob):
        patch(bob, {"appearance": {"theme": "light"}, "mine": "bob's"})
        before = shown(bob)
        patch(alice, {**CHANGED, "mine": "alice's"})
        patch(alice, {"mine": None, "appearance": None})
        assert text(shown(bob)) == text(before)

    def test_changes_no_other_column_of_the_user(self, alice):
        before = {**User.get_by_id(alice.user.id).__data__, "settings": ""}
        patch(alice, {**CHANGED, "role": "admin", "email": "x", "first_name": "y"})
        assert {**User.get_by_id(alice.user.id).__data__, "settings": ""} == before


class TestPatchWithTheWholeDocument:
    def test_stores_the_edited_document(self, host_clock, alice):
        document = patch(alice, {"mine": {"a": [1]}, "notifications": {"muted_until": NOW, "sound": "bell"}})
        host_clock.forward(minutes=5)
        document["appearance"]["theme"] = "light"
        document["mine"]["a"].append(2)
        assert text(patch(alice, document)) == text({**document, "updated_at": "2026-11-20T10:05:00.000Z"})

    def test_stores_unedited_defaults(self, alice):
        assert text({**patch(alice, shown(alice)), "updated_at": None}) == text(DEFAULTS)

    def test_repetition_changes_nothing(self, host_clock, alice):
        document = patch(alice, shown(alice))
        host_clock.forward(minutes=5)
        with nothing_changes():
            assert text(patch(alice, document)) == text(document)


class TestUpdatedAt:
    def test_is_the_time_of_the_server(self, host_clock, alice):
        assert patch(alice, {"mine": 1})["updated_at"] == NOW
        host_clock.forward(minutes=5)
        assert shown(alice)["updated_at"] == NOW
        assert patch(alice, {"mine": 2})["updated_at"] == "2026-11-20T10:05:00.000Z"

    def test_is_set_by_a_reset_to_the_defaults(self, host_clock, alice):
        patch(alice, CHANGED)
        host_clock.forward(minutes=5)
        assert text(patch(alice, dict.fromkeys(CHANGED))) == text(
            {**DEFAULTS, "updated_at": "2026-11-20T10:05:00.000Z"}
        )

    def test_does_not_go_backwards_with_the_host_clock(self, host_clock, alice):
        patch(alice, {"mine": 1})
        host_clock.back(days=1)
        assert patch(alice, {"mine": 2})["updated_at"] == NOW

    @pytest.mark.parametrize("value", [None, "", "yesterday", "1999-01-01T00:00:00Z", 5, True, [], {"deep": nested(3)}])
    def test_in_a_body_is_ignored(self, host_clock, alice, value):
        with nothing_changes():
            assert patch(alice, {"updated_at": value})["updated_at"] is None
        assert patch(alice, {"updated_at": value, "mine": 1})["updated_at"] == NOW
        with nothing_changes():
            assert patch(alice, {"updated_at": value})["updated_at"] == NOW

    def test_is_an_ordinary_name_in_nested_objects(self, alice):
        assert patch(alice, {"mine": {"updated_at": "x"}, "privacy": {"updated_at": 1}})["mine"] == {"updated_at": "x"}
        assert own(alice)["privacy"] == {**DEFAULTS["privacy"], "updated_at": 1}


class TestMembers:
    @pytest.mark.parametrize("theme", ["system", "light", "dark"])
    def test_theme_is_one_of_three_words(self, theme):
        assert settings_after({"appearance": {"theme": theme}})["appearance"] == {"language": "en", "theme": theme}

    @pytest.mark.parametrize(
        "theme", ["", "System", "DARK", "dark ", "neon", 1, True, [], ["dark"], {}, "x` - at `$.mine", "d\u0430rk"]
    )
    def test_other_themes_are_refused(self, theme):
        assert error_of({"mine": 1, "appearance": {"theme": theme}}).startswith("$.appearance.theme: ")

    @every_language
    @pytest.mark.parametrize("tag", ["en", "DE-at", "zh-Hant-TW", "x-mine", "i-klingon", "x" + "-abcdef" * 9])
    def test_language_is_a_tag_and_keeps_its_case(self, group, name, tag):
        assert member_of(settings_after(patch_of(group, name, tag)), group, name) == tag

    @every_language
    @pytest.mark.parametrize("tag", ["en_US", "english language", "e", " ", "auto!", "en-" * 30, 5, True, ["en"], {}])
    def test_other_languages_are_refused(self, group, name, tag):
        assert error_of(patch_of(group, name, tag)).startswith(f"{path_of(group, name)}: ")

    @every_language
    def test_language_has_at_most_64_characters(self, group, name):
        tag = validators.language_tag("x" + "-abcdef" * 9 + "g")
        assert len(tag) == 65
        assert error_of(patch_of(group, name, tag)) == f"{path_of(group, name)}: expected str of length <= 64"

    def test_only_chat_language_can_be_empty(self):
        assert settings_after({"chat_language": ""})["chat_language"] == ""
        assert error_of({"appearance": {"language": ""}}).startswith("$.appearance.language: ")

    @pytest.mark.parametrize(("group", "name"), BOOLEANS)
    def test_booleans_are_true_or_false_only(self, group, name):
        for value in (True, False):
            assert settings_after(patch_of(group, name, value))[group][name] is value
        for value in (0, 1, 0.0, 1.0, "true", "false", "", "on", [], [True], {}):
            assert error_of(patch_of(group, name, value)) == f"$.{group}.{name}: expected bool"

    @pytest.mark.parametrize(
        ("sent", "result"),
        [
            (NOW, NOW),
            ("2026-11-20T10:00:00Z", NOW),
            ("2026-11-20t10:00:00.0009z", NOW),
            ("2026-11-20T12:30:00+02:30", NOW),
            ("2026-11-19T22:00:00.000-12:00", NOW),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
            ("", None),
            (None, None),
        ],
    )
    def test_muted_until_is_normalized(self, sent, result):
        assert settings_after({"notifications": {"muted_until": sent}})["notifications"]["muted_until"] == result

    @pytest.mark.parametrize(
        "value",
        [
            " ",
            "tomorrow",
            "2026-11-20",
            "2026-11-20T10:00:00",
            "2026-02-30T10:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "10000-01-01T00:00:00Z",
            1795168800,
            True,
            [NOW],
            {},
        ],
    )
    def test_other_values_of_muted_until_are_refused(self, value):
        assert error_of({"notifications": {"muted_until": value}}).startswith("$.notifications.muted_until: ")

    @pytest.mark.parametrize("group", ["appearance", "notifications", "privacy"])
    @pytest.mark.parametrize("value", ["dark", 1, True, [], [{}]])
    def test_groups_are_objects(self, group, value):
        assert error_of({group: value}) == f"$.{group}: expected object"

    def test_names_with_dots_are_not_paths(self):
        expected = {**DEFAULTS, "appearance.theme": "dark"}
        assert text(settings_after({"appearance.theme": "dark"})) == text(expected)

    def test_same_muted_until_in_another_form_is_no_change(self, host_clock, alice):
        patch(alice, {"notifications": {"muted_until": "2026-11-20T12:00:00+02:00"}})
        host_clock.forward(minutes=5)
        with nothing_changes():
            patch(alice, {"notifications": {"muted_until": NOW}})
            patch(alice, {"notifications": {"muted_until": "2026-11-20T10:00:00Z"}})

    def test_null_or_empty_text_clears_muted_until(self, alice):
        for nothing in (None, ""):
            with nothing_changes():
                patch(alice, {"notifications": {"muted_until": nothing}})
            patch(alice, {"notifications": {"muted_until": NOW}})
            assert patch(alice, {"notifications": {"muted_until": nothing}})["notifications"]["muted_until"] is None
            patch(alice, {"notifications": None})

    def test_one_invalid_member_refuses_the_whole_patch(self, alice):
        patch(alice, {"mine": 1})
        for group, name in MEMBERS:
            wrong = copy.deepcopy({**CHANGED, "mine": 2})
            wrong.update({group: {**wrong[group], name: [7]}} if name else {group: [7]})
            assert refused_patch(alice, wrong).message.startswith(f"{path_of(group, name)}: ")


UNUSUAL_NAMES = [
    "mine",
    "",
    " ",
    "__proto__",
    "constructor",
    "__class__",
    "__struct_fields__",
    "success",
    "data",
    "id",
    "Appearance",
    "THEME",
    "$",
    "a.b",
    "a[0]",
    "' OR 1=1 --",
    '"\\/\b\f\n\r\t\x01\x7f',
    "\u2028\u2029\ufeff",
    "café",
    "cafe\u0301",
    "名前",
    "\U0001f35e",
    "x" * 1000,
]
UNUSUAL_VALUES = [
    True,
    False,
    0,
    -1,
    1.0,
    0.1,
    -0.0,
    1e300,
    5e-324,
    2**53 + 1,
    2**63,
    -(2**64),
    10**400,
    "",
    "null",
    "\u2028é\U0001f35e\\",
    [],
    {},
    [None, [None], {"a": None}],
]


class TestUnknownMembers:
    def test_are_kept_whatever_their_name(self, alice):
        for name in UNUSUAL_NAMES:
            patch(alice, {name: {name: name}, "privacy": {name: [name]}})
            found = own(alice)
            assert found.pop(name) == {name: name}
            assert found["privacy"].pop(name) == [name]
            assert text(found) == text({name: DEFAULTS[name] for name in found})
            patch(alice, {name: None, "privacy": {name: None}})
            assert own(alice).keys() == DEFAULTS.keys() - {"updated_at"}
            assert own(alice)["privacy"] == DEFAULTS["privacy"]

    def test_values_are_kept_exactly(self, alice):
        for value in UNUSUAL_VALUES:
            assert text(patch(alice, {"mine": value})["mine"]) == text(value)
            inside = patch(alice, {"appearance": {"mine": {"a": value}}})["appearance"]["mine"]
            assert text(inside) == text({"a": value})
            patch(alice, {"mine": None, "appearance": None})

    def test_are_merged_like_known_members(self, alice):
        patch(alice, {"mine": {"a": {"x": 1, "y": 2}, "b": [1, 2]}})
        assert patch(alice, {"mine": {"a": {"y": None, "z": 3}, "b": [3]}})["mine"] == {"a": {"x": 1, "z": 3}, "b": [3]}
        assert patch(alice, {"mine": {"a": 5}})["mine"] == {"a": 5, "b": [3]}
        assert patch(alice, {"mine": {"a": {"n": None}}})["mine"] == {"a": {}, "b": [3]}
        assert "mine" not in patch(alice, {"mine": None})

    @pytest.mark.parametrize(
        ("one", "other"), [(1, True), (0, False), (1, 1.0), (0.0, -0.0), ([1], [True]), ({"a": 0}, {"a": False})]
    )
    def test_values_equal_in_python_but_not_in_json_are_changes(self, host_clock, alice, one, other):
        for before, after in ((one, other), (other, one)):
            patch(alice, {"mine": before})
            host_clock.forward(minutes=1)
            assert text(patch(alice, {"mine": after})["mine"]) == text(after)
            assert shown(alice)["updated_at"] == clock.timestamp()

    def test_follow_the_known_members_in_their_order(self, alice):
        patch(alice, {"z": 1, "a": 2, "appearance": {"y": 1, "b": 2}})
        patch(alice, {"z": 3, "m": 4})
        assert [*own(alice)][-3:] == ["z", "a", "m"]
        assert [*own(alice)["appearance"]] == ["language", "theme", "y", "b"]

    @pytest.mark.parametrize(
        "raw",
        [
            b'{"mine": NaN}',
            b'{"mine": 1e999}',
            b'{"mine": "\\u0000"}',
            b'{"mine": "\\ud800"}',
            b'{"\\ud800": 1}',
            b'{"a": 1, "a": 2}',
            b'{"mine": {"a": 1, "a": 1}}',
            b'{"mine": "\xff"}',
            b'{"mine": ' + b"9" * 5000 + b"}",
            b"{'mine': 1}",
            b'{"mine": 1,}',
            b"{",
        ],
    )
    def test_invalid_json_is_refused(self, alice, raw):
        assert refused_patch(alice, raw=raw).error == (400, "invalid_json")


class TestLimits:
    """64 KiB and 8 levels, of the document after a patch."""

    ROOM = 64 * KIB - len('{"mine":""}')

    @pytest.mark.parametrize("letter", ["x", "é", "名", "\U0001f35e", '"'])
    def test_document_has_at_most_64_kib_of_utf_8(self, alice, letter):
        size = len(compact_json(letter).encode()) - 2
        filler = letter * (self.ROOM // size) + "x" * (self.ROOM % size)
        assert len(compact_json({"mine": filler}).encode()) == 64 * KIB
        assert "65536 bytes" in refused_patch(alice, {"mine": filler + "x"}).message
        assert patch(alice, {"mine": filler})["mine"] == filler

    def test_whitespace_and_escapes_of_the_body_do_not_count(self, alice):
        raw = b'{ "mine" :\n' + b" " * 100_000 + b'"' + rb"\u0078" * self.ROOM + b'"}'
        assert alice.patch(PATH, raw=raw).data["mine"] == "x" * self.ROOM

    def test_full_document_can_be_changed(self, alice):
        patch(alice, {"mine": "x" * self.ROOM})
        assert patch(alice, {"mine": "y" * self.ROOM})["mine"] == "y" * self.ROOM
        refused_patch(alice, {"chat_language": "de"})
        with nothing_changes():
            patch(alice, {})
            patch(alice, shown(alice) | {"appearance": {}, "notifications": {}, "privacy": {}, "chat_language": None})
        assert patch(alice, {"mine": None, "chat_language": "de"})["chat_language"] == "de"

    def test_stored_members_count(self, alice):
        patch(alice, {"one": "x" * 40 * KIB})
        refused_patch(alice, {"two": "x" * 40 * KIB})
        patch(alice, {"two": "x" * 40 * KIB, "one": None})

    def test_removed_members_do_not_count(self, alice):
        patch(alice, {"mine": 1})
        with nothing_changes():
            assert alice.patch(PATH, {f"{number:0100}": None for number in range(1000)}).status == 200

    def test_document_has_at_most_8_levels(self, alice):
        assert patch(alice, nested(8))["a"] == nested(7)
        assert "8 levels" in refused_patch(alice, nested(9)).message
        assert patch(alice, {"a": None, "list": [[[[[[[]]]]]]]})["list"] == [[[[[[[]]]]]]]
        assert "8 levels" in refused_patch(alice, {"list": [[[[[[[[]]]]]]]]}).message
        assert "8 levels" in refused_patch(alice, {"privacy": {"a": [nested(6)]}}).message
        assert patch(alice, {"privacy": {"a": [nested(5)]}})["privacy"]["a"] == [nested(5)]

    @pytest.mark.parametrize("levels", [50, 99, 100, 101, 1000, 100_000])
    @pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
    def test_deep_nesting_is_refused(self, alice, levels, opening, closing):
        refused_patch(alice, raw=b'{"mine": ' + opening * levels + b"null" + closing * levels + b"}")
        refused_patch(alice, raw=b'{"appearance": ' + opening * levels)


class TestConcurrentPatches:
    def test_are_all_stored(self, alice):
        def change(number: int) -> int:
            group, name = MEMBERS[number % len(MEMBERS)]
            known = patch_of(group, name, member_of(CHANGED, group, name))
            return alice.patch(PATH, {**known, "mine": {str(number): number}}).status

        assert at_once(len(MEMBERS) + 2, change) == [200] * (len(MEMBERS) + 2)
        expected = {**CHANGED, "mine": {str(number): number for number in range(len(MEMBERS) + 2)}}
        assert text(own(alice)) == text(expected)

    def test_do_not_exceed_the_limit(self, alice):
        replies = at_once(6, lambda number: alice.patch(PATH, {str(number): "x" * 20 * KIB}).status)
        assert sorted(replies) == [200, 200, 200, 400, 400, 400]


class TestImportAndExport:
    def import_settings(self, folder: Path, document: Any, **columns: Any) -> list[str]:
        """Import a user with these settings; return the errors."""
        user = {"email": "cat@example.com", "password_hash": PASSWORD_HASH, "settings": document, **columns}
        file = folder / "users.jsonl"
        file.write_text(json.dumps({"user": user}) + "\n")
        return [error.removeprefix(f"{folder}/") for error in import_export.import_files([file])]

    def export(self) -> bytes:
        lines: list[bytes] = []
        import_export.export(lines.append)
        return b"".join(lines)

    @pytest.mark.parametrize(
        ("document", "error"),
        [
            ({"appearance": {"theme": "neon"}}, "$.user.settings.appearance.theme: "),
            ({"appearance": {"language": "en_US"}}, "$.user.settings.appearance.language: expected a language tag"),
            ({"chat_language": 5}, "$.user.settings.chat_language: expected str"),
            ({"privacy": []}, "$.user.settings.privacy: expected object"),
            ({"privacy": {"share_analytics": 1}}, "$.user.settings.privacy.share_analytics: expected bool"),
            (
                {"notifications": {"muted_until": "x"}},
                "$.user.settings.notifications.muted_until: expected an RFC 3339",
            ),
            ({"updated_at": "x"}, "$.user.settings.updated_at: expected an RFC 3339"),
            ({"updated_at": 5}, "$.user.settings.updated_at: expected str"),
            ({"mine": nested(8)}, "$.user.settings: expected at most 8 levels"),
            ({"mine": "x" * 64 * KIB}, "$.user.settings: expected at most 65536 bytes"),
            ([], "$.user.settings: expected object"),
            (None, "$.user.settings: expected object"),
        ],
    )
    def test_errors_have_the_path(self, application, tmp_path, document, error):
        with nothing_changes():
            (result,) = self.import_settings(tmp_path, document)
        assert result.startswith(f"users.jsonl:1: {error}")

    @pytest.mark.parametrize(
        "document",
        [
            {},
            {**CHANGED, "updated_at": NOW, "mine": {"": [1, 1.0, True, None]}},
            {"mine": "x" * TestLimits.ROOM, "updated_at": NOW},
            {"notifications": {"muted_until": "2026-11-20T12:00:00+02:00"}, "updated_at": "2026-11-20T10:00:00Z"},
            DEFAULTS,
            {"updated_at": "", "notifications": {"muted_until": ""}, "mine": {"x": None}},
        ],
    )
    def test_imported_settings_are_exported_and_imported_again(self, application, tmp_path, document):
        assert self.import_settings(tmp_path, document) == []
        first = self.export()
        file = tmp_path / "again.jsonl"
        file.write_bytes(first)
        User.delete().execute()
        assert import_export.import_files([file]) == []
        assert self.export() == first

    @pytest.mark.parametrize("empty", ["", None])
    def test_empty_times_are_null(self, person, tmp_path, empty):
        cat = person("cat")
        document = {"updated_at": empty, "notifications": {"muted_until": empty}}
        assert self.import_settings(tmp_path, document, id=cat.user.id) == []
        assert text(shown(cat)) == text(DEFAULTS)
        assert json.loads(User.get_by_id(cat.user.id).settings) == {}

    def test_patched_settings_can_be_imported(self, alice, tmp_path):
        patch(alice, {**CHANGED, "mine": "x" * (TestLimits.ROOM - len(compact_json(CHANGED)) + 1)})
        before, exported = shown(alice), self.export()
        file = tmp_path / "export.jsonl"
        file.write_bytes(exported)
        patch(alice, {"mine": None})
        assert import_export.import_files([file]) == []
        assert text(shown(alice)) == text(before)
        assert self.export() == exported

    def test_imported_settings_are_returned_and_patched(self, host_clock, person, tmp_path):
        cat = person("cat")
        assert (
            self.import_settings(tmp_path, {"appearance": {"theme": "dark"}, "updated_at": NOW}, id=cat.user.id) == []
        )
        expected = copy.deepcopy({**DEFAULTS, "updated_at": NOW})
        expected["appearance"]["theme"] = "dark"
        assert text(shown(cat)) == text(expected)
        host_clock.forward(minutes=5)
        with nothing_changes():
            patch(cat, {"appearance": {"theme": "dark"}})


# Generated patches: each is stored or refused, and the settings stay valid and complete.

KNOWN = sorted({name for group in DEFAULTS.values() if isinstance(group, dict) for name in group} | DEFAULTS.keys())
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "system", "light", "dark", "en", "de-AT", "en_US", NOW, "2026-11-20T12:00:00+02:00"])
    | st.text(max_size=5)
)
NAMES = st.sampled_from(KNOWN) | st.text(max_size=3)
ANYTHING = st.recursive(
    VALUES, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAMES, inside, max_size=4), max_leaves=12
)


def valid_patches(group: str) -> st.SearchStrategy[Any]:
    """Return a strategy for patches of one group, most of them valid."""
    members = {
        name: st.just(value) | st.just(DEFAULTS[group][name]) | st.none() for name, value in CHANGED[group].items()
    }
    return st.none() | st.fixed_dictionaries({}, optional=members)


PLAUSIBLE = st.fixed_dictionaries(
    {},
    optional={
        **{group: valid_patches(group) for group in ("appearance", "notifications", "privacy")},
        "chat_language": st.sampled_from(["", "de", None]),
        "updated_at": VALUES,
        "mine": ANYTHING,
    },
)
PATCHES = PLAUSIBLE | st.dictionaries(NAMES, ANYTHING, max_size=4)


def is_well_formed(document: dict[str, Any]) -> bool:
    """Return whether every known member is present and valid (section 2.5 of the specification)."""
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
    times = [document["updated_at"], document["notifications"]["muted_until"]]
    return (
        document.keys() >= DEFAULTS.keys()
        and all(document[group].keys() >= DEFAULTS[group].keys() for group in CHANGED if group != "chat_language")
        and document["appearance"]["theme"] in ("system", "light", "dark")
        and bool(validators.language_tag(document["appearance"]["language"]))
        and (document["chat_language"] == "" or bool(validators.language_tag(document["chat_language"])))
        and all(type(document[group][name]) is bool for group, name in BOOLEANS)
        and all(time is None or stamp.fullmatch(time) for time in times)
    )


@hypothesis_settings(
    max_examples=120, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
)
@given(PATCHES)
@pytest.mark.slow
def test_any_object_is_stored_or_refused(alice: Client, changes: dict[str, Any]) -> None:
    before = shown(alice)
    reply = alice.patch(PATH, changes)
    after = shown(alice)
    assert is_well_formed(after)
    if reply.status == 400:
        assert reply.error[1] in ("invalid_body", "invalid_json")
        assert text(after) == text(before)
        return
    assert text(reply.data) == text(after)
    assert text(alice.patch(PATH, changes).data) == text(after)
    unknown = {name: value for name, value in changes.items() if name not in DEFAULTS}
    was = {name: value for name, value in before.items() if name not in DEFAULTS}
    now = {name: value for name, value in after.items() if name not in DEFAULTS}
    assert text(now) == text(preferences.merge(was, unknown))
    declared = {name: value for name, value in changes.items() if name != "updated_at"}  # ignored, so any type is valid
    schemas.convert(declared, schemas.wire_type(SettingsPatch))
