"""Authentication: invalid access tokens, the ends of sessions, and users whose permissions change.

Every declared operation is called; the expected responses are in the table `ROWS` of tests/support/access.py.
"""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import json as compact
from msgspec import structs

from service import db, signing
from service.api import parameter_types
from service.auth import csrf, tokens
from service.console import sign_in
from service.http.application import build_app
from service.models import (
    App,
    Avatar,
    Bot,
    BotPicture,
    CalendarFeed,
    CannedAnswer,
    CannedReply,
    ChatSession,
    DataShare,
    Event,
    Feedback,
    FeedbackScreenshot,
    LoginSession,
    Message,
    MessageImage,
    Notification,
    StoredMail,
    User,
)
from service.operate import import_export
from service.routes import operations
from service.validators import fold_email
from tests.support.access import (
    CASES,
    ROLES,
    ROWS,
    STAFF_201_OR_403,
    STAFF_OR_400,
    STAFF_OR_403,
    UNKNOWN,
    USERS,
    World,
    rolled_back,
)
from tests.support.access import world_fixture as world_fixture
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes, statements
from tests.support.operations import ALL, address
from tests.support.passwords import PASSWORD, PASSWORD_HASH
from tests.support.sample_data import UNKNOWN_ID, UNKNOWN_MESSAGE_ID

pytestmark = pytest.mark.database


GUARDED = [operation for operation in ALL.values() if not operation.public]
PAGES = [operation for operation in GUARDED if operation.is_page]
HASHING = {"log_in", "change_password", "change_account", "sign_in_browser"}  # slow
HERE = parameter_types.RequestInfo("127.0.0.1", "tests", "http://test")

# The error code of an unknown identifier, where the operation lists 404. Each table in a path needs one.
NOT_FOUND_CODES = {
    App: "app_not_found",
    Avatar: "not_found",
    Bot: "bot_not_found",
    CannedAnswer: "answer_not_found",
    CannedReply: "canned_reply_not_found",
    BotPicture: "not_found",
    ChatSession: "session_not_found",
    DataShare: "grant_not_found",
    User: "user_not_found",
    Event: "event_not_found",
    Feedback: "feedback_not_found",
    FeedbackScreenshot: "feedback_not_found",
    LoginSession: "not_found",
    Message: "message_not_found",
    MessageImage: "image_not_found",
    Notification: "notification_not_found",
    StoredMail: "mail_not_found",
}


def cookie_of(user: User) -> str:
    """The cookie of a new login with a browser."""
    with db.write():
        return sign_in.begin(user.id, HERE).partition(";")[0]


def request_without_body(world: World, operation: Any, client: Client, **headers: str) -> Reply:
    """Call an operation with Alice's identifiers, without body and query."""
    identifiers = {**world.ids, Message: world.messages["pinned"]}
    path = address(operation, *(identifiers[table] for *_, table in operation.path_rows))
    return client.call(operation.method, path, **headers)


def expect_refused(world: World, chosen: list[Any], expected: tuple[int, str], **headers: str) -> None:
    """Fail unless operations refuse the credentials and change nothing."""
    with nothing_changes():
        for operation in chosen:
            reply = request_without_body(world, operation, world.clients["anyone"], **headers)
            assert reply.error == expected, operation.name
            assert reply.headers["WWW-Authenticate"].startswith("Bearer"), operation.name


def is_expected(reply: Reply, expected: Any) -> bool:
    """Whether a response is the one of the table: a status, or a status and a code."""
    return (reply.status if isinstance(expected, int) else reply.error) == expected


def without_request_id(reply: Reply) -> tuple[Any, ...]:
    """A response without the identifier of its request."""
    return reply.status, {**reply.headers, "X-Request-ID": ""}, reply.raw


# The ends of sessions.


def elsewhere(world: World, method: str, path: str, body: Any = None) -> None:
    """Send a request in another session of Alice."""
    alice = world.clients["alice"]
    with db.write():
        other = tokens.log_in(alice.user.id, world.settings).access_token
    assert Client(alice.application, other).call(method, path, body).status == 200


def import_alice(world: World, **columns: Any) -> None:
    """Import another record of Alice."""
    user = world.clients["alice"].user
    file = world.settings.data.parent / "alice.jsonl"
    file.write_text(json.dumps({"user": {"id": user.id, "email": user.email, **columns}}))
    assert import_export.import_files([file]) == []


def use_again(world: World) -> None:
    """Use a refresh token again after its successor's successor was issued."""
    first = refresh = tokens.pair_of(LoginSession.get_by_id(login_of(world)), world.settings).refresh_token
    for _ in range(2):
        refresh = tokens.rotate(refresh, world.settings).refresh_token
    assert world.clients["anyone"].post("/auth/refresh", {"refresh_token": first}).status == 401


