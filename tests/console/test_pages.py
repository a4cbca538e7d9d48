"""Static files and pages: headers and markup, and the pages in a browser."""

import hashlib
import io
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from service.http.application import build_app
from service.routes import operations
from tests.support import chromium
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, visit_fixture  # noqa: F401
from tests.support.client import Client, text_of
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.security_headers import PAGE, SCRIPTED, STRICT, policy
from tests.support.server_process import SESSION, Served, chat, fill, serving

pytestmark = pytest.mark.database


STATIC = ROOT / "static"
VENDORED = STATIC / "vendor" / "swagger-ui"
STATIC_FILES = sorted(file.relative_to(STATIC).as_posix() for file in STATIC.rglob("*") if file.is_file())
TYPES = {".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"}
CONSENT = (
    "/api/v1/auth/cli/authorize?client_id=service-cli&response_type=code&code_challenge_method=S256"
    f"&code_challenge={'a' * 43}&redirect_uri=http://127.0.0.1:8976/callback&state=x"
    f"&install_id={'i' * 128}&install_name=Anna%27s%20laptop&scope=chats:read%20{'nonsense' * 20}"
)
ERRORS = f"/api/v1/auth/cli/authorize?client_id={'w' * 300}"
PAGES = {"inbox": "/", "reference": "/docs", "consent": CONSENT, "errors": ERRORS}

every_page = pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)


def windows(widths: list[int], usual: list[tuple[int, str]]) -> list[Any]:
    """Each width in light and dark; all but the usual ones are for `make test-all` only."""
    every = [(width, colours) for width in widths for colours in (LIGHT, DARK)]
    return [pytest.param(*one, marks=[] if one in usual else [pytest.mark.extended]) for one in every]


every_static_file = pytest.mark.parametrize("name", STATIC_FILES)


# Static files.


@every_static_file
def test_static_file_is_sent_unchanged(name: str, anyone: Client) -> None:
    reply = anyone.get(f"//static/{name}")
    assert (reply.status, reply.raw) == (200, (STATIC / name).read_bytes())
    assert reply.headers["Content-Type"] == f"{TYPES.get(Path(name).suffix, 'text/plain')}; charset=utf-8"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    # Opened directly, it can load nothing.
    sandbox = "" if name == "push-worker.js" else "; sandbox"
    assert reply.headers["Content-Security-Policy"] == f"default-src 'none'{sandbox}"


@every_static_file
def test_static_file_is_cached_and_revalidated(name: str, anyone: Client) -> None:
    first = anyone.get(f"//static/{name}")
    assert first.headers["Cache-Control"] == "no-cache"
    assert re.fullmatch(r'"[0-9a-f]{16}"', first.headers["ETag"])
    again = anyone.get(f"//static/{name}", if_none_match=first.headers["ETag"])
    assert (again.status, again.raw, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert anyone.get(f"//static/{name}", if_none_match='"0123456789abcdef"').status == 200


def test_static_files_have_distinct_etags(anyone: Client) -> None:
    assert len({anyone.get(f"//static/{name}").headers["ETag"] for name in STATIC_FILES}) == len(STATIC_FILES)


INVALID_NAMES = [
    "",
    "/",
    "vendor",
    "vendor/",
    "../app.py",
    "vendor/../../app.py",
    "vendor/../style.css",
    "./style.css",
    "/style.css",
    "//style.css",
    "..\\app.py",
    "/etc/passwd",
    f"{STATIC}/style.css",
    "style.css/",
    "style.css\n",
    "style.css\0",
    "STYLE.CSS",
    "%2e%2e/app.py",
    "é\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
    "x" * 5000,
]


@pytest.mark.parametrize("name", INVALID_NAMES, ids=lambda name: repr(name[:30]))
def test_other_names_are_not_found(name: str, anyone: Client) -> None:
    assert anyone.get(f"//static/{name}").error == (404, "not_found")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_static_files_are_read_only(method: str, anyone: Client) -> None:
    reply = anyone.call(method, "//static/style.css")
    assert reply.error == (405, "method_not_allowed")
    assert reply.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_documented_only_serves_no_pages_but_the_files_of_the_consent_page(settings: Any, application: Any) -> None:
    documented = Client(build_app(operations(documented_only=True), replace(settings, documented_only=True)))
    for path in ("/", "/docs", "/docs/openapi.json"):
        assert documented.get(f"/{path}").error == (404, "not_found"), path
    for path in ("/static/style.css", "/static/icon.svg"):
        assert documented.get(f"/{path}").status == 200, path


def test_vendored_files_match_the_manifest() -> None:
    manifest = json.loads((VENDORED / "manifest.json").read_bytes())
    present = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in VENDORED.iterdir()}
    present.pop("manifest.json")
    assert manifest["sha256"] == present
    assert {"LICENSE", "NOTICE"} <= set(present)
    assert (manifest["package"], manifest["licence"]) == ("swagger-ui-dist", "Apache-2.0")
    assert f'PACKAGE_VERSION:"{manifest["version"]}"' in (VENDORED / "swagger-ui-bundle.js").read_text()
    assert [folder.name for folder in VENDORED.parent.iterdir()] == [VENDORED.name]


