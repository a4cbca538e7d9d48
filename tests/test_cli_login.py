"""A command-line client is let in: what a person answers, what codes are good for, and what attackers try."""

import base64
import hashlib
import secrets
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as some

from service import db
from service.auth import codes, consent, tokens
from service.auth.signing import sign, verify
from service.models import Approval, LoginSession, User
from tests.browsing import FORM, Browser
from tests.test_consent import CHALLENGE, GOOD, SCRIPTS, page, path
from tests.trouble import locked
from tests.watching import at_once, nothing_changes

VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # of RFC 7636, appendix B
TOKEN = "/auth/cli/token"


def asked(**changes):
    """The address of the consent page, as a browser asks for it."""
    return f"/api/v1{path(**changes)}"


@pytest.fixture
def browser(alice, application):
    """Alice's browser, in which she is signed in."""
    return Browser(application).signed_in(alice)


@pytest.fixture
def approve(browser):
    """Approves in Alice's browser; what the client is told at its address."""

    def answer(**changes):
        assert browser.open(asked(**changes)).status == 200
        assert browser.send(answer="approve").status == 200
        return told(browser)

    return answer


@pytest.fixture
def trade(anyone):
    """Asks for tokens; `None` leaves a parameter out."""

    def post(**changes):
        given = {
            "grant_type": "authorization_code",
            "client_id": "service-cli",
            "code_verifier": VERIFIER,
            "redirect_uri": GOOD["redirect_uri"],
        } | changes
        raw = urlencode({name: value for name, value in given.items() if value is not None}).encode()
        return anyone.post(TOKEN, raw=raw, content_type=FORM)

    return post


def told(browser):
    """What the client is told at its address."""
    return dict(parse_qsl(urlsplit(browser.onward).query, keep_blank_values=True))


def refused(reply):
    """The error of a refusal as OAuth clients read it (RFC 6749, section 5.2)."""
    assert reply.status == 400
    assert set(reply.json) == {"error", "error_description"}
    assert reply.headers["Cache-Control"] == "no-store"
    assert not set(reply.json["error_description"]) & set('"\\')
    return reply.json["error"]


class TestAnswering:
    def test_yes_tells_the_client_a_code(self, approve):
        answer = approve()
        assert set(answer) == {"code", "state", "iss"}
        assert answer["code"].startswith("cxc_")
        assert (answer["state"], answer["iss"]) == (GOOD["state"], "http://test")

    def test_no_tells_the_client_so(self, browser):
        browser.open(asked())
        assert browser.send(answer="deny").status == 200
        assert told(browser) == {"error": "access_denied", "state": GOOD["state"], "iss": "http://test"}
        assert "Nothing was allowed" in browser.text

    def test_is_a_page_like_the_others(self, browser):
        browser.open(asked())
        reply = browser.send(answer="approve")
        assert b'<a href="http://127.0.0.1:8976/callback?code=' in reply.raw
        reply.raw = reply.raw.replace(b'<a href="http://127.0.0.1:8976/', b'<p href="/').replace(b"</a>", b"</p>")
        page(reply)

    @pytest.mark.parametrize(
        ("uri", "before"),
        [
            ("http://127.0.0.1", "http://127.0.0.1?"),
            ("http://[::1]:5/", "http://[::1]:5/?"),
            ("http://127.0.0.1:8976/cb?a=b&c=%20", "http://127.0.0.1:8976/cb?a=b&c=%20&"),
            ("http://127.0.0.1/?", "http://127.0.0.1/?"),
        ],
    )
    def test_keeps_the_address_as_it_was(self, browser, uri, before):
        browser.open(asked(redirect_uri=uri))
        browser.send(answer="approve")
        assert browser.onward.startswith(f"{before}code=cxc_")

    @pytest.mark.parametrize("state", ["x y+z%20&=#", "é", "'\"<>", "0", *SCRIPTS])
    def test_gives_back_the_state_as_it_came(self, browser, state):
        browser.open(asked(state=state))
        browser.send(answer="approve")
        assert told(browser)["state"] == state

    def test_may_be_given_twice_by_a_double_click(self, browser):
        browser.open(asked())
        first_page = browser.reply
        browser.send(answer="approve")
        first = told(browser)
        browser.reply = first_page
        browser.send(answer="approve")
        assert told(browser) == first
        assert Approval.select().count() == 1

    @pytest.mark.parametrize(("first", "second"), [("approve", "deny"), ("deny", "approve")])
    def test_cannot_be_changed(self, browser, first, second):
        browser.open(asked())
        form = browser.reply
        browser.send(answer=first)
        browser.reply = form
        with nothing_changes():
            assert browser.send(answer=second).status == 400
        assert "answered already" in browser.text

    def test_cannot_be_given_again_once_the_code_is_used(self, browser, trade):
        browser.open(asked())
        form = browser.reply
        browser.send(answer="approve")
        assert trade(code=told(browser)["code"]).status == 200
        browser.reply = form
        with nothing_changes():
            assert browser.send(answer="approve").status == 400

    def test_works_in_a_second_tab_beside_the_first(self, browser, trade):
        browser.open(asked(install_id="one"))
        one = browser.reply
        browser.open(asked(install_id="two"))
        browser.send(answer="approve")
        two = told(browser)["code"]
        browser.reply = one
        browser.send(answer="approve")
        assert trade(code=told(browser)["code"]).status == trade(code=two).status == 200

    @pytest.mark.parametrize("answer", ["", "yes", "APPROVE", "approve\n"])
    def test_is_one_of_two_words(self, browser, answer):
        browser.open(asked())
        with nothing_changes():
            assert browser.send(answer=answer).status == 400

    def test_works_with_a_token_as_well(self, alice):
        html = alice.get(path()).raw.decode()
        ticket = html.partition('name="ticket" value="')[2].partition('"')[0]
        raw = urlencode({"ticket": ticket, "answer": "approve"}).encode()
        assert b"cxc_" in alice.post("/auth/cli/authorize", raw=raw, content_type=FORM).raw


