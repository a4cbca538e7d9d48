"""The pages on which admins manage users."""

import re
from html import unescape
from typing import Any

import pytest

from service import clock
from service.models import App, AuditLog, ChatSession, LoginSession, User
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes
from tests.support.passwords import PASSWORD
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

PAGE = "/console/users"
RTL = "מַתָּנוֹת & <b>هدايا</b>"


@pytest.fixture
def browser(admin: Client) -> Browser:
    return Browser(admin.application).signed_in(admin)


def send(browser: Browser, path: str, action: str = "", **values: str) -> Reply:
    """Open a page, and submit its first form with an action that has these fields."""
    forms = Forms(browser.open(path).raw.decode()).found
    for target, fields in forms:
        if target == (action or path) and values.keys() - {"act", "id"} <= fields.keys() and "csrf_token" in fields:
            return browser.navigate("POST", target, {**fields, **values})
    raise AssertionError(f"{path} has no form with {sorted(values)}")


def emails(browser: Browser, query: str = "") -> list[str]:
    """The e-mail addresses on a page of the list."""
    html = browser.open(f"{PAGE}{query}").raw.decode()
    return [unescape(email) for email in re.findall(r"<h2><a [^>]*><bdi>([^<]*)</bdi></a></h2>", html)]


def kinds(subject_id: str) -> list[tuple[str, str]]:
    found = AuditLog.select().where(AuditLog.subject_id == subject_id).order_by(AuditLog.position)
    return [(entry.kind, entry.actor_id) for entry in found]


def open_sessions(user_id: str) -> int:
    return int(LoginSession.select().where(LoginSession.user_id == user_id, LoginSession.is_open()).count())


def test_users_are_listed_in_pages_and_found(browser: Browser, alice: Client, agent: Client) -> None:
    for number in range(30):
        User.create(email=f"user{number:02}@example.org", first_name=RTL)
    assert len(emails(browser)) == 25
    assert "More users" in browser.text
    link = re.search(r'aria-label="Pages"><a class="secondary" href="([^"]+)"', browser.reply.raw.decode())
    assert link
    assert len(emails(browser, unescape(link[1]))) == User.select().count() - 25
    assert emails(browser, "?search=USER07") == ["user07@example.org"]
    assert emails(browser, "?role=agent") == [User.get_by_id(agent.user.id).email]
    User.get_by_id(alice.user.id).change("operator", {"is_disabled": True})
    assert emails(browser, "?state=disabled") == [alice.user.email]
    assert "Disabled" in browser.text
    assert emails(browser, "?search=missing") == []
    assert "No matching users" in browser.text


def test_user_is_added(browser: Browser, shop: App, admin: Client) -> None:
    values = {"email": " Grace@Example.com ", "password": PASSWORD, "role": "agent", "app_id": shop.id}
    send(browser, PAGE, **values, display_name=RTL)
    assert "User added." in browser.text
    user = User.by_email("grace@example.com")
    assert user is not None
    assert (user.role, user.app_id, user.display_name) == ("agent", shop.id, RTL)
    assert kinds(user.id) == [("user_added", admin.user.id)]
    credentials = {"email": "grace@example.com", "password": PASSWORD}
    assert Client(admin.application).post("/auth/login", credentials).status == 200
    assert PASSWORD not in browser.reply.raw.decode()


def test_user_is_added_once_if_the_form_is_sent_twice(browser: Browser) -> None:
    browser.open(PAGE)
    [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "password" in form[1]]
    for _ in range(2):
        given = {**fields, "email": "grace@example.com", "password": PASSWORD}
        assert browser.navigate("POST", action, given).status == 200
        assert "User added." in browser.text
    assert User.select().where(User.email == "grace@example.com").count() == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"email": "x"}, "Email:"),
        ({"email": "alice@example.com"}, "already exists"),
        ({"password": "seven77"}, "at least 8 characters"),
        ({"role": "agent"}, "an agent needs an app"),
        ({"first_name": "x" * 101}, "First name:"),
    ],
)
def test_invalid_user_keeps_the_input_without_the_password(
    values: dict[str, str], message: str, browser: Browser
) -> None:
    User.create(email="alice@example.com")
    given = {"email": "new@example.com", "password": "a secret word", "last_name": RTL, **values}
    with nothing_changes():
        assert send(browser, PAGE, **given).status == 400
    html = browser.reply.raw.decode()
    assert message in browser.text
    [kept] = [fields for _, fields in Forms(html).found if "password" in fields]
    assert (unescape(kept["last_name"]), kept["email"]) == (RTL, given["email"])
    assert given["password"] not in html


