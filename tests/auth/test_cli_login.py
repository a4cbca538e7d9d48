"""The login of a command-line client: consent, authorization codes, the token endpoint, and attacks."""

import base64
import hashlib
import secrets
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as some

from service import db
from service.auth import authorization_codes, consent, tokens
from service.models import Approval, LoginSession, User
from service.signing import sign, verify
from tests.support.cli_login import TOKEN, VERIFIER, callback_parameters, consent_address
from tests.support.cli_login import approve_fixture as approve_fixture
from tests.support.cli_login import browser_fixture as browser_fixture
from tests.support.cli_login import request_tokens_fixture as request_tokens_fixture
from tests.support.consent import CHALLENGE, SCRIPTS, VALID_PARAMETERS, parse_page, path
from tests.support.faults import locked
from tests.support.observe import at_once, nothing_changes
from tests.support.web_client import FORM, Browser

pytestmark = pytest.mark.database


def oauth_error(reply):
    """Return the error code of an OAuth error response (RFC 6749, section 5.2)."""
    assert reply.status == 400
    assert set(reply.json) == {"error", "error_description"}
    assert reply.headers["Cache-Control"] == "no-store"
    assert not set(reply.json["error_description"]) & set('"\\')
    return reply.json["error"]


class TestTheDecision:
    def test_approval_redirects_with_a_code(self, approve):
        parameters = approve()
        assert set(parameters) == {"code", "state", "iss"}
        assert parameters["code"].startswith("cxc_")
        assert (parameters["state"], parameters["iss"]) == (VALID_PARAMETERS["state"], "http://test")

    def test_denial_redirects_with_an_error(self, browser):
        browser.open(consent_address())
        assert browser.send(answer="deny").status == 200
        assert callback_parameters(browser) == {
            "error": "access_denied",
            "state": VALID_PARAMETERS["state"],
            "iss": "http://test",
        }
        assert "No access was granted" in browser.text

    def test_page_has_the_security_headers(self, browser):
        browser.open(consent_address())
        reply = browser.send(answer="approve")
        assert b'<a href="http://127.0.0.1:8976/callback?code=' in reply.raw
        reply.raw = reply.raw.replace(b'<a href="http://127.0.0.1:8976/', b'<p href="/').replace(b"</a>", b"</p>")
        parse_page(reply)

    @pytest.mark.parametrize(
        ("uri", "before"),
        [
            ("http://127.0.0.1", "http://127.0.0.1?"),
            ("http://[::1]:5/", "http://[::1]:5/?"),
            ("http://127.0.0.1:8976/cb?a=b&c=%20", "http://127.0.0.1:8976/cb?a=b&c=%20&"),
            ("http://127.0.0.1/?", "http://127.0.0.1/?"),
        ],
    )
    def test_does_not_change_the_redirect_uri(self, browser, uri, before):
        browser.open(consent_address(redirect_uri=uri))
        browser.send(answer="approve")
        assert browser.redirect_url.startswith(f"{before}code=cxc_")

    @pytest.mark.parametrize("state", ["x y+z%20&=#", "é", "'\"<>", "0", *SCRIPTS])
    def test_returns_the_state_unchanged(self, browser, state):
        browser.open(consent_address(state=state))
        browser.send(answer="approve")
        assert callback_parameters(browser)["state"] == state

    def test_double_click_repeats_the_redirect(self, browser):
        browser.open(consent_address())
        first_page = browser.reply
        browser.send(answer="approve")
        first = callback_parameters(browser)
        browser.reply = first_page
        browser.send(answer="approve")
        assert callback_parameters(browser) == first
        assert Approval.select().count() == 1

    @pytest.mark.parametrize(("first", "second"), [("approve", "deny"), ("deny", "approve")])
    def test_cannot_be_changed(self, browser, first, second):
        browser.open(consent_address())
        form = browser.reply
        browser.send(answer=first)
        browser.reply = form
        with nothing_changes():
            assert browser.send(answer=second).status == 400
        assert "already approved or denied" in browser.text

    def test_cannot_be_repeated_after_the_code_was_used(self, browser, request_tokens):
        browser.open(consent_address())
        form = browser.reply
        browser.send(answer="approve")
        assert request_tokens(code=callback_parameters(browser)["code"]).status == 200
        browser.reply = form
        with nothing_changes():
            assert browser.send(answer="approve").status == 400

    def test_works_in_two_tabs(self, browser, request_tokens):
        browser.open(consent_address(install_id="one"))
        one = browser.reply
        browser.open(consent_address(install_id="two"))
        browser.send(answer="approve")
        two = callback_parameters(browser)["code"]
        browser.reply = one
        browser.send(answer="approve")
        assert (
            request_tokens(code=callback_parameters(browser)["code"]).status == request_tokens(code=two).status == 200
        )

    @pytest.mark.parametrize("decision", ["", "yes", "APPROVE", "approve\n"])
    def test_accepts_only_approve_and_deny(self, browser, decision):
        browser.open(consent_address())
        with nothing_changes():
            assert browser.send(answer=decision).status == 400

    def test_works_with_an_access_token(self, alice):
        html = alice.get(path()).raw.decode()
        csrf_token = html.partition('name="csrf_token" value="')[2].partition('"')[0]
        raw = urlencode({"csrf_token": csrf_token, "answer": "approve"}).encode()
        assert b"cxc_" in alice.post("/auth/cli/authorize", raw=raw, content_type=FORM).raw


