"""The audit log: every audited action writes one entry, and every change of an entry is detected."""

import argparse
import contextlib
import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import peewee
import pytest

from service import clock, commands, db
from service.auth import tokens
from service.commands import run, users
from service.db import migrations
from service.models import (
    Announcement,
    App,
    AuditLog,
    Bot,
    CannedAnswer,
    DataShare,
    Delivery,
    Feedback,
    LoginSession,
    User,
)
from service.models import audit_log as module
from service.models.audit_log import BEGINNING, KINDS, OPERATOR, SERVICE, BrokenChain, Head
from service.routes import operations
from tests.support import postgres, released_schemas, sample_data
from tests.support.access import CASES, USERS, World, rolled_back
from tests.support.access import world_fixture as world_fixture
from tests.support.cli_login import VERIFIER, consent_address
from tests.support.cli_login import approve_fixture as approve_fixture
from tests.support.cli_login import browser_fixture as browser_fixture
from tests.support.cli_login import request_tokens_fixture as request_tokens_fixture
from tests.support.client import Client
from tests.support.faults import full, read_only
from tests.support.installation import flags_of
from tests.support.observe import at_once, nothing_changes
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.server_process import environment, json_lines
from tests.support.web_client import Browser

pytestmark = pytest.mark.database


GRANT = {"mcp_server_id": "files", "allowed_tools": ["read", "write"], "expires_at": "2027-01-01T00:00:00.000Z"}

# Texts that must not be in an entry: tokens, codes, passwords and their hashes, e-mail addresses, and content of users.
SECRET = re.compile(r"cx[acrf]_|\$argon2|@|correct horse|another one|Hello|callback|Telefon|Laptop|dBjftJeZ")


class Entry(NamedTuple):
    """The content of an entry."""

    kind: str
    actor: str
    subject: str
    details: dict[str, Any]


def entries() -> list[Entry]:
    """Return all entries, oldest first. Asserts that the chain is valid and contains no secrets."""
    found = list(AuditLog.select().order_by(AuditLog.position))
    assert AuditLog.verify() == (Head(found[-1].position, found[-1].hash) if found else BEGINNING)
    assert [row for row in found if SECRET.search(f"{row.actor_id} {row.subject_id} {row.details}")] == []
    assert all(row.kind in KINDS for row in found)
    return [Entry(row.kind, row.actor_id, row.subject_id, json.loads(row.details)) for row in found]


@contextlib.contextmanager
def new_entries() -> Iterator[list[Entry]]:
    """Collect the entries that the block writes."""
    before, new = entries(), list[Entry]()
    yield new
    after = entries()
    assert after[: len(before)] == before
    new += after[len(before) :]


