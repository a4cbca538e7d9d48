"""The login of the command-line client through a browser: the executable as server and client, and Chromium."""

import base64
import hashlib
import http.server
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from playwright.sync_api import Page, expect

from service import db, signing
from service.auth import authorization_codes, consent
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, visit_fixture  # noqa: F401
from tests.support.client import Reply
from tests.support.consent import VALID_PARAMETERS, path
from tests.support.executable import PYTHON, clean_environment
from tests.support.executable import shipped_fixture as shipped_fixture
from tests.support.installation import settings_at
from tests.support.passwords import PASSWORD, PASSWORD_HASH
from tests.support.server_process import Served, chat, database_variables, fill
from tests.support.web_client import FORM

pytestmark = pytest.mark.slow

ALICE, BOB, ZIGA = "alice@example.com", "bob@example.com", "žiga@šola.example"
OTHERS = [{"user": {"email": email, "password_hash": PASSWORD_HASH}} for email in (BOB, ZIGA)]
REFUSED = "the server responded with a status of 401 (Unauthorized)"  # Chromium's message for the sign-in page
FAULTY = "the server responded with a status of 400 (Bad Request)"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
BARE = '<!doctype html><title>x</title><link rel="icon" href="data:,">'
WINDOWS = pytest.mark.parametrize(
    "windows",
    [
        pytest.param([(LIGHT, WIDE), (DARK, NARROW)], id="light and wide, dark and narrow"),
        pytest.param([(LIGHT, NARROW), (DARK, WIDE)], id="light and narrow, dark and wide", marks=pytest.mark.extended),
    ],
)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this module."""
    return tmp_path_factory.mktemp("login")


@contextmanager
def serving(shipped: Path, room: Path, host: str) -> Iterator[Served]:
    """Serve some users who can log in with the executable, on a free port."""
    data = room / f"data-{host.count(':')}"
    fill(data, [*chat(1), *OTHERS])
    line = [str(PYTHON), str(shipped), "serve", "--host", host, "--port", "0", "--data", str(data)]
    output, errors = data.with_suffix(".out"), data.with_suffix(".err")
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            line, stdout=out, stderr=err, env=clean_environment(SHIV_ROOT=room, **database_variables(data))
        )
    try:
        yield Served(process, output, errors)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def server(shipped: Path, room: Path) -> Iterator[Served]:
    with serving(shipped, room, "127.0.0.1") as running:
        yield running


@pytest.fixture(scope="module")
def other_server(shipped: Path, room: Path) -> Iterator[Served]:
    with serving(shipped, room, "::1") as running:
        yield running


class TerminalClient:
    """A running command-line client."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    @cached_property
    def page(self) -> str:
        """The address that the client prints for the browser."""
        assert self.process.stderr
        return next(line.strip() for line in self.process.stderr if line.startswith("http://"))

    @property
    def callback(self) -> str:
        """The redirect URI of the client."""
        return dict(parse_qsl(urlsplit(self.page).query))["redirect_uri"]

    def end(self) -> tuple[int, str, str]:
        """Wait for the end. Returns the exit status, the output and the rest of the errors."""
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output, errors


