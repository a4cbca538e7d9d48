"""Permissions: every operation, requested by every role.

The table in tests/support/access.py repeats them independently of the declarations; every operation needs a row.
"""

from typing import Any

import pytest

from service import clock
from service.auth.consent import SCOPES
from service.models import (
    ChatSession,
    LoginSession,
    MessageImage,
)
from service.routes import operations
from tests.support.access import (
    CASES,
    NOTE,
    ROLES,
    ROWS,
    STAFF_201_OR_403,
    STAFF_OR_400,
    STAFF_OR_403,
    UNKNOWN,
    USERS,
    World,
    rolled_back,
    rows_by_owner,
)
from tests.support.access import world_fixture as world_fixture
from tests.support.observe import nothing_changes
from tests.support.operations import ALL, address, every

pytestmark = pytest.mark.database


# The lists and settings that return the caller's own rows.
PERSONAL = (
    "show_consent",
    "show_events",
    "show_feedback",
    "show_notifications",
    "show_settings",
    "show_shares",
    "get_profile",
    "get_settings",
    "list_data_shares",
    "list_events",
    "list_feedback",
    "list_notifications",
    "update_settings",
)

SECRETS = ("of Alice", "alice@example.com", *(",".join(map(str, text.encode())) for text in ("Hello", NOTE)))


def changed_since(before: dict[str, list[Any]]) -> set[str]:
    """The owners whose rows differ from an earlier state."""
    after = rows_by_owner()
    return {owner for owner in before.keys() | after.keys() if before.get(owner) != after.get(owner)}


def test_every_operation_has_a_row() -> None:
    names = {operation.name for operation in operations()}
    assert names == set(ROWS), "add or remove rows of ROWS in tests/support/access.py, which say who may call it"


def test_every_row_covers_every_role() -> None:
    assert all(set(row.expected) == set(ROLES) for row in CASES.values())


@every()
def test_rows_and_declarations_agree_on_required_credentials(operation: Any) -> None:
    is_open = ROWS[operation.name].expected["anyone"] != UNKNOWN
    assert operation.public == is_open == (ROWS[operation.name].scope is None)


@pytest.mark.parametrize("name", ROLES)
def test_every_role_gets_the_response_of_the_table(name, world):
    client, alice, before = world.clients[name], world.clients["alice"].user, rows_by_owner()
    for case, row in CASES.items():
        expected = row.expected[name]
        with rolled_back(case):
            reply = world.ask(case, client)
            owners = changed_since(before)
        if isinstance(expected, int):
            assert reply.status == expected, (case, reply.raw)
            own = client.user and client.user.id
            staff = {world.clients[role].user.id for role in ("agent", "admin")} - {own}
            written = {
                "": set(),
                "shop": {""},
                "own": {own},
                "shop and own": {"", own},
                "alice and other staff": {alice.id, *staff},
                "new": owners - before.keys(),  # the rows of existing users do not change
                "new and own": owners - before.keys() | {client.user and client.user.id},
                "deleted": {alice.id, ""},  # the entry of the audit log belongs to no user
            }.get(row.changes, {alice.id})
            assert owners == (written if expected < 400 else set()), case
        else:
            assert reply.error == expected, case
            assert owners == set(), case
            assert not [secret for secret in SECRETS if secret in reply.raw.decode()], case


@pytest.mark.parametrize("case", PERSONAL)
def test_callers_read_their_own_rows_only(case, world):
    users = {name: world.clients[name].user for name in USERS}
    marks = {
        name: user.email if case in ("show_consent", "show_settings", "get_profile") else f" of {user.first_name}"
        for name, user in users.items()
    }
    for name in USERS:
        with rolled_back():
            shown = world.ask(case, world.clients[name]).raw.decode()
        own = marks[name]
        assert own in shown, name
        assert not [other for other in marks.values() if other != own and other in shown], name


def test_a_data_share_check_uses_the_grants_of_the_caller(world):
    for name in USERS:
        verdict = world.ask("check_data_share", world.clients[name]).data
        assert verdict["allowed"] is (name == "alice")
        assert verdict["reason"] == ("granted" if name == "alice" else "not_granted")