@pytest.fixture
def cx(application: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a command on the open database; `typed` comes from standard input."""

    def command(*arguments: str, typed: str = "") -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8"))
        return run([*arguments, *flags_of(settings)])

    return command


class Scene:
    """The fixtures of the tests as attributes, with helpers."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.use = request.getfixturevalue
        self.settings = self.use("settings")

    def __getattr__(self, name: str) -> Any:
        return self.use(name)

    def id(self, name: str) -> str:
        """The identifier of a user."""
        return str(self.use(name).user.id)

    def newest(self, **columns: Any) -> LoginSession:
        """The newest login session."""
        return LoginSession.select().filter(**columns).order_by(LoginSession.created_at.desc()).get()

    def program(self, name: str = "alice") -> tuple[LoginSession, Client]:
        """A login session of a command-line client, and its client."""
        user = self.use(name).user
        about = {"scopes": "chats profile", "install_id": "i", "kind": "client", "label": "Laptop"}
        with db.write(user.id):
            session = tokens.create_token_session(user.id, self.settings, **about)
        return session, Client(self.application, tokens.pair_of(session, self.settings).access_token, user)

    def grant(self) -> DataShare:
        """A grant of Alice."""
        return DataShare.grant(self.id("alice"), mcp_server_id="files", allowed_tools='["read"]')


@pytest.fixture
def scene(request: pytest.FixtureRequest, host_clock: Any, alice: Client) -> Scene:
    return Scene(request)


# Each audited action: a function that prepares it, and returns a function that performs it and one that returns the
# expected entry. Repeating the action has no effect, or fails.

Action = tuple[Callable[[], Any], Callable[[], tuple[str, str, dict[str, Any]]]]


def ok(response: Any, status: int = 200) -> Any:
    assert response.status == status, response.raw
    return response


def credentials(client: Client) -> dict[str, str]:
    return {"email": client.user.email, "password": PASSWORD}


def log_in_with_a_password(s: Scene) -> Action:
    LoginSession.delete().execute()

    def act() -> None:
        if not LoginSession.select().exists():
            ok(s.anyone.post("/auth/login", credentials(s.alice), user_agent="Telefon"))

    return act, lambda: (s.id("alice"), s.id("alice"), {"login": s.newest().id, "by": "login"})


def sign_in_with_a_browser(s: Scene) -> Action:
    tab = Browser(s.application)

    def act() -> None:
        if tab.path != "/docs":
            tab.open("/sign-in?next=/docs")
            tab.send(email=s.alice.user.email, password=PASSWORD)

    return act, lambda: (s.id("alice"), s.id("alice"), {"login": s.newest(kind="browser").id, "by": "browser"})


def exchange_a_code(s: Scene) -> Action:
    code = s.approve(scope="chats bots:read", install_id="i")["code"]

    def act() -> None:
        if not LoginSession.select().where(LoginSession.kind == "client").exists():
            ok(s.request_tokens(code=code))

    about = {"by": "client", "install": "i", "scopes": ["chats", "bots:read"]}
    return act, lambda: (s.id("alice"), s.id("alice"), {"login": s.newest(kind="client").id, **about})


def log_out(s: Scene) -> Action:
    login = s.newest(user_id=s.id("alice")).id
    return lambda: s.alice.post("/auth/logout"), lambda: (s.id("alice"), s.id("alice"), {"login": login})


def log_out_everywhere(s: Scene) -> Action:
    expected = (s.id("alice"), s.id("alice"), {"everywhere": True})
    s.program()
    return lambda: s.alice.post("/auth/logout", {"scope": "global"}), lambda: expected


def sign_out(s: Scene) -> Action:
    tab = s.browser
    expected = (s.id("alice"), s.id("alice"), {"login": s.newest(kind="browser").id})
    return lambda: tab.navigate("POST", "/sign-out", {}), lambda: expected


def end_a_login(s: Scene) -> Action:
    login = s.program()[0].id
    path = f"/auth/sessions/{login}"
    return lambda: ok(s.alice.delete(path)), lambda: (s.id("alice"), s.id("alice"), {"login": login})


def revoke_an_install(s: Scene) -> Action:
    login = s.program()[0].id
    path = f"/users/me/installs/{login}"
    return lambda: ok(s.alice.delete(path)), lambda: (s.id("alice"), s.id("alice"), {"login": login})


def use_the_account_page(act: str) -> Callable[[Scene], Action]:
    def end(s: Scene) -> Action:
        login = s.program()[0].id
        s.browser.open("/console/account")
        csrf_token = re.search(r'name="csrf_token" value="([^"]+)"', s.browser.reply.raw.decode())
        assert csrf_token
        given = {"act": act, "id": login, "csrf_token": csrf_token[1]}
        return lambda: ok(s.browser.navigate("POST", "/console/account", given)), lambda: (
            s.id("alice"),
            s.id("alice"),
            {"login": login},
        )

    return end


def reuse_a_refresh_token(s: Scene) -> Action:
    pair = s.anyone.post("/auth/login", credentials(s.alice)).data["tokens"]
    login = tokens.authenticate(f"Bearer {pair['access_token']}").session_id
    old = {"refresh_token": pair["refresh_token"]}
    newer = s.anyone.post("/auth/refresh", old).data["tokens"]
    s.anyone.post("/auth/refresh", {"refresh_token": newer["refresh_token"]})
    return lambda: ok(s.anyone.post("/auth/refresh", old), 401), lambda: (SERVICE, s.id("alice"), {"login": login})


def reuse_a_code(s: Scene) -> Action:
    code = s.approve()["code"]
    ok(s.request_tokens(code=code))
    login = s.newest(kind="client").id
    return lambda: ok(s.request_tokens(code=code), 400), lambda: (SERVICE, s.id("alice"), {"login": login})


def change_own_password(s: Scene) -> Action:
    given = {"current_password": PASSWORD, "new_password": "another one"}
    return lambda: s.alice.post("/auth/password", given), lambda: (s.id("alice"), s.id("alice"), {})


def decide_consent(decision: str) -> Callable[[Scene], Action]:
    def decide(s: Scene) -> Action:
        tab = s.browser
        form = tab.open(consent_address(install_id="i", install_name="Laptop", scope="chats nonsense profile:read"))

        def act() -> None:
            tab.reply = form
            ok(tab.send(answer=decision))

        expected = {"client": "service-cli", "install": "i", "scopes": ["chats", "profile:read"]}
        return act, lambda: (s.id("alice"), s.id("alice"), expected)

    return decide


def create_a_grant(s: Scene) -> Action:
    alice, session, key = s.alice, s.session, {"idempotency_key": "1"}
    given = {**GRANT, "app_id": session.app_id, "conversation_id": session.conversation_id, "scope_meta": [7]}

    def expected() -> tuple[str, str, dict[str, Any]]:
        about = {"grant": DataShare.get().id, "server": "files", "tools": ["read", "write"]}
        about |= {"app": session.app_id, "conversation": session.conversation_id, "expires_at": GRANT["expires_at"]}
        return alice.user.id, alice.user.id, about

    return lambda: ok(alice.post("/data-shares", given, **key), 201), expected


def revoke_a_grant(name: str) -> Callable[[Scene], Action]:
    def revoke(s: Scene) -> Action:
        grant, caller = s.grant(), s.use(name)
        about = {"grant": grant.id, "server": "files", "tools": ["read"]}
        path = f"/data-shares/{grant.id}"
        return lambda: ok(caller.delete(path)), lambda: (caller.user.id, s.id("alice"), about)

    return revoke


def renew_a_feed(s: Scene) -> Action:
    done = []

    def act() -> None:
        if not done:
            done.append(ok(s.alice.post("/events/feed")))

    return act, lambda: (s.id("alice"), s.id("alice"), {})


def revoke_a_feed(s: Scene) -> Action:
    ok(s.alice.post("/events/feed"))
    return lambda: ok(s.alice.delete("/events/feed")), lambda: (s.id("alice"), s.id("alice"), {})


def change_a_bot(member: str, value: str, path: str) -> Callable[[Scene], Action]:
    def change(s: Scene) -> Action:
        bot, agent = s.bot, s.agent
        url = f"/apps/{bot.app_id}/bots/{bot.id}/{path}"
        expected = {"app": bot.app_id, member: value}
        return lambda: ok(agent.put(url, {member: value})), lambda: (agent.user.id, bot.id, expected)

    return change


def announce(s: Scene) -> Action:
    agent, shop = s.agent, s.shop

    def send() -> None:
        ok(agent.post(f"/apps/{shop.id}/announcements", {"title": "News"}, idempotency_key="one"), 201)

    return send, lambda: (agent.user.id, Announcement.get().id, {"app": shop.id})


def retry_a_delivery(s: Scene) -> Action:
    admin_id = s.admin.user.id
    delivery = Delivery.create(channel="push", kind="login", due_at=clock.MAX_TIME, failed_at=1)

    def retry() -> None:
        Delivery.get_by_id(delivery.id).try_again(admin_id)

    return retry, lambda: (admin_id, delivery.id, {"channel": "push"})


def create_an_app(s: Scene) -> Action:
    admin = s.admin

    def create() -> None:
        ok(admin.post("/apps", {"name": "New"}, idempotency_key="one"), 201)

    return create, lambda: (admin.user.id, App.get(App.name == "New").id, {})


def rename_an_app(s: Scene) -> Action:
    admin, shop = s.admin, s.shop
    expected = (admin.user.id, shop.id, {"columns": ["name"]})
    return lambda: ok(admin.patch(f"/apps/{shop.id}", {"name": "New"})), lambda: expected


def create_a_bot(s: Scene) -> Action:
    agent, shop = s.agent, s.shop

    def create() -> None:
        ok(agent.post(f"/apps/{shop.id}/bots", {"name": "New"}, idempotency_key="one"), 201)

    return create, lambda: (agent.user.id, Bot.get(Bot.name == "New").id, {"app": shop.id})


def add_an_answer(s: Scene) -> Action:
    agent, bot = s.agent, s.bot
    path, body = f"/apps/{bot.app_id}/bots/{bot.id}/answers", {"question": "When?", "answer": "Now."}

    def add() -> None:
        ok(agent.post(path, body, idempotency_key="one"), 201)

    return add, lambda: (agent.user.id, bot.id, {"answer": CannedAnswer.get(CannedAnswer.question == "When?").id})


def change_an_answer(s: Scene) -> Action:
    agent, bot = s.agent, s.bot
    answer = CannedAnswer.create(bot_id=bot.id, question="When?", answer="Now.")
    path = f"/apps/{bot.app_id}/bots/{bot.id}/answers/{answer.id}"
    expected = (agent.user.id, bot.id, {"answer": answer.id, "columns": ["answer"]})
    return lambda: ok(agent.patch(path, {"answer": "Later."})), lambda: expected


def remove_an_answer(s: Scene) -> Action:
    agent, bot = s.agent, s.bot
    answer = CannedAnswer.create(bot_id=bot.id, question="When?", answer="Now.")
    path = f"/apps/{bot.app_id}/bots/{bot.id}/answers/{answer.id}"
    return lambda: agent.delete(path), lambda: (agent.user.id, bot.id, {"answer": answer.id})


def import_answers(s: Scene) -> Action:
    cx, bot = s.cx, s.bot
    typed = '{"question": "When?", "answer": "Now."}'
    done = list[int]()

    def act() -> None:
        if not done:  # a repeated import replaces the answers, and is recorded again
            cx("answer", "import", "--bot", bot.id, "-", typed=typed)
        done.append(1)

    return act, lambda: (OPERATOR, bot.id, {"added": 1, "replaced": 0})


def assign_a_chat(s: Scene) -> Action:
    agent, session = s.agent, s.session
    expected = {"session": session.id, "assignee": agent.user.id}
    body = {"user_id": agent.user.id}
    return lambda: ok(agent.put(f"/chats/{session.id}/assignee", body)), lambda: (
        agent.user.id,
        session.user_id,
        expected,
    )


def call_a_person(s: Scene) -> Action:
    alice, session = s.alice, s.session
    return lambda: ok(alice.post(f"/chats/{session.id}/handover")), lambda: (
        alice.user.id,
        alice.user.id,
        {"session": session.id},
    )


def give_a_chat_back(s: Scene) -> Action:
    agent, session = s.agent, s.session
    ok(agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id}))
    expected = {"session": session.id, "former": agent.user.id}
    return lambda: ok(agent.put(f"/chats/{session.id}/assignee", {"user_id": None})), lambda: (
        agent.user.id,
        session.user_id,
        expected,
    )