def login_of(world: World) -> str:
    """The login session of Alice's token."""
    return tokens.authenticate(f"Bearer {world.clients['alice'].token}").session_id


NEW = {"current_password": PASSWORD, "new_password": "another one"}
ENDINGS: dict[str, tuple[Callable[[World], Any], bool]] = {  # and whether the logins of her browsers end, too
    "she logs out": (lambda world: world.clients["alice"].post("/auth/logout", {}), False),
    "she logs out everywhere": (lambda world: elsewhere(world, "POST", "/auth/logout", {"scope": "global"}), True),
    "she ends it elsewhere": (lambda world: elsewhere(world, "DELETE", f"/auth/sessions/{login_of(world)}"), False),
    "she changes her password elsewhere": (lambda world: elsewhere(world, "POST", "/auth/password", NEW), True),
    "she gets another password": (lambda world: world.clients["alice"].user.change_password(PASSWORD_HASH), True),
    "she is disabled": (lambda world: world.clients["alice"].user.disable(), True),
    "she is imported with another password": (lambda world: import_alice(world, password_hash="other"), True),
    "she is imported without a password": (lambda world: import_alice(world), True),
    "she is imported as disabled": (lambda w: import_alice(w, password_hash=PASSWORD_HASH, is_disabled=True), True),
    "her refresh token comes twice": (use_again, False),
    "her program is revoked": (
        lambda world: elsewhere(world, "DELETE", f"/users/me/installs/{login_of(world)}"),
        False,
    ),
    "her program signs in again": (lambda world: LoginSession.end_install(world.names["alice"], "hers"), False),
    "a month passes": (lambda world: world.clock.forward(days=31), True),
    "an hour passes": (lambda world: world.clock.forward(hours=1), False),
}


@pytest.fixture
def ending_world(host_clock, world, settings):
    """The world, in which Alice's login is that of a program with all scopes, so that every way to end one is open."""
    world.clock, world.settings = host_clock, settings
    LoginSession.update(install_id="hers").where(LoginSession.id == login_of(world)).execute()
    return world


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_token_of_an_ended_session_is_invalid(ending, ending_world):
    world, (end, ends_browsers) = ending_world, ENDINGS[ending]
    token, cookie = world.clients["alice"].token, cookie_of(world.clients["alice"].user)
    assert request_without_body(world, ALL["get_profile"], world.clients["alice"]).status == 200
    end(world)
    expect_refused(world, GUARDED, (401, "invalid_token"), authorization=f"Bearer {token}")
    if ends_browsers:
        expect_refused(world, PAGES, (401, "invalid_token"), cookie=cookie)
    else:
        assert request_without_body(world, ALL["show_inbox"], world.clients["anyone"], cookie=cookie).status == 200


def test_a_disabled_user_who_is_enabled_again_has_to_log_in_again(world):
    alice = world.clients["alice"]
    alice.user.disable()
    alice.user.enable()
    expect_refused(world, GUARDED, (401, "invalid_token"), authorization=f"Bearer {alice.token}")


def test_the_address_of_a_calendar_is_independent_of_sessions_and_passwords(world):
    alice, anyone, path = world.clients["alice"], world.clients["anyone"], f"/events.ics?token={world.names['feed']}"
    assert alice.post("/auth/logout", {"scope": "global"}).status == 200
    alice.user.change_password(PASSWORD_HASH)
    assert anyone.get(path).status == 200
    alice.user.disable()
    assert anyone.get(path).error == (404, "feed_not_found")


@pytest.mark.slow
def test_folding_an_address_again_changes_nothing() -> None:
    """Stored addresses are found, and no two users have the same address."""
    for code in range(sys.maxunicode + 1):
        folded = fold_email(f"{chr(code)}a{chr(code)}")
        assert fold_email(folded) == folded, hex(code)


# Invalid access tokens.


def forged(value: list[Any], *, secret: str) -> str:
    """A token that another installation has signed."""
    return f"cxa_{signing._sign('access', (secret,), compact.encode(value))}"