class TestTheTicket:
    def stolen(self, browser):
        """The ticket of the page where a browser is."""
        return browser.reply.raw.decode().partition('name="ticket" value="')[2].partition('"')[0]

    @pytest.mark.parametrize("ticket", ["", "x", "a.b", "signed"])
    def test_is_needed(self, browser, ticket):
        for purpose in ("form", "code", "ticket"):
            ticket = sign(purpose, ["x"]) if ticket == "signed" else ticket
            browser.open(asked())
            with nothing_changes():
                assert browser.send(answer="approve", ticket=ticket).status == 400

    def test_of_somebody_else_is_refused(self, browser, person, application):
        mallory = Browser(application).signed_in(person("mallory"))
        mallory.open(asked())
        browser.open(asked())
        with nothing_changes():
            assert browser.send(answer="approve", ticket=self.stolen(mallory)).status == 400

    def test_of_another_login_of_the_same_person_is_refused(self, browser, alice, application):
        elsewhere = Browser(application).signed_in(alice)
        elsewhere.open(asked())
        browser.open(asked())
        assert browser.send(answer="approve", ticket=self.stolen(elsewhere)).status == 400

    def test_carries_the_parameters_that_were_shown(self, browser):
        browser.open(asked(scope="bots:read"))
        ticket = self.stolen(browser)
        browser.open(asked(scope="chats", redirect_uri="http://127.0.0.1:1/evil"))
        browser.send(answer="approve", ticket=ticket)
        assert browser.onward.startswith(GOOD["redirect_uri"])
        assert Approval.get().scopes == "bots:read"

    def test_cannot_be_altered(self, browser):
        browser.open(asked())
        number, *rest = verify("ticket", self.stolen(browser))
        good = self.stolen(browser)
        for forged in (sign("tickets", [number, *rest]), good[1:], good[:-2], good + "="):
            browser.open(asked())
            assert browser.send(answer="approve", ticket=forged).status == 400

    def test_lasts_ten_minutes(self, host_clock, alice, application):
        browser = Browser(application).signed_in(alice)
        browser.open(asked())
        form = browser.reply
        host_clock.forward(minutes=9, seconds=59)
        browser.send(answer="deny")
        assert browser.reply.status == 200
        browser.open(asked())
        form = browser.reply
        host_clock.forward(minutes=10)
        browser.reply = form
        assert browser.send(answer="approve").status == 400
        assert "open for too long" in browser.text

    def test_is_worth_nothing_without_a_sign_in(self, browser):
        browser.open(asked())
        browser.cookies = {}
        with nothing_changes():
            assert browser.send(answer="approve").status == 401
        assert "Sign in" in browser.text

    def test_leads_back_to_the_question_if_the_sign_in_has_ended(self, browser, alice):
        browser.open(asked())
        alice.post("/auth/logout", {"scope": "global"})
        assert browser.send(answer="approve").status == 401
        assert browser.path == asked()


