"""Responses reveal nothing about rows that the caller may not read.

A client sends every request, first without and then with the rows of other users, and gets the same bytes: the same
lists, counts, cursors, ETags, headers and messages. The responses, and the decoded cursors and CSRF tokens in them, do
not have any value that was added to the database.
"""

import itertools
import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from itsdangerous import BadData, URLSafeSerializer
from msgspec.structs import fields

from service import clock, db
from service.auth import tokens
from service.db.migrations import apply, step_4
from service.fields import as_bytes, compact_json
from service.models import TABLES, App, Bot, ChatSession, Event, Message, Notification, User
from service.models.messages import PIN_LIMIT
from service.models.recompute import recompute
from service.operate import import_export
from tests.support.access import CASES, OWN_CONNECTION, ROLES, USERS, World, create_rows, rolled_back
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes
from tests.support.operations import ALL, address

CANARY = "quetzal"  # part of every added text
NOT_CALLED = {
    *("log_in", "change_password", "change_account", "sign_in_browser"),  # slow, and return no list
    "get_calendar",  # needs the secret address of Alice
    *("authorize_device", "register_client"),  # return new random codes, and no list
    "answer_mcp",  # needs another token; tests/mcp/test_tools.py
    *OWN_CONNECTION,  # for operators
}
OVERVIEWS = {  # show rows of all users to admins
    *("show_audit_log", "verify_audit_log", "show_all_shares", "show_health", "show_users", "show_user", "list_users"),
}

_SIGNED = re.compile(r"[\w-]{8,}\.[\w-]{43}")
_IDENTIFIER = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|01[0-9A-Z]{24}")


class Installation(World):
    """Users with their rows, and helpers to add more."""

    def __init__(self, clients: dict[str, Client], session: ChatSession, say: Any, settings: Any) -> None:
        self.settings, self.other_shop = settings, App.get(App.name == "Other shop")
        super().__init__(clients, session, say, settings)
        self.path = f"/chats/{session.id}"
        for name in USERS:  # no list is empty
            self.chat(name, App.get_by_id(session.app_id), "good morning")
        self.positions = {name: clients[name].get("/updates").data["after"] for name in USERS}

    def chat(self, name: str, app: App, text: str, **more: Any) -> str:
        """Create a chat with three messages; return its path."""
        path = f"/chats/{self.clients[name].post('/chats', {'app_id': app.id, **more}).data['id']}"
        for number in range(3):
            self.say(name, path, f"{text} {number}")
        return path

    def say(self, name: str, path: str, text: str, **more: Any) -> str:
        """Send a message; return its path."""
        sent = self.clients[name].post(f"{path}/messages", {"content": {"text": text}, **more})
        assert sent.status == 201, sent.json
        return f"{path}/messages/{sent.data['id']}"


# Rows to add.


def notes(installation: Installation) -> None:
    agent, path = installation.clients["agent"], installation.path
    note = installation.say("agent", path, f"{CANARY} note", is_private=True)
    installation.say("admin", path, f"{CANARY} note", is_private=True, reply_to_message_id=note.rpartition("/")[2])
    gone, purged = (installation.say("agent", path, f"{CANARY} note {number}", is_private=True) for number in range(2))
    assert agent.post(f"{note}/pin").status == agent.post(f"{gone}/pin").status == 200
    assert agent.patch(note, {"content": f"other {CANARY}"}).status == agent.delete(gone).status == 200
    Message.purge(Message.id == purged.rpartition("/")[2])


def chats(name: str, app: str) -> Callable[[Installation], None]:
    """Return a function that adds a chat of a user with an app, with many changes."""

    def add(installation: Installation) -> None:
        path = installation.chat(name, App.get(App.name == app), f"{CANARY} chat")
        said = installation.say(name, path, f"{CANARY} pinned")
        gone, purged = (
            installation.say(name, path, f"{CANARY} {number}", client_message_id=f"{number}") for number in "ab"
        )
        client = installation.clients[name]
        done = client.post(f"{said}/pin"), client.delete(gone), client.put(f"{path}/read", {})
        assert [reply.status for reply in done] == [200] * 3
        Message.purge(Message.id == purged.rpartition("/")[2])
        installation.say("admin", path, f"{CANARY} reply", reply_to_message_id=said.rpartition("/")[2])
        installation.say("admin", path, f"{CANARY} note", is_private=True)
        assert client.post(f"{path}/end").status == 200

    return add


