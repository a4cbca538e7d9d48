"""Who a caller is, and until when: what is no access token, what ends one, and whoever is somebody else meanwhile.

Everything is asked of every operation that is declared; what is expected stands in the table of tests/test_access.py.
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

from service import db, signature, transfer
from service.auth import sign_in, signing, tickets, tokens
from service.formats import fold_email
from service.models import (
    App,
    Avatar,
    Bot,
    CalendarFeed,
    ChatSession,
    DataShare,
    Event,
    Feedback,
    LoginSession,
    Message,
    Notification,
    User,
)
from service.routes import operations
from service.web import build_app
from tests.conftest import PASSWORD, PASSWORD_HASH, Client, Reply
from tests.household import NOBODY, NOTHING
from tests.test_access import (
    CASES,
    CONCEALING,
    KNOWN,
    PEOPLE,
    ROWS,
    SENDING,
    TELLING,
    UNKNOWN,
    World,
    undone,
    world,
)
from tests.test_operations import ALL, address
from tests.watching import nothing_changes, statements

__all__ = ["world"]

GUARDED = [operation for operation in ALL.values() if not operation.public]
PAGES = [operation for operation in GUARDED if operation.is_page]
HASHING = {"log_in", "change_password", "change_account", "sign_in_browser"}  # which take long
HERE = signature.Origin("127.0.0.1", "tests", "http://test")

# What is told of an identifier that leads nowhere, where the operation lists 404; a table that a path names needs one.
NOWHERE = {
    App: "app_not_found",
    Avatar: "not_found",
    Bot: "bot_not_found",
    ChatSession: "session_not_found",
    DataShare: "grant_not_found",
    Event: "event_not_found",
    Feedback: "feedback_not_found",
    LoginSession: "not_found",
    Message: "message_not_found",
    Notification: "notification_not_found",
}


def cookie_of(user: User) -> str:
    """The cookie of a new login with a browser."""
    with db.write():
        return sign_in.begin(user.id, HERE).partition(";")[0]


def ask_bare(world: World, operation: Any, client: Client, **headers: str) -> Reply:
    """An operation with Alice's identifiers, and nothing else."""
    identifiers = {**world.ids, Message: world.messages["pinned"]}
    path = address(operation, *(identifiers[table] for *_, table in operation.loads))
    return client.call(operation.method, path, **headers)


def expect_shut(world: World, chosen: list[Any], told: tuple[int, str], **headers: str) -> None:
    """Fail unless operations refuse credentials, and nothing happens."""
    with nothing_changes():
        for operation in chosen:
            reply = ask_bare(world, operation, world.clients["anyone"], **headers)
            assert reply.error == told, operation.name
            assert reply.headers["WWW-Authenticate"].startswith("Bearer"), operation.name


def is_told(reply: Reply, told: Any) -> bool:
    """Whether an answer is the one that the table names: a status, or also a code."""
    return (reply.status if isinstance(told, int) else reply.error) == told


def without_number(reply: Reply) -> tuple[Any, ...]:
    """All of an answer but the number of its request."""
    return reply.status, {**reply.headers, "X-Request-ID": ""}, reply.raw


# What ends a login.


def elsewhere(world: World, method: str, path: str, body: Any = None) -> None:
    """Alice does something with another login of hers."""
    alice = world.clients["alice"]
    with db.write():
        other = tokens.begin(alice.user.id, world.settings).access_token
    assert Client(alice.application, other).call(method, path, body).status == 200


def take_in(world: World, **columns: Any) -> None:
    """Somebody imports another record of Alice."""
    user = world.clients["alice"].user
    file = world.settings.data.parent / "alice.jsonl"
    file.write_text(json.dumps({"user": {"id": user.id, "email": user.email, **columns}}))
    assert transfer.take_in([file]) == []


def use_again(world: World) -> None:
    """A refresh token comes again after its successor's successor was given out."""
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
    "she is imported with another password": (lambda world: take_in(world, password_hash="other"), True),
    "she is imported without a password": (lambda world: take_in(world), True),
    "she is imported as disabled": (lambda w: take_in(w, password_hash=PASSWORD_HASH, is_disabled=True), True),
    "her refresh token comes twice": (use_again, False),
    "her program is revoked": (
        lambda world: elsewhere(world, "DELETE", f"/users/me/installs/{login_of(world)}"),
        False,
    ),
    "her program signs in anew": (lambda world: LoginSession.end_install(world.names["alice"], "hers"), False),
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
def test_a_login_that_has_ended_opens_nothing(ending, ending_world):
    world, (end, ends_browsers) = ending_world, ENDINGS[ending]
    token, cookie = world.clients["alice"].token, cookie_of(world.clients["alice"].user)
    assert ask_bare(world, ALL["get_profile"], world.clients["alice"]).status == 200
    end(world)
    expect_shut(world, GUARDED, (401, "invalid_token"), authorization=f"Bearer {token}")
    if ends_browsers:
        expect_shut(world, PAGES, (401, "invalid_token"), cookie=cookie)
    else:
        assert ask_bare(world, ALL["show_inbox"], world.clients["anyone"], cookie=cookie).status == 200


