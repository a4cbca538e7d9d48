"""Signing in from a terminal through a browser: the executable serves, its client waits, a person is at Chromium."""

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
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from service import db
from service.auth import codes, consent, signing
from tests.browser import DARK, LIGHT, NARROW, WIDE, Visit, visit_fixture  # noqa: F401
from tests.browsing import FORM
from tests.conftest import PASSWORD, PASSWORD_HASH, Reply, at
from tests.executable import PYTHON, clean_environment
from tests.executable import shipped_fixture as shipped_fixture
from tests.serving import Served, chat, fill, where
from tests.test_consent import GOOD, path

pytestmark = pytest.mark.slow

ALICE, BOB, ZIGA = "alice@example.com", "bob@example.com", "žiga@šola.example"
OTHERS = [{"user": {"email": email, "password_hash": PASSWORD_HASH}} for email in (BOB, ZIGA)]
REFUSED = "the server responded with a status of 401 (Unauthorized)"  # what Chromium says of the sign-in page
FAULTY = "the server responded with a status of 400 (Bad Request)"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
BARE = '<!doctype html><title>x</title><link rel="icon" href="data:,">'
EVERYWHERE = [(colours, width) for colours in (LIGHT, DARK) for width in (WIDE, NARROW)]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this module."""
    return tmp_path_factory.mktemp("login")


@contextmanager
def serving(shipped: Path, room: Path, host: str) -> Iterator[Served]:
    """The executable on a free port, with some people who can log in."""
    data = room / f"data-{host.count(':')}"
    fill(data, [*chat(1), *OTHERS])
    line = [str(PYTHON), str(shipped), "serve", "--host", host, "--port", "0", "--data", str(data)]
    output, errors = data.with_suffix(".out"), data.with_suffix(".err")
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(line, stdout=out, stderr=err, env=clean_environment(SHIV_ROOT=room, **where(data)))
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


class Terminal:
    """A command-line client at work."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    @cached_property
    def page(self) -> str:
        """The address that it asks to open."""
        assert self.process.stderr
        return next(line.strip() for line in self.process.stderr if line.startswith("http://"))

    @property
    def callback(self) -> str:
        """Where it waits for the browser to come back."""
        return dict(parse_qsl(urlsplit(self.page).query))["redirect_uri"]

    def end(self) -> tuple[int, str, str]:
        """How it ended, what it printed, and what it complained of since."""
        printed, complaints = self.process.communicate(timeout=60)
        return self.process.returncode, printed, complaints