@pytest.fixture
def terminal(shipped: Path, room: Path, tmp_path: Path, server: Served) -> Iterator[Callable[..., TerminalClient]]:
    """Start the client with a new home folder."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> TerminalClient:
        line = [str(PYTHON), str(shipped), "client", *arguments, "--url", server.url]
        variables = clean_environment(SHIV_ROOT=room, HOME=tmp_path, XDG_CONFIG_HOME=tmp_path, BROWSER="true")
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(line, env=variables, stdout=pipe, stderr=pipe, text=True))
        return TerminalClient(processes[-1])

    yield start
    for process in processes:
        with process, suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)


class Callback:
    """Listens on a loopback address, as a client does, and records the requests of browsers."""

    def __init__(self, host: str) -> None:
        requests: queue.Queue[tuple[str, dict[str, str]]] = queue.Queue()
        pages = {"/cb": f"{BARE}<h1>Arrived</h1>"}

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.put((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(pages[self.path.partition("?")[0]].encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.requests, self.pages, self.server = requests, pages, Server((host, 0), Handler)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server.server_address[1]}/cb"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def receive(self) -> tuple[dict[str, str], dict[str, str]]:
        """Wait for the next redirect. Returns its parameters and headers."""
        path, headers = self.requests.get(timeout=60)
        assert path.startswith("/cb?")
        return dict(parse_qsl(path.partition("?")[2], keep_blank_values=True)), headers


def make_older(csrf_token: str, data: Path) -> str:
    """A CSRF token that expires ten minutes earlier, signed with the key of the service."""
    db.open_database(data, settings_at(data).database)
    signing.forget_keys()
    number, expires_at, *rest = signing.verify("ticket", csrf_token)
    older = signing.sign("ticket", [number, expires_at - authorization_codes.CSRF_TOKEN_LIFETIME, *rest])
    db.close_database()
    signing.forget_keys()
    return older


@pytest.fixture
def listen() -> Iterator[Callable[..., Callback]]:
    """Start callbacks."""
    made: list[Callback] = []

    def begin(host: str = "127.0.0.1") -> Callback:
        made.append(Callback(host))
        return made[-1]

    yield begin
    for callback in made:
        callback.server.shutdown()
        callback.server.server_close()
        assert callback.requests.empty(), "an unexpected redirect"


def consent_page(callback: Callback | str, **changes: Any) -> str:
    """The path of a consent page."""
    uri = callback if isinstance(callback, str) else callback.url
    return f"/api/v1{path(redirect_uri=uri, code_challenge=CHALLENGE, **changes)}"


def sign_in(page: Page, email: str = ALICE, password: str = PASSWORD) -> None:
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def click(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def pop_requests(visitor: Visit, prefix: str) -> list[str]:
    """Remove the requested URLs with a prefix outside of the server, which are expected, and return them."""
    requested = [url for url in visitor.requested_urls if url.startswith(prefix)]
    visitor.requested_urls = [url for url in visitor.requested_urls if url not in requested]
    return requested


@pytest.fixture
def open_consent(visit: Callable[..., Visit]) -> Callable[..., Visit]:
    """Open the consent page of a client, signed in as Alice."""

    def begin(callback: Callback | str, email: str = ALICE, **more: Any) -> Visit:
        visitor = visit(**more)
        visitor.expected = (REFUSED,)
        sign_in(visitor.open(consent_page(callback)), email)
        expect(visitor.page.get_by_text(email)).to_be_visible()
        return visitor

    return begin


def exchange(server: Served, callback: Callback, code: str) -> Reply:
    """Exchange a code for tokens."""
    form = {"grant_type": "authorization_code", "client_id": "service-cli", "code": code, "code_verifier": VERIFIER}
    raw = urlencode({**form, "redirect_uri": callback.url}).encode()
    return server.call("POST", "/api/v1/auth/cli/token", raw, headers={"Content-Type": FORM})


class TestTerminalClient:
    def test_login_succeeds_after_approval(
        self, terminal: Callable[..., TerminalClient], visit: Callable[..., Visit]
    ) -> None:
        client, visitor = terminal("login"), visit()
        visitor.expected = (REFUSED,)
        visitor.page.goto(client.page)
        sign_in(visitor.page)
        expect(visitor.page.get_by_text(socket.gethostname(), exact=True)).to_be_visible()
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("You can go back")
        status, output, errors = client.end()
        assert (status, output) == (0, f"{ALICE} <{ALICE}>, user at {visitor.server.url}\n"), errors
        [requested] = pop_requests(visitor, client.callback)
        assert requested.startswith(f"{client.callback}?code=cxc_")
        assert len(visitor.console_messages) == 1
        assert terminal("whoami").end()[:2] == (0, output)

    def test_login_fails_after_denial(
        self, terminal: Callable[..., TerminalClient], visit: Callable[..., Visit]
    ) -> None:
        client, visitor = terminal("login"), visit()
        visitor.expected = (REFUSED,)
        visitor.page.goto(client.page)
        sign_in(visitor.page)
        click(visitor.page, "Deny")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("You can go back")
        status, output, errors = client.end()
        assert (status, output) == (1, "")
        assert errors.endswith("cx-service: the sign-in was denied: access_denied\n")
        pop_requests(visitor, client.callback)
        assert terminal("whoami").end()[0] == 1

    def test_login_succeeds_after_a_double_click(
        self, terminal: Callable[..., TerminalClient], visit: Callable[..., Visit]
    ) -> None:
        client, visitor = terminal("login"), visit()
        visitor.expected = (REFUSED,)
        visitor.page.goto(client.page)
        sign_in(visitor.page)
        visitor.page.get_by_role("button", name="Approve").dblclick()
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("You can go back")
        assert client.end()[0] == 0
        pop_requests(visitor, client.callback)
        assert terminal("whoami").end()[0] == 0


class TestRedirect:
    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    def test_approval_has_a_code_but_no_referrer(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], server: Served, host: str
    ) -> None:
        callback = listen(host)
        visitor = open_consent(callback)
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        parameters, headers = callback.receive()
        assert set(parameters) == {"code", "state", "iss"}
        assert (parameters["state"], parameters["iss"]) == (VALID_PARAMETERS["state"], server.url)
        assert not {"referer", "origin"} & set(headers)
        assert len(pop_requests(visitor, callback.url)) == 1
        assert exchange(server, callback, parameters["code"]).status == 200

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    def test_denial_has_the_error_but_no_referrer(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], host: str
    ) -> None:
        callback = listen(host)
        visitor = open_consent(callback)
        click(visitor.page, "Deny")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        parameters, headers = callback.receive()
        assert parameters == {"error": "access_denied", "state": VALID_PARAMETERS["state"], "iss": visitor.server.url}
        assert not {"referer", "origin"} & set(headers)
        pop_requests(visitor, callback.url)

    def test_link_continues_manually(self, open_consent: Callable[..., Visit], listen: Callable[..., Callback]) -> None:
        """Users can disable automatic redirects."""
        callback = listen()
        visitor = open_consent(callback)
        visitor.page.route("**/cb?*", lambda route: route.fulfill(status=204), times=1)
        click(visitor.page, "Approve")
        visitor.page.get_by_role("link", name="continue manually").click()
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        assert "code" in callback.receive()[0]
        assert len(set(pop_requests(visitor, callback.url))) == 1


class TestIPv6:
    @pytest.fixture
    def server(self, other_server: Served) -> Served:
        return other_server

    def test_login_succeeds_after_approval(
        self, terminal: Callable[..., TerminalClient], visit: Callable[..., Visit]
    ) -> None:
        client, visitor = terminal("login"), visit()
        visitor.expected = (REFUSED,)
        assert visitor.server.url.startswith("http://[::1]:")
        visitor.page.goto(client.page)
        sign_in(visitor.page)
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("You can go back")
        assert client.end()[:2] == (0, f"{ALICE} <{ALICE}>, user at {visitor.server.url}\n")
        pop_requests(visitor, client.callback)

    def test_client_may_listen_on_ipv6(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        callback = listen("::1")
        visitor = open_consent(callback)
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        parameters, _ = callback.receive()
        assert parameters["iss"] == server.url
        assert exchange(server, callback, parameters["code"]).status == 200
        pop_requests(visitor, callback.url)


class TestSignIn:
    def test_form_is_shown_again_after_a_wrong_password(
        self, visit: Callable[..., Visit], listen: Callable[..., Callback]
    ) -> None:
        visitor = visit()
        visitor.expected = (REFUSED,)
        page = visitor.open(consent_page(listen()))
        expect(page.get_by_role("alert")).to_have_count(0)
        sign_in(page, password="wrong")
        expect(page.get_by_role("alert")).to_have_text("The e-mail address or the password is wrong.")
        expect(page.get_by_label("E-mail address")).not_to_have_value("")
        expect(page.get_by_label("Password")).to_be_focused()
        expect(page.get_by_label("E-mail address")).to_have_accessible_description(
            "The e-mail address or the password is wrong."
        )
        sign_in(page)
        expect(page.get_by_role("button", name="Approve")).to_be_visible()
        assert len(visitor.console_messages) == 2

    def test_email_addresses_may_contain_non_ascii_letters(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback]
    ) -> None:
        open_consent(listen(), ZIGA)

    def test_other_account_returns_to_the_consent_page(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        callback = listen()
        visitor = open_consent(callback)
        before = visitor.page.url
        click(visitor.page, "Use another account")
        sign_in(visitor.page, BOB)
        expect(visitor.page.get_by_text(BOB)).to_be_visible()
        assert visitor.page.url == before
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        bearer = exchange(server, callback, callback.receive()[0]["code"]).json["access_token"]
        assert server.call("GET", "/api/v1/users/me", token=bearer).data["email"] == BOB
        pop_requests(visitor, callback.url)

    def test_sign_in_after_signing_out_in_another_tab_returns_to_the_consent_page(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback]
    ) -> None:
        callback = listen()
        visitor = open_consent(callback)
        other_tab = visitor.context.new_page()
        other_tab.goto(visitor.page.url)
        click(other_tab, "Use another account")
        expect(other_tab.get_by_label("Password")).to_be_visible()
        click(visitor.page, "Approve")
        sign_in(visitor.page)
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        assert "code" in callback.receive()[0]
        pop_requests(visitor, callback.url)


class TestConsentForm:
    def test_form_can_be_submitted_again_after_going_back(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        callback = listen()
        visitor = open_consent(callback)
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        first = callback.receive()[0]["code"]
        assert exchange(server, callback, first).status == 200
        visitor.page.go_back()
        click(visitor.page, "Deny")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        assert callback.receive()[0]["error"] == "access_denied"
        pop_requests(visitor, callback.url)

    def test_repeated_submission_returns_the_same_code(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        """On a double click, the browser discards the first response when the second click submits the form again."""
        callback = listen()
        visitor = open_consent(callback)
        csrf_token = visitor.page.locator("[name=csrf_token]").input_value()
        navigation = {"Sec-Fetch-Mode": "navigate"}
        form = {"csrf_token": csrf_token, "answer": "approve"}
        first = visitor.context.request.post(visitor.page.url, form=form, headers=navigation)
        assert first.status == 200
        visitor.page.get_by_role("button", name="Approve").dblclick()
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        assert len(set(pop_requests(visitor, callback.url))) == 1
        code = callback.receive()[0]["code"]
        assert code in first.text()
        assert exchange(server, callback, code).status == 200

    def test_each_client_of_two_tabs_gets_its_own_code(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        one, two = listen(), listen()
        visitor = open_consent(one)
        second = visitor.context.new_page()
        second.goto(server.url + consent_page(two, install_id="another", state="other"))
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        click(second, "Approve")
        expect(second.get_by_role("heading", level=1)).to_have_text("Arrived")
        received = [callback.receive()[0] for callback in (one, two)]
        assert [each["state"] for each in received] == [VALID_PARAMETERS["state"], "other"]
        assert [
            exchange(server, callback, each["code"]).status for callback, each in zip((one, two), received, strict=True)
        ] == [200] * 2
        pop_requests(visitor, one.url), pop_requests(visitor, two.url)

    @pytest.mark.parametrize("kind", ["forged", "of another user", "expired"])
    def test_invalid_csrf_token_is_an_error(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], room: Path, kind: str
    ) -> None:
        callback = listen()
        csrf_token = "x.y"
        if kind == "of another user":
            csrf_token = open_consent(callback, BOB).page.locator("[name=csrf_token]").input_value()
        visitor = open_consent(callback)
        visitor.expected += (FAULTY,)
        if kind == "expired":
            csrf_token = make_older(visitor.page.locator("[name=csrf_token]").input_value(), room / "data-0")
        visitor.page.locator("[name=csrf_token]").evaluate(
            "(field, csrf_token) => { field.value = csrf_token }", csrf_token
        )
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_text("This page was open for too long")).to_be_visible()
        expect(visitor.page.get_by_text("has errors")).to_have_count(0)
        visitor.page.go_back()  # as the page recommends; the form is loaded again
        click(visitor.page, "Approve")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Arrived")
        assert "code" in callback.receive()[0]
        pop_requests(visitor, callback.url)

    @pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
    def test_keyboard_is_sufficient(
        self, visit: Callable[..., Visit], listen: Callable[..., Callback], scripts: bool
    ) -> None:
        callback, visitor = listen(), visit(java_script_enabled=scripts)
        visitor.expected = (REFUSED,)
        page = visitor.open(consent_page(callback))
        expect(page.get_by_label("E-mail address")).to_be_focused()
        page.keyboard.type(ALICE)
        page.keyboard.press("Tab")
        expect(page.get_by_label("Password")).to_be_focused()
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_text(ALICE)).to_be_visible()
        for name in ("Approve", "Deny", "Use another account"):
            page.keyboard.press("Tab")
            button = page.get_by_role("button", name=name)
            expect(button).to_be_focused()
            expect(button).to_have_css("outline-style", "solid")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Arrived")
        assert "code" in callback.receive()[0]
        pop_requests(visitor, callback.url)


class TestFrames:
    @pytest.mark.parametrize("name", ["consent", "sign-in", "errors"])
    @pytest.mark.parametrize("place", ["same site", "other site"])
    def test_pages_are_not_shown_in_frames(
        self, open_consent: Callable[..., Visit], listen: Callable[..., Callback], name: str, place: str
    ) -> None:
        callback = listen()
        visitor = open_consent(callback)
        inner = {"consent": consent_page(callback), "sign-in": "/sign-in", "errors": "/api/v1/auth/cli/authorize"}[name]
        html = f'{BARE}<iframe src="{escape(visitor.server.url + inner)}"></iframe>'
        outer = callback.url.replace("/cb", "/outer")
        if place == "other site":
            callback.pages["/outer"] = html
        else:
            outer = f"{visitor.server.url}/outer"
            visitor.page.route(outer, lambda route: route.fulfill(body=html, content_type="text/html"))
        visitor.expected += ("the server responded with a status of 400", "frame-ancestors")
        with visitor.page.expect_response(visitor.server.url + inner) as response:
            visitor.page.goto(outer)
        assert response.value.status == (400 if name == "errors" else 200)
        expect(visitor.page.locator("iframe")).to_be_visible()
        [frame] = visitor.page.main_frame.child_frames
        frame.wait_for_url("chrome-error://**")
        assert [text for text in visitor.console_messages if "frame-ancestors 'none'" in text]
        expect(frame.locator("form, .page")).to_have_count(0)
        if place == "other site":
            assert callback.requests.get(timeout=60)[0] == "/outer"
            pop_requests(visitor, outer)


ADDRESS = "http://127.0.0.1:8976/callback"
LONG = {"install_name": "w" * 64, "install_id": "i" * 128}
PARAMETERS = {
    "few scopes": {"scope": "chats:read bots", "install_name": "Anna's laptop"},
    "all scopes": {},
    "unknown scopes": {"scope": f"events {'nonsense ' * 3} {'y' * 200}"},
    "unknown scopes alone": {"scope": "root"},
    "long names": LONG,
    "names from right to left": {"install_name": "המחשב של אנה", "install_id": "א" * 128},
    "names in both directions": {"install_name": "laptop של (אנה) <b>", "install_id": "(א) x"},
}
PAGES = ["sign-in", "wrong password", *PARAMETERS, "errors", "expired", "approved", "denied"]


def open_page(visitor: Visit, name: str) -> None:
    """Open a page as Alice."""
    visitor.expected = (REFUSED, FAULTY)
    page = visitor.open(consent_page(ADDRESS, **PARAMETERS.get(name, {})))
    if name == "sign-in":
        return
    sign_in(page, password="wrong" if name == "wrong password" else PASSWORD)
    if name == "errors":
        visitor.open(f"/api/v1/auth/cli/authorize?client_id={'w' * 300}&state=ш&scope=%22")
    elif name == "expired":
        page.locator("[name=csrf_token]").evaluate("field => { field.value = 'x' }")
        click(page, "Approve")
    elif name in ("approved", "denied"):
        page.route(f"{ADDRESS}*", lambda route: route.fulfill(status=204))  # the page stays open
        with page.expect_request(f"{ADDRESS}*"):
            click(page, "Approve" if name == "approved" else "Deny")


HEADINGS = {
    "sign-in": "Sign in",
    "wrong password": "Sign in",
    "errors": "Invalid request",
    "expired": "Invalid request",
    "approved": "Access granted",
    "denied": "Access denied",
}


@WINDOWS
@pytest.mark.parametrize("name", PAGES)
def test_pages_are_accessible(name: str, windows: list[tuple[str, int]], visit: Callable[..., Visit]) -> None:
    """axe-core finds no violations in light and dark colours, on a phone and a desktop."""
    visitor = visit()
    open_page(visitor, name)
    heading = HEADINGS.get(name, "Grant access to a command-line client?")
    expect(visitor.page.get_by_role("heading", level=1)).to_have_text(heading)
    visitor.check_accessibility(windows)
    pop_requests(visitor, ADDRESS)


def test_consent_page_lists_the_access_of_all_scopes(open_consent: Callable[..., Visit]) -> None:
    page = open_consent(ADDRESS).page
    shown = [
        page.locator("div", has=page.get_by_role("heading", name=name)).get_by_role("listitem").all_inner_texts()
        for name in ("Read access", "Write access")
    ]
    assert shown[0][: len(consent.SCOPE_TEXTS)] == [reading for reading, _ in consent.SCOPE_TEXTS.values()]
    assert shown[1][-len(consent.SCOPE_TEXTS) :] == [changing for _, changing in consent.SCOPE_TEXTS.values()]
