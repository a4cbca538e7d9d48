"""The pages of administration: apps, bots, the audit log, and the data shares of all users."""

import io
import re
from html import unescape
from typing import Any

import pytest
from PIL import Image

from service import db, history
from service.console.labels import FINDING_SUBJECTS
from service.console.next_step import find_next_step
from service.errors import CredentialNotFound
from service.models import App, AuditLog, Bot, CannedAnswer, ChatSession, DataShare, ServerCredential, User
from service.models.actions import Action, Actions
from service.models.audit_log import OPERATOR, BrokenChain, VerificationTimeout
from service.models.callers import Caller
from service.operate import doctor
from service.routes.console import audit_log
from service.settings import Settings
from service.version import VERSION
from tests.support.access import as_form
from tests.support.bot_replies import reply_text
from tests.support.client import Client
from tests.support.observe import nothing_changes, stored
from tests.support.sample_data import picture
from tests.support.sample_operations import UNKNOWN_ID
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

ADMIN_PAGES = (
    "/console/apps",
    "/console/audit",
    "/console/all-shares",
    "/console/server-credentials",
    "/console/backups",
    "/console/branding",
    "/console/deliveries",
    "/console/health",
)
RTL = "מַתָּנוֹת & <b>هدايا</b>"


@pytest.fixture
def browser(admin: Client) -> Browser:
    return Browser(admin.application).signed_in(admin)


def send(browser: Browser, path: str, **values: str) -> Any:
    """Open a page, and submit its form that has all of these fields."""
    browser.open(path)
    for action, fields in Forms(browser.reply.raw.decode()).found:
        if values.keys() - {"act"} <= fields.keys() and "csrf_token" in fields:
            return browser.navigate("POST", action, {**fields, **values})
    raise AssertionError(f"{path} has no form with {sorted(values)}")


def field(browser: Browser, name: str) -> str:
    """The value of a field of the current page."""
    [found] = re.findall(rf'<input[^>]* name="{name}" value="([^"]*)"', browser.reply.raw.decode())
    return unescape(found)


@pytest.mark.parametrize("path", ADMIN_PAGES)
def test_pages_of_administration_are_for_admins(path: str, browser: Browser, agent: Client, alice: Client) -> None:
    assert browser.open(path).status == 200
    assert 'id="administration"' in browser.reply.raw.decode()
    for client in (agent, alice):
        other = Browser(client.application).signed_in(client)
        assert other.open(path).status == 403
        assert 'id="administration"' not in other.reply.raw.decode()
        assert f'href="{path}"' not in other.open("/").raw.decode()


class TestFirstSteps:
    def test_an_installation_without_apps_leads_to_the_page_of_apps(self, browser: Browser) -> None:
        for path in ("/", "/console/bots", "/console/catalogue"):
            assert browser.open(path).status == 200
            assert "Create your first app" in browser.text
            assert 'href="/console/apps"' in browser.reply.raw.decode()

    def test_an_installation_without_bots_leads_to_the_page_of_a_new_bot(
        self, browser: Browser, shop: App, agent: Client
    ) -> None:
        for visitor in (browser, Browser(agent.application).signed_in(agent)):
            for path in ("/", "/console/bots"):
                visitor.open(path)
                assert "Create your first bot" in visitor.text
                assert f'href="/console/apps/{shop.id}/new-bot"' in visitor.reply.raw.decode()

    def test_an_empty_inbox_has_the_link_for_customers(
        self, browser: Browser, shop: App, bot: Bot, agent: Client, alice: Client
    ) -> None:
        link = f'class="primary" href="/console/bots?app_id={shop.id}"'
        visitors = [browser, *(Browser(client.application).signed_in(client) for client in (agent, alice))]
        assert [link in visitor.open("/").raw.decode() for visitor in visitors] == [True, True, False]
        ChatSession.create(app_id=shop.id, bot_id=bot.id, user_id=alice.user.id, status="resolved")
        for visitor in visitors[:2]:
            assert link not in visitor.open("/").raw.decode()
            assert "No chat matches the filters." in visitor.text

    def test_customers_get_no_steps_of_administration(self, alice: Client) -> None:
        visitor = Browser(alice.application).signed_in(alice)
        for path in ("/", "/console/bots"):
            assert visitor.open(path).status == 200
            assert "Create your first" not in visitor.text

    def test_there_is_no_step_when_there_is_a_bot(self, bot: Bot, admin: Client) -> None:
        assert find_next_step(Caller(admin.user.id, "admin", None, "", None)) is None

    def test_an_app_and_a_bot_are_created_from_an_empty_installation(self, browser: Browser) -> None:
        send(browser, "/console/apps", act="add", name=RTL)
        assert "App created." in browser.text
        app = App.get()
        assert app.name == RTL
        send(browser, f"/console/apps/{app.id}/new-bot", name=RTL, tagline="First")
        assert "Bot created." in browser.text
        bot = Bot.get()
        assert (bot.app_id, bot.name, bot.tagline, bot.kind, bot.status) == (app.id, RTL, "First", "bot", "published")
        assert RTL in unescape(browser.open("/console/bots").raw.decode())


