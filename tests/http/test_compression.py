"""Compression of responses with gzip."""

import gzip
import http.client
import json
from contextlib import closing
from pathlib import Path

import pytest

from service import assets
from service.http.compression import MIN_BYTES, accepts_gzip
from service.models import Bot, ChatSession
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes
from tests.support.server_process import serving

pytestmark = pytest.mark.database

GZIP = {"accept_encoding": "gzip, deflate, br"}


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("*", True),
        ("br;q=1, gzip ; q=0.001", True),
        ("gzip\t;\tq=0.5", True),
        ("", False),
        ("identity", False),
        ("br, deflate", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("*, gzip;q=0", False),
        ("gzip;q=2", False),
        ("gzip;q=", False),
        ("gzip;level=9", False),
        ("notgzip", False),
        ("gzip " * 100, False),
        (",".join(["br"] * 1_000 + ["gzip"]), True),
    ],
)
def test_accept_encoding_is_read_as_specified(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


def changed_headers(plain: Reply, compressed: Reply) -> set[str]:
    """The names of the headers in which a compressed response differs from the plain one."""
    names = {*plain.headers, *compressed.headers} - {"X-Request-ID"}
    return {name for name in names if plain.headers.get(name) != compressed.headers.get(name)}


@pytest.fixture
def long_chat(alice: Client, session: ChatSession, say) -> str:
    """The address of messages that are worth compressing."""
    for number in range(10):
        say(f"Message {number}")
    return f"/chats/{session.id}/messages"


def test_list_is_compressed_for_clients_that_accept_it(alice: Client, long_chat: str) -> None:
    plain, compressed = alice.get(long_chat), alice.get(long_chat, **GZIP)
    assert gzip.decompress(compressed.raw) == plain.raw
    assert len(compressed.raw) < len(plain.raw) / 4
    assert plain.headers["Vary"] == "Accept-Encoding"
    assert compressed.headers["Content-Length"] == str(len(compressed.raw))
    assert changed_headers(plain, compressed) <= {"Content-Encoding", "Content-Length", "ETag"}
    assert compressed.headers["Content-Encoding"] == "gzip"


def test_compressed_copy_is_revalidated(alice: Client, long_chat: str) -> None:
    plain, compressed = alice.get(long_chat), alice.get(long_chat, **GZIP)
    assert compressed.headers["ETag"] == f"W/{plain.headers['ETag']}"
    for known in (plain, compressed):
        reply = alice.get(long_chat, if_none_match=known.headers["ETag"], **GZIP)
        assert (reply.status, reply.raw) == (304, b"")
        assert "Content-Encoding" not in reply.headers


def test_small_response_is_not_compressed(alice: Client) -> None:
    reply = alice.get("/users/me", **GZIP)
    assert len(reply.raw) < MIN_BYTES
    assert "Content-Encoding" not in reply.headers


def test_response_with_tokens_is_not_compressed(anyone: Client, alice: Client) -> None:
    body = {"email": alice.user.email, "password": "x" * 2_000}
    reply = anyone.post("/auth/login", body, **GZIP)
    assert "Content-Encoding" not in reply.headers


def test_pages_are_not_compressed(alice: Client, long_chat: str, session: ChatSession) -> None:
    for path in ("//sign-in", "//", f"//console/chats/{session.id}", "//console/settings", "//docs"):
        reply = alice.get(path, **GZIP)
        assert reply.raw.startswith(b"<!doctype html>"), path
        assert "Content-Encoding" not in reply.headers, path


def test_openapi_document_is_compressed(anyone: Client) -> None:
    plain, compressed = anyone.get("//docs/openapi.json"), anyone.get("//docs/openapi.json", **GZIP)
    assert json.loads(gzip.decompress(compressed.raw)) == plain.json
    assert len(compressed.raw) < len(plain.raw) / 4


@pytest.mark.parametrize("name", assets.static_files())
def test_static_files_are_compressed(name: str, anyone: Client) -> None:
    plain, compressed = anyone.get(f"//static/{name}"), anyone.get(f"//static/{name}", **GZIP)
    assert gzip.decompress(compressed.raw) == plain.raw
    assert plain.headers["Vary"] == compressed.headers["Vary"] == "Accept-Encoding"
    assert changed_headers(plain, compressed) <= {"Content-Encoding", "Content-Length", "ETag"}
    assert compressed.headers["ETag"] != plain.headers["ETag"]
    again = anyone.get(f"//static/{name}", if_none_match=compressed.headers["ETag"], **GZIP)
    assert (again.status, again.raw) == (304, b"")
    assert "Content-Encoding" not in again.headers


def test_changing_a_row_is_not_affected(agent: Client, bot: Bot) -> None:
    path = f"/apps/{bot.app_id}/bots/{bot.id}"
    reply = agent.patch(path, {"description": "d" * 5_000}, **GZIP)
    assert gzip.decompress(reply.raw) == agent.get(path).raw
    with nothing_changes():
        agent.get(path, **GZIP)


@pytest.mark.slow
def test_server_sends_compressed_responses(tmp_path: Path) -> None:
    expected = (assets.folder("static") / "console.css").read_bytes()
    with (
        serving(tmp_path / "data") as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection,
    ):
        for method in ("GET", "HEAD", "GET"):
            connection.request(method, "/static/console.css", headers={"Accept-Encoding": "gzip"})
            response = connection.getresponse()
            body = response.read()
            assert response.headers["Content-Encoding"] == "gzip"
            assert MIN_BYTES < int(response.headers["Content-Length"]) < len(expected)
            assert body == b"" if method == "HEAD" else gzip.decompress(body) == expected
