"""What the things of others betray: nothing.

Somebody asks everything there is to ask, first without and then with the things of others, and is answered the same
bytes: the same lists, counts, cursors, tags, headers and sentences. Then the answers are read once more for whatever is
new in the database, cursors and tickets from within.
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

from service import clock, db, transfer
from service.auth import tokens
from service.fields import as_bytes, compact_json
from service.migrations import step_4, take
from service.models import TABLES, App, Bot, ChatSession, Event, Message, Notification, User
from service.models.chats import PIN_LIMIT
from service.models.settling import settle
from tests.conftest import Client, Reply
from tests.test_access import CASES, ELSEWHERE, KNOWN, PEOPLE, World, furnish, undone
from tests.test_operations import ALL, address
from tests.watching import nothing_changes

CANARY = "quetzal"  # stands in every text that is added
UNASKED = {
    *("log_in", "change_password", "change_account", "sign_in_browser"),  # which take long, and show no list
    "get_calendar",  # with Alice's secret address
    *ELSEWHERE,  # for operators
}

_SIGNED = re.compile(r"[\w-]{8,}\.[\w-]{43}")
_IDENTIFIER = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|01[0-9A-Z]{24}")


class Houses(World):
    """Everybody and what is theirs, with whatever more somebody may have beside it."""

    def __init__(self, clients: dict[str, Client], session: ChatSession, say: Any, settings: Any) -> None:
        self.settings, self.other_shop = settings, App.get(App.name == "Other shop")
        super().__init__(clients, session, say, settings)
        self.path = f"/chats/{session.id}"
        for name in KNOWN:  # so that nobody's lists are empty
            self.chat(name, App.get_by_id(session.app_id), "good morning")
        self.positions = {name: clients[name].get("/updates").data["after"] for name in KNOWN}

    def chat(self, name: str, app: App, text: str, **more: Any) -> str:
        """A chat of somebody, of three messages: the path of it."""
        path = f"/chats/{self.clients[name].post('/chats', {'app_id': app.id, **more}).data['id']}"
        for number in range(3):
            self.say(name, path, f"{text} {number}")
        return path

    def say(self, name: str, path: str, text: str, **more: Any) -> str:
        """A message of somebody: the path of it."""
        sent = self.clients[name].post(f"{path}/messages", {"content": {"text": text}, **more})
        assert sent.status == 201, sent.json
        return f"{path}/messages/{sent.data['id']}"


# What may be there or not, by name: who may notice it, and how it comes.


def notes(houses: Houses) -> None:
    agent, path = houses.clients["agent"], houses.path
    note = houses.say("agent", path, f"{CANARY} note", is_private=True)
    houses.say("admin", path, f"{CANARY} note", is_private=True, reply_to_message_id=note.rpartition("/")[2])
    gone, purged = (houses.say("agent", path, f"{CANARY} note {number}", is_private=True) for number in range(2))
    assert agent.post(f"{note}/pin").status == agent.post(f"{gone}/pin").status == 200
    assert agent.patch(note, {"content": f"other {CANARY}"}).status == agent.delete(gone).status == 200
    Message.purge(Message.id == purged.rpartition("/")[2])


def chats(name: str, app: str) -> Callable[[Houses], None]:
    """A chat of somebody with an app, in which much happens."""

    def add(houses: Houses) -> None:
        path = houses.chat(name, App.get(App.name == app), f"{CANARY} chat")
        said = houses.say(name, path, f"{CANARY} pinned")
        gone, purged = (houses.say(name, path, f"{CANARY} {number}", client_message_id=f"{number}") for number in "ab")
        client = houses.clients[name]
        done = client.post(f"{said}/pin"), client.delete(gone), client.put(f"{path}/read", {})
        assert [reply.status for reply in done] == [200] * 3
        Message.purge(Message.id == purged.rpartition("/")[2])
        houses.say("admin", path, f"{CANARY} answer", reply_to_message_id=said.rpartition("/")[2])
        houses.say("admin", path, f"{CANARY} note", is_private=True)
        assert client.post(f"{path}/end").status == 200

    return add


def belongings(name: str) -> Callable[[Houses], None]:
    """What somebody has for themselves."""

    def add(houses: Houses) -> None:
        client = houses.clients[name]
        id = client.user.id
        client.post("/events", {"title": CANARY, "starts_at": "2026-11-21T10:00:00Z"}, idempotency_key=CANARY)
        soon = clock.timestamp(clock.now() - 1)
        Event.create(user_id=id, title=f"{CANARY} due", starts_at="2027-01-01T00:00:00.000Z", reminder_due=soon)
        Notification.tell(id, "chat_message", CANARY, {"text": CANARY})
        client.post("/data-shares", {"mcp_server_id": f"files {CANARY}", "allowed_tools": ["*"]})
        client.patch("/users/me/settings", {"remark": CANARY})
        with db.write():
            tokens.begin(id, houses.settings, f"{CANARY} browser")
            tokens.open_session(id, houses.settings, label=CANARY, install_id=CANARY, scopes="chats", kind="client")

    return add


def feedback(houses: Houses) -> None:
    houses.clients["bob"].post("/feedback", {"description": CANARY})


def bots(app: str) -> Callable[[Houses], None]:
    """Bots that customers do not meet."""

    def add(houses: Houses) -> None:
        app_id = App.get(App.name == app).id
        Bot.create(app_id=app_id, name=f"Draft {CANARY}", status="draft", kind="bot", is_featured=True)
        Bot.create(app_id=app_id, name=f"Put away {CANARY}", status="published", is_active=False)

    return add


def strangers(houses: Houses) -> None:
    """Another app, with people, a bot and a chat."""
    app = App.create(name=f"Another {CANARY}")
    bot = Bot.create(app_id=app.id, name=CANARY, status="published", kind="bot")
    people = [
        User.create(
            email=f"{role}{shut}@{CANARY}", first_name=CANARY.title(), role=role, app_id=app.id, is_disabled=shut
        )
        for role, shut in itertools.product(("user", "agent", "admin"), (False, True))
    ]
    for user in people:
        furnish(user)
    session = ChatSession.create(app_id=app.id, user_id=people[0].id, bot_id=bot.id)
    content = compact_json(as_bytes({"text": CANARY}))
    Message.create(id=clock.ulid(), chat_session_id=session.id, content=content, app_id=app.id, owner_id=people[0].id)


def guesses(houses: Houses) -> None:
    """Failed logins, of people and of nobody, from elsewhere."""
    for email in ("alice@example.com", "bob@example.com", f"{CANARY}@example.com"):
        for _ in range(3):
            houses.clients["anyone"].post("/auth/login", {"email": email, "password": ""}, address="192.0.2.1")


class Addition(NamedTuple):
    """Something that may be there or not, and who may notice."""

    add: Callable[[Houses], None]
    noticed_by: set[str]


ADDITIONS = {
    "notes about Alice": Addition(notes, {"agent", "admin"}),
    "a chat of Bob's": Addition(chats("bob", "Shop"), {"bob", "agent", "admin"}),
    "a chat of Bob's elsewhere": Addition(chats("bob", "Other shop"), {"bob", "other_agent", "admin"}),
    "a chat of Alice's elsewhere": Addition(chats("alice", "Other shop"), {"alice", "other_agent", "admin"}),
    "a chat of an agent's elsewhere": Addition(chats("agent", "Other shop"), {"agent", "other_agent", "admin"}),
    "a chat of another agent's": Addition(chats("other_agent", "Shop"), {"other_agent", "agent", "admin"}),
    **{f"what {name} has": Addition(belongings(name), {name}) for name in KNOWN},
    "feedback of Bob's": Addition(feedback, {"bob", "admin"}),
    "bots of the shop": Addition(bots("Shop"), {"agent", "admin"}),
    "bots elsewhere": Addition(bots("Other shop"), {"other_agent", "admin"}),
    "strangers": Addition(strangers, {"admin"}),
    "guesses": Addition(guesses, set()),
}


# What can be asked.

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
ASKED = ("e", CANARY)  # wherever something may be searched for

Question = Callable[[], list[Reply]]


def questions(houses: Houses, name: str) -> Iterator[tuple[str, Question]]:
    """Everything that somebody can ask, with a name for it."""
    client = houses.clients[name]
    for case in CASES:
        if case not in UNASKED:
            yield case, lambda case=case: [houses.ask(case, client)]
    if name == "anyone":
        return
    for operation, app_id in itertools.product(LISTS, (houses.names["app"], houses.other_shop.id)):
        known = {field.encode_name for field in fields(operation.query)}
        identifiers = houses.ids | {App: app_id}
        path = address(operation, *(identifiers[table] for *_, table in operation.loads))
        sought = [{field: text} for field in {"q", "search"} & known for text in ASKED] or [{}]
        for chosen, looked_for in itertools.product(FILTERS, sought):
            if chosen.keys() <= known:
                query = ({"app_id": app_id} if "app_id" in known else {}) | chosen | looked_for
                yield f"{path} {query}", lambda p=path, q=query, k=known: list(pages(client, p, q, k))
    since = f"wait=0&after={houses.positions[name]}"
    for path in (f"/updates?{since}", f"//console/news?{since}", f"/chats?cursor={houses.positions[name]}"):
        yield path, lambda path=path: [client.get(path)]


def pages(client: Client, path: str, query: dict[str, str], known: set[str]) -> Iterator[Reply]:
    """All pages of a list, each as small as can be."""
    query = query | {size: "1" for size in ("limit", "per_page") if size in known}
    while True:
        reply = client.get(f"{path}?{urlencode(query)}")
        yield reply
        query["cursor"] = reply.status == 200 and reply.raw[:1] == b"{" and reply.meta.get("next_cursor")
        if not query["cursor"]:
            return


def told(question: Question, known: str) -> list[Any]:
    """What is answered, but for what belongs to the single request: its number, and what it has just made."""
    with undone():
        replies = question()

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


def answers(houses: Houses, name: str, known: str) -> dict[str, list[Any]]:
    """What somebody is told, by question."""
    return {asked: told(question, known) for asked, question in questions(houses, name)}


def inside(text: str) -> str:
    """A text, and what is written in the cursors, positions and tickets that it holds, which anybody can read."""
    opened = [text]
    for signed in _SIGNED.findall(text):
        with suppress(BadData):
            opened.append(repr(URLSafeSerializer("").load_payload(signed.rpartition(".")[0].encode())))
    return "\n".join(opened)


def rows() -> set[str]:
    """Every text in the database that could tell one thing from another: the canary, and what has a digit in it."""
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
def houses(host_clock, monkeypatch, alice, bob, agent, other_agent, admin, anyone, session, say, settings, other_shop):
    """Everybody, while time and chance stand still."""
    clients = (alice, bob, agent, other_agent, admin, anyone)
    made = Houses(dict(zip(PEOPLE, clients, strict=True)), session, say, settings)
    host_clock.forward(minutes=1)
    return made


@contextmanager
def no_chance() -> Iterator[None]:
    """Whatever is drawn by lot is the same each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_urlsafe", lambda size=32: "x" * (size * 4 // 3 + 1))
        yield


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "alice" else pytest.mark.slow) for name in PEOPLE]
)
def test_what_is_not_for_somebody_changes_nothing_that_they_are_told(name: str, houses: Houses) -> None:
    before = rows()
    known = "\n".join(before)
    with no_chance():
        without = answers(houses, name, known)
    for addition in ADDITIONS.values():
        if name not in addition.noticed_by:
            addition.add(houses)
    with no_chance():
        beside = answers(houses, name, known)
    secret = rows() - before
    assert len(secret) > 20
    for asked, answer in without.items():
        assert beside[asked] == answer, asked
        text = inside(repr(beside[asked]))
        assert not [value for value in secret if value in text], asked
        assert CANARY in asked or CANARY not in text.lower(), asked