class TestTheCode:
    def test_is_traded_for_tokens(self, approve, trade, anyone):
        reply = trade(code=approve(scope="profile:read chats nonsense")["code"])
        assert set(reply.json) == {"access_token", "token_type", "expires_in", "refresh_token", "scope"}
        assert (reply.json["token_type"], reply.json["expires_in"]) == ("Bearer", 3600)
        assert reply.json["scope"] == "profile:read chats"
        assert reply.headers["Cache-Control"] == "no-store"
        bearer = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/users/me/settings", authorization=bearer).status == 200
        assert anyone.patch("/users/me/settings", {}, authorization=bearer).error == (403, "insufficient_scope")
        assert anyone.get("/notifications", authorization=bearer).error == (403, "insufficient_scope")

    def test_gives_all_scopes_if_none_was_asked_for_and_no_more(self, approve, trade, anyone):
        bearer = f"Bearer {trade(code=approve()['code']).json['access_token']}"
        assert anyone.patch("/users/me/settings", {}, authorization=bearer).status == 200
        assert anyone.get(path(), authorization=bearer).error == (403, "insufficient_scope")

    def test_gives_nothing_if_only_unknown_scopes_were_asked_for(self, approve, trade, anyone):
        reply = trade(code=approve(scope="root")["code"])
        assert "scope" not in reply.json or reply.json["scope"] == ""
        bearer = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/bots?app_id=x", authorization=bearer).error == (403, "insufficient_scope")

    def test_works_once_and_a_second_use_ends_what_the_first_gave(self, approve, trade, anyone):
        code = approve()["code"]
        first = trade(code=code).json
        assert refused(trade(code=code)) == "invalid_grant"
        bearer = f"Bearer {first['access_token']}"
        assert anyone.get("/users/me/settings", authorization=bearer).error == (401, "invalid_token")
        reply = trade(grant_type="refresh_token", refresh_token=first["refresh_token"])
        assert refused(reply) == "invalid_grant"

    def test_works_once_in_a_race(self, approve, trade):
        code = approve()["code"]
        replies = at_once(8, lambda _: trade(code=code))
        assert sorted(reply.status for reply in replies) == [200] + [400] * 7

    def test_lasts_a_minute(self, host_clock, alice, application, trade):
        browser = Browser(application).signed_in(alice)
        for seconds, expected in ((59, 200), (60, 400)):
            browser.open(asked())
            browser.send(answer="approve")
            host_clock.forward(seconds=seconds)
            assert trade(code=told(browser)["code"]).status == expected

    WRONG = [
        {"code_verifier": VERIFIER[:-1]},
        {"code_verifier": VERIFIER + "x"},
        {"code_verifier": VERIFIER.lower()},
        {"code_verifier": CHALLENGE},
        {"code_verifier": "x" * 129},
        {"code_verifier": "é" * 43},
        {"redirect_uri": GOOD["redirect_uri"] + "/"},
        {"redirect_uri": "http://127.0.0.1:8977/callback"},
        {"redirect_uri": "http://[::1]:8976/callback"},
    ]

    @pytest.mark.parametrize("wrong", WRONG)
    def test_is_used_up_by_whoever_cannot_prove_to_have_asked(self, approve, trade, wrong):
        code = approve()["code"]
        with nothing_changes(LoginSession):
            assert refused(trade(code=code, **wrong)) == "invalid_grant"
            assert refused(trade(code=code)) == "invalid_grant"

    @pytest.mark.parametrize("code", ["x", "cxc_", "cxc_x", "cxc_a.b", "é"])
    def test_cannot_be_made_up(self, trade, code):
        with nothing_changes():
            assert refused(trade(code=code)) == "invalid_grant"

    def test_cannot_be_altered_or_taken_from_elsewhere(self, approve, trade):
        code = approve()["code"]
        ticket = "cxc_" + sign("ticket", ["x"])
        for forged in (
            code + "=",
            code[:-1],
            code.removeprefix("cxc_"),
            code.upper(),
            ticket,
            "cxc_" + sign("code", ["x"]),
        ):
            assert refused(trade(code=forged)) == "invalid_grant"
        assert trade(code=code).status == 200

    def test_of_a_denial_is_worth_nothing(self, browser, trade):
        browser.open(asked())
        browser.send(answer="deny")
        approved_by = LoginSession.select().order_by(LoginSession.created_at.desc()).get().id
        assert refused(trade(code="cxc_" + sign("code", [Approval.get().id, approved_by]))) == "invalid_grant"

    def test_of_one_client_cannot_be_injected_into_another(self, approve, trade):
        """Somebody who gets hold of a code has another verifier."""
        other = secrets.token_urlsafe(48)
        digest = base64.urlsafe_b64encode(hashlib.sha256(other.encode()).digest()).rstrip(b"=").decode()
        stolen, own = approve(), approve(code_challenge=digest, install_id="mallory")
        assert refused(trade(code=stolen["code"], code_verifier=other)) == "invalid_grant"
        assert trade(code=own["code"], code_verifier=other).status == 200

    def test_gives_nothing_to_a_user_who_was_disabled_meanwhile(self, approve, trade, alice):
        code = approve()["code"]
        User.update(is_disabled=True).where(User.id == alice.user.id).execute()
        with nothing_changes(LoginSession):
            assert refused(trade(code=code)) == "invalid_grant"

    @pytest.mark.parametrize(
        "end",
        [
            lambda alice, browser: alice.user.change_password("other"),
            lambda alice, browser: alice.post("/auth/logout", {"scope": "global"}),
            lambda alice, browser: browser.ask("POST", "/sign-out", {}),
        ],
        ids=["another password", "logged out everywhere", "signed out"],
    )
    def test_ends_with_the_login_in_which_it_was_approved(self, approve, trade, alice, browser, end):
        code = approve()["code"]
        end(alice, browser)
        with nothing_changes(LoginSession):
            assert refused(trade(code=code)) == "invalid_grant"

    def test_outlives_other_logins(self, approve, trade, alice):
        code = approve()["code"]
        alice.post("/auth/logout")
        assert trade(code=code).status == 200

    def test_replaces_the_older_login_of_the_same_install(self, approve, trade, anyone):
        first = trade(code=approve()["code"]).json
        elsewhere = trade(code=approve(install_id="laptop-2")["code"]).json
        second = trade(code=approve()["code"]).json
        answers = [
            anyone.get("/users/me/settings", authorization=f"Bearer {pair['access_token']}").status
            for pair in (first, elsewhere, second)
        ]
        assert answers == [401, 200, 200]

    def test_leaves_an_install_of_somebody_else_alone(self, approve, trade, anyone, person, application):
        mine = trade(code=approve()["code"]).json
        bobs = Browser(application).signed_in(person("bob"))
        bobs.open(asked())
        bobs.send(answer="approve")
        assert trade(code=told(bobs)["code"]).status == 200
        assert anyone.get("/users/me/settings", authorization=f"Bearer {mine['access_token']}").status == 200

    def test_is_kept_no_longer_than_a_day(self, host_clock, alice, application):
        browser = Browser(application).signed_in(alice)
        browser.open(asked())
        browser.send(answer="approve")
        host_clock.forward(days=1)
        browser = Browser(application).signed_in(alice)
        browser.open(asked())
        browser.send(answer="deny")
        assert [row.is_granted for row in Approval.select()] == [False]