def test_new_rows_belong_to_the_caller_whatever_the_body_has(world):
    for name in USERS:
        client = world.clients[name]
        assert world.ask("submit_feedback", client).data["user_id"] == client.user.id
        profile = world.ask("update_profile", client).data
        assert (profile["id"], profile["role"]) == (client.user.id, client.user.role)


@pytest.mark.parametrize("case", ["list_messages", "list_pinned_messages"])
def test_only_staff_can_read_notes(case, world):
    for name in ("alice", "agent", "admin"):
        shown = world.ask(case, world.clients[name])
        public, notes = (3, 2) if case == "list_messages" else (1, 1)
        assert len(shown.data) == (public if name == "alice" else public + notes)
        assert (SECRETS[-1] in shown.raw.decode()) == (name != "alice")


def test_a_role_without_an_app_and_an_app_without_a_role_give_no_access(world, person, shop):
    """An agent without an app, and a customer with Alice's app, get the same errors as Bob."""
    for client in (person("ann", role="agent"), person("carl", role="user", app_id=shop.id)):
        for case, row in CASES.items():
            if row.expected in (STAFF_OR_403, STAFF_OR_400, STAFF_201_OR_403):
                with nothing_changes():
                    assert world.ask(case, client).error == row.expected["bob"], case


def test_staff_can_access_the_sessions_of_their_own_app_only(world, other_shop, say, alice):
    """Alice chats with two shops: the staff of each can access its own session only."""
    elsewhere = ChatSession.create(app_id=other_shop.id, user_id=alice.user.id)
    world.ids[ChatSession] = elsewhere.id
    pinned = say("Hi", elsewhere, pinned_at=clock.timestamp())
    world.messages |= {"plain": say("Hi", elsewhere).id, "pinned": pinned.id}
    MessageImage.update(message_id=pinned.id).execute()
    swapped = {"agent": "other_agent", "other_agent": "agent"}
    for case, row in ROWS.items():
        if row.expected in (STAFF_OR_403, STAFF_OR_400, STAFF_201_OR_403):
            for name in USERS:
                with rolled_back():
                    reply = world.ask(case, world.clients[name])
                expected = row.expected[swapped.get(name, name)]
                assert (reply.status if isinstance(expected, int) else reply.error) == expected, (case, name)


# Tokens with scopes


def expect_scopes(name: str, scopes: str, world: World) -> None:
    """Fail unless a token permits exactly its scopes; a scope includes its own `:read`."""
    client, given = world.clients[name], set(scopes.split())
    LoginSession.update(scopes=scopes).where(LoginSession.user_id == client.user.id).execute()
    needs = {case: row.scope for case, row in CASES.items() if row.scope is not None}
    allowed = [case for case, needed in needs.items() if not needed or given & {needed, needed.removesuffix(":read")}]
    with nothing_changes():
        for case in needs.keys() - allowed:
            reply = world.ask(case, client)
            assert reply.error == (403, "insufficient_scope"), (scopes, case)
            assert f'scope="{needs[case]}"' in reply.headers["WWW-Authenticate"]
    for case in allowed:
        with rolled_back():
            reply, expected = world.ask(case, client), CASES[case].expected[name]
        assert (reply.status if isinstance(expected, int) else reply.error) == expected, (scopes, case)


@pytest.mark.parametrize(
    "scopes",
    [
        "",
        "chats:read events feedback",
        *(pytest.param(scope, marks=pytest.mark.slow) for scope in (*sorted(SCOPES), "everything", "chats:write")),
    ],
)
def test_a_token_permits_exactly_its_scopes(scopes, world):
    expect_scopes("alice", scopes, world)


@pytest.mark.parametrize(
    "scopes", ["data-shares", *(pytest.param(scope, marks=pytest.mark.slow) for scope in ("chats:read", "", "admin"))]
)
def test_scopes_limit_the_token_of_an_admin_too(scopes, world):
    expect_scopes("admin", scopes, world)


def test_a_missing_scope_is_reported_before_existence(world):
    """Identifiers and bodies are not read."""
    client = world.clients["alice"]
    LoginSession.update(scopes="").execute()
    for operation in ALL.values():
        if ROWS[operation.name].scope:
            path = address(operation, *["x"] * len(operation.path_rows))
            reply = client.call(operation.method, path, raw=b"{" if operation.method != "GET" else b"")
            assert reply.error == (403, "insufficient_scope"), operation.name
