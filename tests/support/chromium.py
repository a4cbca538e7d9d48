"""A real browser with the real server: headless Chromium, driven by Playwright.

The pages' policy forbids `eval`, and with it Playwright's `wait_for_function`: wait with `expect(…)` instead.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    Route,
    expect,
    sync_playwright,
)

from tests.support import sample_data
from tests.support.passwords import PASSWORD
from tests.support.server_process import Served

INSTALL = "NOT TESTED: Chromium is missing; on Debian: apt-get install chromium"
LIGHT, DARK = "light", "dark"
WIDE, NARROW = 1280, 390
TIMEOUT = 60_000  # milliseconds; long, so that no test depends on the speed of the machine
expect.set_options(timeout=TIMEOUT)

# No host name can be resolved, neither by a page nor by the browser itself.
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE ::1"
LOG_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
  console.error(`policy: ${violatedDirective} forbids ${blockedURI}`));
"""


def find_chromium() -> str:
    """The browser's path. Without one the test is skipped, or fails where CI is set."""
    found = shutil.which("chromium")
    if found:
        return found
    if os.environ.get("CI"):
        pytest.fail(INSTALL)
    pytest.skip(INSTALL)


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser. A process can have one at a time: the fixture `chromium` of tests/conftest.py."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[OFFLINE])
        yield browser
        browser.close()


class Site(Protocol):
    """A server, or a proxy of it."""

    url: str


class Visit:
    """A browser window. Records the errors and warnings of its pages, and the requested addresses."""

    def __init__(self, context: BrowserContext, server: Site) -> None:
        self.context, self.server = context, server
        self.console_messages: list[str] = []
        self.expected: tuple[str, ...] = ()  # parts of messages that are not faults
        self.requested_urls: list[str] = []
        context.set_default_timeout(TIMEOUT)
        context.add_init_script(LOG_VIOLATIONS)
        context.on("console", self._record)
        context.on("weberror", lambda error: self.console_messages.append(str(error.error)))
        context.on("request", lambda request: self.requested_urls.append(request.url))
        self.page: Page = context.new_page()

    def _record(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.console_messages.append(f"{message.text} ({message.location['url']})")

    def open(self, path: str) -> Page:
        """Open a page of the server."""
        self.page.goto(self.server.url + path)
        return self.page

    @contextmanager
    def intercept(self, is_meant: Callable[[Request], bool], act: Callable[[Route], object]) -> Iterator[None]:
        """Handle those requests of the page with `act`.

        The route stays until the page is closed. Removing it would disturb requests that are still being handled.
        """
        is_active = True
        self.page.route("**", lambda route: act(route) if is_active and is_meant(route.request) else route.fallback())
        yield
        is_active = False

    @contextmanager
    def without_updates(self) -> Iterator[None]:
        """Hold the live updates of the page until the end of the block."""
        held: list[Route] = []
        with self.intercept(is_update, held.append):
            yield
        for route in held:
            route.continue_()

    def is_too_wide(self) -> bool:
        """Whether the page scrolls horizontally."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def check_accessibility(self, windows: Iterable[tuple[str, int]]) -> None:
        """Fail if axe-core finds a violation in the open page, or if it scrolls horizontally, in a window.

        A window is a colour scheme and a width in pixels.
        """
        for colours, width in windows:
            self.page.emulate_media(color_scheme=colours)  # type: ignore[arg-type]
            self.page.set_viewport_size({"width": width, "height": 844})
            # A colour in the middle of a transition, or a message that fades out, is not what a person reads.
            self.page.evaluate("document.getAnimations().forEach(animation => animation.cancel())")
            found = Axe().run(self.page).response
            faults = [f"{fault['id']}: {fault['help']}: {fault['nodes'][0]['html']}" for fault in found["violations"]]
            assert not faults, (*faults, self.page.url, colours, width)
            assert len(found["passes"]) > 10
            assert not self.is_too_wide(), (self.page.url, width)

    def colour(self, selector: str, of: str = "background-color") -> str:
        """A colour as the browser has computed it."""
        return str(self.page.eval_on_selector(selector, f"element => getComputedStyle(element)['{of}']"))

    def faults(self) -> list[str]:
        """Unexpected messages, and requested addresses of other servers."""
        known = (*self.expected, "/favicon.ico")  # requested by browsers for pages that do not declare an icon
        unexpected = [text for text in self.console_messages if not any(part in text for part in known)]
        return unexpected + [
            url for url in self.requested_urls if not url.startswith((f"{self.server.url}/", "data:", "blob:"))
        ]


def sends_message(request: Request) -> bool:
    """Whether a page of the console sends a message with it."""
    return request.method == "POST" and "number=" in (request.post_data or "")


def is_update(request: Request) -> bool:
    """Whether a page of the console asks for changes with it, or for its newest version."""
    return request.resource_type == "fetch" and request.method == "GET"


def lose_response(route: Route) -> None:
    """Let the server handle a request, and the page wait in vain."""
    route.fetch()
    route.abort()


@contextmanager
def windows(chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Open browser windows on servers, in any colours and width. Fails at the end if they have faults."""
    visits: list[Visit] = []

    def begin(server: Site, colours: str = LIGHT, width: int = WIDE, **more: Any) -> Visit:
        options: dict[str, Any] = {"color_scheme": colours, "viewport": {"width": width, "height": 900}}
        visits.append(Visit(chromium.new_context(**options, **more), server))
        return visits[-1]

    yield begin
    for visit in visits:
        visit.context.close()
    faults = [fault for visit in visits for fault in visit.faults()]
    assert not faults, "\n".join(faults)


@pytest.fixture(name="visit")
def visit_fixture(chromium: Browser, server: Served) -> Iterator[Callable[..., Visit]]:
    """Open browser windows on the module's `server`."""
    with windows(chromium) as begin:
        yield partial(begin, server)


def sign_in(page: Page, email: str, password: str = PASSWORD) -> None:
    """Sign a user in on the sign-in page. Returns when the next page is loaded and its scripts have run."""
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    with page.expect_navigation():
        page.get_by_label("Password").press("Enter")


def type_until_shown(writer: Visit, indicator: Locator) -> None:
    """Type until an indicator is shown: the first keys may come shortly after an earlier indicator."""
    for _ in range(100):
        writer.page.locator("textarea[name=text]").press_sequentially("a")
        with suppress(AssertionError):
            expect(indicator).to_be_visible(timeout=200)
            return
    raise AssertionError("no typing indicator is shown")


def open_chat(
    visit: Callable[..., Visit], name: str, *options: object, session: str = sample_data.BUSY, **more: object
) -> Visit:
    """Sign a user in and open a chat of Alice."""
    visitor = visit(*options, **more)
    visitor.expected = ("401",)  # the sign-in page
    page = visitor.open(f"/console/chats/{session}")
    sign_in(page, sample_data.EMAILS[name])
    expect(page.get_by_label("Your message")).to_be_visible()
    return visitor
