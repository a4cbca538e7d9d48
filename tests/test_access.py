"""Who may do what: every operation, asked by everybody (the document's sections 5 and 7; contract, section 4).

The table of rows is written down here once more, apart from the declarations; an operation without a row is a fault.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from service import clock, db
from service.auth import tickets, tokens
from service.auth.consent import SCOPES
from service.auth.signing import sign
from service.fields import as_bytes, compact_json
from service.models import (
    TABLES,
    App,
    Avatar,
    Bot,
    CalendarFeed,
    ChatSession,
    DataShare,
    Event,
    Feedback,
    Ledger,
    LoginAttempt,
    LoginSession,
    Message,
    Moment,
    Notification,
    User,
)
from service.pictures import make_avatar
from service.routes import operations
from tests.conftest import PASSWORD, Client, Reply
from tests.household import picture
from tests.test_consent import GOOD
from tests.test_operations import ALL, address, every
from tests.watching import nothing_changes

ELSEWHERE = {"check_readiness", "show_metrics"}  # which look through a connection of their own
KNOWN = ("alice", "bob", "agent", "other_agent", "admin")  # agents of Alice's app and of another
PEOPLE = (*KNOWN, "anyone")  # who is a stranger

Told = int | tuple[int, str]

FORBIDDEN, UNKNOWN = (403, "forbidden"), (401, "missing_credentials")
NO_SESSION, NO_MESSAGE = (400, "session_not_found"), (400, "message_not_found")


class Row(NamedTuple):
    """What each of the people is told; whose things change then; the scope that a narrow token needs."""

    answers: dict[str, Told]
    scope: str | None = ""  # "": any token will do; None: there is nobody to have one
    changes: str = ""  # "own", or the name of the one whose things they are, or "shop"; "": nothing changes
    body: Any = None
    query: str = ""
    message: str = "pinned"  # which one the path names


def people(told: Told, **others: Told) -> dict[str, Told]:
    """The same for all who are known, but for the named; a stranger is asked for credentials."""
    return {**dict.fromkeys(KNOWN, told), "anyone": UNKNOWN, **others}


def everybody(told: Told) -> dict[str, Told]:
    return dict.fromkeys(PEOPLE, told)


def staff(refusal: Told) -> dict[str, Told]:
    """Alice, the agents of her app and admins; the rest is refused."""
    return people(200, bob=refusal, other_agent=refusal)


TELLING, CONCEALING = staff(FORBIDDEN), staff(NO_SESSION)  # the operations that list 403, and those that do not
SENDING = {name: 201 if told == 200 else told for name, told in TELLING.items()}
KEEPING = people(FORBIDDEN, agent=200, admin=200)  # of the bots of Alice's app
AVATAR = {"avatar": picture()}

# `{name}` stands for what Alice's world holds under that name; bodies and queries try to be hers wherever they can.
HERS = {"id": "{alice}", "user_id": "{alice}", "owner": "{alice}"}
AS_ALICE = urlencode(HERS, safe="{}")

ROWS: dict[str, Row] = {
    "log_in": Row(everybody(200), None, "alice", {"email": "{email}", "password": PASSWORD}),
    "refresh_tokens": Row(everybody(200), None, "alice", {"refresh_token": "{refresh_token}"}),
    "log_out": Row(people(200), "", "own", HERS),
    "list_logins": Row(people(200), "account:read", query=AS_ALICE),
    "end_login": Row(people((404, "not_found"), alice=200), "account", "alice"),
    "change_password": Row(
        people(200), "account", "own", {"current_password": PASSWORD, "new_password": "another one", **HERS}, AS_ALICE
    ),
    "show_consent": Row(people(200), "consent:read", query="{consent}"),
    "answer_consent": Row(people(400), "consent", body={"ticket": "{ticket}", "answer": "approve"}),
    "exchange_code": Row(everybody(400), None, body={"grant_type": "refresh_token", "refresh_token": "{ticket}"}),
    "describe_authorization": Row(everybody(200), None),
    "list_installs": Row(people(200), "account:read", query=AS_ALICE),
    "revoke_install": Row(people((404, "not_found"), alice=200), "account", "alice"),
    "create_chat_session": Row(
        people((404, "conversation_not_found"), alice=201),
        "chats",
        "own",
        {"app_id": "{app}", "bot_id": "{bot}", "conversation_id": "{conversation}", **HERS},
    ),
    "list_chat_sessions": Row(people(200), "chats:read", query=AS_ALICE),
    "search_messages": Row(people(200), "chats:read", query=f"q=e&{AS_ALICE}"),
    "get_chat_session": Row(TELLING, "chats:read"),
    "send_message": Row(SENDING, "chats", "alice", {"content": {"text": "Bye"}, **HERS}),
    "edit_message": Row(people(FORBIDDEN, alice=200), "chats", "alice", {"content": "New", **HERS}, message="plain"),
    "mark_chat_session_read": Row(TELLING, "chats", "alice", HERS),
    "get_chat_context": Row(TELLING, "chats:read", query=AS_ALICE),
    "list_messages": Row(CONCEALING, "chats:read"),
    "delete_message": Row(TELLING, "chats", "alice"),
    "pin_message": Row(CONCEALING, "chats", "alice", message="plain"),
    "unpin_message": Row(CONCEALING, "chats", "alice"),
    "list_pinned_messages": Row(CONCEALING, "chats:read"),
    "archive_chat_session": Row(TELLING, "chats", "alice"),
    "delete_chat_session": Row(TELLING, "chats", "alice"),
    "end_chat_session": Row(TELLING, "chats", "alice"),
    "change_chat_session_status": Row(TELLING, "chats", "alice", {"status": "closed"}),
    "list_bots": Row(people(200), "bots:read", query="app_id={app}"),
    "get_bot": Row(people(200), "bots:read", query="app_id={app}"),
    "list_app_bots": Row(KEEPING, "bots:read"),
    "publish_bot": Row(KEEPING, "bots", "shop", {"status": "draft"}),
    "change_bot_presence": Row(KEEPING, "bots", "shop", {"presence": "away"}),
    "get_profile": Row(people(200), "profile:read", query=AS_ALICE),
    "update_profile": Row(people(200), "profile", "own", {"last_name": "New", "role": "admin", **HERS}, AS_ALICE),
    "get_settings": Row(people(200), "profile:read", query=AS_ALICE),
    "update_settings": Row(people(200), "profile", "own", {"chat_language": "de", **HERS}, AS_ALICE),
    "upload_avatar": Row(people(200), "profile", "own", AVATAR, AS_ALICE),
    "remove_avatar": Row(people(200), "profile", "own", query=AS_ALICE),
    "create_data_share": Row(
        people((404, "conversation_not_found"), alice=201),
        "data-shares",
        "own",
        {"mcp_server_id": "mail", "allowed_tools": ["read"], "conversation_id": "{conversation}", **HERS},
    ),
    "list_data_shares": Row(people(200), "data-shares:read", query=AS_ALICE),
    "get_data_share": Row(people(FORBIDDEN, alice=200), "data-shares:read"),
    "revoke_data_share": Row(people(FORBIDDEN, alice=200, admin=200), "data-shares", "alice"),
    "check_data_share": Row(
        people(200), "data-shares:read", body={"mcp_server_id": "files of Alice", "tool": "read", **HERS}
    ),
    "submit_feedback": Row(people(201), "feedback", "own", {"description": "Fine", **HERS}, AS_ALICE),
    "list_feedback": Row(people(200), "feedback:read", query=AS_ALICE),
    "change_feedback_status": Row(people(FORBIDDEN, admin=200), "feedback", "alice", {"status": "done", **HERS}),
    "list_events": Row(people(200), "events:read", query=AS_ALICE),
    "create_event": Row(people(201), "events", "own", {"title": "Tea", "starts_at": "2026-11-20T16:00:00Z", **HERS}),
    "get_event": Row(people(FORBIDDEN, alice=200), "events:read"),
    "update_event": Row(people(FORBIDDEN, alice=200), "events", "alice", {"title": "Dinner", **HERS}),
    "delete_event": Row(people(FORBIDDEN, alice=200), "events", "alice"),
    "renew_calendar_feed": Row(people(200), "account", "own", query=AS_ALICE),
    "revoke_calendar_feed": Row(people(200), "account", "own", query=AS_ALICE),
    "get_calendar": Row(everybody(200), None, query="token={feed}"),
    "list_notifications": Row(people(200), "notifications:read", query=AS_ALICE),
    "mark_notifications_read": Row(people(200), "notifications", "own", HERS, AS_ALICE),
    "count_unread_notifications": Row(people(200), "notifications:read", query=AS_ALICE),
    "mark_notification_read": Row(people(FORBIDDEN, alice=200), "notifications", "alice"),
    "mark_notification_unread": Row(people(FORBIDDEN, alice=200), "notifications", ""),
    "delete_notification": Row(people(FORBIDDEN, alice=200), "notifications", "alice"),
    "await_updates": Row(people(200), "chats:read", query=f"wait=0&{AS_ALICE}"),
    "get_avatar": Row(everybody(200), None),
    "check_health": Row(everybody(200), None),
    "check_readiness": Row(everybody(200), None),
    "show_metrics": Row(everybody(200), None),  # everybody here is local; see test_metrics.py
    "show_sign_in": Row(everybody(200), None),
    "sign_in_browser": Row(everybody(400), None, body={"email": "{email}", "password": PASSWORD, "ticket": "{ticket}"}),
    "sign_out_browser": Row(people(303), "", "own", {"next": "/"}),
    "show_inbox": Row(people(200), "console:read", query=AS_ALICE),
    "show_search": Row(people(200), "console:read", query=f"q=e&{AS_ALICE}"),
    "show_chat": Row(TELLING, "console:read"),
    "change_chat": Row(
        {name: 303 if told == 200 else told for name, told in TELLING.items()},
        "console",
        "alice",
        {"act": "send", "text": "Bye", "ticket": "{console}"},
    ),
    "show_news": Row(people(200), "console:read", query=AS_ALICE),
    "show_notifications": Row(people(200), "console:read", query=AS_ALICE),
    "change_notifications": Row(people(303), "console", "own", {"act": "read_all", "ticket": "{console}", **HERS}),
    "show_events": Row(people(200), "console:read", query=f"past=true&{AS_ALICE}"),
    "change_events": Row(
        people(303),
        "console",
        "own",
        {"act": "add", "title": "Tea", "starts_at": "2026-11-20T16:00", "ticket": "{console}", **HERS},
    ),
    "show_feedback": Row(people(200), "console:read", query=AS_ALICE),
    "change_feedback": Row(
        people(303), "console", "own", {"act": "give", "description": "Fine", "ticket": "{console}", **HERS}
    ),
    "show_bots": Row(people(200), "console:read", query="app_id={app}"),
    "begin_chat": Row(people(303), "console", "own", {"app_id": "{app}", "bot_id": "{bot}", "ticket": "{console}"}),
    "show_catalogue": Row(KEEPING, "console:read", query="app_id={app}"),
    "change_bot": Row(
        people(FORBIDDEN, agent=303, admin=303),
        "console",
        "shop",
        {"app_id": "{app}", "bot_id": "{bot}", "presence": "away", "ticket": "{console}"},
    ),
    "show_shares": Row(people(200), "console:read", query=AS_ALICE),
    "change_shares": Row(
        people(303),
        "console",
        "own",
        {"act": "grant", "mcp_server_id": "mail", "allowed_tools": "read", "ticket": "{console}", **HERS},
    ),
    "show_settings": Row(people(200), "console:read", query=AS_ALICE),
    "change_person": Row(
        people(303), "console", "own", {"act": "profile", "last_name": "New", "ticket": "{console}", **HERS}
    ),
    "show_picture": Row(people(200), "console:read", query=AS_ALICE),
    "change_picture": Row(people(303), "console", "own", AVATAR, "ticket={console}"),
    "show_account": Row(people(200), "console:read", query=AS_ALICE),
    "change_account": Row(
        people(303),
        "console",
        "own",
        {"act": "password", "current_password": PASSWORD, "new_password": "another one", "ticket": "{console}", **HERS},
    ),
    "show_reference": Row(everybody(200), None),
    "get_openapi_document": Row(everybody(200), None),
}
# Alice is a customer, who does not meet the notes of the staff.
HIDDEN = {"alice": (404, "message_not_found")}
NOTES: dict[str, Row] = {
    "delete_message": Row({**TELLING, **HIDDEN}, "chats", "alice", message="pinned note"),
    "pin_message": Row({**CONCEALING, "alice": NO_MESSAGE}, "chats", "alice", message="plain note"),
    "unpin_message": Row({**CONCEALING, "alice": NO_MESSAGE}, "chats", "alice", message="pinned note"),
    "edit_message": Row({**people(FORBIDDEN), **HIDDEN}, "chats", body={"content": "New"}, message="plain note"),
    "send_message": Row(
        {**SENDING, "alice": FORBIDDEN}, "chats", "alice", {"content": "Ssh", "is_private": True, **HERS}
    ),
}
CASES = {
    **ROWS,
    **{f"{name}, of a note": row for name, row in NOTES.items()},
    "log_out, of everything": Row(people(200), "account", "own", {"scope": "global", **HERS}),
    "list_feedback, of everybody": Row(people(FORBIDDEN, admin=200), "feedback:read", query="everybody=true"),
}

# The lists and settings in which everybody finds what is theirs.
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

NOTE = "note between staff"
SECRETS = ("of Alice", "alice@example.com", *(",".join(map(str, text.encode())) for text in ("Hello", NOTE)))

PICTURE = make_avatar(picture())


class World:
    """Alice's things, of every kind; and of everybody else those that each user has for themselves."""

    def __init__(self, clients: dict[str, Client], session: ChatSession, say: Any, settings: Any) -> None:
        self.clients = clients
        alice = clients["alice"].user
        with db.write():
            for client in clients.values():
                if client.user:
                    furnish(client.user)
            pin, note = {"pinned_at": clock.timestamp()}, {"is_private": True, "sender_type": "agent"}
            self.messages = {
                "plain": say("Hello", sender_id=alice.id).id,
                "pinned": say("Hello", **pin).id,
                "plain note": say(NOTE, **note).id,
                "pinned note": say(NOTE, **note, **pin).id,
            }
            install = tokens.open_session(alice.id, settings, install_id="of Alice", scopes="chats")
            refresh_token = tokens.begin(alice.id, settings).refresh_token
        self.ids: dict[type, str] = {
            App: session.app_id,
            ChatSession: session.id,
            Bot: session.bot_id,
            Feedback: Feedback.get(Feedback.user_id == alice.id).id,
            DataShare: DataShare.get(DataShare.user_id == alice.id).id,
            Avatar: Avatar.get(Avatar.user_id == alice.id).name,
            LoginSession: install.id,
            Event: Event.get(Event.user_id == alice.id).id,
            Notification: Notification.get(Notification.user_id == alice.id).id,
        }
        self.names = {
            "alice": alice.id,
            "email": alice.email,
            "refresh_token": refresh_token,
            "app": session.app_id,
            "bot": session.bot_id,
            "conversation": session.conversation_id,
            "consent": urlencode(GOOD),
            "ticket": sign("form", ["of Alice's browser"]),
            "feed": CalendarFeed.renew(alice.id),
        }

    def fill_in(self, text: str) -> str:
        """A text with what stands for the names in it."""
        for name, value in self.names.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def ask(self, case: str, client: Client) -> Reply:
        """The request of a case, made by somebody."""
        operation, row = ALL[case.partition(",")[0]], CASES[case]
        caller = client.token and tokens.authenticate(f"Bearer {client.token}")
        self.names["console"] = tickets.make(caller) if caller else ""
        identifiers = {**self.ids, Message: self.messages[row.message]}
        path = f"{address(operation, *(identifiers[table] for *_, table in operation.loads))}?{self.fill_in(row.query)}"
        if operation.accepts.startswith("multipart/"):
            return client.call(operation.method, path, **as_form(row.body))
        body = row.body and json.loads(self.fill_in(json.dumps(row.body)))
        if body and operation.accepts != "application/json":
            return client.call(operation.method, path, raw=urlencode(body).encode(), content_type=operation.accepts)
        return client.call(operation.method, path, body)