class TestApps:
    def test_are_created_once_if_the_form_is_sent_twice(self, browser: Browser) -> None:
        browser.open("/console/apps")
        [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "name" in form[1]]
        for _ in range(2):
            browser.navigate("POST", action, {**fields, "act": "add", "name": "Second shop"})
        assert App.select().where(App.name == "Second shop").count() == 1

    def test_are_renamed(self, browser: Browser, shop: App, admin: Client) -> None:
        send(browser, "/console/apps", act="rename", id=shop.id, name=" Renamed ")
        assert App.get_by_id(shop.id).name == "Renamed"
        entry = AuditLog.get(AuditLog.kind == "app_changed")
        assert (entry.actor_id, entry.subject_id) == (admin.user.id, shop.id)

    @pytest.mark.parametrize("name", ["", " ", "x" * 201])
    def test_with_an_invalid_name_keep_the_input(self, name: str, browser: Browser) -> None:
        with nothing_changes():
            assert send(browser, "/console/apps", act="add", name=name).status == 400
        assert "Name:" in browser.text
        assert field(browser, "name") == name

    def test_are_listed_in_pages(self, browser: Browser) -> None:
        App.insert_many([{"name": f"App {number:02}"} for number in range(30)]).execute()
        browser.open("/console/apps")
        assert "App 24" in browser.text
        assert "App 25" not in browser.text
        assert "More apps" in browser.text


class TestBots:
    FIELDS: dict[str, str] = {
        "name": "Hilda",
        "slug": "hilda",
        "tagline": "Opening hours",
        "description": "Two\r\nlines",
        "category": "Help",
        "kind": "nobot",
        "status": "draft",
        "presence": "away",
        "rating": "4.5",
        "country": "de",
        "region": "Berlin",
        "city": "Berlin",
        "accent_color": "#123456",
        "brand_color": "teal",
        "cover_url": "https://shop.example/cover.png",
        "icon_url": "https://shop.example/icon.png",
        "contact_email": "help@shop.example",
        "contact_phone": "+49 30 1",
        "contact_website": "https://shop.example/",
        "social_links": '{"a": "https://a.example"}',
        "is_active": "true",
        "is_featured": "true",
    }

    def test_every_member_is_edited(self, browser: Browser, bot: Bot) -> None:
        path = f"/console/apps/{bot.app_id}/bots/{bot.id}"
        browser.open(path)
        [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "slug" in form[1]]
        assert browser.navigate("POST", action, {**fields, **self.FIELDS}).status == 200
        edited = Bot.get_by_id(bot.id)
        expected = self.FIELDS | {"description": "Two\nlines", "country": "DE"}
        for name in expected.keys() - {"rating", "is_active", "is_featured", "social_links"}:
            assert getattr(edited, name) == expected[name], name
        assert (edited.rating, edited.is_active, edited.is_featured) == (4.5, True, True)
        shown = browser.reply.raw.decode()
        for value in ("Two\nlines", "#123456", "4.5", '{"a":"https://a.example"}'):
            assert value in unescape(shown), value

    def test_a_box_that_is_not_ticked_is_false(self, browser: Browser, bot: Bot) -> None:
        browser.open(f"/console/apps/{bot.app_id}/bots/{bot.id}")
        [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "slug" in form[1]]
        del fields["is_active"]
        browser.navigate("POST", action, fields)
        assert not Bot.get_by_id(bot.id).is_active

    def test_an_unchanged_form_changes_nothing(self, browser: Browser, bot: Bot) -> None:
        Bot.update(social_links="[123,125]", rating=3.5, country="DE").where(Bot.id == bot.id).execute()
        path = f"/console/apps/{bot.app_id}/bots/{bot.id}"
        browser.open(path)
        [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "slug" in form[1]]
        fields["social_links"] = "{}"  # a text area: its text is not among the fields
        with nothing_changes():
            browser.navigate("POST", action, fields)
        assert "Saved." in browser.text

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("name", "", "Name:"),
            ("rating", "many", "Rating: expected a number"),
            ("rating", "nan", "Rating:"),
            ("country", "Germany", "Country:"),
            ("contact_email", "x", "Contact email:"),
            ("contact_website", "javascript:alert(1)", "Contact website:"),
            ("icon_url", "x", "Icon url:"),
            ("social_links", "{", "Social links: expected JSON"),
            ("kind", "robot", "Kind:"),
        ],
    )
    @pytest.mark.parametrize("is_new", [True, False])
    def test_invalid_members_keep_the_input(
        self, name: str, value: str, message: str, is_new: bool, browser: Browser, bot: Bot
    ) -> None:
        path = f"/console/apps/{bot.app_id}/" + ("new-bot" if is_new else f"bots/{bot.id}")
        with nothing_changes():
            reply = send(browser, path, **{"name": "Kept", "tagline": RTL, name: value})
        assert reply.status == 400
        assert message in browser.text
        assert field(browser, "tagline") == RTL
        if name not in ("kind", "social_links"):
            assert field(browser, name) == value

    def test_are_created_once_if_the_form_is_sent_twice(self, browser: Browser, shop: App) -> None:
        browser.open(f"/console/apps/{shop.id}/new-bot")
        [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "slug" in form[1]]
        for _ in range(2):
            browser.navigate("POST", action, {**fields, "name": "Twin"})
        assert Bot.select().where(Bot.name == "Twin").count() == 1

    def test_are_of_the_own_app_for_agents(self, agent: Client, other_agent: Client, bot: Bot) -> None:
        for path in (f"/console/apps/{bot.app_id}/new-bot", f"/console/apps/{bot.app_id}/bots/{bot.id}"):
            assert Browser(agent.application).signed_in(agent).open(path).status == 200
            assert Browser(agent.application).signed_in(other_agent).open(path).status == 403

    def test_of_another_app_are_not_found(self, browser: Browser, other_shop: App, bot: Bot) -> None:
        assert browser.open(f"/console/apps/{other_shop.id}/bots/{bot.id}").status == 404