class TestTheTokenExchange:
    def test_refreshes(self, approve, trade, anyone):
        first = trade(code=approve(scope="chats")["code"]).json
        reply = trade(grant_type="refresh_token", refresh_token=first["refresh_token"])
        assert set(reply.json) == {"access_token", "token_type", "expires_in", "refresh_token", "scope"}
        assert reply.json["scope"] == "chats"
        bearer = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/events", authorization=bearer).error == (403, "insufficient_scope")
        assert trade(grant_type="refresh_token", refresh_token=reply.json["refresh_token"]).status == 200

    @pytest.mark.parametrize("scope", ["chats:read", "chats profile", "root", ""])
    def test_says_which_scopes_a_refresh_gives_whatever_was_asked_for(self, approve, trade, anyone, scope):
        """They must be told if they are not the ones that were asked for (RFC 6749, sections 5.1 and 6)."""
        first = trade(code=approve(scope="chats")["code"]).json
        reply = trade(grant_type="refresh_token", refresh_token=first["refresh_token"], scope=scope)
        assert reply.json["scope"] == "chats"
        bearer = f"Bearer {reply.json['access_token']}"
        assert anyone.get("/users/me", authorization=bearer).error == (403, "insufficient_scope")

    def test_refreshes_a_login_with_a_password_as_well(self, trade, person, settings):
        with db.write():
            pair = tokens.begin(person("carol").user.id, settings)
        reply = trade(grant_type="refresh_token", refresh_token=pair.refresh_token)
        assert (reply.status, "scope" in reply.json) == (200, False)

    def test_answers_as_oauth_does_when_the_database_cannot_be_written(self, approve, trade):
        code = approve()["code"]
        with locked():
            reply = trade(code=code)
        assert (reply.status, reply.json["error"]) == (503, "storage_unavailable")
        assert set(reply.json) == {"error", "error_description"}
        assert int(reply.headers["Retry-After"]) > 0
        assert trade(code=code).status == 200

    def test_answers_as_oauth_does_when_the_body_is_too_large(self, anyone):
        most = b"grant_type=x&client_id=service-cli&code=".ljust(64 * 1024, b"x")
        assert refused(anyone.post(TOKEN, raw=most, content_type=FORM)) == "unsupported_grant_type"
        reply = anyone.post(TOKEN, raw=most + b"x", content_type=FORM)
        assert (reply.status, reply.json["error"]) == (413, "body_too_large")
        assert set(reply.json) == {"error", "error_description"}

    @pytest.mark.parametrize("token", ["x", "cxr_x"])
    def test_refuses_refresh_tokens_that_are_none(self, trade, token):
        assert refused(trade(grant_type="refresh_token", refresh_token=token)) == "invalid_grant"

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"grant_type": "password"}, "unsupported_grant_type"),
            ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
            ({"client_id": "other"}, "invalid_client"),
            ({"grant_type": "refresh_token", "client_id": "other"}, "invalid_client"),
        ],
    )
    def test_names_what_is_wrong(self, trade, changes, error):
        with nothing_changes():
            assert refused(trade(code="x", refresh_token="x", **changes)) == error

    @pytest.mark.parametrize("value", [None, ""])
    @pytest.mark.parametrize("name", ["grant_type", "code", "client_id", "code_verifier", "redirect_uri"])
    def test_a_missing_parameter_is_an_invalid_request_and_uses_no_code_up(self, approve, trade, name, value):
        """A parameter without a value counts as left out (RFC 6749, sections 3.2 and 5.2)."""
        code = approve()["code"]
        with nothing_changes():
            reply = trade(**{"code": code, name: value})
            assert refused(reply) == "invalid_request"
            assert reply.json["error_description"] == f"{name}: required."
        assert trade(code=code).status == 200

    @pytest.mark.parametrize("token", [None, ""])
    def test_a_missing_refresh_token_is_an_invalid_request(self, trade, token):
        assert refused(trade(grant_type="refresh_token", refresh_token=token)) == "invalid_request"

    @pytest.mark.parametrize("name", ["grant_type", "code", "client_id", "code_verifier", "redirect_uri"])
    def test_takes_every_parameter_once(self, anyone, approve, name):
        given = {"grant_type": "authorization_code", "client_id": "service-cli", "code": approve()["code"]}
        given |= {"code_verifier": VERIFIER, "redirect_uri": GOOD["redirect_uri"]}
        raw = f"{urlencode(given)}&{name}={given[name]}".encode()
        assert refused(anyone.post(TOKEN, raw=raw, content_type=FORM)) == "invalid_request"
        assert anyone.post(TOKEN, raw=urlencode(given).encode(), content_type=FORM).status == 200

    @pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
    def test_takes_forms_only(self, anyone, kind):
        assert refused(anyone.post(TOKEN, raw=b'{"grant_type": "x"}', content_type=kind)) == "invalid_request"

    @given(some.binary(max_size=60))
    def test_answers_any_body_as_oauth_does(self, raw):
        # Without a database: a body that cannot be a request never gets that far.
        from service import decoding
        from service.errors import BadRequest
        from service.routes.consent import TokenRequest

        try:
            form = decoding.read_form(raw, FORM, TokenRequest)
        except BadRequest:
            return
        assert isinstance(form, TokenRequest)

    def test_is_described_for_oauth_libraries(self, anyone):
        told = anyone.get("//.well-known/oauth-authorization-server", host="chat.example:8080").json
        assert told["issuer"] == "http://chat.example:8080"
        assert told["authorization_endpoint"] == "http://chat.example:8080/api/v1/auth/cli/authorize"
        assert told["token_endpoint"] == "http://chat.example:8080/api/v1/auth/cli/token"
        assert told["code_challenge_methods_supported"] == ["S256"]
        assert set(told["scopes_supported"]) == consent.SCOPES
        assert told["authorization_response_iss_parameter_supported"] is True