def create_a_user(s: Scene) -> Action:
    admin, body = s.admin, {"email": "new@example.com", "password": PASSWORD}

    def create() -> None:
        ok(admin.post("/users", body, idempotency_key="one"), 201)

    return create, lambda: (admin.user.id, User.get(User.email == "new@example.com").id, {"role": "user"})


def change_a_user(changes: dict[str, Any], **details: Any) -> Callable[[Scene], Action]:
    def change(s: Scene) -> Action:
        admin, alice = s.admin, s.alice.user.id
        return lambda: ok(admin.patch(f"/users/{alice}", changes)), lambda: (admin.user.id, alice, details)

    return change


def delete_a_user(s: Scene) -> Action:
    admin, alice = s.admin, s.alice.user.id
    return lambda: admin.delete(f"/users/{alice}"), lambda: (admin.user.id, alice, {"role": "user"})


def change_feedback_status(s: Scene) -> Action:
    given = Feedback.create(user_id=s.id("alice"), description="Hello")
    expected = {"feedback": given.id, "status": "done"}
    admin = s.admin
    return lambda: ok(admin.patch(f"/feedback/{given.id}", {"status": "done"})), lambda: (
        admin.user.id,
        s.id("alice"),
        expected,
    )


def add_a_user(s: Scene) -> Action:
    shop, cx = s.shop, s.cx

    def expected() -> tuple[str, str, dict[str, Any]]:
        eve = User.by_email("eve@example.com")
        assert eve
        return OPERATOR, eve.id, {"role": "agent", "app": shop.id}

    line = ("user", "add", "eve@example.com", "--role", "agent", "--app", shop.id)
    return lambda: cx(*line, typed="another one\n"), expected


def run_user_command(action: str, before: Callable[[User], Any] = lambda user: None) -> Callable[[Scene], Action]:
    def prepare(s: Scene) -> Action:
        user, cx, done = s.alice.user, s.cx, list[int]()
        before(user)

        def once() -> None:
            if action != "password" or not done:  # every change of a password has an effect
                done.append(cx("user", action, user.email, typed="another one\n"))
            assert done[-1] == 0

        return once, lambda: (OPERATOR, user.id, {})

    return prepare


def import_sample_data(s: Scene) -> Action:
    file, cx = s.tmp_path / "in.jsonl", s.cx
    User.update(email="renamed").execute()  # the sample data has a user with her address
    file.write_bytes(json_lines(sample_data.records()))
    done = []

    def act() -> None:
        if not done:
            done.append(cx("import", str(file)))
        assert done == [0]

    counts: dict[str, int] = {}
    for record in sample_data.records():
        counts[next(iter(record))] = counts.get(next(iter(record)), 0) + 1
    return act, lambda: (OPERATOR, "", counts)


def purge(which: str) -> Callable[[Scene], Action]:
    def prepare(s: Scene) -> Action:
        message, cx = s.say("Hello"), s.cx
        s.say("Hello") if which != "message" else None
        names = {
            "message": message.id,
            "session": s.session.id,
            "user": s.alice.user.email,
        }
        subject = s.id("alice") if which == "user" else names[which]
        count = 1 if which == "message" else 2
        return lambda: cx("purge", f"--{which}", names[which]), lambda: (OPERATOR, subject, {"messages": count})

    return prepare