class TestTheCsrfToken:
    def csrf_token_of(self, browser):
        """Return the `csrf_token` of the page in a browser."""
        return browser.reply.raw.decode().partition('name="csrf_token" value="')[2].partition('"')[0]

    @pytest.mark.parametrize("csrf_token", ["", "x", "a.b", "signed"])
    def test_is_required(self, browser, csrf_token):
        for purpose in ("form", "code", "ticket"):
            csrf_token = sign(purpose, ["x"]) if csrf_token == "signed" else csrf_token
            browser.open(consent_address())
            with nothing_changes():
                assert browser.send(answer="approve", csrf_token=csrf_token).status == 400

    def test_of_another_user_is_refused(self, browser, person, application):
        mallory = Browser(application).signed_in(person("mallory"))
        mallory.open(consent_address())
        browser.open(consent_address())
        with nothing_changes():
            assert browser.send(answer="approve", csrf_token=self.csrf_token_of(mallory)).status == 400

    def test_of_another_session_of_the_user_is_refused(self, browser, alice, application):
        elsewhere = Browser(application).signed_in(alice)
        elsewhere.open(consent_address())
        browser.open(consent_address())
        assert browser.send(answer="approve", csrf_token=self.csrf_token_of(elsewhere)).status == 400

    def test_contains_the_parameters_of_the_page(self, browser):
        browser.open(consent_address(scope="bots:read"))
        csrf_token = self.csrf_token_of(browser)
        browser.open(consent_address(scope="chats", redirect_uri="http://127.0.0.1:1/evil"))
        browser.send(answer="approve", csrf_token=csrf_token)
        assert browser.redirect_url.startswith(VALID_PARAMETERS["redirect_uri"])
        assert Approval.get().scopes == "bots:read"

    def test_refuses_changes(self, browser):
        browser.open(consent_address())
        number, *rest = verify("ticket", self.csrf_token_of(browser))
        valid = self.csrf_token_of(browser)
        for forged in (sign("tickets", [number, *rest]), valid[1:], valid[:-2], valid + "="):
            browser.open(consent_address())
            assert browser.send(answer="approve", csrf_token=forged).status == 400

    def test_expires_after_ten_minutes(self, host_clock, alice, application):
        browser = Browser(application).signed_in(alice)
        browser.open(consent_address())
        form = browser.reply
        host_clock.forward(minutes=9, seconds=59)
        browser.send(answer="deny")
        assert browser.reply.status == 200
        browser.open(consent_address())
        form = browser.reply
        host_clock.forward(minutes=10)
        browser.reply = form
        assert browser.send(answer="approve").status == 400
        assert "open for too long" in browser.text

    def test_is_refused_without_a_sign_in(self, browser):
        browser.open(consent_address())
        browser.cookies = {}
        with nothing_changes():
            assert browser.send(answer="approve").status == 401
        assert "Sign in" in browser.text

    def test_redirects_back_to_the_page_after_the_session_ended(self, browser, alice):
        browser.open(consent_address())
        alice.post("/auth/logout", {"scope": "global"})
        assert browser.send(answer="approve").status == 401
        assert browser.path == consent_address()