class TestInstalls:
    def test_are_listed_newest_first_and_no_other_logins(self, approve, trade, alice, bob):
        trade(code=approve(install_name="Laptop", scope="chats")["code"])
        trade(code=approve(install_id="two", install_name="")["code"])
        two, one = alice.get("/users/me/installs").data
        assert (one["install_id"], one["install_name"], one["scopes"]) == ("laptop-1", "Laptop", ["chats"])
        assert (two["install_id"], two["install_name"]) == ("two", "")
        assert bob.get("/users/me/installs").data == []

    def test_are_revoked_at_once(self, approve, trade, alice, anyone):
        given = trade(code=approve()["code"]).json
        [install] = alice.get("/users/me/installs").data
        for _ in range(2):
            assert alice.delete(f"/users/me/installs/{install['id']}").data == {"revoked": True}
        assert anyone.get("/events", authorization=f"Bearer {given['access_token']}").status == 401
        assert alice.get("/users/me/installs").data == []
        assert alice.get("/events").status == 200

    def test_of_others_cannot_be_revoked(self, approve, trade, alice, bob, admin):
        trade(code=approve()["code"])
        [install] = alice.get("/users/me/installs").data
        for somebody in (bob, admin):
            with nothing_changes():
                assert somebody.delete(f"/users/me/installs/{install['id']}").error == (404, "not_found")

    def test_are_all_that_can_be_revoked_here(self, approve, trade, alice, browser):
        """Other logins have identifiers of the same kind, which their tokens tell whoever sees one."""
        trade(code=approve(scope="profile")["code"])
        for login in LoginSession.select().where(LoginSession.install_id.is_null()):
            with nothing_changes():
                reply = alice.delete(f"/users/me/installs/{login.id}")
                assert reply.error == (404, "not_found")
        assert browser.open(asked()).status == 200

    def test_are_ended_but_not_listed_by_the_client_itself(self, approve, trade, alice, anyone):
        bearer = f"Bearer {trade(code=approve()['code']).json['access_token']}"
        assert anyone.get("/users/me/installs", authorization=bearer).error == (403, "insufficient_scope")
        assert anyone.post("/auth/logout", authorization=bearer).data == {"logged_out": True}
        assert alice.get("/users/me/installs").data == []


class TestSecrets:
    def test_are_not_in_the_log(self, approve, browser, trade, caplog):
        caplog.set_level("INFO")
        answer = approve(state="canary-state")
        given = trade(code=answer["code"]).json
        browser.open(f"/sign-in?{urlencode({'next': asked(state='canary-state'), 'code': answer['code']})}")
        assert len(caplog.messages) == 4
        secrets = ("canary", VERIFIER, CHALLENGE, answer["code"], given["access_token"], given["refresh_token"])
        assert not [secret for secret in secrets if secret in caplog.text]

    def test_codes_are_not_in_the_database(self, approve):
        code = approve()["code"]
        stored = repr(list(Approval.select().dicts()))
        assert code not in stored
        assert code.removeprefix(codes.PREFIX) not in stored
