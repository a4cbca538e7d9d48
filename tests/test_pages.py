"""The pages: their parts as they are sent, and the pages themselves as a person meets them in a browser."""

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

from service.routes import operations
from service.web import build_app
from tests import browser
from tests.browser import DARK, LIGHT, NARROW, WIDE, Visit, visit_fixture  # noqa: F401
from tests.conftest import PASSWORD, Client, text_of
from tests.serving import ROOT, SESSION, Served, chat, fill, serving

STATIC = ROOT / "static"
VENDORED = STATIC / "vendor" / "swagger-ui"
PARTS = sorted(file.relative_to(STATIC).as_posix() for file in STATIC.rglob("*") if file.is_file())
TYPES = {".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"}
CONSENT = (
    "/api/v1/auth/cli/authorize?client_id=service-cli&response_type=code&code_challenge_method=S256"
    f"&code_challenge={'a' * 43}&redirect_uri=http://127.0.0.1:8976/callback&state=x"
    f"&install_id={'i' * 128}&install_name=Anna%27s%20laptop&scope=chats:read%20{'nonsense' * 20}"
)
FAULTS = f"/api/v1/auth/cli/authorize?client_id={'w' * 300}"
PAGES = {"inbox": "/", "reference": "/docs", "consent": CONSENT, "faults": FAULTS}

every_page = pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
every_part = pytest.mark.parametrize("name", PARTS)


# Parts of the pages, as they are sent.


@every_part
def test_a_part_is_sent_as_it_is(name: str, anyone: Client) -> None:
    sent = anyone.get(f"//static/{name}")
    assert (sent.status, sent.raw) == (200, (STATIC / name).read_bytes())
    assert sent.headers["Content-Type"] == f"{TYPES.get(Path(name).suffix, 'text/plain')}; charset=utf-8"
    assert sent.headers["X-Content-Type-Options"] == "nosniff"
    assert sent.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"  # opened by itself, it may nothing


