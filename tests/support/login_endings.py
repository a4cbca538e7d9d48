"""The ways in which a login of Alice ends, by name."""

from collections.abc import Callable
from pathlib import Path

from tests.support.passwords import PASSWORD
from tests.support.server_process import Served, command


def end_in_another_session(server: Served, data: Path, token: str) -> None:
    other = server.log_in()
    [current] = [row for row in server.call("GET", "/api/v1/auth/sessions", token=token).data if row["is_current"]]
    assert server.call("DELETE", f"/api/v1/auth/sessions/{current['id']}", token=other).status == 200


def change_password(server: Served, data: Path, token: str) -> None:
    body = {"current_password": PASSWORD, "new_password": "another one"}
    assert server.call("POST", "/api/v1/auth/password", body, server.log_in()).status == 200


def disable(server: Served, data: Path, token: str) -> None:
    assert command("user", "disable", "alice@example.com", "--data", data).returncode == 0


ENDINGS: dict[str, Callable[[Served, Path, str], object]] = {
    "logout": lambda server, data, token: server.call("POST", "/api/v1/auth/logout", {}, token),
    "another session": end_in_another_session,
    "a new password": change_password,
    "an operator": disable,
}