def test_pinned_notes_take_no_pins_from_a_customer(
    alice: Client, agent: Client, session: ChatSession, say: Any
) -> None:
    notes, said = ([say(is_private=private) for _ in range(PIN_LIMIT)] for private in (True, False))
    for client, messages in ((agent, notes), (alice, said)):
        path = f"/chats/{session.id}/messages"
        replies = [client.post(f"{path}/{message.id}/pin") for message in messages]
        assert {reply.status for reply in replies} == {200}
    assert len(alice.get(f"/chats/{session.id}/pinned-messages").data) == PIN_LIMIT


@pytest.mark.slow
def test_whoever_may_notice_does(houses: Houses) -> None:
    """Each addition is one that shows, or the test above would prove nothing."""
    known = "\n".join(rows())
    with no_chance():
        without = {name: answers(houses, name, known) for name in KNOWN}
    for title, addition in ADDITIONS.items():
        with undone():
            addition.add(houses)
            for name in addition.noticed_by:
                with no_chance():
                    found = (
                        told(question, known) != without[name][asked] for asked, question in questions(houses, name)
                    )
                    assert any(found), (title, name)


# What an import makes of what was told before.


@pytest.fixture
def take_in(tmp_path):
    """Imports records."""

    def run(*records: dict[str, Any]) -> None:
        file = tmp_path / "records.jsonl"
        file.write_text("\n".join(map(json.dumps, records)))
        assert transfer.take_in([file]) == []

    return run