def test_a_disabled_user_who_is_enabled_again_has_to_log_in_again(world):
    alice = world.clients["alice"]
    alice.user.disable()
    alice.user.enable()
    expect_shut(world, GUARDED, (401, "invalid_token"), authorization=f"Bearer {alice.token}")


def test_the_address_of_a_calendar_outlives_logins_and_passwords(world):
    alice, anyone, path = world.clients["alice"], world.clients["anyone"], f"/events.ics?token={world.names['feed']}"
    assert alice.post("/auth/logout", {"scope": "global"}).status == 200
    alice.user.change_password(PASSWORD_HASH)
    assert anyone.get(path).status == 200
    alice.user.disable()
    assert anyone.get(path).error == (404, "feed_not_found")


def test_folding_an_address_again_changes_nothing() -> None:
    """So what is stored is found as it was written, and no two users have one address."""
    for code in range(sys.maxunicode + 1):
        folded = fold_email(f"{chr(code)}a{chr(code)}")
        assert fold_email(folded) == folded, hex(code)


# What is no access token.


def forged(value: list[Any], *, secret: str) -> str:
    """A text of another installation, which signs as we do."""
    return f"cxa_{signing._sign('access', (secret,), compact.encode(value))}"


def stolen(world: World) -> dict[str, str]:
    """Everything else that the service gives out, and what somebody could make of it, each as a token."""
    alice, names = world.clients["alice"], world.names
    session = LoginSession.get_by_id(login_of(world))
    caller = tokens.authenticate(f"Bearer {alice.token}")
    own = [session.id, session.generation, session.expires_at]
    admin = tokens.authenticate(f"Bearer {world.clients['admin'].token}").session_id
    altered, signature = forged([admin, *own[1:]], secret="").removeprefix("cxa_"), alice.token.rpartition(".")[2]
    return {
        "a refresh token": names["refresh_token"],
        "a refresh token in disguise": names["refresh_token"].replace("cxr_", "cxa_"),
        "a code": f"cxc_{signing.sign('code', ['x', session.id])}",
        "a code in disguise": f"cxa_{signing.sign('code', ['x', session.id])}",
        "the cookie of a browser": cookie_of(alice.user).partition("=")[2],
        "the cookie in disguise": f"cxa_{cookie_of(alice.user).partition('=')[2]}",
        "a ticket of the console": tickets.make(caller),
        "a ticket of the sign-in form": names["ticket"],
        "a cursor": f"cxa_{signing.sign('cursor', own)}",
        "a position": f"cxa_{alice.get('/updates').data['after']}",
        "the secret of a calendar": names["feed"],
        "a token of another installation": forged(own, secret="0" * 64),
        "a token signed with nothing": forged(own, secret=""),
        "a token of the next generation": f"cxa_{signing.sign('access', [own[0], own[1] + 1, own[2]])}",
        "a token that has expired": f"cxa_{signing.sign('access', [*own[:2], 0])}",
        "a token of no login": f"cxa_{signing.sign('access', [NOBODY, 1, own[2]])}",
        "another login under one's own signature": f"cxa_{altered.rpartition('.')[0]}.{signature}",
    }


def test_nothing_else_that_the_service_gives_out_is_an_access_token(world):
    nameless = [operation for operation in GUARDED if not operation.loads]
    for name, token in stolen(world).items():
        reply = ask_bare(world, ALL["get_profile"], world.clients["anyone"], authorization=f"Bearer {token}")
        assert reply.error == (401, "invalid_token"), name
    expect_shut(world, nameless, (401, "invalid_token"), authorization=f"Bearer {stolen(world)['a code in disguise']}")


@pytest.mark.slow
def test_nothing_else_is_an_access_token_wherever_it_comes(world):
    for token in stolen(world).values():
        expect_shut(world, GUARDED, (401, "invalid_token"), authorization=f"Bearer {token}")


def test_an_access_token_is_nothing_else(world):
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


# Cookies, and what is left of the operations.


@pytest.mark.parametrize("name", KNOWN)
def test_the_cookie_opens_the_pages_that_the_token_opens_and_nothing_else(name, world):
    cookie, browser = cookie_of(world.clients[name].user), world.clients["anyone"]
    for operation in GUARDED:
        if not operation.is_page:
            assert ask_bare(world, operation, browser, cookie=cookie).error == UNKNOWN, operation.name
        elif operation.method == "GET" and not ROWS[operation.name].query:
            told = ROWS[operation.name].answers[name]
            assert is_told(ask_bare(world, operation, browser, cookie=cookie), told), operation.name