class TestBotPictures:
    @pytest.fixture
    def path(self, bot: Bot) -> str:
        return f"/console/apps/{bot.app_id}/bots/{bot.id}/pictures"

    def upload(self, browser: Browser, path: str, kind: str, content: bytes) -> Any:
        browser.open(path)
        [action] = [action for action, _ in Forms(browser.reply.raw.decode()).found if f"kind={kind}&" in action]
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        body = as_form({"picture": content})
        return browser.client.post(f"/{action}", cookie=cookie, sec_fetch_mode="navigate", **body)

    @pytest.mark.parametrize(("kind", "size"), [("icon", (120, 120)), ("cover", (120, 40))])
    def test_are_uploaded_shown_and_removed(
        self, kind: str, size: tuple[int, int], browser: Browser, bot: Bot, path: str, alice: Client
    ) -> None:
        assert "There is no picture." in browser.open(path).raw.decode()
        reply = self.upload(browser, path, kind, picture(side=120))
        assert (reply.status, reply.headers["Location"]) == (303, f"{path}?done=picture")
        browser.open(path)
        [address] = re.findall(r'<img class="bot-picture" src="([^"]+)"', browser.reply.raw.decode())
        shown = alice.get(f"/{address}")
        assert Image.open(io.BytesIO(shown.raw)).size == size
        browser.navigate("POST", f"{path}/removal", {"csrf_token": field(browser, "csrf_token"), "kind": kind})
        assert "Picture removed." in browser.text
        assert getattr(Bot.get_by_id(bot.id), f"{kind}_url") == ""
        assert alice.get(f"/{address}").status == 404

    def test_remain_when_the_profile_is_saved(self, browser: Browser, bot: Bot, path: str) -> None:
        self.upload(browser, path, "icon", picture())
        uploaded = Bot.get_by_id(bot.id).icon_url
        send(browser, f"/console/apps/{bot.app_id}/bots/{bot.id}", name="New name")
        assert "Saved." in browser.text
        assert (Bot.get_by_id(bot.id).name, Bot.get_by_id(bot.id).icon_url) == ("New name", uploaded)
        assert browser.client.get(f"/{uploaded}").status == 200

    @pytest.mark.parametrize(("content", "status"), [(b"no picture", 415), (picture()[:60], 400), (b"", 400)])
    def test_that_are_invalid_show_the_reason(
        self, content: bytes, status: int, browser: Browser, path: str, bot: Bot
    ) -> None:
        browser.open(path)
        with nothing_changes():
            reply = self.upload(browser, path, "icon", content)
        assert reply.status == status
        assert 'role="alert"' in reply.raw.decode()

    def test_need_the_csrf_token(self, browser: Browser, path: str) -> None:
        browser.open(path)
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        body = as_form({"picture": picture()})
        for token in ("", "&csrf_token=x"):
            with nothing_changes():
                target = f"/{path}?kind=icon{token}"
                reply = browser.client.post(target, cookie=cookie, sec_fetch_mode="navigate", **body)
            assert reply.status == 400

    def test_of_other_sites_are_named_not_loaded(self, browser: Browser, path: str, bot: Bot) -> None:
        Bot.update(cover_url="https://shop.example/cover.png").where(Bot.id == bot.id).execute()
        html = browser.open(path).raw.decode()
        assert "The picture is at" in html
        assert 'src="https://shop.example' not in html