def as_form(files: dict[str, bytes]) -> dict[str, Any]:
    """A body of multipart/form-data."""
    head = '--x\r\nContent-Disposition: form-data; name="{}"; filename="me.png"\r\n\r\n'
    parts = (head.format(name).encode() + content + b"\r\n" for name, content in files.items())
    return {"raw": b"".join(parts) + b"--x--\r\n", "content_type": "multipart/form-data; boundary=x"}


def furnish(user: User) -> None:
    """Give somebody one of everything, with their name in it."""
    named = f"of {user.first_name}"
    DataShare.give(user.id, mcp_server_id=f"files {named}", allowed_tools='["read"]')
    Event.create(user_id=user.id, title=f"lunch {named}", starts_at="2026-11-20T10:00:00.000Z")
    Notification.create(user_id=user.id, title=f"news {named}", payload=compact_json(as_bytes({"text": named})))
    Feedback.create(user_id=user.id, description=f"opinion {named}")
    Avatar.replace_by(user.id, PICTURE, "")
    CalendarFeed.renew(user.id)
    User.update(settings=compact_json({"remark": f"remark {named}"})).where(User.id == user.id).execute()


@pytest.fixture
def world(alice, bob, agent, other_agent, admin, anyone, session, say, settings):
    """Everybody, and what is theirs."""
    clients = (alice, bob, agent, other_agent, admin, anyone)
    return World(dict(zip(PEOPLE, clients, strict=True)), session, say, settings)