class TestTheCode:
    def test_is_exchanged_for_tokens(self, approve, request_tokens, anyone):
        reply = request_tokens(code=approve(scope="profile:read chats nonsense")["code"])
        assert set(reply.json) == {"access_token", "token_type", "expires_in", "refresh_token", "scope"}
        assert (reply.json["token_type"], reply.json["expires_in"]) == ("Bearer", 3600)
        assert reply.json["scope"] == "profile:read chats"
        assert reply.headers["Cache-Control"] == "no-store"
        bearer = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/users/me/settings", authorization=bearer).status == 200
        assert anyone.patch("/users/me/settings", {}, authorization=bearer).error == (403, "insufficient_scope")
        assert anyone.get("/notifications", authorization=bearer).error == (403, "insufficient_scope")

    def test_without_requested_scopes_grants_all_but_consent(self, approve, request_tokens, anyone):
        bearer = f"Bearer {request_tokens(code=approve()['code']).json['access_token']}"
        assert anyone.patch("/users/me/settings", {}, authorization=bearer).status == 200
        assert anyone.get(path(), authorization=bearer).error == (403, "insufficient_scope")

    def test_with_only_unknown_scopes_grants_none(self, approve, request_tokens, anyone):
        reply = request_tokens(code=approve(scope="root")["code"])
        assert "scope" not in reply.json or reply.json["scope"] == ""
        bearer = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/bots?app_id=x", authorization=bearer).error == (403, "insufficient_scope")

    def test_second_use_ends_the_session_of_the_first(self, approve, request_tokens, anyone):
        code = approve()["code"]
        first = request_tokens(code=code).json
        assert oauth_error(request_tokens(code=code)) == "invalid_grant"
        bearer = f"Bearer {first['access_token']}"
        assert anyone.get("/users/me/settings", authorization=bearer).error == (401, "invalid_token")
        reply = request_tokens(grant_type="refresh_token", refresh_token=first["refresh_token"])
        assert oauth_error(reply) == "invalid_grant"

    def test_works_once_for_concurrent_requests(self, approve, request_tokens):
        code = approve()["code"]
        replies = at_once(8, lambda _: request_tokens(code=code))
        assert sorted(reply.status for reply in replies) == [200] + [400] * 7

    def test_expires_after_one_minute(self, host_clock, alice, application, request_tokens):
        browser = Browser(application).signed_in(alice)
        for seconds, expected in ((59, 200), (60, 400)):
            browser.open(consent_address())
            browser.send(answer="approve")
            host_clock.forward(seconds=seconds)
            assert request_tokens(code=callback_parameters(browser)["code"]).status == expected

    WRONG = [
        {"code_verifier": VERIFIER[:-1]},
        {"code_verifier": VERIFIER + "x"},
        {"code_verifier": VERIFIER.lower()},
        {"code_verifier": CHALLENGE},
        {"code_verifier": "x" * 129},
        {"code_verifier": "é" * 43},
        {"redirect_uri": VALID_PARAMETERS["redirect_uri"] + "/"},
        {"redirect_uri": "http://127.0.0.1:8977/callback"},
        {"redirect_uri": "http://[::1]:8976/callback"},
    ]

    @pytest.mark.parametrize("wrong", WRONG)
    def test_is_invalidated_by_a_request_with_a_wrong_proof(self, approve, request_tokens, wrong):
        code = approve()["code"]
        with nothing_changes(LoginSession):
            assert oauth_error(request_tokens(code=code, **wrong)) == "invalid_grant"
            assert oauth_error(request_tokens(code=code)) == "invalid_grant"

    @pytest.mark.parametrize("code", ["x", "cxc_", "cxc_x", "cxc_a.b", "é"])
    def test_invalid_codes_are_refused(self, request_tokens, code):
        with nothing_changes():
            assert oauth_error(request_tokens(code=code)) == "invalid_grant"

    def test_forged_codes_are_refused(self, approve, request_tokens):
        code = approve()["code"]
        csrf_token = "cxc_" + sign("ticket", ["x"])
        for forged in (
            code + "=",
            code[:-1],
            code.removeprefix("cxc_"),
            code.upper(),
            csrf_token,
            "cxc_" + sign("code", ["x"]),
        ):
            assert oauth_error(request_tokens(code=forged)) == "invalid_grant"
        assert request_tokens(code=code).status == 200

    def test_of_a_denial_is_invalid(self, browser, request_tokens):
        browser.open(consent_address())
        browser.send(answer="deny")
        approved_by = LoginSession.select().order_by(LoginSession.created_at.desc()).get().id
        assert (
            oauth_error(request_tokens(code="cxc_" + sign("code", [Approval.get().id, approved_by]))) == "invalid_grant"
        )

    def test_of_one_client_cannot_be_injected_into_another(self, approve, request_tokens):
        """An attacker who gets the code has another verifier."""
        other = secrets.token_urlsafe(48)
        digest = base64.urlsafe_b64encode(hashlib.sha256(other.encode()).digest()).rstrip(b"=").decode()
        stolen, own = approve(), approve(code_challenge=digest, install_id="mallory")
        assert oauth_error(request_tokens(code=stolen["code"], code_verifier=other)) == "invalid_grant"
        assert request_tokens(code=own["code"], code_verifier=other).status == 200

    def test_is_invalid_after_the_user_was_disabled(self, approve, request_tokens, alice):
        code = approve()["code"]
        User.update(is_disabled=True).where(User.id == alice.user.id).execute()
        with nothing_changes(LoginSession):
            assert oauth_error(request_tokens(code=code)) == "invalid_grant"

    @pytest.mark.parametrize(
        "end",
        [
            lambda alice, browser: alice.user.change_password("other"),
            lambda alice, browser: alice.post("/auth/logout", {"scope": "global"}),
            lambda alice, browser: browser.navigate("POST", "/sign-out", {}),
        ],
        ids=["password changed", "logged out everywhere", "signed out"],
    )
    def test_is_invalid_after_the_approving_session_ended(self, approve, request_tokens, alice, browser, end):
        code = approve()["code"]
        end(alice, browser)
        with nothing_changes(LoginSession):
            assert oauth_error(request_tokens(code=code)) == "invalid_grant"

    def test_is_valid_after_other_sessions_end(self, approve, request_tokens, alice):
        code = approve()["code"]
        alice.post("/auth/logout")
        assert request_tokens(code=code).status == 200

    def test_replaces_the_session_of_the_same_install(self, approve, request_tokens, anyone):
        first = request_tokens(code=approve()["code"]).json
        elsewhere = request_tokens(code=approve(install_id="laptop-2")["code"]).json
        second = request_tokens(code=approve()["code"]).json
        statuses = [
            anyone.get("/users/me/settings", authorization=f"Bearer {pair['access_token']}").status
            for pair in (first, elsewhere, second)
        ]
        assert statuses == [401, 200, 200]

    def test_does_not_replace_an_install_of_another_user(self, approve, request_tokens, anyone, person, application):
        own = request_tokens(code=approve()["code"]).json
        bobs = Browser(application).signed_in(person("bob"))
        bobs.open(consent_address())
        bobs.send(answer="approve")
        assert request_tokens(code=callback_parameters(bobs)["code"]).status == 200
        assert anyone.get("/users/me/settings", authorization=f"Bearer {own['access_token']}").status == 200

    def test_approvals_are_deleted_after_a_day(self, host_clock, alice, application):
        browser = Browser(application).signed_in(alice)
        browser.open(consent_address())
        browser.send(answer="approve")
        host_clock.forward(days=1)
        browser = Browser(application).signed_in(alice)
        browser.open(consent_address())
        browser.send(answer="deny")
        assert [row.is_granted for row in Approval.select()] == [False]