class TestCannedAnswers:
    @pytest.fixture
    def path(self, bot: Bot) -> str:
        return f"/console/apps/{bot.app_id}/bots/{bot.id}/answers"

    def offered(self) -> list[Action]:
        """The actions of the only canned answer."""
        (answer,) = CannedAnswer.select()
        return list(answer.offered)

    def texts(self, bot: Bot) -> list[tuple[str, str, str]]:
        own = CannedAnswer.select().where(CannedAnswer.bot_id == bot.id).order_by(CannedAnswer.question)
        return [(answer.question, answer.answer, answer.language) for answer in own]

    def test_are_linked_from_the_page_of_the_bot(self, browser: Browser, bot: Bot, path: str) -> None:
        browser.open(f"/console/apps/{bot.app_id}/bots/{bot.id}")
        assert f'href="{path}"' in browser.reply.raw.decode()
        browser.open(f"/console/apps/{bot.app_id}/new-bot")
        assert "Canned answers" not in browser.text

    def test_are_added_and_listed(self, browser: Browser, bot: Bot, path: str, admin: Client) -> None:
        send(browser, path, question=RTL, answer="Two\r\nlines", language="pt-BR")
        assert "Canned answer added." in browser.text
        assert RTL in unescape(browser.reply.raw.decode())
        assert self.texts(bot) == [(RTL, "Two\nlines", "pt-BR")]
        entry = AuditLog.get(AuditLog.kind == "answer_added")
        assert (entry.actor_id, entry.subject_id) == (admin.user.id, bot.id)

    def test_are_added_once_if_the_form_is_sent_twice(self, browser: Browser, bot: Bot, path: str) -> None:
        browser.open(path)
        [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "question" in form[1]]
        for _ in range(2):
            browser.navigate("POST", action, {**fields, "question": "When?", "answer": "At nine."})
        assert self.texts(bot) == [("When?", "At nine.", "")]

    def test_are_used_by_the_bot(self, browser: Browser, path: str, session: ChatSession, bot: Bot) -> None:
        send(browser, path, question="Where is my parcel?", answer="On its way.")
        assert reply_text(session, "Where is my parcel?", ["en"]) == "On its way."

    def test_are_edited(self, browser: Browser, bot: Bot, path: str) -> None:
        answer = CannedAnswer.create(bot_id=bot.id, question="Who?", answer="Hilda.", language="en")
        send(browser, f"{path}/{answer.id}", act="save", question="Who?", answer="Ada.", language="")
        assert "Saved." in browser.text
        assert field(browser, "question") == "Who?"
        assert self.texts(bot) == [("Who?", "Ada.", "")]

    def test_are_added_with_buttons(self, browser: Browser, path: str) -> None:
        send(browser, path, question="Hello?", answer="Choose.", buttons=f" Where?\r\n\r\n{RTL}\r\n")
        assert self.offered() == [Action("1", "Where?"), Action("2", RTL)]
        assert RTL in unescape(browser.reply.raw.decode())

    def test_keep_the_identifiers_and_payloads_of_buttons_with_the_same_label(
        self, browser: Browser, bot: Bot, path: str
    ) -> None:
        known = [Action("1", "Where?", {"page": 1}), Action("x", "When?")]
        stored = Actions().to_stored(known)
        answer = CannedAnswer.create(bot_id=bot.id, question="Hello?", answer="Choose.", actions=stored)
        address, values = f"{path}/{answer.id}", {"act": "save", "question": "Hello?", "answer": "Choose."}
        html = browser.open(address).raw.decode()
        assert re.search(r"<textarea[^>]*buttons[^>]*>\nWhere\?\nWhen\?</textarea>", html)
        send(browser, address, **values, buttons="When?\r\nWho?\r\nWhere?\r\nWhere?")
        assert self.offered() == [known[1], Action("2", "Who?"), known[0], Action("3", "Where?")]
        send(browser, address, **values, buttons="")
        assert self.offered() == []

    def test_are_deleted(self, browser: Browser, bot: Bot, path: str) -> None:
        for name in ("Who?", "When?"):
            answer = CannedAnswer.create(bot_id=bot.id, question=name, answer="No.")
        send(browser, f"{path}/{answer.id}", act="delete")
        assert "Deleted." in browser.text
        assert self.texts(bot) == [("Who?", "No.", "")]
        assert browser.open(f"{path}/{answer.id}").status == 404

    @pytest.mark.parametrize("is_new", [True, False])
    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("question", "", "Question:"),
            ("question", "x" * 501, "Question:"),
            ("answer", " ", "Answer:"),
            ("answer", "x" * 10_001, "Answer:"),
            ("language", "english please", "Language:"),
            ("buttons", "x" * 81, "Buttons: a label has 1 to 80 characters."),
            ("buttons", "\r\n".join("abcdefghi"), "Buttons: at most eight are possible."),
        ],
    )
    def test_that_are_invalid_keep_the_input(
        self, name: str, value: str, message: str, is_new: bool, browser: Browser, bot: Bot, path: str
    ) -> None:
        existing = CannedAnswer.create(bot_id=bot.id, question="Who?", answer="Hilda.")
        given = {"question": RTL, "answer": "Kept", "language": "en", "buttons": "One", name: value}
        more = {} if is_new else {"act": "save"}
        with nothing_changes():
            reply = send(browser, path if is_new else f"{path}/{existing.id}", **given, **more)
        assert reply.status == 400
        assert message in browser.text
        assert [field(browser, kept) for kept in ("question", "language")] == [given["question"], given["language"]]
        for text in (given["answer"], given["buttons"].replace("\r\n", r"\s+")):
            assert re.search(rf"<textarea[^>]*>\n{text}</textarea>", reply.raw.decode())

    def test_are_found_by_words_of_the_question_and_listed_in_pages(
        self, browser: Browser, bot: Bot, path: str
    ) -> None:
        for number in range(30):
            CannedAnswer.create(bot_id=bot.id, question=f"Question {number:02}", answer="Yes.")
        CannedAnswer.create(bot_id=bot.id, question="Opening hours", answer="Yes.")
        shown = browser.open(path).raw.decode()
        assert shown.count('<li class="list-item">') == 25
        assert "More answers" in browser.text
        shown = browser.open(f"{path}?search=hours").raw.decode()
        assert shown.count('<li class="list-item">') == 1
        assert "No matching answers" not in browser.text
        browser.open(f"{path}?search=unknown")
        assert "No matching answers" in browser.text

    def test_are_of_the_own_app_for_agents(
        self, agent: Client, other_agent: Client, alice: Client, bot: Bot, path: str
    ) -> None:
        answer = CannedAnswer.create(bot_id=bot.id, question="Who?", answer="Hilda.")
        for address in (path, f"{path}/{answer.id}"):
            for client, status in ((agent, 200), (other_agent, 403), (alice, 403)):
                assert Browser(client.application).signed_in(client).open(address).status == status