@contextmanager
def undone(case: str = "") -> Iterator[None]:
    """What happens inside is taken back, so that each of the people finds the same world."""
    if case in ELSEWHERE:
        yield
        return
    with db.database.atomic() as transaction:
        yield
        transaction.rollback()


def belongings() -> dict[str, list[Any]]:
    """All rows by their owner: the identifier of a user, or "" where nobody owns them."""
    found: dict[str, list[Any]] = {}
    sessions = {session.id: session.user_id for session in ChatSession.select()}
    users = {user.id for user in User.select()}
    for table in TABLES:
        if table in (LoginAttempt, Moment):  # which refused logins and /readyz are meant to write
            continue
        names = table._meta.sorted_field_names
        for values in db.database.execute_sql(f'SELECT * FROM "{table._meta.table_name}" ORDER BY 1'):
            row = dict(zip(names, values, strict=True))
            owner = row["id"] if table is User else sessions.get(row.get("chat_session_id"), row.get("user_id", ""))
            owner = row["subject_id"] if table is Ledger else owner
            found.setdefault(owner if owner in users else "", []).append((table.__name__, row))
    return found


def changed_since(before: dict[str, list[Any]]) -> set[str]:
    """Whose rows have been written since some were all."""
    after = belongings()
    return {owner for owner in before.keys() | after.keys() if before.get(owner) != after.get(owner)}


