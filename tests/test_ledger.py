"""The ledger: every act makes one entry that tells of it, and no entry changes without being found."""

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

from service import clock, commands, db, migrations
from service.auth import tokens
from service.commands import people, run
from service.models import DataShare, Feedback, Ledger, LoginSession, User
from service.models import ledger as module
from service.models.ledger import BEGINNING, KINDS, OPERATOR, SERVICE, Broken, Head
from service.routes import operations
from tests import household, postgres
from tests.browsing import Browser
from tests.conftest import PASSWORD, Client, flags_of
from tests.serving import ROOT, environment, json_lines
from tests.test_access import CASES, KNOWN, World, undone, world  # noqa: F401
from tests.test_cli_login import VERIFIER, approve, asked, browser, trade  # noqa: F401
from tests.trouble import full, read_only
from tests.watching import at_once, nothing_changes

GRANT = {"mcp_server_id": "files", "allowed_tools": ["read", "write"], "expires_at": "2027-01-01T00:00:00.000Z"}

# What must not stand in an entry: tokens, codes, passwords and their hashes, addresses, and what people wrote.
SECRET = re.compile(r"cx[acrf]_|\$argon2|@|correct horse|another one|Hello|callback|Telefon|Laptop|dBjftJeZ")


class Told(NamedTuple):
    """What an entry tells."""

    kind: str
    actor: str
    subject: str
    details: dict[str, Any]


def entries() -> list[Told]:
    """Every entry, the oldest first; the chain holds, and nothing in it is a secret."""
    found = list(Ledger.select().order_by(Ledger.position))
    assert Ledger.verify() == (Head(found[-1].position, found[-1].hash) if found else BEGINNING)
    assert [row for row in found if SECRET.search(f"{row.actor_id} {row.subject_id} {row.details}")] == []
    assert all(row.kind in KINDS for row in found)
    return [Told(row.kind, row.actor_id, row.subject_id, json.loads(row.details)) for row in found]


@contextlib.contextmanager
def written() -> Iterator[list[Told]]:
    """The entries that are written inside."""
    before, new = entries(), list[Told]()
    yield new
    after = entries()
    assert after[: len(before)] == before
    new += after[len(before) :]


