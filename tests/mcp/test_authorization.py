"""Authorization of the MCP server: metadata, registration, consent, and tokens that are for it alone."""

import html
import re
from typing import Any

import pytest

from service import db
from service.auth import consent, tokens
from service.mcp.tools import TOOLS
from service.models import AuditLog, LoginSession
from service.routes import operations
from tests.support.client import Client
from tests.support.consent import path
from tests.support.mcp import (
    CALLBACK,
    RESOURCE,
    SITE,
    Connect,
    McpClient,
    approved,
    consent_path,
    register,
    request_tokens,
    tokens_of,
)
from tests.support.observe import nothing_changes
from tests.support.sample_operations import UNKNOWN_ID
from tests.support.web_client import Browser

ARGUMENTS = dict.fromkeys(("read_messages", "send_message"), {"session_id": UNKNOWN_ID})  # that the path needs
METADATA = f"{SITE}/.well-known/oauth-protected-resource/mcp"


@pytest.fixture(name="browser")
def browser_fixture(alice: Client, application: Any) -> Browser:
    """A browser in which Alice is signed in."""
    return Browser(application).signed_in(alice)


class TestMetadata:
    @pytest.mark.parametrize("path", ["", "/mcp"])
    def test_names_the_resource_and_its_server(self, anyone: Client, path: str) -> None:
        found = anyone.get(f"//.well-known/oauth-protected-resource{path}", host="test").json
        assert (found["resource"], found["authorization_servers"]) == (RESOURCE, [SITE])
        assert found["scopes_supported"] == [
            *("bots:read", "chats", "events", "feedback", "notifications:read", "profile:read")
        ]
        assert set(found["scopes_supported"]) <= consent.SCOPES

    def test_the_server_names_where_clients_register(self, anyone: Client) -> None:
        found = anyone.get("//.well-known/oauth-authorization-server", host="test").json
        assert found["registration_endpoint"] == f"{SITE}/api/v1/auth/cli/register"
        assert found["code_challenge_methods_supported"] == ["S256"]

    def test_a_request_without_token_is_told_where_it_is(self, anyone: Client) -> None:
        reply = anyone.call("POST", "//mcp", {}, host="test")
        assert reply.error == (401, "missing_credentials")
        assert reply.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{METADATA}"'

    def test_a_request_with_a_wrong_token_is_told_where_it_is(self, anyone: Client) -> None:
        reply = McpClient(anyone, "x").ask("tools/list")
        assert reply.error == (401, "invalid_token")
        assert reply.headers["WWW-Authenticate"] == f'Bearer error="invalid_token", resource_metadata="{METADATA}"'


class TestRegistration:
    def test_returns_a_public_client(self, anyone: Client) -> None:
        wanted = {"token_endpoint_auth_method": "client_secret_basic", "grant_types": ["password"], "scope": "x"}
        body = {"client_name": "My assistant", "redirect_uris": [CALLBACK], **wanted}
        found = anyone.post("/auth/cli/register", body)
        assert (found.status, found.json["redirect_uris"]) == (201, [CALLBACK])
        assert found.json["token_endpoint_auth_method"] == "none"
        assert found.json["grant_types"] == ["authorization_code", "refresh_token"]
        assert "client_secret" not in found.json

    def test_two_clients_have_different_identifiers(self, anyone: Client) -> None:
        assert register(anyone) != register(anyone)

    @pytest.mark.parametrize(
        "addresses",
        [
            [],
            [CALLBACK] * 6,
            ["http://localhost/" + "x" * 256],
            *([address] for address in (
                "https://evil.example/", "http://evil.example/", "http://localhost.evil.example/", "javascript:x",
                "http://localhost@evil.example/", "http://127.0.0.1.evil.example/", "http://localhost:99999/",
                "http://LOCALHOST/", "http://localhost#x", "http://localhost\\@evil.example/", "", "cursor://x",
                "http://127.0.0.2/", "http://[::1]@evil.example", "//localhost/", "http://localhost/\r\nx",
            )),
            [CALLBACK, "https://evil.example/"],
        ],
    )  # fmt: skip
    def test_refuses_other_addresses(self, anyone: Client, addresses: list[str]) -> None:
        reply = anyone.post("/auth/cli/register", {"redirect_uris": addresses})
        assert (reply.status, reply.json["error"]) == (400, "invalid_redirect_uri")

    @pytest.mark.parametrize(
        "body", [{}, {"redirect_uris": "x"}, {"redirect_uris": [CALLBACK], "client_name": "\x1b[31m"}]
    )
    def test_refuses_malformed_metadata(self, anyone: Client, body: Any) -> None:
        reply = anyone.post("/auth/cli/register", body)
        assert (reply.status, reply.json["error"]) == (400, "invalid_request")

    def test_stores_nothing(self, anyone: Client) -> None:
        with nothing_changes():
            register(anyone)


