"""A real browser before the real server: Chromium, headless, driven by Playwright.

The pages' policy forbids `eval`, and with it Playwright's `wait_for_function`: wait with `expect(…)` instead.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.serving import Served

INSTALL = "NOT TESTED: Chromium is missing; on Debian: apt-get install chromium"
LIGHT, DARK = "light", "dark"
WIDE, NARROW = 1280, 390
PATIENCE = 60_000  # milliseconds, after which a page hangs: no test depends on how fast the machine is
expect.set_options(timeout=PATIENCE)

# No name leads anywhere, whatever a page or the browser itself would like to look up.
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE ::1"
TELL_OF_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
  console.error(`policy: ${violatedDirective} forbids ${blockedURI}`));
"""


def find_chromium() -> str:
    """The browser's path. Without one the test is skipped, or fails where CI is set."""
    found = shutil.which("chromium")
    if not found:
        pytest.fail(INSTALL) if os.environ.get("CI") else pytest.skip(INSTALL)
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser. A process can have one at a time: the fixture `chromium` of tests/conftest.py."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[OFFLINE])
        yield browser
        browser.close()


class Visit:
    """A person in a window of their own. What the pages complain of, and all that they ask for, is noted."""

    def __init__(self, context: BrowserContext, server: Served) -> None:
        self.context, self.server = context, server
        self.complaints: list[str] = []
        self.expected: tuple[str, ...] = ()  # parts of complaints that are no fault
        self.asked: list[str] = []  # addresses
        context.set_default_timeout(PATIENCE)
        context.add_init_script(TELL_OF_VIOLATIONS)
        context.on("console", self._hear)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("request", lambda request: self.asked.append(request.url))
        self.page: Page = context.new_page()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({message.location['url']})")

    def open(self, path: str) -> Page:
        """Go to a page of the server."""
        self.page.goto(self.server.url + path)
        return self.page

    def is_too_wide(self) -> bool:
        """Whether the page has to be moved sideways to be read."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def colour(self, selector: str, of: str = "background-color") -> str:
        """A colour as the browser has computed it."""
        return str(self.page.eval_on_selector(selector, f"element => getComputedStyle(element)['{of}']"))

    def faults(self) -> list[str]:
        """Unexpected complaints, and addresses that are not the server's."""
        known = (*self.expected, "/favicon.ico")  # for which a browser asks by itself where nothing names an icon
        strange = [said for said in self.complaints if not any(part in said for part in known)]
        return strange + [url for url in self.asked if not url.startswith((f"{self.server.url}/", "data:", "blob:"))]


@pytest.fixture(name="visit")
def visit_fixture(chromium: Browser, server: Served) -> Iterator[Callable[..., Visit]]:
    """Makes a visit to the module's `server`, in any colours and width; every visit ends without faults."""
    visits: list[Visit] = []

    def begin(colours: str = LIGHT, width: int = WIDE, **more: Any) -> Visit:
        size = {"width": width, "height": 900}
        visits.append(Visit(chromium.new_context(color_scheme=colours, viewport=size, **more), server))
        return visits[-1]

    yield begin
    for visit in visits:
        visit.context.close()
    faults = [fault for visit in visits for fault in visit.faults()]
    assert not faults, "\n".join(faults)
