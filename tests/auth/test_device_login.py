"""The login of a client without a browser on its computer (RFC 8628): codes, the page, polling, and attacks."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from service.auth import consent, device_codes
from service.http.application import build_app
from service.models import AuditLog, DeviceAuthorization, LoginSession
from service.models import logins as login_models
from service.routes import operations
from service.settings import Settings
from tests.support.cli_login import TOKEN
from tests.support.cli_login import browser_fixture as browser_fixture
from tests.support.client import Client, Reply
from tests.support.consent import SCRIPTS, TAGS, Page, parse_page
from tests.support.host_clock import Clock
from tests.support.observe import at_once, nothing_changes
from tests.support.web_client import FORM, Browser, Forms

pytestmark = pytest.mark.database

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
ENDPOINT = "/auth/cli/device-authorization"
VALID = {"client_id": "service-cli", "install_id": "laptop-1", "install_name": "Anna's laptop", "scope": "chats:read"}
WRONG = "This code is wrong, expired or already used"

Codes = dict[str, Any]


def post(client: Client, path: str, **form: str) -> Reply:
    return client.post(path, raw=urlencode(form).encode(), content_type=FORM, host="test")


def oauth_error(reply: Reply, status: int = 400) -> str:
    """Return the error code of an OAuth error response (RFC 6749, section 5.2)."""
    assert reply.status == status
    assert set(reply.json) == {"error", "error_description"}
    assert reply.headers["Cache-Control"] == "no-store"
    return str(reply.json["error"])


@pytest.fixture
def begin(anyone: Client) -> Callable[..., Codes]:
    """Request a device code."""

    def run(**changes: str) -> Codes:
        reply = post(anyone, ENDPOINT, **(VALID | changes))
        assert reply.status == 200, reply.raw
        return dict(reply.json)

    return run


@pytest.fixture
def poll(anyone: Client, host_clock: Clock) -> Callable[..., Reply]:
    """Request tokens with a device code, by default after the interval."""

    def run(codes: Codes, seconds: float = 5, **changes: str) -> Reply:
        host_clock.forward(seconds=seconds)
        form = {"grant_type": GRANT, "client_id": "service-cli", "device_code": codes["device_code"]} | changes
        return post(anyone, TOKEN, **form)

    return run


def enter(browser: Browser, user_code: str) -> Reply:
    """Open the page, and enter a user code."""
    assert browser.open("/device").status == 200
    return browser.send(user_code=user_code, answer="continue")


def decide(browser: Browser, codes: Codes, answer: str = "approve") -> Reply:
    assert enter(browser, codes["user_code"]).status == 200
    return browser.send(answer=answer)


class TestCodes:
    def test_response_has_the_members_of_the_standard(self, begin: Callable[..., Codes]) -> None:
        codes = begin()
        assert re.fullmatch(r"cxd_[\w-]{43}", codes.pop("device_code"))
        user_code = codes.pop("user_code")
        assert re.fullmatch(r"[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}", user_code)
        assert codes == {
            "verification_uri": "http://test/device",
            "verification_uri_complete": f"http://test/device?user_code={user_code}",
            "expires_in": 900,
            "interval": 5,
        }

    def test_metadata_names_the_endpoint_and_the_grant(self, anyone: Client) -> None:
        metadata = anyone.get("//.well-known/oauth-authorization-server", host="test").json
        assert metadata["device_authorization_endpoint"] == f"http://test/api/v1{ENDPOINT}"
        assert GRANT in metadata["grant_types_supported"]

    def test_database_has_digests_only(self, begin: Callable[..., Codes]) -> None:
        codes = begin()
        [row] = DeviceAuthorization.select().tuples()
        text = repr(row)
        assert codes["device_code"] not in text
        assert codes["device_code"].removeprefix("cxd_") not in text
        assert codes["user_code"].replace("-", "") not in text

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"client_id": "other"}, "invalid_client"),
            ({"client_id": ""}, "invalid_request"),
            ({"install_id": ""}, "invalid_request"),
            ({"install_id": "x" * 129}, "invalid_request"),
            ({"install_name": "a\nb"}, "invalid_request"),
            ({"scope": 'chats "quoted"'}, "invalid_request"),
        ],
    )
    def test_invalid_request_is_an_oauth_error(self, anyone: Client, changes: dict[str, str], code: str) -> None:
        with nothing_changes():
            assert oauth_error(post(anyone, ENDPOINT, **(VALID | changes))) in (code, "invalid_client")

    def test_pending_requests_of_a_network_are_limited(
        self, anyone: Client, begin: Callable[..., Codes], monkeypatch: pytest.MonkeyPatch, host_clock: Clock
    ) -> None:
        monkeypatch.setattr(device_codes, "NETWORK_LIMIT", 2)
        begin(), begin()
        reply = post(anyone, ENDPOINT, **VALID)
        assert oauth_error(reply, 429) == "rate_limited"
        assert reply.headers["Retry-After"] == "900"
        host_clock.forward(minutes=15)
        begin()

    def test_pending_requests_of_all_networks_are_limited(
        self, anyone: Client, begin: Callable[..., Codes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(device_codes, "PENDING_LIMIT", 1)
        begin()
        DeviceAuthorization.update(network="192.0.2.0/24").execute()
        assert oauth_error(post(anyone, ENDPOINT, **VALID), 429) == "rate_limited"

    def test_requests_are_deleted_an_hour_after_their_expiry(
        self, begin: Callable[..., Codes], host_clock: Clock
    ) -> None:
        begin()
        host_clock.forward(minutes=74, seconds=59)
        begin()
        assert DeviceAuthorization.select().count() == 2
        host_clock.forward(seconds=2)
        begin()
        assert DeviceAuthorization.select().count() == 2


class TestThePage:
    def test_requires_a_sign_in_and_returns_to_the_code(self, application: Any, begin: Callable[..., Codes]) -> None:
        visitor = Browser(application)
        address = begin()["verification_uri_complete"].removeprefix("http://test")
        assert visitor.open(address).status == 401
        assert "Sign in" in visitor.text
        assert urlencode({"next": address}) in visitor.reply.raw.decode()

    def test_fills_in_the_code_of_its_address_and_looks_nothing_up(
        self, browser: Browser, begin: Callable[..., Codes]
    ) -> None:
        codes = begin()
        with nothing_changes():
            browser.open(codes["verification_uri_complete"].removeprefix("http://test"))
        assert f'value="{codes["user_code"]}"' in browser.reply.raw.decode()
        assert "Anna" not in browser.text

    def test_shows_client_scopes_and_code_before_the_decision(
        self, browser: Browser, begin: Callable[..., Codes]
    ) -> None:
        codes = begin(scope="chats:read root")
        reply = enter(browser, codes["user_code"])
        text = parse_page(reply).text
        for shown in ("alice@example.com", "service-cli", "Anna's laptop", "laptop-1", codes["user_code"]):
            assert shown in text
        assert "Read your chats" in text
        assert "pin and delete" not in text
        assert "Approve only if you started this request yourself just now" in text
        assert "root" in text.partition("unknown scopes")[2]

    def test_only_unknown_scopes_grant_no_access(self, browser: Browser, begin: Callable[..., Codes]) -> None:
        text = parse_page(enter(browser, begin(scope="root")["user_code"])).text
        assert "No access will be granted" in text
        assert not any(reading in text for reading, _ in consent.SCOPE_TEXTS.values())

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_escapes_names_and_codes(self, browser: Browser, begin: Callable[..., Codes], name: str) -> None:
        parse_page(enter(browser, begin(install_name=name, install_id=name)["user_code"]))
        html = enter(browser, name).raw.decode()
        assert set(Page(html).tags) <= TAGS | {"label"}
        assert Forms(html).found[0][1]["user_code"] == name

    @pytest.mark.parametrize("change", [str.lower, lambda code: code.replace("-", ""), lambda code: f" {code} "])
    def test_accepts_codes_as_people_type_them(
        self, browser: Browser, begin: Callable[..., Codes], change: Callable[[str], str]
    ) -> None:
        assert enter(browser, change(begin()["user_code"])).status == 200

    @pytest.mark.parametrize("code", ["", "-", "BCDF-GHJK", "ß", "x" * 64])
    def test_wrong_code_is_an_error_beside_the_field(
        self, browser: Browser, begin: Callable[..., Codes], code: str
    ) -> None:
        begin()
        reply = enter(browser, code)
        assert reply.status == 400
        assert WRONG in browser.text
        assert 'role="alert"' in reply.raw.decode()
        assert f'value="{code}"' in reply.raw.decode()

    def test_expired_code_is_an_error(self, browser: Browser, begin: Callable[..., Codes], host_clock: Clock) -> None:
        codes = begin()
        host_clock.forward(minutes=15)
        assert enter(browser, codes["user_code"]).status == 400
        assert WRONG in browser.text

    def test_guesses_are_limited(self, alice: Client, settings: Settings, begin: Callable[..., Codes]) -> None:
        application = build_app(operations(), replace(settings, login_failures=3))
        browser, codes = Browser(application).signed_in(alice), begin()
        for _ in range(3):
            assert enter(browser, "BCDF-GHJK").status == 400
        assert enter(browser, codes["user_code"]).status == 429
        assert "Too many failed attempts" in browser.text
        assert "service-cli" not in browser.text

    def test_valid_codes_are_not_counted_as_guesses(
        self, alice: Client, settings: Settings, begin: Callable[..., Codes]
    ) -> None:
        application = build_app(operations(), replace(settings, login_failures=2))
        browser = Browser(application).signed_in(alice)
        for _ in range(4):
            assert decide(browser, begin()).status == 200

    @pytest.mark.parametrize("answer", ["continue", "approve"])
    @pytest.mark.parametrize("token", ["", "x", "of another session"])
    def test_form_of_another_site_is_refused(
        self, browser: Browser, begin: Callable[..., Codes], alice: Client, application: Any, answer: str, token: str
    ) -> None:
        if token == "of another session":
            other = Browser(application).signed_in(alice)
            token = other.open("/device").raw.decode().partition('name="csrf_token" value="')[2].partition('"')[0]
        codes = begin()
        browser.open("/device")
        with nothing_changes():
            assert browser.send(user_code=codes["user_code"], answer=answer, csrf_token=token).status == 400

    def test_is_not_available_to_tokens_with_scopes(self, alice: Client) -> None:
        LoginSession.update(scopes=" ".join(sorted(consent.SCOPES))).where(
            LoginSession.user_id == alice.user.id
        ).execute()
        assert alice.get("//device").error == (403, "insufficient_scope")


class TestTheDecision:
    def test_approval_returns_tokens_with_the_scopes(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply], anyone: Client
    ) -> None:
        codes = begin()
        assert decide(browser, codes).status == 200
        assert "Access granted" in browser.text
        reply = poll(codes)
        assert reply.status == 200
        assert reply.json["scope"] == "chats:read"
        assert reply.json["token_type"] == "Bearer"
        authorization = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/chats", authorization=authorization).status == 200
        assert anyone.get("/users/me", authorization=authorization).error == (403, "insufficient_scope")
        session = LoginSession.get(LoginSession.install_id == "laptop-1")
        assert (session.kind, session.label) == ("client", "Anna's laptop")

    def test_denial_is_reported_to_the_client(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply]
    ) -> None:
        codes = begin()
        assert decide(browser, codes, "deny").status == 200
        assert "No access was granted" in browser.text
        assert oauth_error(poll(codes)) == "access_denied"
        assert LoginSession.select().where(LoginSession.install_id.is_null(False)).count() == 0

    def test_is_recorded_in_the_audit_log(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply], alice: Client
    ) -> None:
        codes = begin()
        decide(browser, codes)
        poll(codes)
        decide(browser, begin(), "deny")
        entries = list(AuditLog.select().where(AuditLog.subject_id == alice.user.id).order_by(AuditLog.position))
        assert [entry.kind for entry in entries][-3:] == ["consent_approved", "login", "consent_denied"]
        assert "laptop-1" in entries[-3].details

    @pytest.mark.parametrize("answer", ["approve", "deny"])
    def test_double_click_repeats_the_page(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply], answer: str
    ) -> None:
        codes = begin()
        enter(browser, codes["user_code"])
        form = browser.reply
        browser.send(answer=answer)
        first, browser.reply = browser.text, form
        with nothing_changes():
            assert browser.send(answer=answer).status == 200
        assert browser.text == first

    @pytest.mark.parametrize(("first", "second"), [("approve", "deny"), ("deny", "approve")])
    def test_cannot_be_changed(self, browser: Browser, begin: Callable[..., Codes], first: str, second: str) -> None:
        codes = begin()
        enter(browser, codes["user_code"])
        form = browser.reply
        browser.send(answer=first)
        browser.reply = form
        with nothing_changes(DeviceAuthorization, AuditLog):
            assert browser.send(answer=second).status == 400
        assert WRONG in browser.text

    def test_of_another_user_is_refused(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply], bob: Client, application: Any
    ) -> None:
        codes, other = begin(), Browser(application).signed_in(bob)
        decide(browser, codes)
        assert enter(other, codes["user_code"]).status == 400
        assert poll(codes).status == 200
        assert (
            LoginSession.select().where(LoginSession.user_id == bob.user.id, LoginSession.kind == "client").count() == 0
        )

    def test_is_refused_after_the_code_was_used(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply]
    ) -> None:
        codes = begin()
        enter(browser, codes["user_code"])
        form = browser.reply
        browser.send(answer="approve")
        poll(codes)
        browser.reply = form
        assert browser.send(answer="approve").status == 400

    def test_of_two_users_at_once_counts_once(
        self, begin: Callable[..., Codes], alice: Client, bob: Client, application: Any
    ) -> None:
        codes = begin()
        browsers = [Browser(application).signed_in(user) for user in (alice, bob)]
        for browser in browsers:
            enter(browser, codes["user_code"])
        replies = at_once(2, lambda number: browsers[number].send(answer="approve").status)
        assert sorted(replies) == [200, 400]

    def test_limit_of_clients_is_reported(
        self, browser: Browser, begin: Callable[..., Codes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(login_models, "INSTALL_LIMIT", 0)
        assert decide(browser, begin()).status == 400
        assert "at most 100 command-line clients" in browser.text


class TestPolling:
    def test_pending_request_is_reported(self, begin: Callable[..., Codes], poll: Callable[..., Reply]) -> None:
        codes = begin()
        assert oauth_error(poll(codes, 0)) == "authorization_pending"
        assert oauth_error(poll(codes)) == "authorization_pending"

    def test_early_poll_must_slow_down(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply]
    ) -> None:
        codes = begin()
        poll(codes)
        decide(browser, codes)
        assert oauth_error(poll(codes, 4.9)) == "slow_down"
        assert oauth_error(poll(codes, 9.9)) == "slow_down"
        assert poll(codes, 15).status == 200

    def test_expired_code_is_reported(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply]
    ) -> None:
        codes = begin()
        decide(browser, codes)
        assert oauth_error(poll(codes, 900)) == "expired_token"

    def test_code_works_once_and_a_second_use_ends_the_login(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply], anyone: Client
    ) -> None:
        codes = begin()
        decide(browser, codes)
        tokens = poll(codes).json
        assert oauth_error(poll(codes)) == "invalid_grant"
        assert anyone.get("/chats", authorization=f"Bearer {tokens['access_token']}").error == (401, "invalid_token")

    def test_two_polls_at_once_get_tokens_once(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply]
    ) -> None:
        codes = begin()
        decide(browser, codes)
        replies = at_once(2, lambda _: poll(codes).status)
        assert sorted(replies) == [200, 400]

    def test_approval_ends_with_the_login_that_approved(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply], alice: Client
    ) -> None:
        codes = begin()
        decide(browser, codes)
        alice.post("/auth/logout", {"scope": "global"})
        assert oauth_error(poll(codes)) == "invalid_grant"

    def test_limit_of_clients_is_checked_again(
        self,
        browser: Browser,
        begin: Callable[..., Codes],
        poll: Callable[..., Reply],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        codes = begin()
        decide(browser, codes)
        monkeypatch.setattr(login_models, "INSTALL_LIMIT", 0)
        assert oauth_error(poll(codes)) == "invalid_grant"

    def test_login_replaces_that_of_the_same_install(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply], anyone: Client
    ) -> None:
        pairs = []
        for _ in range(2):
            codes = begin()
            decide(browser, codes)
            pairs.append(poll(codes).json)
        statuses = [anyone.get("/chats", authorization=f"Bearer {pair['access_token']}").status for pair in pairs]
        assert statuses == [401, 200]

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"device_code": "cxd_forged"}, "invalid_grant"),
            ({"device_code": ""}, "invalid_request"),
            ({"client_id": ""}, "invalid_request"),
            ({"client_id": "other"}, "invalid_client"),
            ({"grant_type": "device_code"}, "unsupported_grant_type"),
        ],
    )
    def test_invalid_request_changes_nothing(
        self, begin: Callable[..., Codes], poll: Callable[..., Reply], changes: dict[str, str], code: str
    ) -> None:
        codes = begin()
        with nothing_changes():
            assert oauth_error(poll(codes, **changes)) == code

    def test_user_code_is_no_device_code(
        self, browser: Browser, begin: Callable[..., Codes], poll: Callable[..., Reply]
    ) -> None:
        codes = begin()
        decide(browser, codes)
        assert oauth_error(poll(codes, device_code=codes["user_code"])) == "invalid_grant"


def test_documented_operations_only_have_no_device_login(settings: Settings, alice: Client) -> None:
    only = replace(settings, documented_only=True)
    client = Client(build_app(operations(documented_only=True), only), alice.token)
    assert client.get("//device").status == 404
    assert post(client, ENDPOINT, **VALID).status == 404
