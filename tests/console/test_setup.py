"""The page that creates the first admin, and the link that `serve` prints."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service import clock, translation
from service.auth import first_admin
from service.models import App, AuditLog, Bot, CannedAnswer, User
from service.operate.starter_content import ANSWERS
from service.signing import sign
from service.translation import gettext
from tests.support.client import Client, text_of
from tests.support.host_clock import Clock
from tests.support.observe import nothing_changes
from tests.support.server_process import command, serving
from tests.support.web_client import Browser

pytestmark = pytest.mark.database

FORM = {"email": "anna@example.com", "display_name": "Anna", "password": "long enough"}
BASE_URL = "http://test"


def path() -> str:
    """Return the path and query of a new link."""
    return first_admin.make_link(BASE_URL).removeprefix(BASE_URL)


@pytest.fixture
def browser(application: Any) -> Browser:
    return Browser(application, BASE_URL)


class TestThePage:
    def test_creates_the_first_admin_and_signs_in(self, browser: Browser) -> None:
        assert browser.open(path()).status == 200
        assert browser.send(**FORM).status == 200
        admin = User.by_email("anna@example.com")
        assert admin and (admin.role, admin.user_type, admin.display_name) == ("admin", "staff", "Anna")
        assert admin.last_login_at
        assert browser.open("/console/users").status == 200
        assert [row.kind for row in AuditLog.select().order_by(AuditLog.position)][0] == "user_added"

    def test_link_works_once(self, browser: Browser, application: Any) -> None:
        link = path()
        other = Browser(application, BASE_URL)
        other.open(link)
        browser.open(link)
        browser.send(**FORM)
        with nothing_changes():
            assert other.send(**FORM | {"email": "eve@example.com"}).status == 400
            assert other.open(link).status == 400
        assert "This link is not valid" in other.text

    @pytest.mark.parametrize("token", ["", "x", "WzFd.x", "forged", "foreign", "expired"])
    def test_invalid_link_creates_no_admin(self, token: str, browser: Browser, host_clock: Clock) -> None:
        browser.open(path())
        later = clock.now() + first_admin.LIFETIME
        tokens = {"forged": sign("setup", [later])[:-2] + "AA", "foreign": sign("form", [later])}
        if token == "expired":
            tokens["expired"] = sign("setup", [clock.now()])
        with nothing_changes():
            assert browser.send(**FORM, token=tokens.get(token, token)).status == 400
            assert browser.open(f"/setup?token={tokens.get(token, token)}").status == 400

    def test_form_of_another_browser_is_refused(self, browser: Browser) -> None:
        browser.open(path())
        browser.cookies.clear()
        with nothing_changes():
            assert browser.send(**FORM).status == 400

    @pytest.mark.parametrize(
        ("invalid", "message"),
        [
            ({"email": "anna"}, "Email: "),
            ({"email": ""}, "Email: "),
            ({"password": "short"}, "at least 8 characters"),
            ({"email": "alice@example.com"}, "already exists"),
        ],
    )
    def test_errors_keep_the_values_but_the_password(
        self, invalid: dict[str, str], message: str, browser: Browser, alice: Client
    ) -> None:
        browser.open(path())
        with nothing_changes():
            assert browser.send(**FORM | invalid).status == 400
        assert message in browser.text
        page = browser.reply.raw.decode()
        assert 'value="Anna"' in page and (FORM | invalid)["password"] not in page
        assert browser.send(**FORM).status == 200
        assert User.by_email("anna@example.com")

    def test_has_no_effect_on_a_service_with_an_admin(self, browser: Browser, admin: Client) -> None:
        assert browser.open(path()).status == 400
        assert "no admin yet" not in Browser(browser.client.application, BASE_URL).open("/sign-in").raw.decode()

    def test_is_announced_on_the_sign_in_page_without_the_secret(self, browser: Browser) -> None:
        for address in ("/sign-in", "/", "/console/bots"):
            page = browser.open(address).raw.decode()
            assert "no admin yet" in page and "token=" not in page


class TestStarterContent:
    @pytest.mark.parametrize(
        ("languages", "expected"),
        [("de-CH, en;q=0.5", "de"), ("en", "en"), ("nl, fr;q=0.1", "fr"), ("zh-CN", "zh-Hans"), ("", "en")],
    )
    def test_is_an_app_and_a_bot_that_answers(
        self, languages: str, expected: str, browser: Browser, person: Callable[..., Client]
    ) -> None:
        browser.open(path())
        action, fields = "/setup", {**FORM, "starter": "yes", **self.hidden(browser)}
        assert browser.navigate("POST", action, fields, accept_language=languages).status == 200
        app, bot = App.get(), Bot.get()
        with translation.use(expected):
            answers = {gettext(question): gettext(answer) for question, answer, _ in ANSWERS}
            assert (app.name, bot.name, bot.status) == (gettext("Support"), gettext("Assistant"), "published")
        assert CannedAnswer.select().count() == len(answers) == 5
        customer = person("carla")
        for question, answer in answers.items():
            session = customer.post("/chats", {"app_id": app.id, "bot_id": bot.id}).data["id"]
            customer.post(f"/chats/{session}/messages", {"content": {"text": question}}, accept_language=expected)
            newest = customer.get(f"/chats/{session}/messages?direction=backward&limit=1").data
            assert text_of(newest[0]) == answer

    def test_has_a_menu_whose_buttons_have_answers(self, browser: Browser, person: Callable[..., Client]) -> None:
        browser.open(path())
        fields = {**FORM, "starter": "yes", **self.hidden(browser)}
        browser.navigate("POST", "/setup", fields, accept_language="de")
        customer = person("carla")
        chat = {"app_id": App.get().id, "bot_id": Bot.get().id}
        with translation.use("de"):
            texts = {gettext(question): gettext(answer) for question, answer, _ in ANSWERS}
            (hello, menu), *_ = [(gettext(one), buttons) for one, _, buttons in ANSWERS if buttons]
            labels = [gettext(label) for label in menu]
        for number, label in enumerate(labels, 1):
            messages = f"/chats/{customer.post('/chats', chat).data['id']}/messages"
            customer.post(messages, {"content": {"text": hello}}, accept_language="de")
            offer = customer.get(messages).data[1]
            press = {"action_source_id": offer["id"], "action_id": str(number)}
            assert customer.post(messages, press, accept_language="de").status == 201
            assert [text_of(row) for row in customer.get(messages).data[2:]] == [label, texts[label]]

    def test_is_optional(self, browser: Browser) -> None:
        browser.open(path())
        browser.navigate("POST", "/setup", {**FORM, **self.hidden(browser)})
        assert User.by_email("anna@example.com") and not App.select().exists()

    @staticmethod
    def hidden(browser: Browser) -> dict[str, str]:
        page = browser.reply.raw.decode()
        return {name: re.findall(rf'name="{name}" value="([^"]*)"', page)[0] for name in ("csrf_token", "token")}


@pytest.mark.slow
class TestTheLink:
    def test_is_printed_until_there_is_an_admin(self, tmp_path: Path) -> None:
        with serving(tmp_path / "data") as server:
            [link] = re.findall(rf"in a browser: {server.url}/(setup\?token=\S+)", server.errors)
            assert server.call("GET", f"/{link}").status == 200
            assert "token" not in server.errors.partition(link)[2]  # not in the line of the request
        command(
            "user", "add", "anna@example.com", "--role", "admin", "--data", tmp_path / "data", input=b"long enough\n"
        )
        with serving(tmp_path / "data") as server:
            assert server.url and "admin" not in server.errors

    def test_is_a_command_if_the_service_has_no_pages(self, tmp_path: Path) -> None:
        with serving(tmp_path / "data", "--documented-only") as server:
            assert server.url and "cx-service user add EMAIL --role admin" in server.errors