def private_rows(name: str) -> Callable[[Installation], None]:
    """Return a function that adds private rows of a user."""

    def add(installation: Installation) -> None:
        client = installation.clients[name]
        id = client.user.id
        client.post("/events", {"title": CANARY, "starts_at": "2026-11-21T10:00:00Z"}, idempotency_key=CANARY)
        soon = clock.timestamp(clock.now() - 1)
        Event.create(user_id=id, title=f"{CANARY} due", starts_at="2027-01-01T00:00:00.000Z", reminder_due=soon)
        Notification.notify(id, "chat_message", CANARY, {"text": CANARY})
        client.post("/data-shares", {"mcp_server_id": f"files {CANARY}", "allowed_tools": ["read"]})
        client.patch("/users/me/settings", {"remark": CANARY})
        with db.write():
            tokens.log_in(id, installation.settings, f"{CANARY} browser")
            tokens.create_token_session(
                id, installation.settings, label=CANARY, install_id=CANARY, scopes="chats", kind="client"
            )

    return add


def feedback(installation: Installation) -> None:
    installation.clients["bob"].post("/feedback", {"description": CANARY})


def bots(app: str) -> Callable[[Installation], None]:
    """Return a function that adds bots hidden from customers."""

    def add(installation: Installation) -> None:
        app_id = App.get(App.name == app).id
        Bot.create(app_id=app_id, name=f"Draft {CANARY}", status="draft", kind="bot", is_featured=True)
        Bot.create(app_id=app_id, name=f"Inactive {CANARY}", status="published", is_active=False)

    return add


def another_app(installation: Installation) -> None:
    """Add another app, with users, a bot and a chat."""
    app = App.create(name=f"Another {CANARY}")
    bot = Bot.create(app_id=app.id, name=CANARY, status="published", kind="bot")
    people = [
        User.create(
            email=f"{role}{is_disabled}@{CANARY}",
            first_name=CANARY.title(),
            role=role,
            app_id=app.id,
            is_disabled=is_disabled,
        )
        for role, is_disabled in itertools.product(("user", "agent", "admin"), (False, True))
        if role != "admin" or is_disabled  # an enabled admin is on the staff of every app
    ]
    for user in people:
        create_rows(user)
    session = ChatSession.create(app_id=app.id, user_id=people[0].id, bot_id=bot.id)
    content = compact_json(as_bytes({"text": CANARY}))
    Message.create(id=clock.ulid(), chat_session_id=session.id, content=content, app_id=app.id, owner_id=people[0].id)


def another_admin(installation: Installation) -> None:
    """Add an admin, to whom all staff can assign chats."""
    create_rows(User.create(email=f"admin@{CANARY}", first_name=CANARY.title(), role="admin"))


def failed_logins(installation: Installation) -> None:
    """Add failed logins of existing and unknown addresses from another network."""
    for email in ("alice@example.com", "bob@example.com", f"{CANARY}@example.com"):
        for _ in range(3):
            installation.clients["anyone"].post("/auth/login", {"email": email, "password": ""}, address="192.0.2.1")


class Addition(NamedTuple):
    """Rows to add, and the users who may see them."""

    add: Callable[[Installation], None]
    visible_to: set[str]


ADDITIONS = {
    "notes about Alice": Addition(notes, {"agent", "admin"}),
    "a chat of Bob": Addition(chats("bob", "Shop"), {"bob", "agent", "admin"}),
    "a chat of Bob with another app": Addition(chats("bob", "Other shop"), {"bob", "other_agent", "admin"}),
    "a chat of Alice with another app": Addition(chats("alice", "Other shop"), {"alice", "other_agent", "admin"}),
    "a chat of an agent with another app": Addition(chats("agent", "Other shop"), {"agent", "other_agent", "admin"}),
    "a chat of another agent": Addition(chats("other_agent", "Shop"), {"other_agent", "agent", "admin"}),
    **{f"private rows of {name}": Addition(private_rows(name), {name}) for name in USERS},
    "feedback of Bob": Addition(feedback, {"bob", "admin"}),
    "bots of the shop": Addition(bots("Shop"), {"agent", "admin"}),
    "bots of another app": Addition(bots("Other shop"), {"other_agent", "admin"}),
    "another app": Addition(another_app, {"admin"}),
    "another admin": Addition(another_admin, {"agent", "other_agent", "admin"}),
    "failed logins": Addition(failed_logins, set()),
}


# The requests.

LISTS = [operation for operation in ALL.values() if operation.method == "GET" and hasattr(operation.query, "cursor")]
FILTERS = (
    {},
    {"everybody": "true"},
    {"unread_only": "true"},
    {"direction": "backward"},
    {"status": "open"},
    {"past": "true"},
    {"time_sensitive_only": "false", "from": "2000-01-01", "to": "2100-01-01"},
)
SEARCH_TEXTS = ("e", CANARY)  # for each search parameter

Call = Callable[[], list[Reply]]


