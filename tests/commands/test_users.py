"""The command `user`: lists, changes and deletes users."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from service.db import FILE_NAME
from service.models import AuditLog, User
from tests.support.command_line import Outcome, error_line
from tests.support.postgres import is_chosen
from tests.support.server_process import ALICE, APP, chat, json_lines

pytestmark = pytest.mark.database

Run = Callable[..., Outcome]


@pytest.fixture
def users(cx: Run) -> None:
    """Alice, who has a chat, the agent Agnes and the admin Ada."""
    cx("import", "-", typed=json_lines(chat()))
    add = ("user", "add", "agnes@example.com", "--role", "agent", "--app", APP, "--display-name", "Agnès")
    cx(*add, typed=b"long enough\n")
    cx("user", "add", "ada@example.com", "--role", "admin", typed=b"long enough\n")


def addresses(outcome: Outcome) -> list[str]:
    return [json.loads(line)["email"] for line in outcome.output.splitlines()]


@pytest.mark.usefixtures("users")
def test_list_shows_app_name_and_last_login(cx: Run) -> None:
    User.update(last_login_at="2026-11-20T10:00:00.000Z").where(User.email == "agnes@example.com").execute()
    [_, agnes, _] = cx("user", "list").output.splitlines()
    assert agnes.split()[1:] == ["agent", "enabled", "agnes@example.com", "Shop", "Agnès", "2026-11-20T10:00:00.000Z"]


@pytest.mark.usefixtures("users")
def test_list_has_filters_and_json(cx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.commands.users.PAGE_SIZE", 1)
    everyone = ["ada@example.com", "agnes@example.com", "alice@example.com"]
    assert addresses(cx("user", "list", "--json")) == everyone
    assert addresses(cx("user", "list", "--json", "--role", "admin")) == everyone[:1]
    assert addresses(cx("user", "list", "--json", "--app", APP)) == everyone[1:2]
    assert addresses(cx("user", "list", "--json", "--search", "AGNÈS")) == everyone[1:2]
    assert error_line(cx("user", "list", "--app", "shop")) == "expected a UUID"


@pytest.mark.usefixtures("users")
def test_show_prints_the_members_of_a_user(cx: Run) -> None:
    shown = cx("user", "show", "AGNES@example.com")
    assert f"app_id:         {APP}\n" in shown.output and "display_name:   Agnès\n" in shown.output
    assert json.loads(cx("user", "show", "agnes@example.com", "--json").output)["role"] == "agent"


@pytest.mark.usefixtures("users")
def test_names_can_be_edited(cx: Run) -> None:
    assert cx("user", "edit", "agnes@example.com", "--first-name", "A", "--display-name", "") == (0, "", "")
    agnes = User.get(User.email == "agnes@example.com")
    assert (agnes.first_name, agnes.display_name) == ("A", "")
    line = error_line(cx("user", "edit", "agnes@example.com", "--first-name", "A" * 101))
    assert line == "first_name: expected `str` of length <= 100".replace("`", "")
    assert "only agents have an app" in error_line(cx("user", "edit", "ada@example.com", "--app", APP))


@pytest.mark.usefixtures("users")
def test_role_can_be_changed(cx: Run) -> None:
    assert "--app" in error_line(cx("user", "role", "alice@example.com", "agent"))
    missing = ALICE
    assert error_line(cx("user", "role", "alice@example.com", "agent", "--app", missing)) == f"no such app: {missing}"
    assert cx("user", "role", "alice@example.com", "agent", "--app", APP) == (0, "", "")
    assert (User.get_by_id(ALICE).role, User.get_by_id(ALICE).app_id) == ("agent", APP)
    assert cx("user", "role", "alice@example.com", "admin") == (0, "", "")
    assert (User.get_by_id(ALICE).role, User.get_by_id(ALICE).app_id) == ("admin", None)
    last = AuditLog.select().order_by(AuditLog.position.desc()).first()
    assert (last.kind, last.actor_id, json.loads(last.details)["role"]) == ("user_changed", "operator", "admin")


@pytest.mark.usefixtures("users")
def test_last_admin_keeps_the_role(cx: Run) -> None:
    expected = "this user is the only active admin; make another user an admin first"
    assert error_line(cx("user", "role", "ada@example.com", "user")) == expected
    assert error_line(cx("user", "delete", "ada@example.com")) == expected
    assert User.get(User.email == "ada@example.com").role == "admin"
    cx("user", "role", "alice@example.com", "admin")
    assert cx("user", "delete", "ada@example.com").status == 0
    assert User.by_email("ada@example.com") is None


@pytest.mark.usefixtures("users")
def test_deleted_user_leaves_no_bytes_in_the_files(cx: Run, data: Path) -> None:
    if not is_chosen():
        assert b"alice@example.com" in (data / FILE_NAME).read_bytes()
    assert cx("user", "delete", "alice@example.com") == (0, "", "")
    assert User.by_email("alice@example.com") is None
    if not is_chosen():
        assert not [file for file in data.iterdir() if b"alice@example.com" in file.read_bytes()]