@pytest.mark.parametrize("presence", ["online", "away", "rsvp"])
def test_presence_has_a_style(presence: str) -> None:
    assert f".presence.{presence}" in (STATIC / "console.css").read_text()


# Pages without a browser.


class Outline(HTMLParser):
    """The elements and texts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.words: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag in self.inside:
            self.words[tag] = self.words.get(tag, "") + data.strip()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@every_page
def test_page_has_title_heading_and_language(path: str, alice: Client) -> None:
    reply = alice.get(f"/{path}")
    page = Outline(reply.raw.decode())
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.all("html") == [{"lang": "en"}]
    assert page.words["title"] and page.words["h1"] and len(page.all("h1")) == 1
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")


@every_page
def test_page_has_no_inline_script_or_style_and_its_files_exist(path: str, alice: Client) -> None:
    page = Outline(alice.get(f"/{path}").raw.decode())
    assert page.words.get("script", "") == page.words.get("style", "") == ""
    for tag, attributes in page.elements:
        assert tag not in ("style", "base", "iframe", "object")
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        assert (attributes.get("src") or "/").startswith("/static/" if "src" in attributes else "/")
    for attributes in page.all("link") + page.all("script"):
        address = attributes.get("href") or attributes["src"]
        assert alice.get(f"/{address}").status == 200, address


@every_page
def test_page_cannot_load_from_other_hosts_nor_be_framed(path: str, alice: Client) -> None:
    reply = alice.get(f"/{path}")
    assert policy(reply) == (SCRIPTED if path in ("/", "/docs") else STRICT)
    assert {name: reply.headers[name] for name in PAGE} == PAGE


# Pages in a browser.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with another public address; its pages use the address of the request."""
    data = tmp_path_factory.mktemp("pages") / "data"
    fill(data, chat(3))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(data, "--port", str(port), "--public-url", f"http://localhost:{port}") as running:
        yield running


@pytest.fixture(scope="module")
def operation_ids(server: Served) -> set[str]:
    """The operations of the reference, without the pages of the console."""
    described = server.call("GET", "/docs/openapi.json?pages=true").json
    found = [operation for path in described["paths"].values() for operation in path.values()]
    return {operation["operationId"] for operation in found if operation["tags"] != ["Console"]}


def sign_in(page: Page, password: str = PASSWORD) -> None:
    page.get_by_label("E-mail address").fill("alice@example.com")
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def signed_in(visit: Visit) -> Page:
    """The reference, with Alice signed in."""
    page = visit.open("/docs")
    sign_in(page)
    expect(page.get_by_text("Signed in as alice@example.com")).to_be_visible()
    return page


GROUP = ".opblock-tag:not([data-tag=Console])"


def open_groups(page: Page) -> Iterator[None]:
    """Open each group of operations but the pages of the console; a group that was closed is closed again.

    With more rows, Swagger UI draws only the visible ones.
    """
    expect(page.locator(GROUP).first).to_be_visible()
    for tag in page.locator(GROUP).evaluate_all("groups => groups.map(group => group.dataset.tag)"):
        group = page.locator(f".opblock-tag[data-tag='{tag}']")
        was_open = group.get_attribute("data-is-open") == "true"
        if not was_open:
            group.locator(".expand-operation").click()
            expect(group).to_have_attribute("data-is-open", "true")
        yield
        if not was_open:
            group.locator(".expand-operation").click()
            expect(group).to_have_attribute("data-is-open", "false")


def expand(page: Page, name: str) -> Locator:
    """Expand an operation of the reference."""
    block = page.locator(f".opblock[id$='-{name}']")
    if not block.count():
        next(None for _ in open_groups(page) if block.count())
    block.locator(".opblock-summary-control").click()
    expect(block.get_by_role("button", name="Execute")).to_be_visible()
    return block


def execute(block: Locator) -> tuple[str, str]:
    """Execute the operation, and return the status and body that the page shows."""
    block.get_by_role("button", name="Execute").click()
    response = block.locator(".live-responses-table tbody tr").first
    expect(response).to_be_visible()
    return response.locator(".response-col_status").inner_text().strip(), response.locator("pre").first.inner_text()