ACTIONS: dict[str, tuple[str, Callable[[Scene], Action]]] = {
    "logging in with a password": ("login", log_in_with_a_password),
    "signing in with a browser": ("login", sign_in_with_a_browser),
    "exchanging a code": ("login", exchange_a_code),
    "logging out": ("logout", log_out),
    "logging out everywhere": ("logout", log_out_everywhere),
    "signing out": ("logout", sign_out),
    "ending a login": ("login_ended", end_a_login),
    "ending a login in the console": ("login_ended", use_the_account_page("end")),
    "revoking an install": ("install_revoked", revoke_an_install),
    "revoking an install in the console": ("install_revoked", use_the_account_page("revoke")),
    "reusing a refresh token": ("refresh_token_reused", reuse_a_refresh_token),
    "reusing a code": ("code_reused", reuse_a_code),
    "changing one's own password": ("password_changed", change_own_password),
    "setting a password": ("password_changed", run_user_command("password")),
    "approving a consent request": ("consent_approved", decide_consent("approve")),
    "denying a consent request": ("consent_denied", decide_consent("deny")),
    "creating a grant": ("data_share_created", create_a_grant),
    "revoking one's own grant": ("data_share_revoked", revoke_a_grant("alice")),
    "revoking a grant as an admin": ("data_share_revoked", revoke_a_grant("admin")),
    "renewing a calendar feed": ("calendar_feed_renewed", renew_a_feed),
    "revoking a calendar feed": ("calendar_feed_revoked", revoke_a_feed),
    "creating an app": ("app_added", create_an_app),
    "announcing something": ("announcement_sent", announce),
    "trying a delivery again": ("delivery_retried", retry_a_delivery),
    "renaming an app": ("app_changed", rename_an_app),
    "creating a bot": ("bot_added", create_a_bot),
    "adding a canned answer": ("answer_added", add_an_answer),
    "changing a canned answer": ("answer_changed", change_an_answer),
    "deleting a canned answer": ("answer_removed", remove_an_answer),
    "importing canned answers": ("answers_imported", import_answers),
    "unpublishing a bot": ("bot_changed", change_a_bot("status", "draft", "status")),
    "changing the presence of a bot": ("bot_changed", change_a_bot("presence", "away", "presence")),
    "taking a chat over": ("assignee_changed", assign_a_chat),
    "giving a chat back": ("assignee_changed", give_a_chat_back),
    "calling a person": ("chat_handed_over", call_a_person),
    "changing the status of feedback": ("feedback_changed", change_feedback_status),
    "adding a user": ("user_added", add_a_user),
    "disabling a user": ("user_disabled", run_user_command("disable")),
    "enabling a user": ("user_enabled", run_user_command("enable", User.disable)),
    "adding a user through the API": ("user_added", create_a_user),
    "changing the role of a user": ("user_changed", change_a_user({"role": "admin"}, columns=["role"], role="admin")),
    "renaming a user": ("user_changed", change_a_user({"last_name": "New"}, columns=["last_name"])),
    "disabling a user through the API": ("user_disabled", change_a_user({"is_disabled": True})),
    "deleting a user": ("user_deleted", delete_a_user),
    "importing": ("imported", import_sample_data),
    "purging a message": ("purged", purge("message")),
    "purging a chat session": ("purged", purge("session")),
    "purging the messages of a user": ("purged", purge("user")),
}


class TestActions:
    @pytest.mark.parametrize("name", ACTIONS)
    def test_write_one_entry_even_if_repeated(self, name: str, scene: Scene) -> None:
        kind, prepare = ACTIONS[name]
        act, expect = prepare(scene)
        with new_entries() as new:
            act()
            act()
        assert new == [Entry(kind, *expect())]

    def test_of_every_kind_are_tested(self) -> None:
        tested_below = {"install_replaced"}  # written together with a login
        elsewhere = {"backup_created", "backup_downloaded", "backup_deleted"}  # tests/console/test_backups.py
        elsewhere |= {"branding_changed"}  # tests/console/test_branding.py
        elsewhere |= {"assistant_asked"}  # tests/assistant/test_usage.py
        elsewhere |= {"tool_permitted", "tool_refused", "tool_called"}  # tests/assistant/test_tools.py
        elsewhere |= {"email_verified", "password_reset"}  # tests/routes/test_account_mail.py
        elsewhere |= {"push_topic_renewed", "push_topic_ended"}  # tests/outbox/test_ntfy.py
        elsewhere |= {"push_browser_added", "push_browser_removed"}  # tests/outbox/test_web_push.py
        elsewhere |= {"webhook_ended", "webhook_enabled"}  # tests/outbox/test_webhooks.py
        elsewhere |= {
            f"server_credential_{act}" for act in ("added", "rotated", "revoked")
        }  # routes/test_introspection.py
        assert {kind for kind, _ in ACTIONS.values()} == set(KINDS) - tested_below - elsewhere

    def test_include_the_replacement_of_a_login_session_of_an_install(self, scene: Scene) -> None:
        ok(scene.request_tokens(code=scene.approve(install_id="i")["code"]))
        ok(scene.request_tokens(code=scene.approve(install_id="another")["code"]))
        first, code = scene.newest(install_id="i").id, scene.approve(install_id="i")["code"]
        with new_entries() as new:
            ok(scene.request_tokens(code=code))
        second = LoginSession.get(LoginSession.install_id == "i", LoginSession.ended_at.is_null()).id
        login, replaced = new
        assert (login.kind, login.details["login"]) == ("login", second)
        alice = scene.id("alice")
        assert replaced == Entry("install_replaced", alice, alice, {"login": first, "replaced_by": second})

    def test_have_times_that_never_decrease(self, host_clock: Any, application: Any) -> None:
        for seconds in (0, 5, -60):
            host_clock.forward(seconds=seconds)
            clock.reset()  # another process, on a host whose clock was set back
            with db.write():
                AuditLog.record("imported", OPERATOR, "")
        times = [entry.created_at[17:19] for entry in AuditLog.select().order_by(AuditLog.position)]
        assert times == ["00", "05", "05"]

    def test_are_recorded_in_the_same_transaction(self, application: Any) -> None:
        with nothing_changes(), pytest.raises(RuntimeError, match="must be recorded in the transaction"):
            AuditLog.record("imported", OPERATOR, "")