@pytest.fixture
def terminal(shipped: Path, room: Path, tmp_path: Path, server: Served) -> Iterator[Callable[..., Terminal]]:
    """Starts the client, with a home of its own."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Terminal:
        line = [str(PYTHON), str(shipped), "client", *arguments, "--url", server.url]
        places = clean_environment(SHIV_ROOT=room, HOME=tmp_path, XDG_CONFIG_HOME=tmp_path)
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(line, env=places, stdout=pipe, stderr=pipe, text=True))
        return Terminal(processes[-1])

    yield start
    for process in processes:
        with process, suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)


class Callback:
    """Waits on a loopback address as a client does, and keeps what browsers bring."""

    def __init__(self, host: str) -> None:
        came: queue.Queue[tuple[str, dict[str, str]]] = queue.Queue()
        pages = {"/cb": f"{BARE}<h1>Arrived</h1>"}

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                came.put((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(pages[self.path.partition("?")[0]].encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.came, self.pages, self.server = came, pages, Server((host, 0), Handler)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server.server_address[1]}/cb"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def told(self) -> tuple[dict[str, str], dict[str, str]]:
        """The next answer that came: its parameters, and the headers that came with it."""
        where, headers = self.came.get(timeout=60)
        assert where.startswith("/cb?")
        return dict(parse_qsl(where.partition("?")[2], keep_blank_values=True)), headers


def aged(ticket: str, data: Path) -> str:
    """The ticket as it would have been ten minutes ago, signed with the key of a running service."""
    db.open_database(data, at(data).database)
    signing.forget_keys()
    number, expires_at, *rest = signing.verify("ticket", ticket)
    older = signing.sign("ticket", [number, expires_at - codes.TICKET_LIFE, *rest])
    db.close_database()
    signing.forget_keys()
    return older


@pytest.fixture
def listen() -> Iterator[Callable[..., Callback]]:
    """Makes callbacks."""
    made: list[Callback] = []

    def begin(host: str = "127.0.0.1") -> Callback:
        made.append(Callback(host))
        return made[-1]

    yield begin
    for callback in made:
        callback.server.shutdown()
        callback.server.server_close()
        assert callback.came.empty(), "an answer that nobody expected"


def question(callback: Callback | str, **changes: Any) -> str:
    """The address of a consent page."""
    uri = callback if isinstance(callback, str) else callback.url
    return f"/api/v1{path(redirect_uri=uri, code_challenge=CHALLENGE, **changes)}"


def sign_in(page: Page, email: str = ALICE, password: str = PASSWORD) -> None:
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def answer(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def left_for(guest: Visit, place: str) -> list[str]:
    """The addresses under a place beyond the service to which a person was rightly led."""
    led = [url for url in guest.asked if url.startswith(place)]
    guest.asked = [url for url in guest.asked if url not in led]
    return led


@pytest.fixture
def asked(visit: Callable[..., Visit]) -> Callable[..., Visit]:
    """Alice, signed in, before the question of a client."""

    def begin(callback: Callback | str, email: str = ALICE, **more: Any) -> Visit:
        guest = visit(**more)
        guest.expected = (REFUSED,)
        sign_in(guest.open(question(callback)), email)
        expect(guest.page.get_by_text(email)).to_be_visible()
        return guest

    return begin


def trade(server: Served, callback: Callback, code: str) -> Reply:
    """The tokens for a code."""
    form = {"grant_type": "authorization_code", "client_id": "service-cli", "code": code, "code_verifier": VERIFIER}
    raw = urlencode({**form, "redirect_uri": callback.url}).encode()
    return server.call("POST", "/api/v1/auth/cli/token", raw, headers={"Content-Type": FORM})


class TestFromATerminal:
    def test_a_person_signs_in_and_approves(
        self, terminal: Callable[..., Terminal], visit: Callable[..., Visit]
    ) -> None:
        client, guest = terminal("login", "--no-browser"), visit()
        guest.expected = (REFUSED,)
        guest.page.goto(client.page)
        sign_in(guest.page)
        expect(guest.page.get_by_text(socket.gethostname(), exact=True)).to_be_visible()
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("You can go back")
        status, printed, complaints = client.end()
        assert (status, printed) == (0, f"{ALICE} <{ALICE}>, user at {guest.server.url}\n"), complaints
        [led] = left_for(guest, client.callback)
        assert led.startswith(f"{client.callback}?code=cxc_")
        assert len(guest.complaints) == 1
        assert terminal("whoami").end()[:2] == (0, printed)

    def test_a_person_denies(self, terminal: Callable[..., Terminal], visit: Callable[..., Visit]) -> None:
        client, guest = terminal("login", "--no-browser"), visit()
        guest.expected = (REFUSED,)
        guest.page.goto(client.page)
        sign_in(guest.page)
        answer(guest.page, "Deny")
        expect(guest.page.get_by_role("heading")).to_have_text("You can go back")
        status, printed, complaints = client.end()
        assert (status, printed) == (1, "")
        assert complaints.endswith("cx-service: the sign-in was refused: access_denied\n")
        left_for(guest, client.callback)
        assert terminal("whoami").end()[0] == 1

    def test_a_person_approves_with_a_double_click(
        self, terminal: Callable[..., Terminal], visit: Callable[..., Visit]
    ) -> None:
        client, guest = terminal("login", "--no-browser"), visit()
        guest.expected = (REFUSED,)
        guest.page.goto(client.page)
        sign_in(guest.page)
        guest.page.get_by_role("button", name="Approve").dblclick()
        expect(guest.page.get_by_role("heading")).to_have_text("You can go back")
        assert client.end()[0] == 0
        left_for(guest, client.callback)
        assert terminal("whoami").end()[0] == 0


class TestWhatTheClientIsTold:
    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    def test_is_a_code_and_nothing_of_where_it_comes_from(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback], server: Served, host: str
    ) -> None:
        callback = listen(host)
        guest = asked(callback)
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        told, headers = callback.told()
        assert set(told) == {"code", "state", "iss"}
        assert (told["state"], told["iss"]) == (GOOD["state"], server.url)
        assert not {"referer", "origin"} & set(headers)
        assert len(left_for(guest, callback.url)) == 1
        assert trade(server, callback, told["code"]).status == 200

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    def test_is_a_denial(self, asked: Callable[..., Visit], listen: Callable[..., Callback], host: str) -> None:
        callback = listen(host)
        guest = asked(callback)
        answer(guest.page, "Deny")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        told, headers = callback.told()
        assert told == {"error": "access_denied", "state": GOOD["state"], "iss": guest.server.url}
        assert not {"referer", "origin"} & set(headers)
        left_for(guest, callback.url)

    def test_can_be_carried_on_by_hand(self, asked: Callable[..., Visit], listen: Callable[..., Callback]) -> None:
        """Some people forbid pages to move on by themselves."""
        callback = listen()
        guest = asked(callback)
        guest.page.route("**/cb?*", lambda route: route.fulfill(status=204), times=1)
        answer(guest.page, "Approve")
        guest.page.get_by_role("link", name="Go on by hand").click()
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        assert "code" in callback.told()[0]
        assert len(set(left_for(guest, callback.url))) == 1


class TestOnTheOtherProtocol:
    @pytest.fixture
    def server(self, other_server: Served) -> Served:
        return other_server

    def test_a_person_signs_in_and_approves(
        self, terminal: Callable[..., Terminal], visit: Callable[..., Visit]
    ) -> None:
        client, guest = terminal("login", "--no-browser"), visit()
        guest.expected = (REFUSED,)
        assert guest.server.url.startswith("http://[::1]:")
        guest.page.goto(client.page)
        sign_in(guest.page)
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("You can go back")
        assert client.end()[:2] == (0, f"{ALICE} <{ALICE}>, user at {guest.server.url}\n")
        left_for(guest, client.callback)

    def test_the_client_may_listen_there_too(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        callback = listen("::1")
        guest = asked(callback)
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        told, _ = callback.told()
        assert told["iss"] == server.url
        assert trade(server, callback, told["code"]).status == 200
        left_for(guest, callback.url)


class TestSigningIn:
    def test_gives_another_chance_after_a_wrong_password(
        self, visit: Callable[..., Visit], listen: Callable[..., Callback]
    ) -> None:
        guest = visit()
        guest.expected = (REFUSED,)
        page = guest.open(question(listen()))
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
        assert len(guest.complaints) == 2

    def test_takes_addresses_in_any_letters(self, asked: Callable[..., Visit], listen: Callable[..., Callback]) -> None:
        asked(listen(), ZIGA)

    def test_as_somebody_else_leads_back_to_the_question(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        callback = listen()
        guest = asked(callback)
        before = guest.page.url
        answer(guest.page, "Sign in as somebody else")
        sign_in(guest.page, BOB)
        expect(guest.page.get_by_text(BOB)).to_be_visible()
        assert guest.page.url == before
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        bearer = trade(server, callback, callback.told()[0]["code"]).json["access_token"]
        assert server.call("GET", "/api/v1/users/me", token=bearer).data["email"] == BOB
        left_for(guest, callback.url)

    def test_again_leads_back_to_the_question_if_one_has_signed_out_in_another_tab(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback]
    ) -> None:
        callback = listen()
        guest = asked(callback)
        elsewhere = guest.context.new_page()
        elsewhere.goto(guest.page.url)
        answer(elsewhere, "Sign in as somebody else")
        expect(elsewhere.get_by_label("Password")).to_be_visible()
        answer(guest.page, "Approve")
        sign_in(guest.page)
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        assert "code" in callback.told()[0]
        left_for(guest, callback.url)


class TestAnswering:
    def test_once_more_after_going_back_is_another_answer(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        callback = listen()
        guest = asked(callback)
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        first = callback.told()[0]["code"]
        assert trade(server, callback, first).status == 200
        guest.page.go_back()
        answer(guest.page, "Deny")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        assert callback.told()[0]["error"] == "access_denied"
        left_for(guest, callback.url)

    def test_twice_alike_is_one_answer(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        """As with a double click: the browser throws the first page away when the second click sends the form again."""
        callback = listen()
        guest = asked(callback)
        ticket = guest.page.locator("[name=ticket]").input_value()
        navigation = {"Sec-Fetch-Mode": "navigate"}
        form = {"ticket": ticket, "answer": "approve"}
        first = guest.context.request.post(guest.page.url, form=form, headers=navigation)
        assert first.status == 200
        guest.page.get_by_role("button", name="Approve").dblclick()
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        assert len(set(left_for(guest, callback.url))) == 1
        code = callback.told()[0]["code"]
        assert code in first.text()
        assert trade(server, callback, code).status == 200

    def test_in_two_tabs_tells_each_client_its_own(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback], server: Served
    ) -> None:
        one, two = listen(), listen()
        guest = asked(one)
        second = guest.context.new_page()
        second.goto(server.url + question(two, install_id="another", state="other"))
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        answer(second, "Approve")
        expect(second.get_by_role("heading")).to_have_text("Arrived")
        told = [callback.told()[0] for callback in (one, two)]
        assert [each["state"] for each in told] == [GOOD["state"], "other"]
        assert [trade(server, to, each["code"]).status for to, each in zip((one, two), told, strict=True)] == [200] * 2
        left_for(guest, one.url), left_for(guest, two.url)

    @pytest.mark.parametrize("kind", ["made up", "of somebody else", "of ten minutes ago"])
    def test_with_a_ticket_that_is_not_good_is_refused(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback], room: Path, kind: str
    ) -> None:
        callback = listen()
        ticket = "x.y"
        if kind == "of somebody else":
            ticket = asked(callback, BOB).page.locator("[name=ticket]").input_value()
        guest = asked(callback)
        guest.expected += (FAULTY,)
        if kind == "of ten minutes ago":
            ticket = aged(guest.page.locator("[name=ticket]").input_value(), room / "data-0")
        guest.page.locator("[name=ticket]").evaluate("(field, ticket) => { field.value = ticket }", ticket)
        answer(guest.page, "Approve")
        expect(guest.page.get_by_text("This page was open for too long")).to_be_visible()
        expect(guest.page.get_by_text("made a mistake")).to_have_count(0)
        guest.page.go_back()  # as the page says: the question is asked anew
        answer(guest.page, "Approve")
        expect(guest.page.get_by_role("heading")).to_have_text("Arrived")
        assert "code" in callback.told()[0]
        left_for(guest, callback.url)

    @pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
    def test_takes_nothing_but_a_keyboard(
        self, visit: Callable[..., Visit], listen: Callable[..., Callback], scripts: bool
    ) -> None:
        callback, guest = listen(), visit(java_script_enabled=scripts)
        guest.expected = (REFUSED,)
        page = guest.open(question(callback))
        expect(page.get_by_label("E-mail address")).to_be_focused()
        page.keyboard.type(ALICE)
        page.keyboard.press("Tab")
        expect(page.get_by_label("Password")).to_be_focused()
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_text(ALICE)).to_be_visible()
        for name in ("Approve", "Deny", "Sign in as somebody else"):
            page.keyboard.press("Tab")
            button = page.get_by_role("button", name=name)
            expect(button).to_be_focused()
            expect(button).to_have_css("outline-style", "solid")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading")).to_have_text("Arrived")
        assert "code" in callback.told()[0]
        left_for(guest, callback.url)


class TestInAFrame:
    @pytest.mark.parametrize("name", ["question", "sign-in", "faults"])
    @pytest.mark.parametrize("place", ["our own site", "another"])
    def test_nothing_is_shown(
        self, asked: Callable[..., Visit], listen: Callable[..., Callback], name: str, place: str
    ) -> None:
        callback = listen()
        guest = asked(callback)
        inner = {"question": question(callback), "sign-in": "/sign-in", "faults": "/api/v1/auth/cli/authorize"}[name]
        html = f'{BARE}<iframe src="{escape(guest.server.url + inner)}"></iframe>'
        outer = callback.url.replace("/cb", "/outer")
        if place == "another":
            callback.pages["/outer"] = html
        else:
            outer = f"{guest.server.url}/outer"
            guest.page.route(outer, lambda route: route.fulfill(body=html, content_type="text/html"))
        guest.expected += ("the server responded with a status of 400", "frame-ancestors")
        with guest.page.expect_response(guest.server.url + inner) as response:
            guest.page.goto(outer)
        assert response.value.status == (400 if name == "faults" else 200)
        expect(guest.page.locator("iframe")).to_be_visible()
        [frame] = guest.page.main_frame.child_frames
        frame.wait_for_url("chrome-error://**")
        assert [said for said in guest.complaints if "frame-ancestors 'none'" in said]
        expect(frame.locator("form, .page")).to_have_count(0)
        if place == "another":
            assert callback.came.get(timeout=60)[0] == "/outer"
            left_for(guest, outer)


ADDRESS = "http://127.0.0.1:8976/callback"
LONG = {"install_name": "w" * 64, "install_id": "i" * 128}
ASKED = {
    "few scopes": {"scope": "chats:read bots", "install_name": "Anna's laptop"},
    "all scopes": {},
    "unknown scopes": {"scope": f"events {'nonsense ' * 3} {'y' * 200}"},
    "unknown scopes alone": {"scope": "root"},
    "long names": LONG,
    "names from right to left": {"install_name": "המחשב של אנה", "install_id": "א" * 128},
    "names of both ways": {"install_name": "laptop של (אנה) <b>", "install_id": "(א) x"},
}
SHOWN = ["sign-in", "wrong password", *ASKED, "faults", "stale", "approved", "denied"]


def show(guest: Visit, name: str) -> None:
    """Lead Alice to a page."""
    guest.expected = (REFUSED, FAULTY)
    page = guest.open(question(ADDRESS, **ASKED.get(name, {})))
    if name == "sign-in":
        return
    sign_in(page, password="wrong" if name == "wrong password" else PASSWORD)
    if name == "faults":
        guest.open(f"/api/v1/auth/cli/authorize?client_id={'w' * 300}&state=ш&scope=%22")
    elif name == "stale":
        page.locator("[name=ticket]").evaluate("field => { field.value = 'x' }")
        answer(page, "Approve")
    elif name in ("approved", "denied"):
        page.route(f"{ADDRESS}*", lambda route: route.fulfill(status=204))  # the page stays
        with page.expect_request(f"{ADDRESS}*"):
            answer(page, "Approve" if name == "approved" else "Deny")


HEADINGS = {
    "sign-in": "Sign in",
    "wrong password": "Sign in",
    "faults": "This request cannot be answered",
    "stale": "This request cannot be answered",
    "approved": "Allowed",
    "denied": "Denied",
}


@pytest.mark.parametrize("name", SHOWN)
def test_every_page_is_for_everybody(name: str, visit: Callable[..., Visit]) -> None:
    """In light and dark, on a phone and a desktop: nothing that axe-core knows of stands in anybody's way."""
    guest = visit()
    show(guest, name)
    heading = HEADINGS.get(name, "Allow a command-line client to act for you?")
    expect(guest.page.get_by_role("heading", level=1)).to_have_text(heading)
    for colours, width in EVERYWHERE:
        guest.page.emulate_media(color_scheme=colours)
        guest.page.set_viewport_size({"width": width, "height": 844})
        found = Axe().run(guest.page).response
        faults = [f"{fault['id']}: {fault['help']}: {fault['nodes'][0]['html']}" for fault in found["violations"]]
        assert not faults, (colours, width)
        assert len(found["passes"]) > 10
        assert not guest.is_too_wide()
    left_for(guest, ADDRESS)


def test_the_question_names_all_that_it_opens(asked: Callable[..., Visit]) -> None:
    page = asked(ADDRESS).page
    shown = [
        page.locator("div", has=page.get_by_role("heading", name=name)).get_by_role("listitem").all_inner_texts()
        for name in ("It may look", "It may act in your name")
    ]
    assert shown[0][: len(consent.MEANINGS)] == [reading for reading, _ in consent.MEANINGS.values()]
    assert shown[1][-len(consent.MEANINGS) :] == [changing for _, changing in consent.MEANINGS.values()]
