"""Pictures in the composer, in a real browser."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, Route, expect

from tests.support import chromium, sample_data
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, sends_message, visit_fixture  # noqa: F401
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

PASTE = """([kind, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], "picture.png", { type: "image/png" }));
  const field = document.querySelector(".composer textarea");
  const init = { bubbles: true, cancelable: true, [kind === "paste" ? "clipboardData" : "dataTransfer"]: data };
  field.dispatchEvent(kind === "paste" ? new ClipboardEvent("paste", init) : new DragEvent("drop", init));
}"""


def picture(colour: str = "teal") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (300, 200), colour).save(stream, "PNG")
    return stream.getvalue()


def file(content: bytes, name: str = "picture.png", kind: str = "image/png") -> Any:
    return {"name": name, "mimeType": kind, "buffer": content}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("images") / "data"
    fill(data, sample_data.records())
    with serving(data, "--verify-answers") as running:
        yield running
        assert "Traceback" not in running.errors


@pytest.fixture
def open_chat(visit: Callable[..., Visit]) -> Callable[..., Visit]:
    """Sign Alice in and open a chat."""
    return partial(chromium.open_chat, visit, "alice")


def attach(page: Page, *files: Any) -> None:
    """Choose files in the dialog of the attach button."""
    with page.expect_file_chooser() as chooser:
        page.locator(".attach > summary").click()
    chooser.value.set_files(list(files))


def send(page: Page) -> None:
    page.get_by_role("button", name="Send", exact=True).click()


def test_pictures_are_chosen_pasted_and_dropped_and_can_be_removed(open_chat: Callable[..., Visit]) -> None:
    visitor = open_chat()
    page = visitor.page
    attached = page.locator(".attached img")
    attach(page, file(picture()))
    expect(attached).to_have_count(1)
    for number, kind in enumerate(("paste", "drop"), 2):
        page.evaluate(PASTE, [kind, [*picture("red")]])
        expect(attached).to_have_count(number)
    page.get_by_role("button", name="Remove").first.click()
    expect(attached).to_have_count(2)
    before = page.locator(".message.own").count()
    send(page)
    expect(page.locator(".message.own")).to_have_count(before + 1)
    newest = page.locator(".message.own").last
    expect(newest.locator(".images img")).to_have_count(2)
    expect(attached).to_have_count(0)
    expect(page.get_by_label("Your message")).to_have_attribute("required", "")
    link = newest.locator(".images a").first
    expect(link).to_have_attribute("target", "_blank")
    response = page.context.request.get(visitor.server.url + str(link.get_attribute("href")))
    assert (response.status, response.headers["content-type"]) == (200, "image/webp")


def test_pictures_and_text_are_sent_with_the_keyboard(open_chat: Callable[..., Visit]) -> None:
    page = open_chat().page
    with page.expect_file_chooser() as chooser:
        page.locator(".attach > summary").focus()
        page.keyboard.press("Enter")
    chooser.value.set_files([file(picture())])
    expect(page.locator(".attached img")).to_have_count(1)
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.type("From the keyboard")
    page.keyboard.press("Enter")
    newest = page.locator(".message", has_text="From the keyboard")
    expect(newest.locator(".images img")).to_have_count(1)


def test_invalid_files_are_reported_and_lose_nothing(open_chat: Callable[..., Visit]) -> None:
    visitor = open_chat()
    visitor.expected += ("400",)
    page = visitor.page
    page.get_by_label("Your message").fill("My text")
    attach(page, file(picture()))
    expect(page.locator(".attached img")).to_have_count(1)
    for bad, reason in (
        (file(b"x", "a.txt", "text/plain"), "Expected JPEG, PNG or WebP pictures."),
        (file(bytes(5 * 2**20 + 1)), "The file is larger than 5 MiB."),
        (file(picture()[:-1]), "The picture is damaged or incomplete."),
    ):
        attach(page, bad)
        expect(page.locator(".attach-error")).to_have_text(reason)
    attach(page, *[file(picture())] * 4)
    expect(page.locator(".attach-error")).to_have_text("A message has at most four pictures.")
    expect(page.locator(".attached img")).to_have_count(1)
    expect(page.get_by_label("Your message")).to_have_value("My text")


def test_unsent_pictures_stay_in_the_composer(open_chat: Callable[..., Visit]) -> None:
    visitor = open_chat()
    visitor.expected += ("Failed to load resource",)
    page = visitor.page
    attach(page, file(picture()))
    expect(page.locator(".attached img")).to_have_count(1)
    with visitor.intercept(sends_message, Route.abort):
        send(page)
        expect(page.get_by_role("alert")).to_be_visible()
    page.locator(".unsent").get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Your message")).not_to_have_attribute("required", "")
    expect(page.locator(".attached img")).to_have_count(1)
    before = page.locator(".message.own .images img").count()
    send(page)
    expect(page.locator(".message.own .images img")).to_have_count(before + 1)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_pictures_are_sent_without_scripts(width: int, open_chat: Callable[..., Visit]) -> None:
    page = open_chat(LIGHT, width, java_script_enabled=False).page
    page.get_by_label("Your message").fill(f"Without scripts, {width}")
    for number in (1, 2):
        page.locator(".attach > summary").click()
        page.get_by_label("Picture", exact=True).set_input_files(file(picture()))
        page.get_by_role("button", name="Attach", exact=True).click()
        expect(page.locator(".attached img")).to_have_count(number)
        expect(page.get_by_label("Your message")).to_have_value(f"Without scripts, {width}")
    page.locator(".attached input").last.uncheck()
    send(page)
    newest = page.locator(".message", has_text=f"Without scripts, {width}")
    expect(newest.locator(".images img")).to_have_count(1)


def test_pictures_are_accessible(open_chat: Callable[..., Visit]) -> None:
    visitor = open_chat()
    attach(visitor.page, file(picture()), file(picture("red")))
    expect(visitor.page.locator(".attached img")).to_have_count(2)
    send(visitor.page)
    expect(visitor.page.locator(".message.own .images img").last).to_be_visible()
    attach(visitor.page, file(picture()))
    expect(visitor.page.locator(".attached img")).to_have_count(1)
    visitor.check_accessibility([(colours, width) for colours in (LIGHT, DARK) for width in (WIDE, NARROW)])