def test_every_operation_has_a_row() -> None:
    assert {operation.name for operation in operations()} == set(ROWS)


def test_every_row_tells_of_everybody() -> None:
    assert all(set(row.answers) == set(PEOPLE) for row in CASES.values())


@every()
def test_a_row_and_a_declaration_agree_on_who_needs_credentials(operation: Any) -> None:
    is_open = ROWS[operation.name].answers["anyone"] != UNKNOWN
    assert operation.public == is_open == (ROWS[operation.name].scope is None)


@pytest.mark.parametrize("name", PEOPLE)
def test_everybody_is_answered_as_the_table_says(name, world):
    client, alice, before = world.clients[name], world.clients["alice"].user, belongings()
    for case, row in CASES.items():
        told = row.answers[name]
        with undone(case):
            reply = world.ask(case, client)
            owners = changed_since(before)
        if isinstance(told, int):
            assert reply.status == told, (case, reply.raw)
            written = {"": set(), "shop": {""}, "own": {client.user and client.user.id}}.get(row.changes, {alice.id})
            assert owners == written, case
        else:
            assert reply.error == told, case
            assert owners == set(), case
            assert not [secret for secret in SECRETS if secret in reply.raw.decode()], case


@pytest.mark.parametrize("case", PERSONAL)
def test_everybody_finds_their_own_and_nothing_of_others(case, world):
    users = {name: world.clients[name].user for name in KNOWN}
    marks = {
        name: user.email if case in ("show_consent", "show_settings", "get_profile") else f" of {user.first_name}"
        for name, user in users.items()
    }
    for name in KNOWN:
        with undone():
            shown = world.ask(case, world.clients[name]).raw.decode()
        own = marks[name]
        assert own in shown, name
        assert not [other for other in marks.values() if other != own and other in shown], name