def listed(browser: Browser, client_id: str, scope: str) -> dict[str, list[str]]:
    """The permissions that the consent page lists, by heading."""
    page = browser.open(consent_path(client_id, scope=scope)).raw.decode()
    columns = re.findall(r"<h2>(.*?)</h2>\n<ul>(.*?)</ul>", page, re.DOTALL)
    return {heading: re.findall("<li>(.*?)</li>", items) for heading, items in columns}


class TestConsent:
    def test_lists_all_tools_if_the_program_asks_for_everything(self, browser: Browser, anyone: Client) -> None:
        found = listed(browser, register(anyone), "")
        assert set(found) == {"Read access", "Write access"}
        assert {*found["Read access"], *found["Write access"]} == {tool.title for tool in TOOLS} | {"Read your profile"}
        assert set(found["Write access"]) == {"Send a message", "Add an event", "Give feedback"}
        page = browser.reply.raw.decode()
        assert "can do nothing else" in page and "data shares" not in page

    @pytest.mark.parametrize(
        ("scope", "reading", "changing"),
        [
            ("chats:read", ["List chats", "Read messages", "Search messages"], []),
            ("events profile", ["List events", "Read your profile"], ["Add an event"]),
            ("feedback", [], ["Give feedback"]),
            ("notifications data-shares", ["List notifications"], []),
            ("bots", ["Find bots"], []),
            ("data-shares feedback:read", [], []),
        ],
    )
    def test_lists_the_tools_that_the_scopes_permit(
        self, browser: Browser, anyone: Client, scope: str, reading: list[str], changing: list[str]
    ) -> None:
        found = listed(browser, register(anyone), scope)
        assert (sorted(found.get("Read access", [])), found.get("Write access", [])) == (reading, changing)
        page = browser.reply.raw.decode()
        assert ("No access will be granted" in page) is ("can do nothing else" not in page) is (not reading + changing)

    def test_lists_what_the_token_then_permits(
        self, browser: Browser, anyone: Client, connect: Connect, alice: Client
    ) -> None:
        """Every tool is called with every scope: it needs access exactly if the page does not list it."""
        for scope in sorted(consent.SCOPES):
            found = listed(browser, register(anyone), scope)
            hers = connect(alice, scope)
            permitted = {
                tool.title
                for tool in TOOLS
                if hers.ask("tools/call", name=tool.name, arguments=ARGUMENTS.get(tool.name, {})).status != 403
            }
            permitted |= (
                {"Read your profile"} if hers.ask("resources/read", uri="cx://profile").status != 403 else set()
            )
            assert {title for titles in found.values() for title in titles} == permitted, scope

    def test_lists_the_scopes_of_the_command_line_client(self, browser: Browser) -> None:
        page = browser.open(f"/api/v1{path()}").raw.decode()
        assert "<li>Send messages as you, pin and delete messages, start and end chats</li>" in page
        assert "can do nothing else" not in page

    def test_shows_the_name_as_the_programs_own(self, browser: Browser, anyone: Client) -> None:
        client_id = register(anyone, "<b>Bank</b>")
        page = browser.open(consent_path(client_id)).raw.decode()
        assert "calls itself <strong><bdi>&lt;b&gt;Bank&lt;/b&gt;</bdi></strong>" in page
        assert "localhost:8976" in page and client_id not in html.unescape(page).partition("<form")[0]

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"redirect_uri": "http://localhost:8976/other"}, "redirect_uri"),
            ({"redirect_uri": "http://127.0.0.1:8976/callback"}, "redirect_uri"),
            ({"resource": "http://evil.example/mcp"}, "resource"),
            ({"resource": f"{SITE}/"}, "resource"),
            ({"resource": f"{RESOURCE}/"}, "resource"),
            ({"client_id": "cxm_forged"}, "client_id"),
            ({"client_id": "x"}, "client_id"),
            ({"client_id": "service-cli"}, "redirect_uri"),
            ({"client_id": "service-cli", "redirect_uri": "http://127.0.0.1/", "install_id": "i"}, "resource"),
            ({"client_id": "service-cli", "redirect_uri": "http://127.0.0.1/", "resource": ""}, "install_id"),
        ],
    )
    def test_refuses_other_requests(
        self, browser: Browser, anyone: Client, changes: dict[str, str], problem: str
    ) -> None:
        reply = browser.open(consent_path(register(anyone), **changes))
        assert reply.status == 400
        assert f"<li><bdi>{problem}: " in reply.raw.decode()

    def test_the_port_may_differ(self, browser: Browser, anyone: Client) -> None:
        client_id, other = register(anyone), CALLBACK.replace("8976", "1")
        code = approved(browser, client_id, redirect_uri=other)
        assert browser.redirect_url.startswith(other)
        assert request_tokens(anyone, client_id=client_id, code=code, redirect_uri=other).status == 200

    def test_denying_is_sent_to_the_program(self, browser: Browser, anyone: Client) -> None:
        browser.open(consent_path(register(anyone)))
        page = browser.send(answer="deny").raw.decode()
        assert "sent to the program" in page and "error=access_denied" in browser.redirect_url

    def test_is_in_the_audit_log_without_the_identifier(self, browser: Browser, anyone: Client) -> None:
        client_id = register(anyone)
        approved(browser, client_id, scope="chats:read")
        entry = AuditLog.select().where(AuditLog.kind == "consent_approved").get()
        assert '"client":"registered"' in entry.details and client_id not in entry.details

    def test_the_user_can_revoke_it(self, connect: Connect, alice: Client) -> None:
        client = connect(alice)
        (install,) = alice.get("/users/me/installs").data
        assert install["install_name"] == "My assistant"
        assert alice.delete(f"/users/me/installs/{install['id']}").status == 200
        assert client.ask("tools/list").error == (401, "invalid_token")