def test_user_is_changed(browser: Browser, alice: Client, shop: App, admin: Client) -> None:
    path = f"{PAGE}/{alice.user.id}"
    send(browser, path, act="save", role="agent", app_id=shop.id, first_name=RTL)
    assert "Saved." in browser.text
    user = User.get_by_id(alice.user.id)
    assert (user.role, user.app_id, user.first_name) == ("agent", shop.id, RTL)
    assert ("user_changed", admin.user.id) in kinds(user.id)
    send(browser, path, act="save", role="user")
    assert (User.get_by_id(user.id).role, User.get_by_id(user.id).app_id) == ("user", None)
    with nothing_changes():
        send(browser, path, act="save")


def test_user_is_disabled_and_enabled(browser: Browser, alice: Client) -> None:
    path = f"{PAGE}/{alice.user.id}"
    send(browser, path, act="disable")
    assert "Disabled" in browser.text
    assert alice.get("/users/me").status == 401
    send(browser, path, act="enable")
    assert not User.get_by_id(alice.user.id).is_disabled
    assert [kind for kind, _ in kinds(alice.user.id)][-2:] == ["user_disabled", "user_enabled"]


def test_only_admin_remains_an_admin(browser: Browser, admin: Client) -> None:
    path = f"{PAGE}/{admin.user.id}"
    assert "This is your own account." in browser.open(path).raw.decode()
    for values in ({"act": "disable"}, {"act": "save", "role": "user"}):
        with nothing_changes():
            assert send(browser, path, **values).status == 400
        assert "only active admin" in browser.text
    with nothing_changes():
        assert send(browser, path, f"{path}/deletion", email=admin.user.email).status == 400


def test_login_sessions_are_ended(browser: Browser, alice: Client, admin: Client) -> None:
    path = f"{PAGE}/{alice.user.id}"
    for label in (RTL, "Second"):
        LoginSession.create(user_id=alice.user.id, kind="client", label=label, expires_at=clock.now() + clock.DAY)
    before = open_sessions(alice.user.id)
    assert RTL in unescape(browser.open(path).raw.decode())
    one = LoginSession.get(LoginSession.label == "Second")
    send(browser, path, f"{path}/logins", id=one.id)
    assert "Session signed out." in browser.text
    assert open_sessions(alice.user.id) == before - 1
    send(browser, path, f"{path}/logins", id="")
    assert open_sessions(alice.user.id) == 0
    assert alice.get("/users/me").status == 401
    assert kinds(alice.user.id)[-2:] == [("login_ended", admin.user.id)] * 2
    assert "The user is not signed in." in browser.open(path).raw.decode()
    other = LoginSession.get(LoginSession.user_id == admin.user.id)
    csrf_token = next(
        fields["csrf_token"] for _, fields in Forms(browser.reply.raw.decode()).found if "csrf_token" in fields
    )
    with nothing_changes():  # it is not a login session of this user
        browser.navigate("POST", f"{path}/logins", {"csrf_token": csrf_token, "id": other.id})


def test_user_is_deleted_after_confirmation(
    browser: Browser, alice: Client, session: ChatSession, admin: Client
) -> None:
    path = f"{PAGE}/{alice.user.id}"
    for wrong in ("", "bob@example.com"):
        with nothing_changes():
            assert send(browser, path, f"{path}/deletion", email=wrong).status == 400
        assert "enter the e-mail address of the user" in browser.text
    send(browser, path, f"{path}/deletion", email=alice.user.email.upper())
    assert "Deleted." in browser.text
    assert User.find(alice.user.id) is None
    assert ChatSession.find(session.id) is None
    assert kinds(alice.user.id)[-1] == ("user_deleted", admin.user.id)
    assert browser.open(path).status == 404


@pytest.mark.parametrize("query", ["?role=x", "?state=x", f"?search={'x' * 201}", "?cursor=x"])
def test_invalid_filters_are_reported(query: str, browser: Browser) -> None:
    assert browser.open(f"{PAGE}{query}").status == 400


def test_pages_are_for_admins(agent: Client, alice: Client) -> None:
    for client in (agent, alice):
        other = Browser(client.application).signed_in(client)
        for path in (PAGE, f"{PAGE}/{alice.user.id}"):
            assert other.open(path).status == 403


def test_apps_beyond_the_limit_are_kept(browser: Browser, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.routes.console.users.MAX_APPS", 1)
    App.create(name="A first app")
    path = f"{PAGE}/{agent.user.id}"
    app_id: Any = User.get_by_id(agent.user.id).app_id
    send(browser, path, act="save", first_name="New")
    assert (User.get_by_id(agent.user.id).app_id, User.get_by_id(agent.user.id).first_name) == (app_id, "New")