def test_a_check_of_grants_asks_for_the_callers_own(world):
    for name in KNOWN:
        verdict = world.ask("check_data_share", world.clients[name]).data
        assert verdict["allowed"] is (name == "alice")
        assert verdict["reason"] == ("granted" if name == "alice" else "not_granted")


def test_new_things_belong_to_the_caller_whatever_the_body_says(world):
    for name in KNOWN:
        client = world.clients[name]
        assert world.ask("submit_feedback", client).data["user_id"] == client.user.id
        profile = world.ask("update_profile", client).data
        assert (profile["id"], profile["role"]) == (client.user.id, client.user.role)


@pytest.mark.parametrize("case", ["list_messages", "list_pinned_messages"])
def test_only_staff_meets_the_notes_of_the_staff(case, world):
    for name in ("alice", "agent", "admin"):
        shown = world.ask(case, world.clients[name])
        public = 2 if case == "list_messages" else 1
        assert len(shown.data) == (public if name == "alice" else 2 * public)
        assert (SECRETS[-1] in shown.raw.decode()) == (name != "alice")


def test_a_role_without_its_app_and_an_app_without_its_role_open_nothing(world, person, shop):
    """An agent of no app, and a customer who is on the books of Alice's app, are told what Bob is told."""
    for client in (person("ann", role="agent"), person("carl", role="user", app_id=shop.id)):
        for case, row in CASES.items():
            if row.answers in (TELLING, CONCEALING, SENDING):
                with nothing_changes():
                    assert world.ask(case, client).error == row.answers["bob"], case