def other_credentials(world: World) -> dict[str, str]:
    """All other credentials that the service issues, and forgeries made of them, by description."""
    alice, names = world.clients["alice"], world.names
    session = LoginSession.get_by_id(login_of(world))
    caller = tokens.authenticate(f"Bearer {alice.token}")
    own = [session.id, session.generation, session.expires_at]
    admin = tokens.authenticate(f"Bearer {world.clients['admin'].token}").session_id
    altered, parameter_types = forged([admin, *own[1:]], secret="").removeprefix("cxa_"), alice.token.rpartition(".")[2]
    return {
        "a refresh token": names["refresh_token"],
        "a refresh token with the prefix of an access token": names["refresh_token"].replace("cxr_", "cxa_"),
        "a code": f"cxc_{signing.sign('code', ['x', session.id])}",
        "a code with the prefix of an access token": f"cxa_{signing.sign('code', ['x', session.id])}",
        "the cookie of a browser": cookie_of(alice.user).partition("=")[2],
        "the cookie with the prefix of an access token": f"cxa_{cookie_of(alice.user).partition('=')[2]}",
        "a CSRF token of the console": csrf.make_token(caller),
        "a CSRF token of the sign-in form": names["csrf_token"],
        "a cursor": f"cxa_{signing.sign('cursor', own)}",
        "a position": f"cxa_{alice.get('/updates').data['after']}",
        "the secret of a calendar": names["feed"],
        "a token of another installation": forged(own, secret="0" * 64),
        "a token signed with an empty secret": forged(own, secret=""),
        "a token of the next generation": f"cxa_{signing.sign('access', [own[0], own[1] + 1, own[2]])}",
        "a token that has expired": f"cxa_{signing.sign('access', [*own[:2], 0])}",
        "a token of an unknown session": f"cxa_{signing.sign('access', [UNKNOWN_ID, 1, own[2]])}",
        "another session with the signature of one's own": f"cxa_{altered.rpartition('.')[0]}.{parameter_types}",
    }


def test_no_other_credential_is_an_access_token(world):
    nameless = [operation for operation in GUARDED if not operation.path_rows]
    for name, token in other_credentials(world).items():
        reply = request_without_body(
            world, ALL["get_profile"], world.clients["anyone"], authorization=f"Bearer {token}"
        )
        assert reply.error == (401, "invalid_token"), name
    expect_refused(
        world,
        nameless,
        (401, "invalid_token"),
        authorization=f"Bearer {other_credentials(world)['a code with the prefix of an access token']}",
    )


@pytest.mark.slow
def test_no_other_text_is_an_access_token(world):
    for token in other_credentials(world).values():
        expect_refused(world, GUARDED, (401, "invalid_token"), authorization=f"Bearer {token}")


def test_an_access_token_is_no_other_credential(world):
    anyone, token = world.clients["anyone"], world.clients["alice"].token
    bare = token.removeprefix("cxa_")
    with nothing_changes():
        for text in (token, f"cxr_{bare}"):
            assert anyone.post("/auth/refresh", {"refresh_token": text}).error == (401, "invalid_token")
        for text in (token, bare, f"cxf_{bare}"):
            assert anyone.get(f"/events.ics?token={text[:100]}").error == (404, "feed_not_found")
        for text in (token, bare):
            assert anyone.get("//", cookie=f"cx_signed_in={text}").error == (401, "invalid_token")
        for text in (token, f"cxc_{bare}"):
            form = f"grant_type=authorization_code&client_id=service-cli&code={text}"
            form += "&code_verifier=x&redirect_uri=http://127.0.0.1/"
            reply = anyone.post("/auth/cli/token", raw=form.encode(), content_type="application/x-www-form-urlencoded")
            assert (reply.status, reply.json["error"]) == (400, "invalid_grant")


# Cookies, and `--documented-only`.


@pytest.mark.parametrize("name", USERS)
def test_the_cookie_is_valid_for_the_same_pages_as_the_token_only(name, world):
    cookie, browser = cookie_of(world.clients[name].user), world.clients["anyone"]
    for operation in GUARDED:
        if not operation.is_page and not operation.full_path.startswith("/console/"):
            assert request_without_body(world, operation, browser, cookie=cookie).error == UNKNOWN, operation.name
        elif operation.method == "GET" and not ROWS[operation.name].query:
            expected = ROWS[operation.name].expected[name]
            assert is_expected(request_without_body(world, operation, browser, cookie=cookie), expected), operation.name


def test_a_browser_has_one_session(world):
    """Signing in ends the previous session of the same browser, also that of another user."""
    first = cookie_of(world.clients["alice"].user)
    name, _, value = first.partition("=")
    with db.write():
        second = sign_in.begin(world.clients["bob"].user.id, structs.replace(HERE, cookie=f"{name}={value}")).partition(
            ";"
        )[0]
    expect_refused(world, PAGES, (401, "invalid_token"), cookie=first)
    assert "Bob" in request_without_body(world, ALL["show_inbox"], world.clients["anyone"], cookie=second).raw.decode()
    assert world.clients["alice"].get("/users/me").status == 200