@pytest.mark.slow
class TestTheBrowser:
    def test_records_forbidden_requests_and_errors_of_a_page(self, visit: Callable[..., Visit]) -> None:
        visitor = visit()
        visitor.open("/sign-in").evaluate(
            "document.body.append(Object.assign(new Image(), {src: 'https://elsewhere.example/x'}))"
        )
        expect(visitor.page.locator("img")).to_have_count(1)
        visitor.page.evaluate("console.warn('a warning')")
        with visitor.context.expect_event("weberror"):
            visitor.page.evaluate("setTimeout(() => { throw new Error('an error') })")
        visitor.open("/nowhere")
        recorded = " ".join(visitor.faults())
        for part in ("img-src forbids https://elsewhere.example/x", "a warning", "an error", "404", "/nowhere"):
            assert part in recorded
        visitor.console_messages.clear(), visitor.requested_urls.clear()

    def test_connects_to_loopback_only(self, visit: Callable[..., Visit]) -> None:
        visitor = visit(bypass_csp=True)
        visitor.open("/sign-in")
        result = visitor.page.evaluate("fetch('http://elsewhere.example/').then(() => 'reached', () => 'nowhere')")
        assert result == "nowhere"
        assert "http://elsewhere.example/" in visitor.faults()
        visitor.requested_urls.clear(), visitor.console_messages.clear()


class TestWithoutABrowser:
    @pytest.fixture(autouse=True)
    def _empty_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CI", raising=False)

    def test_skipped_test_names_the_package(self) -> None:
        with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
            chromium.find_chromium()

    def test_fails_with_continuous_integration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", "true")
        with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
            chromium.find_chromium()


