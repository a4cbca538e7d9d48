"""`mail test` sends one e-mail, and reports the reply of the server or the error in one line."""

from collections.abc import Callable

import pytest

from tests.support import postgres
from tests.support.command_line import Outcome, error_line
from tests.support.mail_server import mail_server


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CX_MAIL_FROM", "Shop <shop@chat.example>")
    monkeypatch.setenv("CX_PUBLIC_URL", "https://chat.example")


@pytest.mark.database
class TestMailTest:
    def test_prints_the_reply_of_the_server(self, cx: Callable[..., Outcome]) -> None:
        with mail_server() as server:
            outcome = cx("mail", "test", "ada@example.com", "--smtp", f"smtp://{server.address}")
        assert outcome == (0, "250 queued as 1\n", "")
        assert server.mails[0].recipient == "ada@example.com"
        assert server.mails[0].part("plain") == "The service can send e-mails.\n"

    def test_prints_the_error_of_the_server(self, cx: Callable[..., Outcome]) -> None:
        with mail_server() as server:
            server.replies["RCPT"] = "550 no such user"
            outcome = cx("mail", "test", "ada@example.com", "--smtp", f"smtp://{server.address}")
        assert error_line(outcome) == "the e-mail was not sent: 550 no such user"

    def test_prints_the_error_of_the_connection(self, cx: Callable[..., Outcome]) -> None:
        outcome = cx("mail", "test", "ada@example.com", "--smtp", f"smtp://localhost:{postgres.free_port()}")
        assert error_line(outcome) == "the e-mail was not sent: Connection refused"

    def test_refuses_an_address_that_is_none(self, cx: Callable[..., Outcome]) -> None:
        outcome = cx("mail", "test", "ada", "--smtp", "smtp://localhost")
        assert error_line(outcome) == "the e-mail was not sent: not an address that e-mail can be sent to"

    def test_needs_a_server(self, cx: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CX_MAIL_FROM")
        assert error_line(cx("mail", "test", "ada@example.com")) == "e-mail is not configured: --smtp is not set"

    def test_needs_a_sender(self, cx: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CX_MAIL_FROM")
        outcome = cx("mail", "test", "ada@example.com", "--smtp", "smtp://localhost")
        assert error_line(outcome).startswith("--smtp needs --mail-from")
