"""A day of an admin, a customer and an agent in a real browser, from an empty folder, in several languages.

With CX_SCREENSHOTS, the path of a folder, the test writes images of each step.
"""

import itertools
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service import translation
from service.console.labels import capitalized_label, label_of
from service.translation import gettext
from tests.support import sample_data as h
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, windows
from tests.support.server_process import serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

SCREENSHOTS = os.environ.get("CX_SCREENSHOTS", "")
QUESTION, ANSWER = "When are you open?", "From nine to five."


class Day:
    """The browsers of the people, all in one language and one colour scheme."""

    def __init__(self, visit: Callable[..., Visit], language: str, colours: str) -> None:
        self.visit, self.language, self.colours, self.steps = visit, language, colours, 0

    def text(self, text: str, **values: object) -> str:
        """A text of the pages in the language."""
        with translation.use(self.language):
            return gettext(text, **values)

    def label(self, value: str) -> str:
        with translation.use(self.language):
            return label_of(value)

    def window(self, width: int) -> Visit:
        visitor = self.visit(self.colours, width, locale=self.language)
        visitor.expected = ("401",)  # the sign-in page
        return visitor

    def check(self, visitor: Visit, width: int, step: str) -> None:
        """Check the language and the accessibility of a page, and write its image if asked for."""
        visitor.page.wait_for_load_state()
        html = visitor.page.locator("html")
        expect(html).to_have_attribute("lang", self.language)
        assert html.get_attribute("dir") == ("rtl" if self.language == "ar" else None)
        visitor.check_accessibility([(self.colours, width)])
        status = visitor.page.locator(".chat-header .meta")
        assert not status.evaluate_all("found => found.some((one) => one.scrollWidth > one.clientWidth)")  # not cut off
        self.steps += 1
        if SCREENSHOTS:
            self.write_images(visitor.page, width, f"{self.language}-{self.steps:02}-{step}")

    def write_images(self, page: Page, width: int, name: str) -> None:
        """Write images of a page in both colour schemes and both sizes."""
        height = (page.viewport_size or {})["height"]
        for colours, size in itertools.product((LIGHT, DARK), (WIDE, NARROW)):
            page.set_viewport_size({"width": size, "height": height})
            page.emulate_media(color_scheme=colours)  # type: ignore[arg-type]
            page.screenshot(path=Path(SCREENSHOTS, f"{name}-{colours}-{size}.png"), animations="disabled")
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=self.colours)  # type: ignore[arg-type]

    def press(self, page: Page, text: str, *, exact: bool = True) -> None:
        page.get_by_role("button", name=self.text(text), exact=exact).click()

    def sign_in(self, visitor: Visit, address: str, email: str, password: str) -> Page:
        page = visitor.open(address)
        page.get_by_label(self.text("E-mail address")).fill(email)
        page.get_by_label(self.text("Password")).fill(password)
        self.press(page, "Sign in")
        expect(page.locator("main#main")).to_be_visible()
        page.wait_for_load_state()
        return page

    def go(self, page: Page, link: str) -> None:
        """Follow a link of the menu."""
        page.get_by_role("navigation", name=self.text("Console")).get_by_role(
            "link", name=self.text(link), exact=True
        ).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(self.text(link))
        page.wait_for_load_state()

    def expect_success(self, page: Page, text: str) -> None:
        """Expect a message of success, inside the conversation if there is one."""
        expect(page.locator(".toast.success")).to_have_text(self.text(text))
        page.wait_for_load_state()  # the places depend on the style sheet
        toast, beside = (
            page.locator(name).last.bounding_box() for name in (".toast.success", "main#main, .conversation")
        )
        assert toast and beside
        assert beside["x"] <= toast["x"] and toast["x"] + toast["width"] <= beside["x"] + beside["width"]