# The audited operations, and the kind of the entry that each writes with the bodies of `test_access`.
AUDITED = {
    "log_in": "login",
    "log_out": "logout",
    "end_login": "login_ended",
    "change_password": "password_changed",
    "revoke_install": "install_revoked",
    "publish_bot": "bot_changed",
    "assign_chat_session": "assignee_changed",
    "hand_over_chat_session": "chat_handed_over",
    "change_bot_presence": "bot_changed",
    "create_app": "app_added",
    "create_user": "user_added",
    "change_user": "user_changed",
    "delete_user_data": "user_deleted",
    "update_app": "app_changed",
    "create_bot": "bot_added",
    "update_bot": "bot_changed",
    "create_answer": "answer_added",
    "update_answer": "answer_changed",
    "delete_answer": "answer_removed",
    "upload_bot_cover": "bot_changed",
    "remove_bot_cover": "bot_changed",
    "upload_bot_icon": "bot_changed",
    "remove_bot_icon": "bot_changed",
    "create_data_share": "data_share_created",
    "revoke_data_share": "data_share_revoked",
    "change_feedback_status": "feedback_changed",
    "renew_calendar_feed": "calendar_feed_renewed",
    "revoke_calendar_feed": "calendar_feed_revoked",
    "end_push_topic": "push_topic_ended",
    "create_calendar_address": "calendar_feed_renewed",
    "revoke_calendar_address": "calendar_feed_revoked",
    "sign_out_browser": "logout",
    "change_bot": "bot_changed",
    "change_shares": "data_share_created",
    "change_account": "password_changed",
    "add_user": "user_added",
    "edit_user": "user_changed",
    "end_user_logins": "login_ended",
    "delete_user_account": "user_deleted",
    "change_apps": "app_added",
    "add_bot": "bot_added",
    "edit_bot": "bot_changed",
    "change_bot_picture": "bot_changed",
    "remove_bot_picture": "bot_changed",
    "add_answer": "answer_added",
    "edit_answer": "answer_changed",
    "revoke_any_share": "data_share_revoked",
    "issue_server_secret": "server_credential_added",
    "revoke_server_credential": "server_credential_revoked",
    "create_announcement": "announcement_sent",
    "send_announcement": "announcement_sent",
    "retry_delivery": "delivery_retried",
    "change_branding": "branding_changed",
    "change_logo": "branding_changed",
    "remove_logo": "branding_changed",
}
REFUSED = {
    "answer_consent",
    "answer_device",
    "create_first_admin",
    "exchange_code",
    "introspect_data_share",
    "sign_in_browser",
    "set_new_password",
    "verify_email",
    "change_backups",
    "download_backup",
    "renew_push_topic",
    "change_push_address",
    "subscribe_browser",
    "change_push_browser",
    "suggest_reply",
    "suggest_text",
    "store_translation",
    "answer_mcp",
}  # invalid there without a form, link, backup, push server, AI, other token; ACTIONS and the tests of these have them
NOT_AUDITED = {  # operations that change no permissions
    *(
        "authorize_device",
        "register_client",
        "refresh_tokens",
        "request_email_verification",
        "request_new_password",
        "unsubscribe_user",
        "check_data_share",
        "begin_chat",
        "change_chat",
        "change_events",
        "edit_event",
        "change_feedback",
    ),
    "unsubscribe_browser",  # of a session without a browser
    *("change_notifications", "change_person", "change_picture", "create_chat_session", "send_message"),
    *("edit_message", "mark_chat_session_read", "show_typing", "delete_message", "pin_message", "unpin_message"),
    *("snooze_chat_session", "create_canned_reply", "update_canned_reply", "delete_canned_reply"),
    *("add_canned_reply", "edit_canned_reply"),
    *("archive_chat_session", "delete_chat_session", "end_chat_session", "change_chat_session_status"),
    *(
        "update_profile",
        "update_settings",
        "upload_avatar",
        "upload_image",
        "upload_screenshot",
        "remove_screenshot",
        "give_feedback",
        "attach_image",
        "reveal_message",
        "rate_chat_session",
        "show_read_once",
        "remove_avatar",
        "submit_feedback",
        "create_event",
    ),
    *("update_event", "delete_event", "mark_notifications_read", "mark_notification_read"),
    *("mark_notification_unread", "delete_notification", "verify_audit_log"),
}
AUDITED_COMMANDS = {
    "announcement",
    "answer",
    "app",
    "bot",
    "delivery",
    "user",
    "import",
    "purge",
    "serve",
    "webhook",
    "client",
}  # `serve --demo` imports
# Commands that do not change this audit log. `restore` replaces it by another one, and keeps the file.
OTHER_COMMANDS = {
    *(
        "config",
        "completion",
        "man",
        "export",
        "copy",
        "backup",
        "restore",
        "doctor",
        "upgrade",
        "healthcheck",
        "mail",
        "mcp",
        "client",
        "config",
        "audit",
        "migrate",
        "routes",
        "openapi",
    )
}


class TestEveryOperation:
    def test_that_writes_is_declared_as_audited_or_not(self) -> None:
        writing = {operation.name for operation in operations() if operation.method != "GET"}
        assert writing == {*AUDITED, *REFUSED, *NOT_AUDITED}

    @pytest.mark.slow
    def test_writes_the_declared_entry_and_none_on_errors(self, world: World) -> None:  # noqa: F811
        for case in CASES:
            kind = AUDITED.get(case.partition(",")[0])
            for name in ("alice", "agent", "admin", "anyone"):
                with rolled_back():
                    before = AuditLog.select().count()
                    status = world.ask(case, world.clients[name]).status
                    new = [entry.kind for entry in AuditLog.select().order_by(AuditLog.position)][before:]
                    assert AuditLog.verify().position == before + len(new)
                assert new == ([kind] if kind and status < 400 else []), (case, name)
                if status < 400 and name in USERS:
                    break

    def test_of_the_command_line_is_declared_as_audited_or_not(self) -> None:
        assert set(commands.COMMANDS) == AUDITED_COMMANDS | OTHER_COMMANDS
        parser = argparse.ArgumentParser()
        users.add_arguments("user", parser)
        (actions,) = (set(action.choices) for action in parser._actions if isinstance(action.choices, dict))
        audited = {"add", "edit", "role", "password", "disable", "enable", "delete", "invite"}
        assert actions == audited | {"list", "show", "reinvite"}  # an e-mail to a user who was invited changes nothing


class TestErrors:
    @pytest.mark.parametrize(
        "attempt",
        [
            lambda s: s.anyone.post("/auth/login", {"email": s.alice.user.email, "password": "guess"}),
            lambda s: s.anyone.post("/auth/login", {"email": "missing@example.com", "password": "guess"}),
            lambda s: s.alice.post("/auth/password", {"current_password": "guess", "new_password": "another one"}),
            lambda s: s.anyone.post("/auth/refresh", {"refresh_token": "cxr_forged"}),
            lambda s: s.request_tokens(code="cxc_forged"),
            lambda s: s.request_tokens(code=s.approved, code_verifier=VERIFIER[::-1]),
            lambda s: s.bob.delete(f"/data-shares/{s.granted}"),
            lambda s: s.bob.delete(f"/auth/sessions/{s.newest(user_id=s.id('alice')).id}"),
            lambda s: s.alice.post("/data-shares", {**GRANT, "allowed_tools": []}),
            lambda s: s.alice.post("/data-shares", {**GRANT, "expires_at": "2020-01-01T00:00:00Z"}),
            lambda s: s.other_agent.put(f"/apps/{s.bot.app_id}/bots/{s.bot.id}/status", {"status": "draft"}),
        ],
    )
    def test_write_no_entry(self, attempt: Callable[[Any], Any], scene: Scene) -> None:
        scene.approved, scene.granted = scene.approve()["code"], scene.grant().id
        for name in ("bob", "other_agent", "bot"):
            scene.use(name)
        with new_entries() as new:
            assert attempt(scene).status >= 400
        assert new == []

    @pytest.mark.parametrize(
        "line", [["user", "add", "alice@example.com"], ["user", "add", "x"], ["user", "disable", "eve@example.com"]]
    )
    def test_of_commands_write_no_entry(self, line: list[str], alice: Client, cx: Callable[..., int]) -> None:
        with new_entries() as new:
            assert cx(*line, typed="another one\n") == 1
        assert new == []

    def test_of_an_import_write_no_entry(self, cx: Callable[..., int], tmp_path: Path) -> None:
        (tmp_path / "in").write_bytes(json_lines([*sample_data.records(), {"bot": {"app_id": sample_data.UNKNOWN_ID}}]))
        with new_entries() as new:
            assert cx("import", str(tmp_path / "in")) == 1
        assert new == []

    def test_expiry_writes_no_entry(self, alice: Client, host_clock: Any) -> None:
        soon = "2026-11-20T10:00:01Z"
        alice.post("/data-shares", {**GRANT, "expires_at": soon})
        with new_entries() as new:
            host_clock.forward(days=60)
            assert alice.get("/data-shares").status == 401
        assert new == []
        with new_entries() as new:
            ok(Client(alice.application).post("/auth/login", credentials(alice)))  # deletes the expired grants
        assert [entry.kind for entry in new] == ["login"]