class TestTheAuditLog:
    def record(self, number: int, actor_id: str = "operator", kind: Any = "imported") -> None:
        with db.write():
            for place in range(number):
                AuditLog.record(kind, actor_id, "", place=place)

    def positions(self, browser: Browser, query: str = "") -> list[int]:
        reply = browser.open(f"/console/audit{query}")
        assert reply.status == 200
        return [int(number) for number in re.findall(r'id="e-(\d+)"', reply.raw.decode())]

    def test_is_listed_in_pages_newest_first(self, browser: Browser) -> None:
        self.record(60)
        last = AuditLog.select().count()
        seen: list[int] = []
        query = ""
        while True:
            seen += self.positions(browser, query)
            link = re.search(r'aria-label="Pages"><a class="secondary" href="([^"]+)"', browser.reply.raw.decode())
            if not link:
                break
            query = unescape(link[1])
        assert seen == list(range(last, 0, -1))

    def test_is_filtered_by_action_and_person(self, browser: Browser, alice: Client, bob: Client) -> None:
        self.record(2, alice.user.id, "logout")
        self.record(1, bob.user.id, "logout")
        assert len(self.positions(browser, "?kind=logout")) == 3
        for person in (alice.user.email, alice.user.email.upper(), alice.user.id):
            assert len(self.positions(browser, f"?kind=logout&person={person}")) == 2
        assert alice.user.email in browser.text
        assert self.positions(browser, "?kind=purged") == []
        assert "No matching entries" in browser.text

    def test_is_filtered_by_local_time(self, browser: Browser, admin: Client) -> None:
        User.update(timezone="Asia/Tokyo").where(User.id == admin.user.id).execute()
        self.record(1)
        position = AuditLog.select().order_by(AuditLog.position.desc()).first().position
        AuditLog.update(created_at="2030-05-01T00:30:00.000Z").where(AuditLog.position == position).execute()
        assert self.positions(browser, "?since=2030-05-01T09:30&until=2030-05-01T09:31") == [position]
        assert self.positions(browser, "?since=2030-05-01T09:31") == []
        assert position not in self.positions(browser, "?until=2030-05-01T09:29")

    @pytest.mark.parametrize("query", ["kind=x", "person=x@example.com", "since=x", "until=2026"])
    def test_shows_errors_in_filters_and_keeps_them(self, query: str, browser: Browser) -> None:
        reply = browser.open(f"/console/audit?{query}")
        assert reply.status == 400
        assert 'role="alert"' in reply.raw.decode()
        assert query.partition("=")[2] in reply.raw.decode() or query == "kind=x"

    def test_is_verified(self, browser: Browser) -> None:
        self.record(3)
        head = AuditLog.verify()
        assert send(browser, "/console/audit").status == 200
        assert f"{head.position:,} entries verified. Head: {head}" in browser.text

    def test_that_was_altered_is_reported(self, browser: Browser) -> None:
        self.record(3)
        AuditLog.update(details='{"place":9}').where(AuditLog.position == 2).execute()
        assert send(browser, "/console/audit").status == 400
        assert "entry 2 was altered" in browser.text
        assert "is valid" not in browser.text

    def test_is_verified_by_one_request_at_a_time(self, browser: Browser) -> None:
        with audit_log._verifying:
            busy = send(browser, "/console/audit")
        assert (busy.status, busy.headers["Retry-After"]) == (503, "2")
        assert "in progress" in browser.text
        assert send(browser, "/console/audit").status == 200

    def test_is_verified_within_a_time_limit(self, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
        self.record(1000)
        monkeypatch.setattr(audit_log, "VERIFY_SECONDS", -1.0)
        assert send(browser, "/console/audit").status == 400
        assert "cx-service audit verify" in browser.text
        with pytest.raises(VerificationTimeout):
            AuditLog.verify(time_limit=-1.0)
        monkeypatch.undo()
        assert send(browser, "/console/audit").status == 200

    def test_verification_finds_a_removed_entry(self, browser: Browser) -> None:
        self.record(3)
        AuditLog.delete().where(AuditLog.position == 2).execute()
        with pytest.raises(BrokenChain):
            AuditLog.verify()
        assert send(browser, "/console/audit").status == 400


class TestDataSharesOfAllUsers:
    @pytest.fixture
    def grants(self, alice: Client, bob: Client) -> list[DataShare]:
        return [
            DataShare.grant(one.user.id, mcp_server_id=f"{RTL} {one.user.email}", allowed_tools='["read"]')
            for one in (alice, bob)
        ]

    def test_are_listed_with_their_users(self, browser: Browser, grants: list[DataShare]) -> None:
        browser.open("/console/all-shares")
        assert all(grant.mcp_server_id in browser.text for grant in grants)
        assert all(User.get_by_id(grant.user_id).email in browser.text for grant in grants)

    def test_are_filtered_by_user(self, browser: Browser, grants: list[DataShare], alice: Client) -> None:
        browser.open(f"/console/all-shares?person={alice.user.email}")
        assert [grant.mcp_server_id in browser.text for grant in grants] == [True, False]
        assert browser.open("/console/all-shares?person=x@example.com").status == 400
        assert "No user has the e-mail address x@example.com." in browser.text

    def test_are_revoked(self, browser: Browser, grants: list[DataShare], admin: Client) -> None:
        send(browser, "/console/all-shares", id=grants[0].id)
        assert "Access revoked." in browser.text
        active = DataShare.select().where(DataShare.active())
        assert [grant.id for grant in active] == [grants[1].id]
        assert AuditLog.get(AuditLog.kind == "data_share_revoked").actor_id == admin.user.id
        browser.open("/console/all-shares?past=true")
        assert grants[0].mcp_server_id in browser.text

    def test_are_listed_in_pages(self, browser: Browser, alice: Client) -> None:
        for number in range(30):
            DataShare.create(user_id=alice.user.id, mcp_server_id=f"server {number:02}", allowed_tools='["*"]')
        browser.open("/console/all-shares")
        assert len(re.findall(r"<h2><bdi>server \d\d</bdi></h2>", browser.reply.raw.decode())) == 25
        assert "Older grants" in browser.text


class TestCredentialsOfServers:
    PAGE = "/console/server-credentials"

    def shown(self, browser: Browser) -> list[str]:
        """Return the identifier and the secret that the page shows."""
        assert browser.reply.headers["Cache-Control"] == "no-store"
        return re.findall(r'<input value="([^"]*)" readonly', browser.reply.raw.decode())

    def form(self, browser: Browser, **values: str) -> dict[str, str]:
        """Open the page, and return the fields of a form of it."""
        browser.open(self.PAGE)
        fields = next(fields for _, fields in Forms(browser.reply.raw.decode()).found if "number" in fields)
        return {name: fields[name] for name in ("csrf_token", "number")} | values

    def entries(self) -> list[AuditLog]:
        return list(AuditLog.select().where(AuditLog.kind.startswith("server_credential")).order_by(AuditLog.position))

    def add(self, name: str = "Gateway") -> ServerCredential:
        issued = ServerCredential.add({"name": name, "mcp_server_id": f"{RTL} files"}, OPERATOR)
        return ServerCredential.get_by_id(issued.client_id)

    def test_are_added_with_a_secret_that_is_shown_once(self, browser: Browser, admin: Client) -> None:
        send(browser, self.PAGE, act="add", name=f" {RTL} ", mcp_server_id=" files ")
        assert "Credential added." in browser.text
        id, secret = self.shown(browser)
        (credential,) = ServerCredential.select()
        assert (credential.id, credential.name, credential.mcp_server_id) == (id, RTL, "files")
        assert secret.startswith("cxm_") and len(secret) == len("cxm_") + 43 and credential.has_secret(secret)
        browser.open(self.PAGE)
        assert (self.shown(browser), secret in browser.text, RTL in browser.text) == ([], False, True)
        assert "never asked" in browser.text
        (entry,) = self.entries()
        about = (entry.kind, entry.actor_id, entry.subject_id, entry.details)
        assert about == ("server_credential_added", admin.user.id, id, '{"server":"files"}')

    def test_are_added_once_if_the_form_is_sent_twice(self, browser: Browser) -> None:
        form = self.form(browser, act="add", name="Gateway", mcp_server_id="files")
        shown = []
        for _ in range(2):
            browser.navigate("POST", self.PAGE, form)
            shown.append(self.shown(browser))
        assert shown[0] == shown[1] and len(shown[0]) == 2
        assert browser.navigate("POST", self.PAGE, {**form, "name": "Another"}).status == 400
        (credential,) = ServerCredential.select()
        credential.rotate(OPERATOR, at_once=True)
        browser.navigate("POST", self.PAGE, form)
        assert (self.shown(browser), ServerCredential.select().count()) == ([], 1)

    def test_need_a_name_and_a_server(self, browser: Browser) -> None:
        for name, server in (("", "files"), ("Gateway", " "), ("x" * 201, "files"), ("Gateway", "x" * 256)):
            browser.open(self.PAGE)
            with nothing_changes():
                assert send(browser, self.PAGE, act="add", name=name, mcp_server_id=server).status == 400
            assert field(browser, "name") == name

    def test_get_another_secret(self, browser: Browser, admin: Client) -> None:
        first = ServerCredential.add({"name": "Gateway", "mcp_server_id": "files"}, OPERATOR)

        def validity(*issued: str) -> list[bool]:
            return [ServerCredential.get_by_id(first.client_id).has_secret(secret) for secret in issued]

        browser.navigate("POST", self.PAGE, self.form(browser, act="rotate", id=first.client_id))
        id, second = self.shown(browser)
        assert id == first.client_id and "Secret replaced." in browser.text
        assert "previous secret valid until" in browser.text
        assert validity(first.secret, second) == [True, True]
        browser.navigate("POST", self.PAGE, self.form(browser, act="rotate", id=first.client_id, at_once="true"))
        third = self.shown(browser)[1]
        assert validity(first.secret, second, third) == [False, False, True]
        assert "previous secret valid until" not in browser.text
        ServerCredential.update(previous_expires_at="2026-01-01T00:00:00.000Z").execute()
        browser.open(self.PAGE)
        assert "previous secret valid until" not in browser.text
        assert [entry.kind for entry in self.entries()[1:]] == ["server_credential_rotated"] * 2
        assert {entry.actor_id for entry in self.entries()[1:]} == {admin.user.id}

    def test_never_get_a_former_secret_back(self, browser: Browser) -> None:
        credential = self.add()
        form = self.form(browser, act="rotate", id=credential.id, at_once="true")
        browser.navigate("POST", self.PAGE, form)
        leaked = self.shown(browser)[1]
        credential.rotate(OPERATOR, at_once=True)
        browser.navigate("POST", self.PAGE, form)
        assert self.shown(browser) == []
        assert not ServerCredential.get_by_id(credential.id).has_secret(leaked)

    def test_are_revoked(self, browser: Browser, admin: Client) -> None:
        credentials = [self.add("First"), self.add("Second")]
        for _ in range(2):
            browser.navigate("POST", f"{self.PAGE}/revocation", self.form(browser, id=credentials[0].id))
            assert "Credential revoked." in browser.text
        assert ("First" in browser.text, "Second" in browser.text) == (False, True)
        browser.open(f"{self.PAGE}?revoked=true")
        assert ("First" in browser.text, "Second" in browser.text) == (True, False)
        assert [(entry.kind, entry.actor_id) for entry in self.entries()[2:]] == [
            ("server_credential_revoked", admin.user.id)
        ]

    def test_that_are_revoked_or_unknown_get_no_secret(self, browser: Browser) -> None:
        credential = self.add()
        credential.revoke(OPERATOR)
        with pytest.raises(CredentialNotFound):
            credential.rotate(OPERATOR)
        for id in (credential.id, UNKNOWN_ID, ""):
            form = self.form(browser, act="rotate", id=id)
            with nothing_changes():
                assert browser.navigate("POST", self.PAGE, form).status == 404
            assert "it is revoked" in browser.text

    def test_show_the_time_of_the_last_question(self, browser: Browser) -> None:
        ServerCredential.record_question(self.add().id, 1_795_000_000_000)
        browser.open(self.PAGE)
        assert 'asked last <time datetime="2026-11-18T' in browser.reply.raw.decode()

    def test_are_listed_in_pages(self, browser: Browser) -> None:
        for number in range(30):
            self.add(f"Gateway {number:02}")
        browser.open(self.PAGE)
        assert len(re.findall(r"<h2><bdi>Gateway \d\d</bdi></h2>", browser.reply.raw.decode())) == 25
        assert "Older credentials" in browser.text

    def test_are_derived_from_nothing_that_is_stored_but_keys(self, browser: Browser) -> None:
        browser.open(self.PAGE)
        number = field(browser, "number")
        send(browser, self.PAGE, act="add", name="Gateway", mcp_server_id="files", number=number)
        secret = self.shown(browser)[1]
        contents = repr(stored())
        assert "console: server credential" in contents
        assert number not in contents and secret not in contents and secret.removeprefix("cxm_") not in contents


class TestHealth:
    def test_has_facts_checks_and_a_text_for_every_chart(self, browser: Browser) -> None:
        assert browser.open("/console/health").status == 200
        html = browser.reply.raw.decode()
        for text in (VERSION, "Last backup", "Requests per second", "Size of the database", "Checks"):
            assert text in browser.text
        drawings = re.findall(r'<svg [^>]*aria-labelledby="(chart-\d+)" aria-describedby="(text-\d+)"', html)
        assert len(drawings) == html.count('<li class="panel">') == 8
        for heading, text in drawings:
            assert html.count(f'id="{heading}"') == html.count(f'id="{text}"') == 1

    def test_draws_the_samples(self, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
        now = history.take_sample()
        earlier = [now._replace(at=now.at - age, pending_replies=age // 10) for age in (600, 300)]
        monkeypatch.setattr(history, "samples", earlier)
        browser.open("/console/health")
        assert "The last 10 minutes" in browser.text
        assert "Lowest 0, highest 60, mean 30." in browser.text

    def test_shows_the_quick_checks_of_the_doctor(self, browser: Browser, settings: Settings) -> None:
        if not settings.database:
            settings.data.chmod(0o755)
        assert {finding.about for finding in doctor.examine_host(settings)} <= {*FINDING_SUBJECTS}
        browser.navigate("GET", "/console/health", accept_language="ja")
        assert "アドレス" in browser.text
        if not settings.database:
            assert "other users can list" in browser.text

    def test_is_shown_while_samples_of_the_database_fail(
        self, browser: Browser, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        empty = history.take_sample()._replace(database_bytes=None, pending_replies=None)
        monkeypatch.setattr(history, "take_sample", lambda: empty)
        assert browser.open("/console/health").status == 200
        assert "No values yet." in browser.text