def exported(kind: str, id: str) -> dict[str, Any]:
    """The record of something, as it leaves."""
    lines: list[bytes] = []
    transfer.give_out(lines.append)
    [record] = [json.loads(line)[kind] for line in lines if json.loads(line).get(kind, {}).get("id") == id]
    return dict(record)


def test_a_message_that_becomes_a_note_leaves_the_answers_to_it(alice, agent, session, take_in):
    path = f"/chats/{session.id}/messages"
    told = agent.post(path, {"content": {"text": CANARY}}).data["id"]
    alice.post(path, {"content": "Why?", "reply_to_message_id": told})
    assert CANARY in bytes(alice.get(path).data[-1]["reply_snapshot"]).decode()
    take_in({"message": {**exported("message", told), "is_private": True}})
    answer = alice.get(path)
    assert [message["reply_to_message_id"] for message in answer.data] == [None]
    assert (answer.data[0]["reply_snapshot"], answer.meta["total"]) == ([], 1)
    assert told not in answer.raw.decode() + alice.get("/notifications").raw.decode()
    assert CANARY not in alice.get("/notifications").raw.decode()


@pytest.mark.parametrize("left", [{"role": "user"}, {"app_id": "other"}])
def test_who_has_left_the_staff_finds_no_note_in_what_they_were_told(left, agent, admin, session, other_shop, take_in):
    path = f"/chats/{session.id}/messages"
    agent.post(path, {"content": "Hello"})
    admin.post(path, {"content": {"text": CANARY}, "is_private": True})
    assert CANARY in agent.get("/notifications").raw.decode()
    take_in({"user": exported("user", agent.user.id)})
    assert CANARY in agent.get("/notifications").raw.decode()
    left = {name: other_shop.id if value == "other" else value for name, value in left.items()}
    take_in({"user": {**exported("user", agent.user.id), **left}})
    [told] = agent.get("/notifications").data
    assert (told["body"], told["payload"]) == ("", [])