def test_staff_reaches_the_sessions_of_its_own_app_only_whosever_they_are(world, other_shop, say, alice):
    """Alice talks with two shops: the staff of each reaches its own session only."""
    elsewhere = ChatSession.create(app_id=other_shop.id, user_id=alice.user.id)
    world.ids[ChatSession] = elsewhere.id
    pinned = say("Hi", elsewhere, pinned_at=clock.timestamp())
    world.messages |= {"plain": say("Hi", elsewhere).id, "pinned": pinned.id}
    swapped = {"agent": "other_agent", "other_agent": "agent"}
    for case, row in ROWS.items():
        if row.answers in (TELLING, CONCEALING, SENDING):
            for name in KNOWN:
                with undone():
                    reply = world.ask(case, world.clients[name])
                told = row.answers[swapped.get(name, name)]
                assert (reply.status if isinstance(told, int) else reply.error) == told, (case, name)


# Narrow tokens


def expect_reach(name: str, scopes: str, world: World) -> None:
    """Fail unless a token with these scopes does what they allow and no more; a scope includes its own `:read`."""
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
        with undone():
            reply, told = world.ask(case, client), CASES[case].answers[name]
        assert (reply.status if isinstance(told, int) else reply.error) == told, (scopes, case)


@pytest.mark.parametrize(
    "scopes",
    [
        "",
        "chats:read events feedback",
        *(pytest.param(scope, marks=pytest.mark.slow) for scope in (*sorted(SCOPES), "everything", "chats:write")),
    ],
)
def test_a_token_reaches_exactly_as_far_as_its_scopes(scopes, world):
    expect_reach("alice", scopes, world)


@pytest.mark.parametrize(
    "scopes", ["data-shares", *(pytest.param(scope, marks=pytest.mark.slow) for scope in ("chats:read", "", "admin"))]
)
def test_a_narrow_token_of_an_admin_is_narrow_too(scopes, world):
    expect_reach("admin", scopes, world)


def test_a_lack_of_scope_is_told_before_what_is_there(world):
    """Neither an identifier nor a body is looked at."""
    client = world.clients["alice"]
    LoginSession.update(scopes="").execute()
    for operation in ALL.values():
        if ROWS[operation.name].scope:
            path = address(operation, *["x"] * len(operation.loads))
            reply = client.call(operation.method, path, raw=b"{" if operation.method != "GET" else b"")
            assert reply.error == (403, "insufficient_scope"), operation.name