@every_part
def test_a_browser_keeps_a_part_but_asks_about_it(name: str, anyone: Client) -> None:
    first = anyone.get(f"//static/{name}")
    assert first.headers["Cache-Control"] == "no-cache"
    assert re.fullmatch(r'"[0-9a-f]{16}"', first.headers["ETag"])
    again = anyone.get(f"//static/{name}", if_none_match=first.headers["ETag"])
    assert (again.status, again.raw, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert anyone.get(f"//static/{name}", if_none_match='"0123456789abcdef"').status == 200


def test_no_two_parts_share_a_tag(anyone: Client) -> None:
    assert len({anyone.get(f"//static/{name}").headers["ETag"] for name in PARTS}) == len(PARTS)


NOWHERE = [
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


@pytest.mark.parametrize("name", NOWHERE, ids=lambda name: repr(name[:30]))
def test_nothing_else_can_be_had_by_any_name(name: str, anyone: Client) -> None:
    assert anyone.get(f"//static/{name}").error == (404, "not_found")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_parts_can_only_be_read(method: str, anyone: Client) -> None:
    refused = anyone.call(method, "//static/style.css")
    assert refused.error == (405, "method_not_allowed")
    assert refused.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_pages_are_gone_with_documented_only_and_what_the_consent_page_loads_is_not(
    settings: Any, application: Any
) -> None:
    narrow = Client(build_app(operations(documented_only=True), replace(settings, documented_only=True)))
    for path in ("/", "/docs", "/docs/openapi.json"):
        assert narrow.get(f"/{path}").error == (404, "not_found"), path
    for path in ("/static/style.css", "/static/icon.svg"):
        assert narrow.get(f"/{path}").status == 200, path


def test_what_others_wrote_is_what_the_manifest_says() -> None:
    manifest = json.loads((VENDORED / "manifest.json").read_bytes())
    present = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in VENDORED.iterdir()}
    present.pop("manifest.json")
    assert manifest["sha256"] == present
    assert {"LICENSE", "NOTICE"} <= set(present)
    assert (manifest["package"], manifest["licence"]) == ("swagger-ui-dist", "Apache-2.0")
    assert f'PACKAGE_VERSION:"{manifest["version"]}"' in (VENDORED / "swagger-ui-bundle.js").read_text()
    assert [folder.name for folder in VENDORED.parent.iterdir()] == [VENDORED.name]


# Pages, as they are sent.


class Outline(HTMLParser):
    """What a page is made of."""

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
def test_a_page_says_what_it_is(path: str, alice: Client) -> None:
    sent = alice.get(f"/{path}")
    page = Outline(sent.raw.decode())
    assert sent.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.all("html") == [{"lang": "en"}]
    assert page.words["title"] and page.words["h1"] and len(page.all("h1")) == 1
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")


@every_page
def test_a_page_holds_no_script_or_style_and_names_only_parts_that_exist(path: str, alice: Client) -> None:
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
def test_a_page_may_load_nothing_from_elsewhere_nor_be_framed(path: str, alice: Client) -> None:
    sent = alice.get(f"/{path}")
    policy = dict(directive.split(" ", 1) for directive in sent.headers["Content-Security-Policy"].split("; "))
    scripted = {"script-src": "'self'", "connect-src": "'self'"} if path in ("/", "/docs") else {}
    assert policy == scripted | {
        "default-src": "'none'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert sent.headers["Cache-Control"] == "no-store"
    assert sent.headers["X-Frame-Options"] == "DENY"
    assert sent.headers["Referrer-Policy"] == "no-referrer"


# Pages, as a person meets them.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that clients know under another address; its pages keep to the one that they came from."""
    data = tmp_path_factory.mktemp("pages") / "data"
    fill(data, chat(3))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(data, "--port", str(port), "--public-url", f"http://localhost:{port}") as running:
        yield running


@pytest.fixture(scope="module")
def operation_ids(server: Served) -> set[str]:
    described = server.call("GET", "/docs/openapi.json").json
    return {operation["operationId"] for path in described["paths"].values() for operation in path.values()}


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


def unfold(page: Page, name: str) -> Locator:
    """An operation of the reference, unfolded."""
    block = page.locator(f".opblock[id$='-{name}']")
    block.locator(".opblock-summary-control").click()
    expect(block.get_by_role("button", name="Execute")).to_be_visible()
    return block


def execute(block: Locator) -> tuple[str, str]:
    """Try the operation: the status and the body that the page shows."""
    block.get_by_role("button", name="Execute").click()
    answer = block.locator(".live-responses-table tbody tr").first
    expect(answer).to_be_visible()
    return answer.locator(".response-col_status").inner_text().strip(), answer.locator("pre").first.inner_text()


@pytest.mark.slow
class TestTheBrowser:
    def test_notes_what_a_page_must_not_do(self, visit: Callable[..., Visit]) -> None:
        guest = visit()
        guest.open("/sign-in").evaluate(
            "document.body.append(Object.assign(new Image(), {src: 'https://elsewhere.example/x'}))"
        )
        expect(guest.page.locator("img")).to_have_count(1)
        guest.page.evaluate("console.warn('a warning')")
        with guest.context.expect_event("weberror"):
            guest.page.evaluate("setTimeout(() => { throw new Error('a fault') })")
        guest.open("/nowhere")
        noted = " ".join(guest.faults())
        for part in ("img-src forbids https://elsewhere.example/x", "a warning", "a fault", "404", "/nowhere"):
            assert part in noted
        guest.complaints.clear(), guest.asked.clear()

    def test_reaches_nothing_but_this_machine(self, visit: Callable[..., Visit]) -> None:
        guest = visit(bypass_csp=True)
        guest.open("/sign-in")
        said = guest.page.evaluate("fetch('http://elsewhere.example/').then(() => 'reached', () => 'nowhere')")
        assert said == "nowhere"
        assert "http://elsewhere.example/" in guest.faults()
        guest.asked.clear(), guest.complaints.clear()


class TestWithoutABrowser:
    @pytest.fixture(autouse=True)
    def _bare_machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CI", raising=False)

    def test_a_developer_is_told_what_to_install(self) -> None:
        with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
            browser.find_chromium()

    def test_continuous_integration_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", "true")
        with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
            browser.find_chromium()


@pytest.mark.slow
class TestTheReference:
    def test_shows_every_operation(self, visit: Callable[..., Visit], operation_ids: set[str]) -> None:
        page = visit().open("/docs")
        expect(page.locator(".opblock")).to_have_count(len(operation_ids))
        shown = page.locator(".opblock").evaluate_all("blocks => blocks.map(block => block.id.split('-').pop())")
        assert set(shown) == operation_ids
        assert page.locator(".opblock-summary-path:visible").count() == len(operation_ids)

    def test_finds_operations_by_what_they_do(self, visit: Callable[..., Visit]) -> None:
        page = visit().open("/docs")
        box = page.get_by_label("Filter operations")
        box.press_sequentially("ARCHIVE")
        expect(page.locator(".opblock-summary-path:visible")).to_have_text(["/api/v1/chats\u200b/{id}\u200b/archive"])
        box.fill("no such operation")
        expect(page.locator(".opblock")).to_have_count(0)

    def test_sends_the_example_of_a_message(self, visit: Callable[..., Visit]) -> None:
        block = unfold(signed_in(visit()), "send_message")
        block.get_by_label("id", exact=True).fill(SESSION)
        status, body = execute(block)
        assert status == "201"
        assert text_of(json.loads(body)["data"]) == "Hello! When will my parcel arrive?"

    def test_lets_a_reader_sign_in_and_out(self, visit: Callable[..., Visit], server: Served) -> None:
        guest = visit()
        page = guest.open("/docs")
        with page.expect_response("**/auth/login") as answered:
            sign_in(page)
        token = answered.value.json()["data"]["tokens"]["access_token"]
        expect(page.get_by_text("Signed in as alice@example.com")).to_be_focused()
        expect(page.locator("#sign-in")).to_be_hidden()
        assert execute(unfold(page, "get_settings"))[0] == "200"
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        with page.expect_response("**/auth/logout"):
            page.get_by_role("button", name="Sign out", exact=True).click()
        expect(page.get_by_label("E-mail address")).to_be_focused()
        expect(page.get_by_label("Password", exact=True)).to_have_value("")
        assert server.call("GET", "/api/v1/users/me/settings", token=token).status == 401
        guest.expected = ("401",)
        assert execute(page.locator(".opblock.is-open"))[0] == "401"

    def test_forgets_the_reader_when_it_is_left(self, visit: Callable[..., Visit]) -> None:
        page = signed_in(visit())
        page.reload()
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
        expect(page.locator(".authorization__btn .locked")).to_have_count(0)

    def test_says_that_a_password_is_wrong(self, visit: Callable[..., Visit]) -> None:
        guest = visit()
        guest.expected = ("401",)
        page = guest.open("/docs")
        sign_in(page, "not her password")
        expect(page.get_by_role("alert")).to_have_text("The e-mail address or the password is wrong.")
        sign_in(page)
        expect(page.locator("#trouble")).to_have_text("")  # not by its role, which it loses when the form is hidden
        expect(page.get_by_text("Signed in as alice@example.com")).to_be_visible()

    def test_says_that_the_service_does_not_answer(self, visit: Callable[..., Visit]) -> None:
        guest = visit()
        guest.expected = ("ERR_INTERNET_DISCONNECTED",)
        page = guest.open("/docs")
        expect(page.locator("#sign-in")).to_be_visible()
        guest.context.set_offline(True)
        sign_in(page)
        expect(page.get_by_role("alert")).to_have_text("The service did not answer.")
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_enabled()

    @pytest.mark.parametrize("missing", ["docs/openapi.json", "static/vendor/swagger-ui/swagger-ui-bundle.js"])
    def test_offers_no_form_until_it_works(self, missing: str, visit: Callable[..., Visit]) -> None:
        guest = visit()
        guest.expected = ("ERR_FAILED",)
        guest.page.route(f"**/{missing}", lambda route: route.abort())
        page = guest.open("/docs")
        expect(page.locator("#reference")).to_contain_text("could not be loaded")
        expect(page.locator("form")).to_be_hidden()

    def test_says_without_scripts_that_it_needs_them(self, visit: Callable[..., Visit]) -> None:
        page = visit(java_script_enabled=False).open("/docs")
        expect(page.get_by_text("The reference appears here when its scripts have run.")).to_be_visible()
        expect(page.locator("form")).to_be_hidden()

    def test_tries_an_operation_with_parameters(self, visit: Callable[..., Visit]) -> None:
        block = unfold(signed_in(visit()), "list_messages")
        block.get_by_label("id", exact=True).fill(SESSION)
        block.get_by_label("limit").fill("2")
        block.get_by_label("direction").select_option("backward")
        status, body = execute(block)
        assert status == "200"
        assert len(json.loads(body)["data"]) == 2

    def test_tries_an_operation_with_a_body(self, visit: Callable[..., Visit], server: Served) -> None:
        block = unfold(signed_in(visit()), "update_settings")
        block.get_by_label("Request body").fill('{"appearance": {"theme": "dark", "language": "sl"}}')
        status, body = execute(block)
        assert (status, json.loads(body)["data"]["appearance"]) == ("200", {"theme": "dark", "language": "sl"})
        kept = server.call("GET", "/api/v1/users/me/settings", token=server.log_in()).data
        assert kept["appearance"] == {"theme": "dark", "language": "sl"}

    def test_uploads_a_picture(self, visit: Callable[..., Visit], server: Served) -> None:
        picture = io.BytesIO()
        Image.new("RGB", (64, 64), "teal").save(picture, "PNG")
        block = unfold(signed_in(visit()), "upload_avatar")
        chosen = {"name": "me.png", "mimeType": "image/png", "buffer": picture.getvalue()}
        block.get_by_label("avatar", exact=True).set_input_files(chosen)
        status, body = execute(block)
        assert status == "200"
        address = json.loads(body)["data"]["profile_image"]
        public = f"http://localhost:{server.port}"
        assert address.startswith(f"{public}/avatars/")
        shown = server.call("GET", address.removeprefix(public))
        assert (shown.status, shown.headers["Content-Type"]) == (200, "image/webp")

    def test_takes_a_token_from_elsewhere(self, visit: Callable[..., Visit], server: Served) -> None:
        page = visit().open("/docs")
        page.locator(".authorization__btn").first.click()
        page.locator("#auth-bearer-value").fill(server.log_in())
        page.get_by_role("button", name="Apply credentials").click()
        page.get_by_role("button", name="Close").first.click()
        assert execute(unfold(page, "get_settings"))[0] == "200"

    def test_can_be_used_with_the_keyboard_alone(self, visit: Callable[..., Visit]) -> None:
        page = visit().open("/docs")
        expect(page.get_by_label("E-mail address")).to_be_visible()
        page.get_by_role("link", name="the OpenAPI document").focus()
        for key in ("Tab", "alice@example.com", "Tab", PASSWORD, "Enter"):
            page.keyboard.press(key) if key in ("Tab", "Enter") else page.keyboard.type(key)
        expect(page.get_by_text("Signed in as alice@example.com")).to_be_focused()
        page.locator(".opblock[id$='-get_settings'] .opblock-summary-control").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.locator(".authorization__btn:focus")).to_have_count(1)
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Execute")).to_be_focused()
        assert page.locator(":focus").evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.locator(".live-responses-table .response-col_status").last).to_contain_text("200")

    def test_leaves_no_field_without_a_name(self, visit: Callable[..., Visit]) -> None:
        page = signed_in(visit())
        for name in ("list_messages", "upload_avatar", "update_settings", "create_data_share", "list_bots"):
            unfold(page, name)
        fields = page.locator("input:visible, select:visible, textarea:visible")
        assert fields.count() > 12
        nameless = "fields => fields.filter(field => !field.labels.length && !field.ariaLabel).map(f => f.outerHTML)"
        assert fields.evaluate_all(nameless) == []

    def test_follows_the_readers_light_and_dark(self, visit: Callable[..., Visit]) -> None:
        guest = visit(LIGHT)
        page = signed_in(guest)
        execute(unfold(page, "get_settings"))
        places = ["body", "#signed-in", ".opblock.is-open .opblock-section-header"]
        inks = [".opblock-summary-path", ".opblock-tag", ".opblock-summary-method", "#signed-in p"]

        def colours() -> list[str]:
            return [guest.colour(place) for place in places] + [guest.colour(ink, "color") for ink in inks]

        light = colours()
        page.emulate_media(color_scheme=DARK)
        expect(page.locator("html.dark-mode")).to_have_count(1)
        dark = colours()
        assert [place for place, a, b in zip(places + inks, light, dark, strict=True) if a == b] == []
        page.emulate_media(color_scheme=LIGHT)
        expect(page.locator("html.dark-mode")).to_have_count(0)
        assert colours() == light

    @pytest.mark.parametrize("colours", [LIGHT, DARK])
    @pytest.mark.parametrize("width", [WIDE, NARROW])
    def test_fits_its_window(self, width: int, colours: str, visit: Callable[..., Visit]) -> None:
        guest = visit(colours, width)
        page = signed_in(guest)
        block = unfold(page, "list_messages")
        block.get_by_label("id", exact=True).fill(SESSION)
        assert execute(block)[0] == "200"
        unfold(page, "upload_avatar")
        unfold(page, "update_settings")
        assert not guest.is_too_wide()


@pytest.mark.slow
@pytest.mark.parametrize("colours", [LIGHT, DARK])
@pytest.mark.parametrize("width", [WIDE, NARROW, 320])
@every_page
def test_a_page_is_calm_fits_and_follows_light_and_dark(
    path: str, width: int, colours: str, visit: Callable[..., Visit], server: Served
) -> None:
    token = server.log_in()
    server.call("PATCH", "/api/v1/users/me/settings", {"appearance": {"theme": None}}, token)  # what others have tried
    credentials = {} if path == "/docs" else {"Authorization": f"Bearer {token}"}
    guest = visit(colours, width, extra_http_headers=credentials)
    guest.expected = ("400",) if path == FAULTS else ()
    page = guest.open(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert not guest.is_too_wide()
    assert guest.colour("body") == {LIGHT: "rgb(251, 250, 248)", DARK: "rgb(22, 24, 27)"}[colours]


@pytest.mark.slow
def test_the_way_in_leads_to_the_reference(visit: Callable[..., Visit]) -> None:
    guest = visit()
    guest.expected = ("401",)
    sign_in(guest.open("/"))
    page = guest.page
    page.get_by_role("link", name="API reference").click()
    expect(page.locator(".opblock").first).to_be_visible()