@pytest.mark.parametrize(
    ("language", "colours"),
    [
        ("en", LIGHT),
        ("ar", DARK),
        pytest.param("de", DARK, marks=pytest.mark.extended),
        pytest.param("ja", LIGHT, marks=pytest.mark.extended),
    ],
)
def test_a_day_from_an_empty_folder(language: str, colours: str, chromium: Browser, tmp_path: Path) -> None:
    picture = tmp_path / "parcel.png"
    picture.write_bytes(h.picture())
    with serving(tmp_path / "data", "--verify-answers") as server, windows(chromium) as open_window:
        day = Day(partial(open_window, server), language, colours)

        # The first admin, an app, a bot with a canned answer, an agent and a customer.
        boss = day.window(WIDE)
        [link] = re.findall(r"in a browser: \S+?/(setup\?token=\S+)", server.errors)
        page = boss.open(f"/{link}")
        page.locator("[name=email]").fill("anna@example.com")
        page.locator("[name=display_name]").fill("Anna")
        page.locator("[name=password]").fill("anna-has-a-secret")
        page.locator("[name=starter]").uncheck()
        day.check(boss, WIDE, "first-admin")
        day.press(page, "Create and sign in")
        day.check(boss, WIDE, "first-step")
        page.get_by_role("link", name=day.text("Create an app")).click()
        page.locator("[name=name]").fill("Tea House")
        day.press(page, "Create")
        day.expect_success(page, "App created.")
        customer_link = str(
            page.get_by_role("link", name=day.text("Link for customers of {name}", name="Tea House")).get_attribute(
                "href"
            )
        )
        day.go(page, "Inbox")
        page.get_by_role("link", name=day.text("Create a bot")).click()
        page.locator("[name=name]").fill("Teapot")
        page.locator("[name=status]").select_option("published")
        page.locator("[name=presence]").select_option("online")
        day.check(boss, WIDE, "new-bot")
        day.press(page, "Save")
        day.expect_success(page, "Bot created.")
        page.get_by_role("link", name=day.text("Canned answers")).click()
        page.locator("[name=question]").fill(QUESTION)
        page.locator("[name=answer]").fill(ANSWER)
        day.press(page, "Add")
        day.expect_success(page, "Canned answer added.")
        for email, role, name in (("cem@example.com", "user", "Cem"), ("gül@example.com", "agent", "Gül")):
            day.go(page, "Users")
            page.get_by_text(day.text("Add a user")).click()
            form = page.locator("form:has([name=password])")
            form.locator("[name=email]").fill(email.replace("ü", "u"))
            form.locator("[name=password]").fill(f"{name}-has-a-secret")
            form.locator("[name=display_name]").fill(name)
            form.locator("[name=role]").select_option(role)
            if role == "agent":
                form.locator("[name=app_id]").select_option(label="Tea House")
            day.press(page, "Add")
            day.expect_success(page, "User added.")
        day.go(page, "Users")
        day.check(boss, WIDE, "users")

        # The customer chats with the bot, and sends a photograph.
        customer = day.window(NARROW)
        phone = day.sign_in(customer, customer_link, "cem@example.com", "Cem-has-a-secret")
        day.check(customer, NARROW, "bots")
        phone.get_by_role("button", name=day.text("Chat with {name}", name="Teapot")).click()
        field = phone.locator("textarea[name=text]")
        field.fill(QUESTION)
        day.press(phone, "Send")
        expect(phone.locator(".message.bot .text")).to_have_text(ANSWER)
        phone.locator(".attach [type=file]").set_input_files(picture)
        expect(phone.get_by_role("img", name=day.text("Picture to send"))).to_be_visible()
        field.fill("The parcel looks like this.")
        day.press(phone, "Send")
        expect(phone.locator(".message.own img")).to_be_visible()
        day.check(customer, NARROW, "customer")

        # The agent takes over, writes a note, answers, snoozes and resolves.
        agent = day.window(WIDE)
        desk = day.sign_in(agent, "/", "gul@example.com", "Gül-has-a-secret")
        day.check(agent, WIDE, "inbox")
        desk.locator(".chats a").first.click()
        expect(desk.locator(".message.user img, .message.customer img")).not_to_have_count(0)
        desk.get_by_text(day.text("Manage"), exact=True).click()
        day.press(desk, "Take over the chat")
        day.expect_success(desk, "Assigned.")
        desk.get_by_role("checkbox", name=day.text("Private note")).check()
        desk.locator("textarea[name=text]").fill("She is a regular.")
        day.press(desk, "Add private note")
        expect(desk.locator(".message.private .text")).to_have_text("She is a regular.")
        desk.get_by_role("checkbox", name=day.text("Private note")).uncheck()
        desk.locator("textarea[name=text]").fill("We send a new one.")
        day.press(desk, "Send")
        expect(desk.locator(".message.own:not(.private) .text")).to_have_text("We send a new one.")
        day.check(agent, WIDE, "agent")
        expect(phone.locator(".message.agent .text")).to_have_text("We send a new one.")
        expect(phone.get_by_text("She is a regular.")).to_have_count(0)
        desk.get_by_text(day.text("Manage"), exact=True).click()
        day.press(desk, "Snooze")
        day.expect_success(desk, "Snoozed.")
        expect(desk.locator("[data-part=status]")).to_contain_text(day.label("snoozed"))
        field.fill("Thank you!")
        day.press(phone, "Send")
        expect(desk.locator("[data-part=status]")).to_contain_text(day.label("open"))
        expect(desk.locator(".message .text", has_text="Thank you!")).to_be_visible()
        desk.get_by_text(day.text("Manage"), exact=True).click()
        day.press(desk, "End the chat")
        expect(desk.locator("[data-part=status]")).to_contain_text(day.label("resolved"))
        day.check(agent, WIDE, "resolved")
        day.check(customer, NARROW, "answered")

        # The admin sees it in the audit log, and makes a backup.
        day.go(page, "Audit log")
        with translation.use(language):
            expect(page.get_by_role("heading", name=capitalized_label("assignee_changed"))).to_be_visible()
        day.check(boss, WIDE, "audit-log")
        day.go(page, "Backups")
        day.press(page, "Make a backup")
        download = page.get_by_role("button", name=day.text("Download"))
        refresh = page.get_by_role("link", name=day.text("Refresh"))
        expect(download.or_(refresh).first).to_be_visible()
        for _ in range(60):
            if download.count():
                break
            page.wait_for_timeout(500)
            page.reload()
        expect(download).to_be_visible()
        day.check(boss, WIDE, "backup")
        assert "Traceback" not in server.errors