def test_a_message_that_becomes_a_note_meanwhile_is_counted_out_as_one(alice, agent, session, say):
    """Between the moment when somebody looks it up to delete it and the moment when they do."""
    looked_up = say(CANARY)
    say("Hello")
    Message.update(is_private=True).where(Message.id == looked_up.id).execute()
    settle([session.id])
    looked_up.soft_delete()
    assert alice.get(f"/chats/{session.id}/messages").meta["total"] == 1
    assert agent.get(f"/chats/{session.id}/messages").meta["total"] == 1


def test_a_message_that_an_import_replaced_is_still_sent_once(alice, session, take_in):
    path, new = f"/chats/{session.id}/messages", {"content": "Hello", "client_message_id": "1"}
    sent = alice.post(path, new).data
    take_in({"message": exported("message", sent["id"])})
    with nothing_changes():
        assert alice.post(path, new).data["id"] == sent["id"]


def test_an_older_database_forgets_which_note_a_customer_was_answered_with(session, say):
    note = say("between us", is_private=True)
    answers = {kind: say("Hi", reply_to_message_id=note.id, is_private=kind == "note") for kind in ("public", "note")}
    forgetting = step_4.STATEMENTS[-1]
    take(forgetting)
    assert [Message.get_by_id(answers[kind].id).reply_to_message_id for kind in answers] == [None, note.id]