def test_a_browser_has_one_login_at_a_time(world):
    """Whoever signs in where somebody else was signed in ends that login."""
    first = cookie_of(world.clients["alice"].user)
    name, _, value = first.partition("=")
    with db.write():
        second = sign_in.begin(world.clients["bob"].user.id, structs.replace(HERE, cookie=f"{name}={value}")).partition(
            ";"
        )[0]
    expect_shut(world, PAGES, (401, "invalid_token"), cookie=first)
    assert "Bob" in ask_bare(world, ALL["show_inbox"], world.clients["anyone"], cookie=second).raw.decode()
    assert world.clients["alice"].get("/users/me").status == 200


@pytest.mark.slow
def test_with_the_documented_operations_only_everybody_is_told_the_same(world, settings):
    there = build_app(operations(documented_only=True), replace(settings, documented_only=True))
    served = {operation.name for operation in operations(documented_only=True)}
    for name in PEOPLE:
        client = Client(there, world.clients[name].token, world.clients[name].user)
        for case, row in CASES.items():
            operation = case.partition(",")[0]
            if operation not in HASHING:
                with undone(case):
                    reply = world.ask(case, client)
                told = row.answers[name] if operation in served else None
                assert is_told(reply, told) if told else reply.status in (404, 405), (case, name)


# Somebody else meanwhile.

BECOMING: dict[str, tuple[dict[str, Any], str]] = {
    "the agent works for another shop": ({"role": "agent", "app_id": "other"}, "other_agent"),
    "the agent works nowhere": ({"app_id": None}, "bob"),
    "the agent is a customer": ({"role": "user"}, "bob"),
    "the agent is an admin": ({"role": "admin"}, "admin"),
}


@pytest.mark.parametrize("becoming", BECOMING)
def test_a_token_is_worth_what_its_user_is_at_that_moment(becoming, world, other_shop):
    changes, like = BECOMING[becoming]
    agent = world.clients["agent"]
    changes = {name: other_shop.id if value == "other" else value for name, value in changes.items()}
    User.update(changes).where(User.id == agent.user.id).execute()
    for case, row in CASES.items():
        if case not in HASHING:
            with undone(case):
                reply = world.ask(case, agent)
            assert is_told(reply, row.answers[like]), case


def test_an_agent_is_a_customer_where_another_shop_serves_them(world, other_shop):
    agent = world.clients["agent"]
    ChatSession.update(user_id=agent.user.id, app_id=other_shop.id).execute()
    for case, row in CASES.items():
        if row.answers in (TELLING, CONCEALING, SENDING) or case.endswith("of a note"):
            with undone(case):
                assert is_told(world.ask(case, agent), row.answers["alice"]), case


# What is another's, and what is not there.


def test_every_table_that_a_path_names_has_expectations(world):
    named = {table for operation in ALL.values() for *_, table in operation.loads}
    assert named == set(NOWHERE) == {*world.ids, Message}


def test_what_is_not_there_is_told_by_its_kind_and_like_what_is_anothers_where_that_is_concealed(world):
    identifiers = {**world.ids, Message: world.messages["pinned"]}
    unknown = {
        table: NOTHING if table is Message else f"{NOBODY}.webp" if table is Avatar else NOBODY for table in NOWHERE
    }
    for operation in ALL.values():
        tables = [table for *_, table in operation.loads]
        for place, table in enumerate(tables):
            given = [identifiers[other] for other in tables]
            given[place] = unknown[table]
            status = 404 if 404 in operation.answers else 400
            with nothing_changes():
                reply = world.clients["admin"].call(operation.method, address(operation, *given))
                assert reply.error == (status, NOWHERE[table]), (operation.name, table)
                nobodys = world.clients["bob"].call(operation.method, address(operation, *given))
                alices = ask_bare(world, operation, world.clients["bob"])
            told = ROWS[operation.name].answers["bob"]
            if place == 0 and told == (status, NOWHERE[table]):
                assert without_number(nobodys) == without_number(alices), operation.name