# Failures during a write.


class TestFailedWrites:
    def test_on_a_full_disk_are_503_and_change_nothing(self, alice: Client) -> None:
        grant = DataShare.grant(alice.user.id, mcp_server_id="files", allowed_tools='["read"]')
        with full():
            with contextlib.suppress(peewee.OperationalError):
                while True:  # fills the last page
                    with db.write():
                        AuditLog.record("imported", OPERATOR, "", app=1)
            with nothing_changes():
                assert alice.delete(f"/data-shares/{grant.id}").error == (503, "storage_unavailable")
        with new_entries() as new:
            assert alice.delete(f"/data-shares/{grant.id}").data["is_active"] is False
        assert [entry.kind for entry in new] == ["data_share_revoked"]

    def test_on_a_read_only_disk_are_503_and_change_nothing(self, alice: Client) -> None:
        with read_only(), nothing_changes():
            assert alice.post("/data-shares", GRANT).error == (503, "storage_unavailable")
        assert alice.post("/data-shares", GRANT).status == 201

    @pytest.mark.slow
    @pytest.mark.parametrize("timing", ["before", "after"])
    def test_of_a_killed_process_change_nothing(self, timing: str, alice: Client, settings: Any) -> None:
        db.close_database()
        program = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from service.commands import run
from service.models import AuditLog
record = AuditLog.record
def die(*arguments, **details):
    if {timing!r} == "after":
        record(*arguments, **details)
    os.kill(os.getpid(), signal.SIGKILL)