@pytest.fixture
def cx(application: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a command on the open database; `typed` comes from standard input."""

    def command(*arguments: str, typed: str = "") -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8"))
        return run([*arguments, *flags_of(settings)])

    return command


class Scene:
    """Everybody, and what they act with."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.use = request.getfixturevalue
        self.settings = self.use("settings")

    def __getattr__(self, name: str) -> Any:
        return self.use(name)

    def id(self, name: str) -> str:
        """The identifier of a person."""
        return str(self.use(name).user.id)

    def newest(self, **columns: Any) -> LoginSession:
        """The newest login session."""
        return LoginSession.select().filter(**columns).order_by(LoginSession.created_at.desc()).get()

    def program(self, who: str = "alice") -> tuple[LoginSession, Client]:
        """A command-line client of somebody's."""
        user = self.use(who).user
        about = {"scopes": "chats profile", "install_id": "i", "kind": "client", "label": "Laptop"}
        with db.write(user.id):
            session = tokens.open_session(user.id, self.settings, **about)
        return session, Client(self.application, tokens.pair_of(session, self.settings).access_token, user)

    def grant(self) -> DataShare:
        """A grant of Alice's."""
        return DataShare.give(self.id("alice"), mcp_server_id="files", allowed_tools='["*"]')


@pytest.fixture
def scene(request: pytest.FixtureRequest, host_clock: Any, alice: Client) -> Scene:
    return Scene(request)


# Every act: prepares what it needs, then gives what is done and what the ledger tells of it. What is done a second time
# has no second effect, or cannot be done.

Act = tuple[Callable[[], Any], Callable[[], tuple[str, str, dict[str, Any]]]]


def ok(reply: Any, status: int = 200) -> Any:
    assert reply.status == status, reply.raw
    return reply


def login_of(who: Client) -> dict[str, str]:
    return {"email": who.user.email, "password": PASSWORD}


def log_in_with_a_password(s: Scene) -> Act:
    LoginSession.delete().execute()

    def act() -> None:
        if not LoginSession.select().exists():
            ok(s.anyone.post("/auth/login", login_of(s.alice), user_agent="Telefon"))

    return act, lambda: (s.id("alice"), s.id("alice"), {"login": s.newest().id, "by": "login"})


def sign_in_with_a_browser(s: Scene) -> Act:
    tab = Browser(s.application)

    def act() -> None:
        if tab.path != "/docs":
            tab.open("/sign-in?next=/docs")
            tab.send(email=s.alice.user.email, password=PASSWORD)

    return act, lambda: (s.id("alice"), s.id("alice"), {"login": s.newest(kind="browser").id, "by": "browser"})


def trade_a_code(s: Scene) -> Act:
    code = s.approve(scope="chats bots:read", install_id="i")["code"]

    def act() -> None:
        if not LoginSession.select().where(LoginSession.kind == "client").exists():
            ok(s.trade(code=code))

    about = {"by": "client", "install": "i", "scopes": ["chats", "bots:read"]}
    return act, lambda: (s.id("alice"), s.id("alice"), {"login": s.newest(kind="client").id, **about})


def log_out(s: Scene) -> Act:
    login = s.newest(user_id=s.id("alice")).id
    return lambda: s.alice.post("/auth/logout"), lambda: (s.id("alice"), s.id("alice"), {"login": login})


def log_out_everywhere(s: Scene) -> Act:
    told = (s.id("alice"), s.id("alice"), {"everywhere": True})
    s.program()
    return lambda: s.alice.post("/auth/logout", {"scope": "global"}), lambda: told


def sign_out(s: Scene) -> Act:
    tab = s.browser
    told = (s.id("alice"), s.id("alice"), {"login": s.newest(kind="browser").id})
    return lambda: tab.ask("POST", "/sign-out", {}), lambda: told


def end_a_login(s: Scene) -> Act:
    login = s.program()[0].id
    path = f"/auth/sessions/{login}"
    return lambda: ok(s.alice.delete(path)), lambda: (s.id("alice"), s.id("alice"), {"login": login})


def revoke_an_install(s: Scene) -> Act:
    login = s.program()[0].id
    path = f"/users/me/installs/{login}"
    return lambda: ok(s.alice.delete(path)), lambda: (s.id("alice"), s.id("alice"), {"login": login})


def on_the_account_page(act: str) -> Callable[[Scene], Act]:
    def end(s: Scene) -> Act:
        login = s.program()[0].id
        s.browser.open("/console/account")
        ticket = re.search(r'name="ticket" value="([^"]+)"', s.browser.reply.raw.decode())
        assert ticket
        given = {"act": act, "id": login, "ticket": ticket[1]}
        return lambda: ok(s.browser.ask("POST", "/console/account", given)), lambda: (
            s.id("alice"),
            s.id("alice"),
            {"login": login},
        )

    return end


def use_an_old_refresh_token(s: Scene) -> Act:
    pair = s.anyone.post("/auth/login", login_of(s.alice)).data["tokens"]
    login = tokens.authenticate(f"Bearer {pair['access_token']}").session_id
    old = {"refresh_token": pair["refresh_token"]}
    newer = s.anyone.post("/auth/refresh", old).data["tokens"]
    s.anyone.post("/auth/refresh", {"refresh_token": newer["refresh_token"]})
    return lambda: ok(s.anyone.post("/auth/refresh", old), 401), lambda: (SERVICE, s.id("alice"), {"login": login})


def use_a_code_twice(s: Scene) -> Act:
    code = s.approve()["code"]
    ok(s.trade(code=code))
    login = s.newest(kind="client").id
    return lambda: ok(s.trade(code=code), 400), lambda: (SERVICE, s.id("alice"), {"login": login})


def change_ones_password(s: Scene) -> Act:
    given = {"current_password": PASSWORD, "new_password": "another one"}
    return lambda: s.alice.post("/auth/password", given), lambda: (s.id("alice"), s.id("alice"), {})


def answer(word: str) -> Callable[[Scene], Act]:
    def give(s: Scene) -> Act:
        tab = s.browser
        form = tab.open(asked(install_id="i", install_name="Laptop", scope="chats nonsense profile:read"))

        def act() -> None:
            tab.reply = form
            ok(tab.send(answer=word))

        told = {"client": "service-cli", "install": "i", "scopes": ["chats", "profile:read"]}
        return act, lambda: (s.id("alice"), s.id("alice"), told)

    return give


def give_a_grant(s: Scene) -> Act:
    alice, session, key = s.alice, s.session, {"idempotency_key": "1"}
    given = {**GRANT, "app_id": session.app_id, "conversation_id": session.conversation_id, "scope_meta": [7]}

    def told() -> tuple[str, str, dict[str, Any]]:
        about = {"grant": DataShare.get().id, "server": "files", "tools": ["read", "write"]}
        about |= {"app": session.app_id, "conversation": session.conversation_id, "expires_at": GRANT["expires_at"]}
        return alice.user.id, alice.user.id, about

    return lambda: ok(alice.post("/data-shares", given, **key), 201), told


def revoke_a_grant(who: str) -> Callable[[Scene], Act]:
    def revoke(s: Scene) -> Act:
        grant, caller = s.grant(), s.use(who)
        about = {"grant": grant.id, "server": "files", "tools": ["*"]}
        path = f"/data-shares/{grant.id}"
        return lambda: ok(caller.delete(path)), lambda: (caller.user.id, s.id("alice"), about)

    return revoke


def renew_a_feed(s: Scene) -> Act:
    done = []

    def act() -> None:
        if not done:
            done.append(ok(s.alice.post("/events/feed")))

    return act, lambda: (s.id("alice"), s.id("alice"), {})


def revoke_a_feed(s: Scene) -> Act:
    ok(s.alice.post("/events/feed"))
    return lambda: ok(s.alice.delete("/events/feed")), lambda: (s.id("alice"), s.id("alice"), {})


def change_a_bot(member: str, word: str, path: str) -> Callable[[Scene], Act]:
    def change(s: Scene) -> Act:
        bot, agent = s.bot, s.agent
        path_of_it = f"/apps/{bot.app_id}/bots/{bot.id}/{path}"
        told = {"app": bot.app_id, member: word}
        return lambda: ok(agent.put(path_of_it, {member: word})), lambda: (agent.user.id, bot.id, told)

    return change


def work_through_feedback(s: Scene) -> Act:
    given = Feedback.create(user_id=s.id("alice"), description="Hello")
    told = {"feedback": given.id, "status": "done"}
    admin = s.admin
    return lambda: ok(admin.patch(f"/feedback/{given.id}", {"status": "done"})), lambda: (
        admin.user.id,
        s.id("alice"),
        told,
    )


def add_a_user(s: Scene) -> Act:
    shop, cx = s.shop, s.cx

    def told() -> tuple[str, str, dict[str, Any]]:
        eve = User.by_email("eve@example.com")
        assert eve
        return OPERATOR, eve.id, {"role": "agent", "app": shop.id}

    line = ("user", "add", "eve@example.com", "--role", "agent", "--app", shop.id)
    return lambda: cx(*line, typed="another one\n"), told


def on_the_command_line(action: str, before: Callable[[User], Any] = lambda user: None) -> Callable[[Scene], Act]:
    def act(s: Scene) -> Act:
        user, cx, done = s.alice.user, s.cx, list[int]()
        before(user)

        def once() -> None:
            if action != "password" or not done:  # which is always another one
                done.append(cx("user", action, user.email, typed="another one\n"))
            assert done[-1] == 0

        return once, lambda: (OPERATOR, user.id, {})

    return act


def take_in(s: Scene) -> Act:
    file, cx = s.tmp_path / "in.jsonl", s.cx
    User.update(email="hers").execute()  # the household has one of her address
    file.write_bytes(json_lines(household.records()))
    done = []

    def act() -> None:
        if not done:
            done.append(cx("import", str(file)))
        assert done == [0]

    counts: dict[str, int] = {}
    for record in household.records():
        counts[next(iter(record))] = counts.get(next(iter(record)), 0) + 1
    return act, lambda: (OPERATOR, "", counts)


def purge(which: str) -> Callable[[Scene], Act]:
    def act(s: Scene) -> Act:
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

    return act


ACTS: dict[str, tuple[str, Callable[[Scene], Act]]] = {
    "logging in with a password": ("login", log_in_with_a_password),
    "signing in with a browser": ("login", sign_in_with_a_browser),
    "trading a code": ("login", trade_a_code),
    "logging out": ("logout", log_out),
    "logging out everywhere": ("logout", log_out_everywhere),
    "signing out": ("logout", sign_out),
    "ending a login": ("login_ended", end_a_login),
    "ending a login in the console": ("login_ended", on_the_account_page("end")),
    "revoking an install": ("install_revoked", revoke_an_install),
    "revoking an install in the console": ("install_revoked", on_the_account_page("revoke")),
    "an old refresh token": ("refresh_token_reused", use_an_old_refresh_token),
    "a code that comes again": ("code_reused", use_a_code_twice),
    "changing one's password": ("password_changed", change_ones_password),
    "setting a password": ("password_changed", on_the_command_line("password")),
    "approving": ("consent_approved", answer("approve")),
    "denying": ("consent_denied", answer("deny")),
    "giving a grant": ("data_share_created", give_a_grant),
    "revoking one's grant": ("data_share_revoked", revoke_a_grant("alice")),
    "an admin who revokes a grant": ("data_share_revoked", revoke_a_grant("admin")),
    "a new address of a calendar": ("calendar_feed_renewed", renew_a_feed),
    "no address of a calendar": ("calendar_feed_revoked", revoke_a_feed),
    "unpublishing a bot": ("bot_changed", change_a_bot("status", "draft", "status")),
    "the presence of a bot": ("bot_changed", change_a_bot("presence", "away", "presence")),
    "working through feedback": ("feedback_changed", work_through_feedback),
    "adding a user": ("user_added", add_a_user),
    "disabling a user": ("user_disabled", on_the_command_line("disable")),
    "enabling a user": ("user_enabled", on_the_command_line("enable", User.disable)),
    "an import": ("imported", take_in),
    "purging a message": ("purged", purge("message")),
    "purging a chat session": ("purged", purge("session")),
    "purging what a user said": ("purged", purge("user")),
}


class TestActs:
    @pytest.mark.parametrize("name", ACTS)
    def test_make_one_entry_however_often_they_are_repeated(self, name: str, scene: Scene) -> None:
        kind, prepare = ACTS[name]
        act, tell = prepare(scene)
        with written() as new:
            act()
            act()
        assert new == [Told(kind, *tell())]

    def test_of_every_kind_are_tried_here(self) -> None:
        assert {kind for kind, _ in ACTS.values()} == set(KINDS) - {"install_replaced"}  # which comes with a login

    def test_include_the_end_of_a_login_that_another_of_its_install_replaces(self, scene: Scene) -> None:
        ok(scene.trade(code=scene.approve(install_id="i")["code"]))
        ok(scene.trade(code=scene.approve(install_id="another")["code"]))
        first, code = scene.newest(install_id="i").id, scene.approve(install_id="i")["code"]
        with written() as new:
            ok(scene.trade(code=code))
        second = LoginSession.get(LoginSession.install_id == "i", LoginSession.ended_at.is_null()).id
        login, replaced = new
        assert (login.kind, login.details["login"]) == ("login", second)
        alice = scene.id("alice")
        assert replaced == Told("install_replaced", alice, alice, {"login": first, "replaced_by": second})

    def test_are_dated_and_never_before_the_one_before(self, host_clock: Any, application: Any) -> None:
        for seconds in (0, 5, -60):
            host_clock.forward(seconds=seconds)
            clock.forget()  # another process, on a host whose clock was set back
            with db.write():
                Ledger.record("imported", OPERATOR, "")
        moments = [entry.created_at[17:19] for entry in Ledger.select().order_by(Ledger.position)]
        assert moments == ["00", "05", "05"]

    def test_and_their_entries_are_one_write(self, application: Any) -> None:
        with nothing_changes(), pytest.raises(RuntimeError, match="belongs into the write"):
            Ledger.record("imported", OPERATOR, "")


# The operations that write, and the kind of what they write into the ledger with the bodies of `test_access`.
IN_THE_LEDGER = {
    "log_in": "login",
    "log_out": "logout",
    "end_login": "login_ended",
    "change_password": "password_changed",
    "revoke_install": "install_revoked",
    "publish_bot": "bot_changed",
    "change_bot_presence": "bot_changed",
    "create_data_share": "data_share_created",
    "revoke_data_share": "data_share_revoked",
    "change_feedback_status": "feedback_changed",
    "renew_calendar_feed": "calendar_feed_renewed",
    "revoke_calendar_feed": "calendar_feed_revoked",
    "sign_out_browser": "logout",
    "change_bot": "bot_changed",
    "change_shares": "data_share_created",
    "change_account": "password_changed",
}
REFUSED = {"answer_consent", "exchange_code", "sign_in_browser"}  # there, for want of a form; they are among the ACTS
OF_ONES_OWN = {  # what somebody says, reads or notes, for themselves or in a chat, allows nobody anything
    *("refresh_tokens", "check_data_share", "begin_chat", "change_chat", "change_events", "change_feedback"),
    *("change_notifications", "change_person", "change_picture", "create_chat_session", "send_message"),
    *("edit_message", "mark_chat_session_read", "delete_message", "pin_message", "unpin_message"),
    *("archive_chat_session", "delete_chat_session", "end_chat_session", "change_chat_session_status"),
    *("update_profile", "update_settings", "upload_avatar", "remove_avatar", "submit_feedback", "create_event"),
    *("update_event", "delete_event", "mark_notifications_read", "mark_notification_read"),
    *("mark_notification_unread", "delete_notification"),
}
COMMANDS_IN_THE_LEDGER = {"user", "import", "purge", "serve"}  # `serve --demo` imports
# Which change nothing here; `restore` puts another ledger in place of this one, which is kept.
QUIET_COMMANDS = {
    *(
        "export",
        "copy",
        "backup",
        "restore",
        "doctor",
        "healthcheck",
        "client",
        "ledger",
        "migrate",
        "routes",
        "openapi",
    )
}


class TestEveryOperation:
    def test_that_writes_is_in_the_ledger_or_said_not_to_be(self) -> None:
        writing = {operation.name for operation in operations() if operation.method != "GET"}
        assert writing == {*IN_THE_LEDGER, *REFUSED, *OF_ONES_OWN}

    @pytest.mark.slow
    def test_writes_what_is_said_and_a_refusal_writes_nothing(self, world: World) -> None:  # noqa: F811
        for case in CASES:
            kind = IN_THE_LEDGER.get(case.partition(",")[0])
            for name in ("alice", "agent", "admin", "anyone"):
                with undone():
                    before = Ledger.select().count()
                    status = world.ask(case, world.clients[name]).status
                    new = [entry.kind for entry in Ledger.select().order_by(Ledger.position)][before:]
                    assert Ledger.verify().position == before + len(new)
                assert new == ([kind] if kind and status < 400 else []), (case, name)
                if status < 400 and name in KNOWN:
                    break

    def test_of_the_command_line_is_in_the_ledger_or_said_not_to_be(self) -> None:
        assert set(commands.COMMANDS) == COMMANDS_IN_THE_LEDGER | QUIET_COMMANDS
        parser = argparse.ArgumentParser()
        people.add_arguments("user", parser)
        (actions,) = (set(action.choices) for action in parser._actions if isinstance(action.choices, dict))
        assert actions == {"add", "list", "password", "disable", "enable"}


class TestRefusals:
    @pytest.mark.parametrize(
        "attempt",
        [
            lambda s: s.anyone.post("/auth/login", {"email": s.alice.user.email, "password": "guess"}),
            lambda s: s.anyone.post("/auth/login", {"email": "nobody@example.com", "password": "guess"}),
            lambda s: s.alice.post("/auth/password", {"current_password": "guess", "new_password": "another one"}),
            lambda s: s.anyone.post("/auth/refresh", {"refresh_token": "cxr_forged"}),
            lambda s: s.trade(code="cxc_forged"),
            lambda s: s.trade(code=s.approved, code_verifier=VERIFIER[::-1]),
            lambda s: s.bob.delete(f"/data-shares/{s.granted}"),
            lambda s: s.bob.delete(f"/auth/sessions/{s.newest(user_id=s.id('alice')).id}"),
            lambda s: s.alice.post("/data-shares", {**GRANT, "allowed_tools": []}),
            lambda s: s.alice.post("/data-shares", {**GRANT, "expires_at": "2020-01-01T00:00:00Z"}),
            lambda s: s.other_agent.put(f"/apps/{s.bot.app_id}/bots/{s.bot.id}/status", {"status": "draft"}),
        ],
    )
    def test_make_no_entry(self, attempt: Callable[[Any], Any], scene: Scene) -> None:
        scene.approved, scene.granted = scene.approve()["code"], scene.grant().id
        for name in ("bob", "other_agent", "bot"):
            scene.use(name)
        with written() as new:
            assert attempt(scene).status >= 400
        assert new == []

    @pytest.mark.parametrize(
        "line", [["user", "add", "alice@example.com"], ["user", "add", "x"], ["user", "disable", "eve@example.com"]]
    )
    def test_of_commands_make_none(self, line: list[str], alice: Client, cx: Callable[..., int]) -> None:
        with written() as new:
            assert cx(*line, typed="another one\n") == 1
        assert new == []

    def test_of_an_import_make_none(self, cx: Callable[..., int], tmp_path: Path) -> None:
        (tmp_path / "in").write_bytes(json_lines([*household.records(), {"bot": {"app_id": household.NOBODY}}]))
        with written() as new:
            assert cx("import", str(tmp_path / "in")) == 1
        assert new == []

    def test_are_not_what_expires(self, alice: Client, host_clock: Any) -> None:
        soon = "2026-11-20T10:00:01Z"
        alice.post("/data-shares", {**GRANT, "expires_at": soon})
        with written() as new:
            host_clock.forward(days=60)
            assert alice.get("/data-shares").status == 401
        assert new == []
        with written() as new:
            ok(Client(alice.application).post("/auth/login", login_of(alice)))  # which sweeps the expired ones away
        assert [entry.kind for entry in new] == ["login"]


# What fails in between.


class TestAWriteThatFails:
    def test_on_a_full_disk_is_503_and_leaves_neither_act_nor_entry(self, alice: Client) -> None:
        grant = DataShare.give(alice.user.id, mcp_server_id="files", allowed_tools='["*"]')
        with full():
            with contextlib.suppress(peewee.OperationalError):
                while True:  # what is left of the last page
                    with db.write():
                        Ledger.record("imported", OPERATOR, "", app=1)
            with nothing_changes():
                assert alice.delete(f"/data-shares/{grant.id}").error == (503, "storage_unavailable")
        with written() as new:
            assert alice.delete(f"/data-shares/{grant.id}").data["is_active"] is False
        assert [entry.kind for entry in new] == ["data_share_revoked"]

    def test_on_a_disk_that_is_read_only_leaves_neither(self, alice: Client) -> None:
        with read_only(), nothing_changes():
            assert alice.post("/data-shares", GRANT).error == (503, "storage_unavailable")
        assert alice.post("/data-shares", GRANT).status == 201

    @pytest.mark.slow
    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_because_the_process_is_killed_leaves_neither(self, moment: str, alice: Client, settings: Any) -> None:
        db.close_database()
        killed = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from service.commands import run
from service.models import Ledger
record = Ledger.record
def die(*arguments, **details):
    if {moment!r} == "after":
        record(*arguments, **details)
    os.kill(os.getpid(), signal.SIGKILL)
Ledger.record = die
run({["user", "disable", alice.user.email, *flags_of(settings)]!r})
"""
        with nothing_changes():
            done = subprocess.run([sys.executable, "-c", killed], env=environment(), timeout=60, cwd=ROOT)
            db.close_database()
        assert done.returncode == -9
        entries()


class TestActsAtTheSameTime:
    def test_keep_one_chain(self, alice: Client, bob: Client, agent: Client, admin: Client, bot: Any) -> None:
        status = f"/apps/{bot.app_id}/bots/{bot.id}/status"

        def act(number: int) -> list[int]:
            who = (alice, bob)[number % 2]
            acts: list[Callable[[], Any]] = [
                lambda: who.post("/data-shares", GRANT),
                lambda: who.post("/events/feed"),
                lambda: agent.put(status, {"status": "draft"}),
                lambda: admin.put(status, {"status": "published"}),
                lambda: Client(who.application).post("/auth/login", login_of(who)),
            ]
            acts = acts[number % 5 :] + acts[: number % 5]
            return [act().status for act in acts]

        before = len(entries())
        found = at_once(8, act)
        assert all(status in (200, 201) for statuses in found for status in statuses), found
        kinds = [entry.kind for entry in entries()[before:]]
        assert [kinds.count(kind) for kind in ("data_share_created", "calendar_feed_renewed", "login")] == [8, 8, 8]
        assert 1 <= kinds.count("bot_changed") <= 16

    def test_of_which_one_has_an_effect_make_one_entry(self, alice: Client, admin: Client) -> None:
        grant = DataShare.give(alice.user.id, mcp_server_id="files", allowed_tools='["*"]')
        with written() as new:
            replies = at_once(8, lambda number: (alice, admin)[number % 2].delete(f"/data-shares/{grant.id}"))
        assert {reply.status for reply in replies} == {200}
        assert [entry.kind for entry in new] == ["data_share_revoked"]


# What is done to the ledger behind its back.

COLUMNS = ("created_at", "kind", "actor_id", "subject_id", "details", "hash")
TABLE = Ledger._meta.table_name


@pytest.fixture
def chain(application: Any) -> list[Head]:
    """Five entries of odd texts; the heads from the beginning on."""
    odd = ["plain", "", 'quo"tes\\', "line\nfeed\t\x01", "Größe 👋 \u2028"]
    heads = [BEGINNING]
    for text in odd:
        with db.write():
            Ledger.record("imported", f"actor {text}", text, tools=[text], at=7, nothing=None)
        heads.append(Ledger.verify())
    return heads


def change(sql: str, *values: Any) -> None:
    assert db.database.execute_sql(sql.replace("?", db.database.param), values).rowcount


def alter(position: int, column: str, value: Any, cast: str = "?") -> None:
    change(f"UPDATE {TABLE} SET {column} = {cast} WHERE position = ?", value, position)


def complaint(noted: Head = BEGINNING) -> str:
    """What is found wrong."""
    with pytest.raises(Broken) as broken:
        Ledger.verify(noted)
    return str(broken.value)


class TestTheChain:
    def test_is_what_the_module_says_for_any_other_program(self, chain: list[Head]) -> None:
        before = "0" * 64
        for row in Ledger.select(Ledger.position, *(getattr(Ledger, name) for name in COLUMNS)).order_by(1).tuples():
            *told, hash = row
            text = json.dumps([before, *told], ensure_ascii=False, separators=(",", ":"))
            assert hashlib.sha256(text.encode()).hexdigest() == hash
            before = hash

    @postgres.on_sqlite_alone
    def test_can_be_checked_with_what_sqlite_says(self, chain: list[Head]) -> None:
        _, _, sql = str(module.__doc__).partition("SELECT ")
        found = db.database.execute_sql(f"SELECT {sql} ORDER BY position").fetchall()
        assert [hashlib.sha256(text.encode()).hexdigest() for text, _ in found] == [head.hash for head in chain[1:]]
        assert [hash for _, hash in found] == [head.hash for head in chain[1:]]

    def test_counts_from_one_without_gaps(self, chain: list[Head]) -> None:
        assert [head.position for head in chain] == [0, 1, 2, 3, 4, 5]

    def test_holds_against_every_head_that_was_ever_noted(self, chain: list[Head]) -> None:
        for head in chain:
            assert Ledger.verify(head) == chain[-1]
            assert Head.read(str(head)) == head

    def test_of_nothing_has_a_head_too(self, application: Any) -> None:
        assert Ledger.verify() == Ledger.verify(BEGINNING) == BEGINNING
        assert str(BEGINNING) == f"0:{'0' * 64}"

    @pytest.mark.parametrize("column", COLUMNS)
    def test_finds_every_flipped_byte(self, chain: list[Head], column: str) -> None:
        raw = str(Ledger.select(getattr(Ledger, column)).where(Ledger.position == 3).scalar()).encode()
        assert raw
        for place in range(len(raw)):
            for bit in (1, 128):
                flipped = bytearray(raw)
                flipped[place] ^= bit
                if postgres.is_chosen():  # which takes no text that is none
                    with contextlib.suppress(UnicodeDecodeError):
                        alter(3, column, flipped.decode())
                        assert re.match(r"entry 3 is not what was written", complaint())
                else:
                    alter(3, column, bytes(flipped), "CAST(? AS TEXT)")
                    assert re.match(r"entry 3 (is not what was written|cannot be read)", complaint()), flipped
        alter(3, column, raw.decode())
        assert Ledger.verify() == chain[-1]

    @pytest.mark.parametrize("bit", [*range(3), 31, 62])
    def test_finds_every_other_number(self, chain: list[Head], bit: int) -> None:
        taken = 3 ^ (1 << bit)
        db.database.execute_sql(f"DELETE FROM {TABLE} WHERE position > 3 OR position = {taken}")
        alter(3, "position", taken)
        assert re.match(r"entry [123] is (missing|not what was written)", complaint())

    @pytest.mark.parametrize("column", COLUMNS)
    def test_finds_a_text_that_is_empty_longer_or_of_another_entry(self, chain: list[Head], column: str) -> None:
        values = dict(Ledger.select(Ledger.position, getattr(Ledger, column)).tuples())
        for value in ("", values[4] + " ", f"{values[4]}\n", " " + values[4], values[3], values[5]):
            if value != values[4]:
                alter(4, column, value)
                assert complaint() == "entry 4 is not what was written"

    @postgres.on_sqlite_alone
    def test_finds_bytes_in_place_of_the_text_that_stands_for_them(self, application: Any) -> None:
        with db.write():
            Ledger.record("imported", "abcd", "efgh")
        alter(1, "actor_id", b"i\xb7\x1d")  # in base64 abcd
        assert complaint() == "entry 1 is not what was written"
        alter(1, "actor_id", None, "coalesce(?, 7)")
        assert complaint() == "entry 1 is not what was written"

    @pytest.mark.parametrize("gone", [1, 2, 4])
    def test_finds_what_was_removed(self, chain: list[Head], gone: int) -> None:
        change(f"DELETE FROM {TABLE} WHERE position = ?", gone)
        assert complaint() == f"entry {gone} is missing: entry {gone + 1} stands in its place"
        for above in range(gone + 1, 6):  # and closed up
            alter(above, "position", above - 1)
        assert complaint() == f"entry {gone} is not what was written"

    def test_finds_two_that_were_swapped(self, chain: list[Head]) -> None:
        for old, new in ((2, -1), (4, 2), (-1, 4)):
            alter(old, "position", new)
        assert complaint() == "entry 2 is not what was written"

    @pytest.mark.parametrize("place", [1, 3, 5])
    def test_finds_what_was_inserted(self, chain: list[Head], place: int) -> None:
        for above in range(5, place - 1, -1):
            alter(above, "position", above + 1)
        head = chain[place - 1].followed_by("", "imported", "", "", "{}")
        change(f"INSERT INTO {TABLE} VALUES (?, '', 'imported', '', '', '{{}}', ?)", *head)
        assert complaint() == f"entry {place + 1} is not what was written"

    @pytest.mark.parametrize("number", [0, -5])
    def test_finds_what_was_put_before_it(self, chain: list[Head], number: int) -> None:
        alter(5, "position", number)
        assert complaint() == f"entry 1 is missing: entry {number} stands in its place"

    def test_needs_a_noted_head_to_find_that_its_end_was_cut_off(self, chain: list[Head]) -> None:
        change(f"DELETE FROM {TABLE} WHERE position > 3")
        assert Ledger.verify() == Ledger.verify(chain[3]) == chain[3]
        assert complaint(chain[5]) == "entry 4 is missing, and all up to 5, which was noted"
        change(f"DELETE FROM {TABLE}")
        assert complaint(chain[1]) == "entry 1 is missing, and all up to 1, which was noted"

    def test_needs_one_to_find_that_all_was_written_anew(self, chain: list[Head]) -> None:
        alter(3, "actor_id", "somebody else")
        head = BEGINNING
        for position, *texts in Ledger.select(*Ledger._meta.sorted_fields[:-1]).order_by(Ledger.position).tuples():
            head = head.followed_by(*texts)
            alter(position, "hash", head.hash)
        assert Ledger.verify() == head == Ledger.verify(chain[2])
        for noted in chain[3:]:
            words = "is not the one that was noted: the ledger was written anew"
            assert complaint(noted) == f"entry {noted.position} {words}"

    def test_is_told_of_the_first_of_several_faults(self, chain: list[Head]) -> None:
        for position in (5, 2, 4):
            alter(position, "details", "{}")
        assert complaint() == "entry 2 is not what was written"

    @pytest.mark.slow
    @postgres.on_sqlite_alone
    def test_finds_every_byte_of_the_file_that_changes_what_is_read(self, chain: list[Head], settings: Any) -> None:
        change(f"DELETE FROM {TABLE} WHERE position > 3")
        db.rewrite_files()
        ask = db.database.execute_sql
        (page,), (size,) = (
            ask(sql).fetchone()
            for sql in (f"SELECT rootpage FROM sqlite_schema WHERE name = '{TABLE}'", "PRAGMA page_size")
        )
        rows = list(Ledger.select().order_by(Ledger.position).tuples())
        db.close_database()
        file = settings.data / db.FILE_NAME
        raw = file.read_bytes()
        own = range((page - 1) * size, page * size)
        held = [place for place in own if raw[place - 1 : place + 2] != b"\0\0\0"]
        assert len(held) > sum(len("".join(map(str, row))) for row in rows)
        harmless = []
        for place in held:
            flipped = bytearray(raw)
            flipped[place] ^= 1 << place % 8
            file.write_bytes(flipped)
            try:
                Ledger.verify()
                assert list(Ledger.select().order_by(Ledger.position).tuples()) == rows
                harmless.append(place)
            except Broken:
                pass
            finally:
                db.close_database()
        assert len(harmless) < 20  # in the head of the page, and beside the rows
        texts = {raw.index(str(value).encode(), own.start) for row in rows for value in row[1:] if len(value) > 20}
        assert not texts & set(harmless)
        file.write_bytes(raw)


class TestADatabaseFromBeforeTheLedger:
    def test_begins_an_empty_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        folder = tmp_path / "older"
        address = postgres.database_of(folder)
        db.open_database(folder, address, create=True)
        with monkeypatch.context() as then:
            then.setattr(migrations, "STEPS", migrations.STEPS[:3])
            migrations.migrate()
        with db.write():
            user = User.create(email="a@b.c")
            LoginSession.create(user_id=user.id, expires_at=2**53)
        db.close_database()
        line = ["ledger", "verify", "--data", str(folder), *(["--database", address] if address else [])]
        assert run(line) == 1
        assert "has schema 3, and this program" in capsys.readouterr().err
        assert migrations.version() == 3
        assert migrations.migrate() == len(migrations.STEPS) - 3
        assert Ledger.verify() == BEGINNING
        user.disable()
        assert entries() == [Told("user_disabled", OPERATOR, user.id, {})]
        db.close_database()
        if address:
            postgres.drop(address)


# The commands.


class TestTheCommand:
    @pytest.fixture
    def said(self, cx: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
        def say(*arguments: str) -> tuple[int, str, str]:
            capsys.readouterr()
            return cx("ledger", *arguments), *capsys.readouterr()

        return say

    def test_lists_entries_with_the_addresses_of_people(self, said: Any, scene: Scene) -> None:
        alice, grant = scene.alice, scene.grant()
        scene.admin.delete(f"/data-shares/{grant.id}")
        alice.user.disable()
        status, output, errors = said("list")
        assert (status, errors) == (0, "")
        lines = [re.split(r"  +", line.strip()) for line in output.splitlines()]
        assert [line[:4] for line in lines] == [
            ["1", "2026-11-20T10:00:00.000Z", "login", "alice@example.com"],
            ["2", "2026-11-20T10:00:00.000Z", "data_share_created", "alice@example.com"],
            ["3", "2026-11-20T10:00:00.000Z", "login", "ada@example.com"],
            ["4", "2026-11-20T10:00:00.000Z", "data_share_revoked", "ada@example.com > alice@example.com"],
            ["5", "2026-11-20T10:00:00.000Z", "user_disabled", "operator > alice@example.com"],
        ]
        assert json.loads(lines[3][4]) == {"grant": grant.id, "server": "files", "tools": ["*"]}

    def test_lists_what_is_asked_for(self, said: Any, scene: Scene) -> None:
        scene.use("bob")
        grant = scene.grant()
        scene.admin.delete(f"/data-shares/{grant.id}")
        asked = {
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
        for flags, shown in asked.items():
            _, output, _ = said("list", *flags.split())
            assert [int(line.split()[0]) for line in output.splitlines()] == shown, flags

    def test_lists_json_lines_from_which_the_chain_can_be_checked(self, said: Any, chain: list[Head]) -> None:
        _, output, _ = said("list", "--json")
        before = "0" * 64
        for line in output.rstrip("\n").split("\n"):
            entry = json.loads(line)
            details = re.search(r'"details":(\{.*\}),"hash"', line)
            assert details and json.loads(details[1]) == entry["details"]
            told = [entry[name] for name in ("position", "created_at", "kind", "actor_id", "subject_id")]
            text = json.dumps([before, *told, details[1]], ensure_ascii=False, separators=(",", ":"))
            before = entry["hash"]
            assert hashlib.sha256(text.encode()).hexdigest() == before
        assert before == chain[-1].hash

    def test_lists_nothing_that_commands_a_terminal(self, said: Any, alice: Client) -> None:
        alice.post("/data-shares", {**GRANT, "mcp_server_id": "a\x1b[31m\u202e\x9b2J"})
        assert not set(said("list")[1]) & set("\x1b\u202e\x9b")

    def test_says_how_many_entries_there_are_and_the_head(self, said: Any, chain: list[Head]) -> None:
        status, output, errors = said("verify")
        assert (status, errors) == (0, "")
        first, head = output.splitlines()
        assert re.fullmatch(r"5 entries as they were written, [\d,]+ a second", first)
        assert Head.read(head) == chain[-1]
        assert said("verify", "--head", str(chain[2]))[0] == 0

    def test_names_what_does_not_fit(self, said: Any, chain: list[Head]) -> None:
        alter(2, "actor_id", "me")
        assert said("verify") == (1, "", "cx-service: entry 2 is not what was written\n")
        assert said("verify", "--head", str(chain[5]))[0] == 1

    def test_says_what_was_cut_off(self, said: Any, chain: list[Head]) -> None:
        change(f"DELETE FROM {TABLE} WHERE position = 5")
        assert said("verify")[0] == 0
        told = "cx-service: entry 5 is missing, and all up to 5, which was noted\n"
        assert said("verify", "--head", str(chain[5])) == (1, "", told)

    def test_refuses_what_is_no_head(self, said: Any, chain: list[Head]) -> None:
        told = "cx-service: expected NUMBER:HASH, as `ledger verify` prints it\n"
        for head in (
            "5",
            "5:",
            f"05:{'0' * 64}",
            f"5:{'0' * 63}",
            f"5:{'A' * 64}",
            f"-1:{'0' * 64}",
            f"5:{'0' * 64}\n",
        ):
            assert said("verify", f"--head={head}") == (1, "", told)

    def test_writes_nothing(self, said: Any, chain: list[Head]) -> None:
        with nothing_changes():
            said("verify"), said("list")

    def test_refuses_somebody_who_is_not_there(self, said: Any) -> None:
        assert said("list", "--user", "eve@example.com") == (1, "", "cx-service: there is no user eve@example.com\n")


class TestMoving:
    def test_with_an_export_leaves_the_ledger_behind(self, cx: Any, alice: Client, tmp_path: Path) -> None:
        assert cx("export", str(tmp_path / "out")) == 0
        text = (tmp_path / "out").read_text()
        assert '{"user":' in text
        assert "ledger" not in text and Ledger.get().hash not in text

    @pytest.mark.slow
    @postgres.on_sqlite_alone
    def test_with_copy_takes_it_along_byte_for_byte(self, chain: list[Head], settings: Any, tmp_path: Path) -> None:
        db.close_database()
        assert run(["copy", "--from", str(settings.data), "--to", str(tmp_path / "new")]) == 0
        db.open_database(tmp_path / "new")
        assert Ledger.verify(chain[3]) == chain[-1]