def alike(world: World) -> dict[str, list[Reply]]:
    """Requests that name, in turn, what is not there and what is not the caller's, by what they name."""
    alice, bob, agent, anyone = (world.clients[name] for name in ("alice", "bob", "agent", "anyone"))
    names, path, new = world.names, f"/chats/{world.ids[ChatSession]}", {"app_id": world.names["app"]}
    draft = Bot.create(app_id=new["app_id"], name="Draft", kind="bot")
    away = Bot.create(app_id=new["app_id"], name="Away", kind="bot", status="published", is_active=False)
    elsewhere = Bot.create(app_id=App.get(App.id != new["app_id"]).id, name="Far", kind="bot", status="published")
    bobs = bob.post("/chats", new).data
    said = bob.post(f"/chats/{bobs['id']}/messages", {"content": "Hi"}).data["id"]
    shares = {"mcp_server_id": "mail", "allowed_tools": ["read"]}
    login, install = login_of(world), world.ids[LoginSession]
    foreign = [alice.get("/events?limit=1").meta["next_cursor"], alice.get("/updates").data["after"]]
    ended = tokens.pair_of(LoginSession.get_by_id(install), world.settings).refresh_token
    LoginSession.update(ended_at=1).where(LoginSession.id == install).execute()
    far = LoginSession.get_by_id(login).expires_at
    never = f"cxr_{signing.sign('refresh', [NOBODY, 1, far])}"
    bob.user.disable()
    feed = names["bobs feed"]
    return {
        "bots to talk with": [
            alice.post("/chats", {**new, "bot_id": id}) for id in (NOBODY, draft.id, away.id, elsewhere.id)
        ],
        "bots": [
            alice.get(f"/bots/{id}?{'app_id=' + new['app_id']}") for id in (NOBODY, draft.id, away.id, elsewhere.id)
        ],
        "conversations": [
            alice.post("/chats", {**new, "conversation_id": id}) for id in (NOBODY, bobs["conversation_id"])
        ],
        "conversations to share": [
            alice.post("/data-shares", {**shares, "conversation_id": id}) for id in (NOBODY, bobs["conversation_id"])
        ],
        "messages to answer": [
            alice.post(f"{path}/messages", {"content": "Hi", "reply_to_message_id": id})
            for id in (NOTHING, said, world.messages["plain note"])
        ],
        "messages to read up to": [
            alice.put(f"{path}/read", {"message_id": id}) for id in (NOTHING, said, world.messages["plain note"])
        ],
        "messages to edit": [
            alice.patch(f"{path}/messages/{id}", {"content": "Hi"})
            for id in (NOTHING, said, world.messages["plain note"])
        ],
        "logins": [agent.delete(f"/auth/sessions/{id}") for id in (NOBODY, login, install)],
        "programs": [agent.delete(f"/users/me/installs/{id}") for id in (NOBODY, login, install)],
        "cursors": [agent.get(f"/feedback?cursor={text}") for text in ("x", *foreign)],
        "positions": [agent.get(f"/updates?wait=0&after={text}") for text in ("x", *foreign)],
        "refresh tokens": [anyone.post("/auth/refresh", {"refresh_token": text}) for text in ("x", never, ended)],
        "calendars": [anyone.get(f"/events.ics?token={text}") for text in ("x", feed)],
    }


def test_what_a_request_names_and_may_not_is_told_like_what_is_not_there(world, settings):
    world.settings = settings
    world.names["bobs feed"] = CalendarFeed.renew(world.clients["bob"].user.id)
    Event.create(user_id=world.names["alice"], title="Tea", starts_at="2026-11-20T11:00:00.000Z")
    for named, replies in alike(world).items():
        first, *others = map(without_number, replies)
        assert first[0] in (400, 401, 404), named
        assert all(other == first for other in others), named


def test_a_key_and_an_identifier_of_anothers_request_are_ones_own_to_use(world):
    """Neither repeats what somebody else has sent, nor tells that they have."""
    alice, agent = world.clients["alice"], world.clients["agent"]
    path, body = f"/chats/{world.ids[ChatSession]}/messages", {"content": "Hi", "client_message_id": "1"}
    hers = alice.post(path, body, idempotency_key="1")
    other = agent.post(path, {**body, "content": "Ho"}, idempotency_key="1")
    assert (hers.status, other.status) == (201, 201)
    assert hers.data["id"] != other.data["id"]
    assert "Idempotency-Replayed" not in other.headers


# The same work, whoever there is.


def work_of(world: World, email: str, path: str = "/auth/login") -> tuple[Any, list[str]]:
    """The answer to a wrong login, and the statements that it takes."""
    with undone(), statements() as seen:
        reply = world.clients["anyone"].post(path, {"email": email, "password": "wrong"})
    # Savepoints, and the locks of PostgreSQL, have names of their own.
    return without_number(reply), [re.sub(r"-?\d{3,}", "", sql) for sql, _ in seen if "SAVEPOINT" not in sql]


def test_the_answer_and_the_work_of_a_login_do_not_tell_who_is_there(host_clock, world, settings):
    world.clients["bob"].user.disable()
    emails = ("alice@example.com", "bob@example.com", "nobody@example.com")
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