class TestTheTokenExchange:
    def test_refreshes_tokens(self, approve, request_tokens, anyone):
        first = request_tokens(code=approve(scope="chats")["code"]).json
        reply = request_tokens(grant_type="refresh_token", refresh_token=first["refresh_token"])
        assert set(reply.json) == {"access_token", "token_type", "expires_in", "refresh_token", "scope"}
        assert reply.json["scope"] == "chats"
        bearer = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/events", authorization=bearer).error == (403, "insufficient_scope")
        assert request_tokens(grant_type="refresh_token", refresh_token=reply.json["refresh_token"]).status == 200

    @pytest.mark.parametrize("scope", ["chats:read", "chats profile", "root", ""])
    def test_returns_the_scopes_of_a_refresh_for_any_request(self, approve, request_tokens, anyone, scope):
        """Required if they differ from the requested ones (RFC 6749, sections 5.1 and 6)."""
        first = request_tokens(code=approve(scope="chats")["code"]).json
        reply = request_tokens(grant_type="refresh_token", refresh_token=first["refresh_token"], scope=scope)
        assert reply.json["scope"] == "chats"
        bearer = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/users/me", authorization=bearer).error == (403, "insufficient_scope")

    def test_refreshes_a_session_from_a_password_login(self, request_tokens, person, settings):
        with db.write():
            pair = tokens.log_in(person("carol").user.id, settings)
        reply = request_tokens(grant_type="refresh_token", refresh_token=pair.refresh_token)
        assert (reply.status, "scope" in reply.json) == (200, False)

    def test_returns_an_oauth_error_if_the_database_is_locked(self, approve, request_tokens):
        code = approve()["code"]
        with locked():
            reply = request_tokens(code=code)
        assert (reply.status, reply.json["error"]) == (503, "storage_unavailable")
        assert set(reply.json) == {"error", "error_description"}
        assert int(reply.headers["Retry-After"]) > 0
        assert request_tokens(code=code).status == 200

    def test_returns_an_oauth_error_if_the_body_is_too_large(self, anyone):
        largest = b"grant_type=x&client_id=service-cli&code=".ljust(64 * 1024, b"x")
        assert oauth_error(anyone.post(TOKEN, raw=largest, content_type=FORM)) == "unsupported_grant_type"
        reply = anyone.post(TOKEN, raw=largest + b"x", content_type=FORM)
        assert (reply.status, reply.json["error"]) == (413, "body_too_large")
        assert set(reply.json) == {"error", "error_description"}

    @pytest.mark.parametrize("token", ["x", "cxr_x"])
    def test_refuses_invalid_refresh_tokens(self, request_tokens, token):
        assert oauth_error(request_tokens(grant_type="refresh_token", refresh_token=token)) == "invalid_grant"

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"grant_type": "password"}, "unsupported_grant_type"),
            ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
            ({"client_id": "other"}, "invalid_client"),
            ({"grant_type": "refresh_token", "client_id": "other"}, "invalid_client"),
        ],
    )
    def test_returns_the_code_of_the_error(self, request_tokens, changes, error):
        with nothing_changes():
            assert oauth_error(request_tokens(code="x", refresh_token="x", **changes)) == error

    @pytest.mark.parametrize("value", [None, ""])
    @pytest.mark.parametrize("name", ["grant_type", "code", "client_id", "code_verifier", "redirect_uri"])
    def test_missing_parameter_is_an_invalid_request_and_keeps_the_code_valid(
        self, approve, request_tokens, name, value
    ):
        """A parameter without a value counts as omitted (RFC 6749, sections 3.2 and 5.2)."""
        code = approve()["code"]
        with nothing_changes():
            reply = request_tokens(**{"code": code, name: value})
            assert oauth_error(reply) == "invalid_request"
            assert reply.json["error_description"] == f"{name}: required."
        assert request_tokens(code=code).status == 200

    @pytest.mark.parametrize("token", [None, ""])
    def test_missing_refresh_token_is_an_invalid_request(self, request_tokens, token):
        assert oauth_error(request_tokens(grant_type="refresh_token", refresh_token=token)) == "invalid_request"

    @pytest.mark.parametrize("name", ["grant_type", "code", "client_id", "code_verifier", "redirect_uri"])
    def test_refuses_repeated_parameters(self, anyone, approve, name):
        parameters = {"grant_type": "authorization_code", "client_id": "service-cli", "code": approve()["code"]}
        parameters |= {"code_verifier": VERIFIER, "redirect_uri": VALID_PARAMETERS["redirect_uri"]}
        raw = f"{urlencode(parameters)}&{name}={parameters[name]}".encode()
        assert oauth_error(anyone.post(TOKEN, raw=raw, content_type=FORM)) == "invalid_request"
        assert anyone.post(TOKEN, raw=urlencode(parameters).encode(), content_type=FORM).status == 200

    @pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
    def test_accepts_forms_only(self, anyone, kind):
        assert oauth_error(anyone.post(TOKEN, raw=b'{"grant_type": "x"}', content_type=kind)) == "invalid_request"

    @given(some.binary(max_size=60))
    def test_any_body_is_a_request_or_an_oauth_error(self, raw):
        # Needs no database: a body that is no request is refused before any query.
        from service.errors import BadRequest
        from service.http import decoding
        from service.routes.consent import TokenRequest

        try:
            form = decoding.read_form(raw, FORM, TokenRequest)
        except BadRequest:
            return
        assert isinstance(form, TokenRequest)

    def test_is_described_by_the_oauth_metadata(self, anyone):
        metadata = anyone.get("//.well-known/oauth-authorization-server", host="chat.example:8080").json
        assert metadata["issuer"] == "http://chat.example:8080"
        assert metadata["authorization_endpoint"] == "http://chat.example:8080/api/v1/auth/cli/authorize"
        assert metadata["token_endpoint"] == "http://chat.example:8080/api/v1/auth/cli/token"
        assert metadata["code_challenge_methods_supported"] == ["S256"]
        assert set(metadata["scopes_supported"]) == consent.SCOPES
        assert metadata["authorization_response_iss_parameter_supported"] is True