@pytest.mark.slow
def test_responses_with_documented_only_are_the_same(world, settings):
    there = build_app(operations(documented_only=True), replace(settings, documented_only=True))
    served = {operation.name for operation in operations(documented_only=True)}
    for name in ROLES:
        client = Client(there, world.clients[name].token, world.clients[name].user)
        for case, row in CASES.items():
            operation = case.partition(",")[0]
            if operation not in HASHING:
                with rolled_back(case):
                    reply = world.ask(case, client)
                expected = row.expected[name] if operation in served else None
                assert is_expected(reply, expected) if expected else reply.status in (404, 405), (case, name)


# Users whose permissions change.

CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "the agent works for another shop": ({"role": "agent", "app_id": "other"}, "other_agent"),
    "the agent works nowhere": ({"app_id": None}, "bob"),
    "the agent is a customer": ({"role": "user"}, "bob"),
    "the agent is an admin": ({"role": "admin"}, "admin"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_token_has_the_current_permissions_of_its_user(change, world, other_shop):
    changes, like = CHANGES[change]
    agent = world.clients["agent"]
    changes = {name: other_shop.id if value == "other" else value for name, value in changes.items()}
    User.update(changes).where(User.id == agent.user.id).execute()
    for case, row in CASES.items():
        if case not in HASHING:
            with rolled_back(case):
                reply = world.ask(case, agent)
            assert is_expected(reply, row.expected[like]), case


def test_an_agent_is_a_customer_of_another_shop(world, other_shop):
    agent = world.clients["agent"]
    ChatSession.update(user_id=agent.user.id, app_id=other_shop.id).execute()
    for case, row in CASES.items():
        if row.expected in (STAFF_OR_403, STAFF_OR_400, STAFF_201_OR_403) or case.endswith("of a note"):
            with rolled_back(case):
                assert is_expected(world.ask(case, agent), row.expected["alice"]), case


# Objects of other users, and objects that do not exist.


def test_every_table_that_a_path_names_has_expectations(world):
    named = {table for operation in ALL.values() for *_, table in operation.path_rows}
    assert named == set(NOT_FOUND_CODES) == {*world.ids, Message}


def test_missing_objects_have_the_error_of_their_kind_and_hidden_ones_the_same(world):
    identifiers = {**world.ids, Message: world.messages["pinned"]}
    unknown = {
        table: UNKNOWN_MESSAGE_ID
        if table in (Message, StoredMail)
        else f"{UNKNOWN_ID}.webp"
        if table in (Avatar, BotPicture)
        else UNKNOWN_ID
        for table in NOT_FOUND_CODES
    }
    for operation in ALL.values():
        tables = [table for *_, table in operation.path_rows]
        for place, table in enumerate(tables):
            given = [identifiers[other] for other in tables]
            given[place] = unknown[table]
            status = 404 if 404 in operation.statuses else 400
            with nothing_changes():
                reply = world.clients["admin"].call(operation.method, address(operation, *given))
                assert reply.error == (status, NOT_FOUND_CODES[table]), (operation.name, table)
                missing = world.clients["bob"].call(operation.method, address(operation, *given))
                others = request_without_body(world, operation, world.clients["bob"])
            expected = ROWS[operation.name].expected["bob"]
            if place == 0 and expected == (status, NOT_FOUND_CODES[table]):
                assert without_request_id(missing) == without_request_id(others), operation.name


def indistinguishable(world: World) -> dict[str, list[Reply]]:
    """Responses for objects that do not exist and for objects of other users, by kind."""
    alice, bob, agent, anyone = (world.clients[name] for name in ("alice", "bob", "agent", "anyone"))
    names, path, new = world.names, f"/chats/{world.ids[ChatSession]}", {"app_id": world.names["app"]}
    draft = Bot.create(app_id=new["app_id"], name="Draft", kind="bot")
    away = Bot.create(app_id=new["app_id"], name="Away", kind="bot", status="published", is_active=False)
    elsewhere = Bot.create(app_id=App.get(App.id != new["app_id"]).id, name="Far", kind="bot", status="published")
    bobs = bob.post("/chats", new).data
    bobs_message = bob.post(f"/chats/{bobs['id']}/messages", {"content": "Hi"}).data["id"]
    shares = {"mcp_server_id": "mail", "allowed_tools": ["read"]}
    login, install = login_of(world), world.ids[LoginSession]
    foreign = [alice.get("/events?limit=1").meta["next_cursor"], alice.get("/updates").data["after"]]
    ended = tokens.pair_of(LoginSession.get_by_id(install), world.settings).refresh_token
    LoginSession.update(ended_at=1).where(LoginSession.id == install).execute()
    far = LoginSession.get_by_id(login).expires_at
    never = f"cxr_{signing.sign('refresh', [UNKNOWN_ID, 1, far])}"
    bob.user.disable()
    feed = names["bobs feed"]
    return {
        "bots of a new chat": [
            alice.post("/chats", {**new, "bot_id": id}) for id in (UNKNOWN_ID, draft.id, away.id, elsewhere.id)
        ],
        "bots": [
            alice.get(f"/bots/{id}?{'app_id=' + new['app_id']}") for id in (UNKNOWN_ID, draft.id, away.id, elsewhere.id)
        ],
        "conversations": [
            alice.post("/chats", {**new, "conversation_id": id}) for id in (UNKNOWN_ID, bobs["conversation_id"])
        ],
        "conversations to share": [
            alice.post("/data-shares", {**shares, "conversation_id": id})
            for id in (UNKNOWN_ID, bobs["conversation_id"])
        ],
        "messages to reply to": [
            alice.post(f"{path}/messages", {"content": "Hi", "reply_to_message_id": id})
            for id in (UNKNOWN_MESSAGE_ID, bobs_message, world.messages["plain note"])
        ],
        "messages to read up to": [
            alice.put(f"{path}/read", {"message_id": id})
            for id in (UNKNOWN_MESSAGE_ID, bobs_message, world.messages["plain note"])
        ],
        "messages to edit": [
            alice.patch(f"{path}/messages/{id}", {"content": "Hi"})
            for id in (UNKNOWN_MESSAGE_ID, bobs_message, world.messages["plain note"])
        ],
        "logins": [agent.delete(f"/auth/sessions/{id}") for id in (UNKNOWN_ID, login, install)],
        "programs": [agent.delete(f"/users/me/installs/{id}") for id in (UNKNOWN_ID, login, install)],
        "cursors": [agent.get(f"/feedback?cursor={text}") for text in ("x", *foreign)],
        "positions": [agent.get(f"/updates?wait=0&after={text}") for text in ("x", *foreign)],
        "refresh tokens": [anyone.post("/auth/refresh", {"refresh_token": text}) for text in ("x", never, ended)],
        "calendars": [anyone.get(f"/events.ics?token={text}") for text in ("x", feed)],
    }


def test_inaccessible_objects_in_a_body_are_reported_as_missing(world, settings):
    world.settings = settings
    world.names["bobs feed"] = CalendarFeed.renew(world.clients["bob"].user.id)
    Event.create(user_id=world.names["alice"], title="Tea", starts_at="2026-11-20T11:00:00.000Z")
    for named, replies in indistinguishable(world).items():
        first, *others = map(without_request_id, replies)
        assert first[0] in (400, 401, 404), named
        assert all(other == first for other in others), named


def test_idempotency_keys_and_client_message_ids_are_separate_by_caller(world):
    """They neither repeat nor reveal the requests of other users."""
    alice, agent = world.clients["alice"], world.clients["agent"]
    path, body = f"/chats/{world.ids[ChatSession]}/messages", {"content": "Hi", "client_message_id": "1"}
    hers = alice.post(path, body, idempotency_key="1")
    other = agent.post(path, {**body, "content": "Ho"}, idempotency_key="1")
    assert (hers.status, other.status) == (201, 201)
    assert hers.data["id"] != other.data["id"]
    assert "Idempotency-Replayed" not in other.headers


# The same work for known and unknown accounts.


def work_of(world: World, email: str, path: str = "/auth/login") -> tuple[Any, list[str]]:
    """The response to a failed login, and its statements."""
    with rolled_back(), statements() as seen:
        reply = world.clients["anyone"].post(path, {"email": email, "password": "wrong"})
    # Savepoints, and the locks of PostgreSQL, have names of their own.
    return without_request_id(reply), [re.sub(r"-?\d{3,}", "", sql) for sql, _ in seen if "SAVEPOINT" not in sql]


def test_response_and_work_of_a_login_do_not_reveal_accounts(host_clock, world, settings):
    world.clients["bob"].user.disable()
    emails = ("alice@example.com", "bob@example.com", "unknown@example.com")
    known, *others = (work_of(world, email) for email in emails)
    assert known[0][0] == 401
    assert known[1]
    for other in others:
        assert other == known
    world.clients["anyone"].application = build_app(operations(), replace(settings, login_failures=1))
    for email in emails:
        world.clients["anyone"].post("/auth/login", {"email": email, "password": "wrong"})
    known, *others = (work_of(world, email) for email in emails)
    assert known[0][0] == 429
    for other in others:
        assert other == known