def calls(installation: Installation, name: str) -> Iterator[tuple[str, Call]]:
    """Yield all requests of a user with their titles."""
    client = installation.clients[name]
    for case in CASES:
        if case not in NOT_CALLED and not (name == "admin" and case in OVERVIEWS):
            yield case, lambda case=case: [installation.ask(case, client)]
    if name == "anyone":
        return
    lists = [operation for operation in LISTS if operation.name not in NOT_CALLED]
    for operation, app_id in itertools.product(lists, (installation.names["app"], installation.other_shop.id)):
        if name == "admin" and operation.name in OVERVIEWS:
            continue
        known = {field.encode_name for field in fields(operation.query)}
        identifiers = installation.ids | {App: app_id}
        path = address(operation, *(identifiers[table] for *_, table in operation.path_rows))
        searches = [{field: text} for field in {"q", "search"} & known for text in SEARCH_TEXTS] or [{}]
        for chosen, search in itertools.product(FILTERS, searches):
            if chosen.keys() <= known:
                query = ({"app_id": app_id} if "app_id" in known else {}) | chosen | search
                yield f"{path} {query}", lambda p=path, q=query, k=known: list(pages(client, p, q, k))
    since = f"wait=0&after={installation.positions[name]}"
    for path in (f"/updates?{since}", f"//console/news?{since}", f"/chats?cursor={installation.positions[name]}"):
        yield path, lambda path=path: [client.get(path)]


def pages(client: Client, path: str, query: dict[str, str], known: set[str]) -> Iterator[Reply]:
    """Yield all pages of a list, with one row each."""
    query = query | {size: "1" for size in ("limit", "per_page") if size in known}
    while True:
        reply = client.get(f"{path}?{urlencode(query)}")
        yield reply
        query["cursor"] = reply.status == 200 and reply.raw[:1] == b"{" and reply.meta.get("next_cursor")
        if not query["cursor"]:
            return


def normalized_responses(call: Call, known: str) -> list[Any]:
    """Return the responses without the request identifier and identifiers created by the request."""
    with rolled_back():
        replies = call()

    def known_only(text: str) -> str:
        return _IDENTIFIER.sub(lambda found: found[0] if found[0] in known else "new", text)

    return [
        (
            reply.status,
            {name: known_only(value) for name, value in reply.headers.items() if name != "X-Request-ID"},
            known_only(reply.raw.decode("utf-8", "replace")),
        )
        for reply in replies
    ]


def all_responses(installation: Installation, name: str, known: str) -> dict[str, list[Any]]:
    """Return the responses of all requests of a user by title."""
    return {request_title: normalized_responses(call, known) for request_title, call in calls(installation, name)}


def with_signed_content(text: str) -> str:
    """Return a text with the content of its cursors, positions and CSRF tokens, which are signed but not encrypted."""
    opened = [text]
    for signed in _SIGNED.findall(text):
        with suppress(BadData):
            opened.append(repr(URLSafeSerializer("").load_payload(signed.rpartition(".")[0].encode())))
    return "\n".join(opened)


def rows() -> set[str]:
    """Return every identifying text in the database: texts with the canary or with a digit."""
    found: set[str] = set()
    for table in TABLES:
        for row in table.select().tuples():
            found |= {
                value
                for value in row
                if isinstance(value, str) and len(value) > 7 and re.search(rf"(?i){CANARY}|\d", value)
            }
    return {value for value in found if not re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value)}


@pytest.fixture
def installation(
    host_clock, monkeypatch, alice, bob, agent, other_agent, admin, anyone, session, say, settings, other_shop
):
    """An installation with a clock that stands still."""
    clients = (alice, bob, agent, other_agent, admin, anyone)
    created = Installation(dict(zip(ROLES, clients, strict=True)), session, say, settings)
    host_clock.forward(minutes=1)
    return created