class TestInstalls:
    def test_are_listed_newest_first_without_other_sessions(self, approve, request_tokens, alice, bob):
        request_tokens(code=approve(install_name="Laptop", scope="chats")["code"])
        request_tokens(code=approve(install_id="two", install_name="")["code"])
        two, one = alice.get("/users/me/installs").data
        assert (one["install_id"], one["install_name"], one["scopes"]) == ("laptop-1", "Laptop", ["chats"])
        assert (two["install_id"], two["install_name"]) == ("two", "")
        assert bob.get("/users/me/installs").data == []

    def test_are_revoked_at_once(self, approve, request_tokens, alice, anyone):
        pair = request_tokens(code=approve()["code"]).json
        [install] = alice.get("/users/me/installs").data
        for _ in range(2):
            assert alice.delete(f"/users/me/installs/{install['id']}").data == {"revoked": True}
        assert anyone.get("/events", authorization=f"Bearer {pair['access_token']}").status == 401
        assert alice.get("/users/me/installs").data == []
        assert alice.get("/events").status == 200

    def test_of_others_cannot_be_revoked(self, approve, request_tokens, alice, bob, admin):
        request_tokens(code=approve()["code"])
        [install] = alice.get("/users/me/installs").data
        for other in (bob, admin):
            with nothing_changes():
                assert other.delete(f"/users/me/installs/{install['id']}").error == (404, "not_found")

    def test_other_sessions_cannot_be_revoked_as_installs(self, approve, request_tokens, alice, browser):
        """The identifiers of other sessions have the same format, and can be read from their tokens."""
        request_tokens(code=approve(scope="profile")["code"])
        for login in LoginSession.select().where(LoginSession.install_id.is_null()):
            with nothing_changes():
                reply = alice.delete(f"/users/me/installs/{login.id}")
                assert reply.error == (404, "not_found")
        assert browser.open(consent_address()).status == 200

    def test_client_can_log_out_but_not_list_installs(self, approve, request_tokens, alice, anyone):
        bearer = f"Bearer {request_tokens(code=approve()['code']).json['access_token']}"
        assert anyone.get("/users/me/installs", authorization=bearer).error == (403, "insufficient_scope")
        assert anyone.post("/auth/logout", authorization=bearer).data == {"logged_out": True}
        assert alice.get("/users/me/installs").data == []


class TestSecrets:
    def test_are_not_logged(self, approve, browser, request_tokens, caplog):
        caplog.set_level("INFO")
        parameters = approve(state="canary-state")
        pair = request_tokens(code=parameters["code"]).json
        consent_page = consent_address(state="canary-state")
        browser.open(f"/sign-in?{urlencode({'next': consent_page, 'code': parameters['code']})}")
        assert len(caplog.messages) == 4
        secrets = ("canary", VERIFIER, CHALLENGE, parameters["code"], pair["access_token"], pair["refresh_token"])
        assert not [secret for secret in secrets if secret in caplog.text]

    def test_codes_are_not_in_the_database(self, approve):
        code = approve()["code"]
        stored = repr(list(Approval.select().dicts()))
        assert code not in stored
        assert code.removeprefix(authorization_codes.PREFIX) not in stored