class TestTokens:
    def test_of_the_api_are_refused(self, alice: Client) -> None:
        assert McpClient(alice, alice.token).ask("tools/list").error == (401, "invalid_token")

    def test_of_the_command_line_client_are_refused(self, anyone: Client, alice: Client, settings: Any) -> None:
        with db.write():
            session = tokens.create_token_session(
                alice.user.id, settings, kind="client", install_id="i", scopes="chats"
            )
        token = tokens.pair_of(session, settings).access_token
        assert McpClient(anyone, token).ask("tools/list").error == (401, "invalid_token")

    def test_for_the_mcp_server_are_refused_by_all_other_operations(self, hers: McpClient) -> None:
        for operation in operations():
            if not operation.public and operation.name != "answer_mcp":
                path = operation.full_path.replace("{", "").replace("}", "")
                reply = hers.client.call(operation.method, f"/{path}", authorization=f"Bearer {hers.token}")
                assert reply.status == 401, operation.name

    def test_are_refreshed_by_their_client_alone(self, anyone: Client, browser: Browser) -> None:
        pair, other = tokens_of(anyone, browser), register(anyone)

        def refresh(**parameters: str) -> Any:
            return request_tokens(
                anyone, grant_type="refresh_token", **{"refresh_token": pair["refresh_token"], **parameters}
            )

        for client_id in ("", "service-cli", other):
            reply = refresh(client_id=client_id)
            assert (reply.status, reply.json["error"]) == (400, "invalid_grant"), client_id
        assert anyone.post("/auth/refresh", {"refresh_token": pair["refresh_token"]}).error == (401, "invalid_token")
        renewed = refresh(client_id=pair["client_id"], resource=RESOURCE)
        assert renewed.status == 200
        assert McpClient(anyone, renewed.json["access_token"]).ask("tools/list").status == 200

    def test_of_the_api_are_not_refreshed_by_a_registered_client(
        self, anyone: Client, alice: Client, settings: Any
    ) -> None:
        with db.write():
            pair = tokens.log_in(alice.user.id, settings)
        form = {"grant_type": "refresh_token", "refresh_token": pair.refresh_token}
        reply = request_tokens(anyone, client_id=register(anyone), **form)
        assert (reply.status, reply.json["error"]) == (400, "invalid_grant")
        assert request_tokens(anyone, **form).status == 200

    @pytest.mark.parametrize("other", ["service-cli", "", "registered"])
    def test_are_given_to_the_client_of_the_code_alone(self, anyone: Client, browser: Browser, other: str) -> None:
        code = approved(browser, register(anyone))
        client_id = register(anyone) if other == "registered" else other
        reply = request_tokens(anyone, client_id=client_id, code=code)
        assert (reply.status, reply.json["error"]) == (400, "invalid_grant" if client_id else "invalid_request")

    @pytest.mark.parametrize("resource", ["http://evil.example/mcp", SITE, f"{SITE}/api/v1"])
    def test_are_for_this_resource_alone(self, anyone: Client, browser: Browser, resource: str) -> None:
        client_id = register(anyone)
        code = approved(browser, client_id)
        reply = request_tokens(anyone, client_id=client_id, code=code, resource=resource)
        assert (reply.status, reply.json["error"]) == (400, "invalid_target")
        assert request_tokens(anyone, client_id=client_id, code=code).status == 200

    def test_of_the_command_line_client_have_no_resource(self, anyone: Client) -> None:
        reply = request_tokens(anyone, client_id="service-cli", code="x", resource=RESOURCE)
        assert (reply.status, reply.json["error"]) == (400, "invalid_target")

    def test_a_registered_client_has_no_device_code(self, anyone: Client) -> None:
        grant = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "x"}
        reply = request_tokens(anyone, client_id=register(anyone), **grant)
        assert (reply.status, reply.json["error"]) == (400, "invalid_client")

    def test_two_clients_of_a_user_do_not_replace_each_other(self, connect: Connect, alice: Client) -> None:
        first, second = connect(alice), connect(alice)
        assert [client.ask("tools/list").status for client in (first, second)] == [200, 200]

    def test_a_command_line_client_with_the_same_number_does_not_replace_it(
        self, hers: McpClient, alice: Client
    ) -> None:
        session = LoginSession.get(LoginSession.resource == consent.RESOURCE)
        assert LoginSession.end_install(alice.user.id, session.install_id) == []
        assert hers.ask("tools/list").status == 200

    def test_a_scope_that_is_missing_is_named(self, connect: Connect, alice: Client, session: Any) -> None:
        client = connect(alice, "chats:read")
        assert client.tool("list_chats")["data"]
        arguments = {"session_id": session.id, "content": {"text": "x"}}
        reply = client.ask("tools/call", name="send_message", arguments=arguments)
        assert reply.error == (403, "insufficient_scope")
        challenge = f'Bearer error="insufficient_scope", scope="chats", resource_metadata="{METADATA}"'
        assert reply.headers["WWW-Authenticate"] == challenge
