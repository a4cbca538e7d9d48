"""The commands `client add`, `list`, `rotate` and `revoke`."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from service.models import ServerCredential
from tests.support.command_line import Outcome, error_line

pytestmark = pytest.mark.database

Command = Callable[..., Outcome]


def secret_of(outcome: Outcome) -> tuple[str, str]:
    """Return the identifier and the secret that a command printed."""
    assert outcome.status == 0, outcome
    words = [line.split() for line in outcome.output.splitlines()]
    assert [name for name, _ in words] == ["client_id", "client_secret"]
    return words[0][1], words[1][1]


def listed(cx: Command) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cx("client", "list", "--json").output.splitlines()]


def test_a_client_is_added_rotated_and_revoked(cx: Command) -> None:
    assert cx("migrate").status == 0
    id, first = secret_of(cx("client", "add", "Gateway", "--mcp-server", "files"))
    (row,) = listed(cx)
    assert (row["id"], row["name"], row["mcp_server_id"], row["revoked_at"]) == (id, "Gateway", "files", None)
    assert first not in cx("client", "list").output
    rotated, second = secret_of(cx("client", "rotate", id))
    assert rotated == id
    until = listed(cx)[0]["previous_expires_at"]
    assert f"previous secret valid until {until}" in cx("client", "list").output
    assert [ServerCredential.get_by_id(id).has_secret(secret) for secret in (first, second)] == [True, True]
    _, third = secret_of(cx("client", "rotate", id, "--at-once"))
    assert [ServerCredential.get_by_id(id).has_secret(secret) for secret in (first, second, third)] == [
        False,
        False,
        True,
    ]
    assert listed(cx)[0]["previous_expires_at"] is None
    for _ in range(2):
        assert cx("client", "revoke", id).status == 0
    assert listed(cx)[0]["revoked_at"]
    assert cx("client", "list").output.split()[:2] == [id, "revoked"]
    assert error_line(cx("client", "rotate", id)) == f"this client is revoked: {id}"


@pytest.mark.parametrize("arguments", [("Gateway", "--mcp-server", ""), ("", "--mcp-server", "files")])
def test_name_and_server_are_required(cx: Command, arguments: tuple[str, ...]) -> None:
    assert cx("migrate").status == 0
    assert "expected str of length >= 1" in error_line(cx("client", "add", *arguments))
    assert listed(cx) == []


def test_an_unknown_client_is_an_error(cx: Command) -> None:
    assert cx("migrate").status == 0
    for action in ("rotate", "revoke"):
        assert error_line(cx("client", action, "00000000-0000-4000-8000-000000000000")).startswith(
            "no such server credential"
        )