@pytest.mark.slow
class TestTheReference:
    def test_shows_every_operation(self, visit: Callable[..., Visit], operation_ids: set[str]) -> None:
        page = visit().open("/docs")
        expect(page.locator(".opblock-tag").first).to_be_visible()
        expect(page.locator(".opblock")).to_have_count(0)  # groups are closed at first
        shown: list[str] = []
        for _ in open_groups(page):
            ids = page.locator(".opblock").evaluate_all("blocks => blocks.map(block => block.id.split('-').pop())")
            assert page.locator(".opblock-summary-path:visible").count() == len(ids)
            shown += ids
        assert sorted(shown) == sorted(operation_ids)

    def test_has_the_pages_of_the_console_in_a_group(self, visit: Callable[..., Visit], server: Served) -> None:
        described = server.call("GET", "/docs/openapi.json?pages=true").json["paths"]
        of_console = [path == "/" or path.startswith("/console/") for path, found in described.items() for _ in found]
        tags = [one["tags"] for found in described.values() for one in found.values()]
        assert [tag == ["Console"] for tag in tags] == of_console
        page = visit().open("/docs")
        page.locator(".opblock-tag[data-tag=Console] .expand-operation").click()
        expect(page.locator(".opblock")).to_have_count(sum(of_console))

    def test_filters_operations(self, visit: Callable[..., Visit]) -> None:
        page = visit().open("/docs")
        box = page.get_by_label("Filter operations")
        box.press_sequentially("ARCHIVE")
        expect(page.locator(".opblock-summary-path:visible")).to_have_text(
            ["/api/v1/chats\u200b/{id}", "/api/v1/chats\u200b/{id}\u200b/archive"]
        )
        box.fill("no such operation")
        expect(page.locator(".opblock-tag")).to_have_count(0)
        box.fill("")
        expect(page.locator(".opblock-tag")).not_to_have_count(0)
        expect(page.locator(".opblock")).to_have_count(0)

    def test_sends_the_example_of_a_message(self, visit: Callable[..., Visit]) -> None:
        block = expand(signed_in(visit()), "send_message")
        block.get_by_label("id", exact=True).fill(SESSION)
        status, body = execute(block)
        assert status == "201"
        assert text_of(json.loads(body)["data"]) == "Hello! When will my parcel arrive?"

    def test_user_can_sign_in_and_out(self, visit: Callable[..., Visit], server: Served) -> None:
        visitor = visit()
        page = visitor.open("/docs")
        with page.expect_response("**/auth/login") as response_info:
            sign_in(page)
        token = response_info.value.json()["data"]["tokens"]["access_token"]
        expect(page.get_by_text("Signed in as alice@example.com")).to_be_focused()
        expect(page.locator("#sign-in")).to_be_hidden()
        assert execute(expand(page, "get_settings"))[0] == "200"
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        with page.expect_response("**/auth/logout"):
            page.get_by_role("button", name="Sign out", exact=True).click()
        expect(page.get_by_label("E-mail address")).to_be_focused()
        expect(page.get_by_label("Password", exact=True)).to_have_value("")
        assert server.call("GET", "/api/v1/users/me/settings", token=token).status == 401
        visitor.expected = ("401",)
        assert execute(page.locator(".opblock.is-open"))[0] == "401"

    def test_user_is_signed_out_when_the_page_is_reloaded(self, visit: Callable[..., Visit]) -> None:
        page = signed_in(visit())
        page.reload()
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
        expect(page.locator(".authorization__btn .locked")).to_have_count(0)

    def test_wrong_password_shows_an_error(self, visit: Callable[..., Visit]) -> None:
        visitor = visit()
        visitor.expected = ("401",)
        page = visitor.open("/docs")
        sign_in(page, "a wrong password")
        expect(page.get_by_role("alert")).to_have_text("The e-mail address or the password is wrong.")
        sign_in(page)
        expect(page.locator("#form-error")).to_have_text("")  # not by its role, which it loses when the form is hidden
        expect(page.get_by_text("Signed in as alice@example.com")).to_be_visible()

    def test_missing_response_shows_an_error(self, visit: Callable[..., Visit]) -> None:
        visitor = visit()
        visitor.expected = ("ERR_INTERNET_DISCONNECTED",)
        page = visitor.open("/docs")
        expect(page.locator("#sign-in")).to_be_visible()
        visitor.context.set_offline(True)
        sign_in(page)
        expect(page.get_by_role("alert")).to_have_text("The service did not respond.")
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_enabled()

    @pytest.mark.parametrize("missing", ["docs/openapi.json", "static/vendor/swagger-ui/swagger-ui-bundle.js"])
    def test_form_is_hidden_if_the_reference_cannot_be_loaded(self, missing: str, visit: Callable[..., Visit]) -> None:
        visitor = visit()
        visitor.expected = ("ERR_FAILED",)
        visitor.page.route(f"**/{missing}*", lambda route: route.abort())
        page = visitor.open("/docs")
        expect(page.locator("#reference")).to_contain_text("could not be loaded")
        expect(page.locator("form")).to_be_hidden()

    def test_says_that_it_needs_javascript(self, visit: Callable[..., Visit]) -> None:
        page = visit(java_script_enabled=False).open("/docs")
        expect(page.get_by_text("Loading. The API reference needs JavaScript")).to_be_visible()
        expect(page.locator("form")).to_be_hidden()

    def test_executes_an_operation_with_parameters(self, visit: Callable[..., Visit]) -> None:
        block = expand(signed_in(visit()), "list_messages")
        block.get_by_label("id", exact=True).fill(SESSION)
        block.get_by_label("limit").fill("2")
        block.get_by_label("direction").select_option("backward")
        status, body = execute(block)
        assert status == "200"
        assert len(json.loads(body)["data"]) == 2

    def test_executes_an_operation_with_a_body(self, visit: Callable[..., Visit], server: Served) -> None:
        block = expand(signed_in(visit()), "update_settings")
        block.get_by_label("Request body").fill('{"appearance": {"theme": "dark", "language": "sl"}}')
        status, body = execute(block)
        assert (status, json.loads(body)["data"]["appearance"]) == ("200", {"theme": "dark", "language": "sl"})
        stored = server.call("GET", "/api/v1/users/me/settings", token=server.log_in()).data
        assert stored["appearance"] == {"theme": "dark", "language": "sl"}

    def test_uploads_a_picture(self, visit: Callable[..., Visit], server: Served) -> None:
        picture = io.BytesIO()
        Image.new("RGB", (64, 64), "teal").save(picture, "PNG")
        block = expand(signed_in(visit()), "upload_avatar")
        file = {"name": "me.png", "mimeType": "image/png", "buffer": picture.getvalue()}
        block.get_by_label("avatar", exact=True).set_input_files(file)
        status, body = execute(block)
        assert status == "200"
        address = json.loads(body)["data"]["profile_image"]
        public = f"http://localhost:{server.port}"
        assert address.startswith(f"{public}/avatars/")
        shown = server.call("GET", address.removeprefix(public))
        assert (shown.status, shown.headers["Content-Type"]) == (200, "image/webp")

    def test_is_accessible(self, visit: Callable[..., Visit]) -> None:
        visitor = visit()
        page = visitor.open("/docs")
        group = page.get_by_role("button", name="Operations: Chat sessions and messages")
        group.click()
        expect(group).to_have_attribute("aria-expanded", "true")
        visitor.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])

    def test_accepts_an_existing_token(self, visit: Callable[..., Visit], server: Served) -> None:
        page = visit().open("/docs")
        block = expand(page, "get_settings")
        page.locator(".authorization__btn").first.click()
        page.locator("#auth-bearer-value").fill(server.log_in())
        page.get_by_role("button", name="Apply credentials").click()
        page.get_by_role("button", name="Close").first.click()
        assert execute(block)[0] == "200"

    def test_can_be_used_with_the_keyboard_alone(self, visit: Callable[..., Visit]) -> None:
        page = visit().open("/docs")
        expect(page.get_by_label("E-mail address")).to_be_visible()
        page.get_by_role("link", name="the OpenAPI document").focus()
        for key in ("Tab", "alice@example.com", "Tab", PASSWORD, "Enter"):
            page.keyboard.press(key) if key in ("Tab", "Enter") else page.keyboard.type(key)
        expect(page.get_by_text("Signed in as alice@example.com")).to_be_focused()
        page.get_by_role("button", name="Operations: Profile and settings").focus()
        page.keyboard.press("Enter")
        page.locator(".opblock[id$='-get_settings'] .opblock-summary-control").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.locator(".authorization__btn:focus")).to_have_count(1)
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Execute")).to_be_focused()
        assert page.locator(":focus").evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.locator(".live-responses-table .response-col_status").last).to_contain_text("200")

    def test_every_field_has_a_label(self, visit: Callable[..., Visit]) -> None:
        page = signed_in(visit())
        for name in ("list_messages", "upload_avatar", "update_settings", "create_data_share", "list_bots"):
            expand(page, name)
        fields = page.locator("input:visible, select:visible, textarea:visible")
        assert fields.count() > 12
        unlabelled = "fields => fields.filter(field => !field.labels.length && !field.ariaLabel).map(f => f.outerHTML)"
        assert fields.evaluate_all(unlabelled) == []

    def test_follows_the_color_scheme(self, visit: Callable[..., Visit]) -> None:
        visitor = visit(LIGHT)
        page = signed_in(visitor)
        execute(expand(page, "get_settings"))
        places = ["body", "#signed-in", ".opblock.is-open .opblock-section-header"]
        texts = [".opblock-summary-path", ".opblock-tag", ".opblock-summary-method", "#signed-in p"]

        def colours() -> list[str]:
            return [visitor.colour(place) for place in places] + [visitor.colour(text, "color") for text in texts]

        light = colours()
        page.emulate_media(color_scheme=DARK)
        expect(page.locator("html.dark-mode")).to_have_count(1)
        dark = colours()
        assert [place for place, a, b in zip(places + texts, light, dark, strict=True) if a == b] == []
        page.emulate_media(color_scheme=LIGHT)
        expect(page.locator("html.dark-mode")).to_have_count(0)
        assert colours() == light

    @pytest.mark.parametrize(("width", "colours"), windows([WIDE, NARROW], usual=[(WIDE, LIGHT), (NARROW, DARK)]))
    def test_fits_its_window(self, width: int, colours: str, visit: Callable[..., Visit]) -> None:
        visitor = visit(colours, width)
        page = signed_in(visitor)
        block = expand(page, "list_messages")
        block.get_by_label("id", exact=True).fill(SESSION)
        assert execute(block)[0] == "200"
        expand(page, "upload_avatar")
        expand(page, "update_settings")
        assert not visitor.is_too_wide()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "colours"), windows([WIDE, NARROW, 320], usual=[(WIDE, LIGHT), (320, DARK)]))
@every_page
def test_page_fits_the_window_and_follows_the_color_scheme(
    path: str, width: int, colours: str, visit: Callable[..., Visit], server: Served
) -> None:
    token = server.log_in()
    server.call("PATCH", "/api/v1/users/me/settings", {"appearance": {"theme": None}}, token)  # changed by other tests
    credentials = {} if path == "/docs" else {"Authorization": f"Bearer {token}"}
    visitor = visit(colours, width, extra_http_headers=credentials)
    visitor.expected = ("400",) if path == ERRORS else ()
    page = visitor.open(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert not visitor.is_too_wide()
    assert visitor.colour("body") == {LIGHT: "rgb(251, 250, 248)", DARK: "rgb(22, 24, 27)"}[colours]


@pytest.mark.slow
def test_start_page_links_to_the_reference(visit: Callable[..., Visit]) -> None:
    visitor = visit()
    visitor.expected = ("401",)
    sign_in(visitor.open("/"))
    page = visitor.page
    page.get_by_role("link", name="API reference").click()
    expect(page.get_by_role("button", name="Operations: Authentication")).to_be_visible()