AuditLog.record = die
run({["user", "disable", alice.user.email, *flags_of(settings)]!r})
"""
        with nothing_changes():
            done = subprocess.run([sys.executable, "-c", program], env=environment(), timeout=60, cwd=ROOT)
            db.close_database()
        assert done.returncode == -9
        entries()


class TestConcurrentActions:
    def test_write_one_valid_chain(self, alice: Client, bob: Client, agent: Client, admin: Client, bot: Any) -> None:
        status = f"/apps/{bot.app_id}/bots/{bot.id}/status"

        def act(number: int) -> list[int]:
            user = (alice, bob)[number % 2]
            actions: list[Callable[[], Any]] = [
                lambda: user.post("/data-shares", GRANT),
                lambda: user.post("/events/feed"),
                lambda: agent.put(status, {"status": "draft"}),
                lambda: admin.put(status, {"status": "published"}),
                lambda: Client(user.application).post("/auth/login", credentials(user)),
            ]
            actions = actions[number % 5 :] + actions[: number % 5]
            return [action().status for action in actions]

        before = len(entries())
        found = at_once(8, act)
        assert all(status in (200, 201) for statuses in found for status in statuses), found
        kinds = [entry.kind for entry in entries()[before:]]
        assert [kinds.count(kind) for kind in ("data_share_created", "calendar_feed_renewed", "login")] == [8, 8, 8]
        assert 1 <= kinds.count("bot_changed") <= 16

    def test_with_one_effect_write_one_entry(self, alice: Client, admin: Client) -> None:
        grant = DataShare.grant(alice.user.id, mcp_server_id="files", allowed_tools='["read"]')
        with new_entries() as new:
            responses = at_once(8, lambda number: (alice, admin)[number % 2].delete(f"/data-shares/{grant.id}"))
        assert {response.status for response in responses} == {200}
        assert [entry.kind for entry in new] == ["data_share_revoked"]


# Manipulations of the audit log.

COLUMNS = ("created_at", "kind", "actor_id", "subject_id", "details", "hash")
TABLE = AuditLog._meta.table_name


@pytest.fixture
def chain(application: Any) -> list[Head]:
    """Write five entries with special characters. Returns the heads, from the empty chain on."""
    texts = ["plain", "", 'quo"tes\\', "line\nfeed\t\x01", "Größe 👋 \u2028"]
    heads = [BEGINNING]
    for text in texts:
        with db.write():
            AuditLog.record("imported", f"actor {text}", text, tools=[text], at=7, nothing=None)
        heads.append(AuditLog.verify())
    return heads


def change(sql: str, *values: Any) -> None:
    assert db.database.rows_affected(db.database.execute_sql(sql.replace("?", db.database.param), values))


def alter(position: int, column: str, value: Any, cast: str = "?") -> None:
    change(f"UPDATE {TABLE} SET {column} = {cast} WHERE position = ?", value, position)


def verification_error(head: Head = BEGINNING) -> str:
    """Return the error of the verification."""
    with pytest.raises(BrokenChain) as broken:
        AuditLog.verify(head)
    return str(broken.value)


class TestChain:
    def test_is_computed_as_documented(self, chain: list[Head]) -> None:
        before = "0" * 64
        for row in (
            AuditLog.select(AuditLog.position, *(getattr(AuditLog, name) for name in COLUMNS)).order_by(1).tuples()
        ):
            *columns, hash = row
            text = json.dumps([before, *columns], ensure_ascii=False, separators=(",", ":"))
            assert hashlib.sha256(text.encode()).hexdigest() == hash
            before = hash

    @pytest.mark.sqlite_only
    def test_can_be_verified_with_the_documented_sql(self, chain: list[Head]) -> None:
        _, _, sql = str(module.__doc__).partition("SELECT ")
        found = db.database.execute_sql(f"SELECT {sql} ORDER BY position").fetchall()
        assert [hashlib.sha256(text.encode()).hexdigest() for text, _ in found] == [head.hash for head in chain[1:]]
        assert [hash for _, hash in found] == [head.hash for head in chain[1:]]

    def test_counts_from_one_without_gaps(self, chain: list[Head]) -> None:
        assert [head.position for head in chain] == [0, 1, 2, 3, 4, 5]

    def test_matches_every_earlier_head(self, chain: list[Head]) -> None:
        for head in chain:
            assert AuditLog.verify(head) == chain[-1]
            assert Head.read(str(head)) == head

    def test_without_entries_has_a_head(self, application: Any) -> None:
        assert AuditLog.verify() == AuditLog.verify(BEGINNING) == BEGINNING
        assert str(BEGINNING) == f"0:{'0' * 64}"

    @pytest.mark.parametrize("column", COLUMNS)
    def test_detects_every_flipped_byte(self, chain: list[Head], column: str) -> None:
        raw = str(AuditLog.select(getattr(AuditLog, column)).where(AuditLog.position == 3).scalar()).encode()
        assert raw
        for place in range(len(raw)):
            for bit in (1, 128):
                flipped = bytearray(raw)
                flipped[place] ^= bit
                if postgres.is_chosen():  # PostgreSQL refuses invalid UTF-8
                    with contextlib.suppress(UnicodeDecodeError):
                        alter(3, column, flipped.decode())
                        assert re.match(r"entry 3 was altered", verification_error())
                else:
                    alter(3, column, bytes(flipped), "CAST(? AS TEXT)")
                    assert re.match(r"entry 3 (was altered|cannot be read)", verification_error()), flipped
        alter(3, column, raw.decode())
        assert AuditLog.verify() == chain[-1]

    @pytest.mark.parametrize("bit", [*range(3), 31, 62])
    def test_detects_changed_positions(self, chain: list[Head], bit: int) -> None:
        position = 3 ^ (1 << bit)
        db.database.execute_sql(f"DELETE FROM {TABLE} WHERE position > 3 OR position = {position}")
        alter(3, "position", position)
        assert re.match(r"entry [123] (is missing|was altered)", verification_error())

    @pytest.mark.parametrize("column", COLUMNS)
    def test_detects_empty_longer_and_swapped_texts(self, chain: list[Head], column: str) -> None:
        values = dict(AuditLog.select(AuditLog.position, getattr(AuditLog, column)).tuples())
        for value in ("", values[4] + " ", f"{values[4]}\n", " " + values[4], values[3], values[5]):
            if value != values[4]:
                alter(4, column, value)
                assert verification_error() == "entry 4 was altered"

    @pytest.mark.sqlite_only
    def test_detects_bytes_in_place_of_their_base64_text(self, application: Any) -> None:
        with db.write():
            AuditLog.record("imported", "abcd", "efgh")
        alter(1, "actor_id", b"i\xb7\x1d")  # these bytes are abcd in base64
        assert verification_error() == "entry 1 was altered"
        alter(1, "actor_id", None, "coalesce(?, 7)")
        assert verification_error() == "entry 1 was altered"

    @pytest.mark.parametrize("removed", [1, 2, 4])
    def test_detects_removed_entries(self, chain: list[Head], removed: int) -> None:
        change(f"DELETE FROM {TABLE} WHERE position = ?", removed)
        assert verification_error() == f"entry {removed} is missing: found entry {removed + 1} instead"
        for later in range(removed + 1, 6):  # closes the gap
            alter(later, "position", later - 1)
        assert verification_error() == f"entry {removed} was altered"

    def test_detects_swapped_entries(self, chain: list[Head]) -> None:
        for old, new in ((2, -1), (4, 2), (-1, 4)):
            alter(old, "position", new)
        assert verification_error() == "entry 2 was altered"

    @pytest.mark.parametrize("place", [1, 3, 5])
    def test_detects_inserted_entries(self, chain: list[Head], place: int) -> None:
        for later in range(5, place - 1, -1):
            alter(later, "position", later + 1)
        head = chain[place - 1].followed_by("", "imported", "", "", "{}")
        change(f"INSERT INTO {TABLE} VALUES (?, '', 'imported', '', '', '{{}}', ?)", *head)
        assert verification_error() == f"entry {place + 1} was altered"

    @pytest.mark.parametrize("number", [0, -5])
    def test_detects_entries_before_the_first(self, chain: list[Head], number: int) -> None:
        alter(5, "position", number)
        assert verification_error() == f"entry 1 is missing: found entry {number} instead"

    def test_needs_an_earlier_head_to_detect_truncation(self, chain: list[Head]) -> None:
        change(f"DELETE FROM {TABLE} WHERE position > 3")
        assert AuditLog.verify() == AuditLog.verify(chain[3]) == chain[3]
        assert verification_error(chain[5]) == "entry 4 is missing: --head is entry 5"
        change(f"DELETE FROM {TABLE}")
        assert verification_error(chain[1]) == "entry 1 is missing: --head is entry 1"

    def test_needs_an_earlier_head_to_detect_a_complete_rewrite(self, chain: list[Head]) -> None:
        alter(3, "actor_id", "another actor")
        head = BEGINNING
        for position, *texts in (
            AuditLog.select(*AuditLog._meta.sorted_fields[:-1]).order_by(AuditLog.position).tuples()
        ):
            head = head.followed_by(*texts)
            alter(position, "hash", head.hash)
        assert AuditLog.verify() == head == AuditLog.verify(chain[2])
        for earlier in chain[3:]:
            words = "differs from --head: the audit log was rewritten"
            assert verification_error(earlier) == f"entry {earlier.position} {words}"

    def test_reports_the_first_of_several_errors(self, chain: list[Head]) -> None:
        for position in (5, 2, 4):
            alter(position, "details", "{}")
        assert verification_error() == "entry 2 was altered"

    @pytest.mark.slow
    @pytest.mark.sqlite_only
    def test_detects_every_byte_of_the_file_that_changes_an_entry(self, chain: list[Head], settings: Any) -> None:
        change(f"DELETE FROM {TABLE} WHERE position > 3")
        db.rewrite_files()
        execute = db.database.execute_sql
        (page,), (size,) = (
            execute(sql).fetchone()
            for sql in (f"SELECT rootpage FROM sqlite_schema WHERE name = '{TABLE}'", "PRAGMA page_size")
        )
        rows = list(AuditLog.select().order_by(AuditLog.position).tuples())
        db.close_database()
        file = settings.data / db.FILE_NAME
        raw = file.read_bytes()
        own = range((page - 1) * size, page * size)
        used = [place for place in own if raw[place - 1 : place + 2] != b"\0\0\0"]
        assert len(used) > sum(len("".join(map(str, row))) for row in rows)
        harmless = []
        for place in used:
            flipped = bytearray(raw)
            flipped[place] ^= 1 << place % 8
            file.write_bytes(flipped)
            try:
                AuditLog.verify()
                assert list(AuditLog.select().order_by(AuditLog.position).tuples()) == rows
                harmless.append(place)
            except BrokenChain:
                pass
            finally:
                db.close_database()
        assert len(harmless) < 20  # in the header of the page, and between the rows
        texts = {raw.index(str(value).encode(), own.start) for row in rows for value in row[1:] if len(value) > 20}
        assert not texts & set(harmless)
        file.write_bytes(raw)


class TestOlderDatabase:
    def test_starts_an_empty_audit_log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        folder = tmp_path / "older"
        address = postgres.database_of(folder)
        db.open_database(folder, address, create=True)
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "STEPS", migrations.STEPS[:3])
            migrations.migrate()
        with db.write():
            for statement in released_schemas.texts(3)[2]:
                if 'INTO "schema_version"' not in statement:
                    db.database.execute_sql(statement)
        db.close_database()
        line = ["audit", "verify", "--data", str(folder), *(["--database", address] if address else [])]
        assert run(line) == 1
        assert "has schema 3, but this program needs" in capsys.readouterr().err
        assert migrations.version() == 3
        assert migrations.migrate() == len(migrations.STEPS) - 3
        assert AuditLog.verify() == BEGINNING
        user = User.get(User.email == "alice@example.com")
        assert LoginSession.select().where(LoginSession.user_id == user.id).exists()
        user.disable()
        assert entries() == [Entry("user_disabled", OPERATOR, user.id, {})]
        db.close_database()
        if address:
            postgres.drop(address)


# The commands.


class TestCommand:
    @pytest.fixture
    def audit(self, cx: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
        def run_audit(*arguments: str) -> tuple[int, str, str]:
            capsys.readouterr()
            return cx("audit", *arguments), *capsys.readouterr()

        return run_audit

    def test_lists_entries_with_the_email_addresses_of_users(self, audit: Any, scene: Scene) -> None:
        alice, grant = scene.alice, scene.grant()
        scene.admin.delete(f"/data-shares/{grant.id}")
        alice.user.disable()
        status, output, errors = audit("list")
        assert (status, errors) == (0, "")
        lines = [re.split(r"  +", line.strip()) for line in output.splitlines()]
        assert [line[:4] for line in lines] == [
            ["1", "2026-11-20T10:00:00.000Z", "login", "alice@example.com"],
            ["2", "2026-11-20T10:00:00.000Z", "data_share_created", "alice@example.com"],
            ["3", "2026-11-20T10:00:00.000Z", "login", "ada@example.com"],
            ["4", "2026-11-20T10:00:00.000Z", "data_share_revoked", "ada@example.com > alice@example.com"],
            ["5", "2026-11-20T10:00:00.000Z", "user_disabled", "operator > alice@example.com"],
        ]
        assert json.loads(lines[3][4]) == {"grant": grant.id, "server": "files", "tools": ["read"]}

    def test_lists_the_requested_entries(self, audit: Any, scene: Scene) -> None:
        scene.use("bob")
        grant = scene.grant()
        scene.admin.delete(f"/data-shares/{grant.id}")
        expected = {
            "": [1, 2, 3, 4, 5],
            "--user Alice@example.com": [1, 3, 5],
            "--user ada@example.com": [4, 5],
            "--kind login": [1, 2, 4],
            "--kind purged": [],
            "--user alice@example.com --kind login": [1],
            "--limit 2": [4, 5],
            "--limit 1 --kind login": [4],
            "--limit 0": [],
            "--limit -1": [],
        }
        for flags, shown in expected.items():
            _, output, _ = audit("list", *flags.split())
            assert [int(line.split()[0]) for line in output.splitlines()] == shown, flags

    def test_lists_json_lines_with_a_verifiable_chain(self, audit: Any, chain: list[Head]) -> None:
        _, output, _ = audit("list", "--json")
        before = "0" * 64
        for line in output.rstrip("\n").split("\n"):
            entry = json.loads(line)
            details = re.search(r'"details":(\{.*\}),"hash"', line)
            assert details and json.loads(details[1]) == entry["details"]
            columns = [entry[name] for name in ("position", "created_at", "kind", "actor_id", "subject_id")]
            text = json.dumps([before, *columns, details[1]], ensure_ascii=False, separators=(",", ":"))
            before = entry["hash"]
            assert hashlib.sha256(text.encode()).hexdigest() == before
        assert before == chain[-1].hash

    def test_escapes_terminal_sequences(self, audit: Any, alice: Client) -> None:
        alice.post("/data-shares", {**GRANT, "mcp_server_id": "a\x1b[31m\u202e\x9b2J"})
        assert not set(audit("list")[1]) & set("\x1b\u202e\x9b")

    def test_prints_the_number_of_entries_and_the_head(self, audit: Any, chain: list[Head]) -> None:
        status, output, errors = audit("verify")
        assert (status, errors) == (0, "")
        first, head = output.splitlines()
        assert re.fullmatch(r"entries verified: 5, [\d,]+ per second", first)
        assert Head.read(head) == chain[-1]
        assert audit("verify", "--head", str(chain[2]))[0] == 0

    def test_reports_the_altered_entry(self, audit: Any, chain: list[Head]) -> None:
        alter(2, "actor_id", "me")
        assert audit("verify") == (1, "", "cx-service: entry 2 was altered\n")
        assert audit("verify", "--head", str(chain[5]))[0] == 1

    def test_reports_truncated_entries(self, audit: Any, chain: list[Head]) -> None:
        change(f"DELETE FROM {TABLE} WHERE position = 5")
        assert audit("verify")[0] == 0
        error = "cx-service: entry 5 is missing: --head is entry 5\n"
        assert audit("verify", "--head", str(chain[5])) == (1, "", error)

    def test_refuses_an_invalid_head(self, audit: Any, chain: list[Head]) -> None:
        error = "cx-service: expected NUMBER:HASH, as `audit verify` prints it\n"
        for head in (
            "5",
            "5:",
            f"05:{'0' * 64}",
            f"5:{'0' * 63}",
            f"5:{'A' * 64}",
            f"-1:{'0' * 64}",
            f"5:{'0' * 64}\n",
        ):
            assert audit("verify", f"--head={head}") == (1, "", error)

    def test_changes_nothing(self, audit: Any, chain: list[Head]) -> None:
        with nothing_changes():
            audit("verify"), audit("list")

    def test_reports_an_unknown_user(self, audit: Any) -> None:
        assert audit("list", "--user", "eve@example.com") == (1, "", "cx-service: no such user: eve@example.com\n")


class TestTransfer:
    def test_by_export_omits_the_audit_log(self, cx: Any, alice: Client, tmp_path: Path) -> None:
        assert cx("export", str(tmp_path / "out")) == 0
        text = (tmp_path / "out").read_text()
        assert '{"user":' in text
        assert TABLE not in text and AuditLog.get().hash not in text

    @pytest.mark.slow
    @pytest.mark.sqlite_only
    def test_by_copy_includes_it_unchanged(self, chain: list[Head], settings: Any, tmp_path: Path) -> None:
        db.close_database()
        assert run(["copy", "--from", str(settings.data), "--to", str(tmp_path / "new")]) == 0
        db.open_database(tmp_path / "new")
        assert AuditLog.verify(chain[3]) == chain[-1]
