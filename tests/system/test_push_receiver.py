"""Messages of Web Push are read by an implementation of RFC 8291 that is not this project's: `http_ece` for Node.js."""

import secrets
import subprocess
from pathlib import Path

import pytest

from service.outbox import push_encryption
from tests.support import npm
from tests.support.cluster import find
from tests.support.paths import ROOT

SOURCES = ROOT / "tests" / "clients"


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program that decrypts."""
    return npm.install(SOURCES, tmp_path_factory.mktemp("receiver") / "clients")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "Grüße 👋", "x" * 3_000])
def test_a_browser_reads_the_message(text: str, receiver: Path) -> None:
    number, secret = 1 + secrets.randbits(250), push_encryption.encode(secrets.token_bytes(16))
    public = push_encryption.encode(push_encryption.point_of(push_encryption.private_key(number)))
    (receiver / "message").write_bytes(push_encryption.encrypt(text.encode(), public, secret))
    key = push_encryption.encode(number.to_bytes(32))
    line = [find("node", "nodejs"), "decrypt_push.js", "message", key, secret]
    assert subprocess.run(line, cwd=receiver, check=True, capture_output=True).stdout.decode() == text