@contextmanager
def fixed_random_tokens() -> Iterator[None]:
    """Replace random tokens by a constant."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_urlsafe", lambda size=32: "x" * (size * 4 // 3 + 1))
        yield


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "alice" else pytest.mark.slow) for name in ROLES]
)
def test_inaccessible_rows_do_not_change_any_response(name: str, installation: Installation) -> None:
    before = rows()
    known = "\n".join(before)
    with fixed_random_tokens():
        without_additions = all_responses(installation, name, known)
    for addition in ADDITIONS.values():
        if name not in addition.visible_to:
            addition.add(installation)
    with fixed_random_tokens():
        with_additions = all_responses(installation, name, known)
    secret = rows() - before
    assert len(secret) > 20
    for request_title, responses in without_additions.items():
        assert with_additions[request_title] == responses, request_title
        text = with_signed_content(repr(with_additions[request_title]))
        assert not [value for value in secret if value in text], request_title
        assert CANARY in request_title or CANARY not in text.lower(), request_title


def test_pinned_notes_do_not_count_for_customers(alice: Client, agent: Client, session: ChatSession, say: Any) -> None:
    notes, said = ([say(is_private=private) for _ in range(PIN_LIMIT)] for private in (True, False))
    for client, messages in ((agent, notes), (alice, said)):
        path = f"/chats/{session.id}/messages"
        replies = [client.post(f"{path}/{message.id}/pin") for message in messages]
        assert {reply.status for reply in replies} == {200}
    assert len(alice.get(f"/chats/{session.id}/pinned-messages").data) == PIN_LIMIT


@pytest.mark.slow
def test_accessible_rows_change_some_response(installation: Installation) -> None:
    """Each addition changes some response; otherwise the test above would prove nothing."""
    known = "\n".join(rows())
    with fixed_random_tokens():
        without_additions = {name: all_responses(installation, name, known) for name in USERS}
    for title, addition in ADDITIONS.items():
        with rolled_back():
            addition.add(installation)
            for name in addition.visible_to:
                with fixed_random_tokens():
                    found = (
                        normalized_responses(call, known) != without_additions[name][request_title]
                        for request_title, call in calls(installation, name)
                    )
                    assert any(found), (title, name)


# Imports change who may read a message.


@pytest.fixture
def import_records(tmp_path):
    """Return a function that imports records."""

    def run(*records: dict[str, Any]) -> None:
        file = tmp_path / "records.jsonl"
        file.write_text("\n".join(map(json.dumps, records)))
        assert import_export.import_files([file]) == []

    return run


def exported(kind: str, id: str) -> dict[str, Any]:
    """Return the exported record of a row."""
    lines: list[bytes] = []
    import_export.export(lines.append)
    [record] = [json.loads(line)[kind] for line in lines if json.loads(line).get(kind, {}).get("id") == id]
    return dict(record)


def test_message_imported_as_note_is_removed_from_its_replies(alice, agent, session, import_records):
    path = f"/chats/{session.id}/messages"
    sent = agent.post(path, {"content": {"text": CANARY}}).data["id"]
    alice.post(path, {"content": "Why?", "reply_to_message_id": sent})
    assert CANARY in bytes(alice.get(path).data[-1]["reply_snapshot"]).decode()
    import_records({"message": {**exported("message", sent), "is_private": True}})
    response = alice.get(path)
    assert [message["reply_to_message_id"] for message in response.data] == [None]
    assert (response.data[0]["reply_snapshot"], response.meta["total"]) == ([], 1)
    assert sent not in response.raw.decode() + alice.get("/notifications").raw.decode()
    assert CANARY not in alice.get("/notifications").raw.decode()


@pytest.mark.parametrize("left", [{"role": "user"}, {"app_id": "other"}])
def test_former_staff_cannot_read_notes_in_notifications(left, agent, admin, session, other_shop, import_records):
    path = f"/chats/{session.id}/messages"
    agent.post(path, {"content": "Hello"})
    admin.post(path, {"content": {"text": CANARY}, "is_private": True})
    assert CANARY in agent.get("/notifications").raw.decode()
    import_records({"user": exported("user", agent.user.id)})
    assert CANARY in agent.get("/notifications").raw.decode()
    left = {name: other_shop.id if value == "other" else value for name, value in left.items()}
    import_records({"user": {**exported("user", agent.user.id), **left}})
    [notification] = agent.get("/notifications").data
    assert (notification["body"], notification["payload"]) == ("", [])


def test_message_that_becomes_a_note_before_its_deletion_is_counted_as_a_note(alice, agent, session, say):
    """It becomes a note between the lookup and the deletion."""
    loaded = say(CANARY)
    say("Hello")
    Message.update(is_private=True).where(Message.id == loaded.id).execute()
    recompute([session.id])
    loaded.soft_delete()
    assert alice.get(f"/chats/{session.id}/messages").meta["total"] == 1
    assert agent.get(f"/chats/{session.id}/messages").meta["total"] == 1


def test_imported_message_is_still_idempotent(alice, session, import_records):
    path, new = f"/chats/{session.id}/messages", {"content": "Hello", "client_message_id": "1"}
    sent = alice.post(path, new).data
    import_records({"message": exported("message", sent["id"])})
    with nothing_changes():
        assert alice.post(path, new).data["id"] == sent["id"]


def test_migration_removes_references_to_notes_from_public_replies(session, say):
    note = say("between us", is_private=True)
    replies = {kind: say("Hi", reply_to_message_id=note.id, is_private=kind == "note") for kind in ("public", "note")}
    statement = step_4.STATEMENTS[-1]
    apply(statement)
    assert [Message.get_by_id(replies[kind].id).reply_to_message_id for kind in replies] == [None, note.id]
