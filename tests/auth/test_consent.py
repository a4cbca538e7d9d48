"""The consent page: access, text, valid parameters, and hostile parameters."""

import re
from dataclasses import replace
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as some

from service.auth import consent
from service.http.application import build_app
from service.models import LoginSession, User
from service.routes import operations
from service.validators import fold_email
from tests.support.client import Client
from tests.support.consent import CHALLENGE, PATH, SCRIPTS, VALID_PARAMETERS, parse_page, path
from tests.support.observe import nothing_changes

OPTIONAL = {"scope": "chats:read", "install_name": "Anna's laptop"}


class TestDocumentedOnly:
    """Without extensions, decisions cannot be sent, and browsers cannot sign in."""

    @pytest.fixture
    def documented(self, settings, alice):
        return Client(build_app(operations(documented_only=True), replace(settings, documented_only=True)), alice.token)

    def test_shows_the_request_without_a_form(self, documented):
        shown = parse_page(documented.get(path(**OPTIONAL)))
        assert "Anna's laptop" in shown.text
        assert "documented operations only" in shown.text
        assert "form" not in shown.tags

    def test_shows_no_sign_in_form(self, documented):
        anonymous = Client(documented.application)
        reply = anonymous.get(path(), sec_fetch_mode="navigate")
        assert reply.status == 401
        assert "Missing credentials" in parse_page(reply).text
        assert "form" not in parse_page(reply).tags
        assert anonymous.get(path()).error == (401, "missing_credentials")


class TestThePage:
    def test_shows_the_client_the_scopes_and_the_redirect_host(self, alice):
        text = parse_page(alice.get(path(**OPTIONAL))).text
        for shown in ("alice@example.com", "service-cli", "Anna's laptop", "laptop-1", "127.0.0.1:8976"):
            assert shown in text
        assert "Read your chats" in text
        assert "pin and delete" not in text

    def test_optional_parameters_can_be_omitted(self, alice):
        text = parse_page(alice.get(path())).text
        for reading, changing in consent.SCOPE_TEXTS.values():
            assert reading in text
            assert changing in text

    @pytest.mark.parametrize("scope", ["", " ", "  "])
    def test_empty_scope_requests_all(self, alice, scope):
        assert "Change your profile" in parse_page(alice.get(path(scope=scope))).text

    def test_lists_unknown_scopes_and_does_not_grant_them(self, alice):
        text = parse_page(alice.get(path(scope="events root events bots:write"))).text
        assert "Create, change and delete your events" in text
        assert text.count("root") == text.count("bots:write") == 1
        assert "unknown scopes" in text

    def test_says_what_remains_after_revocation(self, alice):
        for scope, grants_stay in (("", True), ("data-shares chats", True), ("data-shares:read events", False)):
            text = parse_page(alice.get(path(scope=scope))).text
            assert "You can revoke access at any time" in text
            assert "Changes that the client has made remain" in text
            assert ("data shares that it has granted remain until you revoke them." in text) == grants_stay

    def test_says_that_only_unknown_scopes_grant_no_access(self, alice):
        text = parse_page(alice.get(path(scope="root"))).text
        assert "No access will be granted" in text
        assert not any(reading in text for reading, _ in consent.SCOPE_TEXTS.values())

    def test_does_not_write_to_the_database(self, alice):
        alice.get(path())
        with nothing_changes():
            assert alice.get(path(**OPTIONAL)).status == 200

    def test_supports_head(self, alice):
        assert alice.call("HEAD", path()).status == 200

    @pytest.mark.parametrize("name", ["alice", "agent", "other_agent", "admin"])
    @pytest.mark.database
    def test_is_available_to_every_user(self, request, name):
        client = request.getfixturevalue(name)
        assert client.user.email in parse_page(client.get(path())).text


class TestTheCaller:
    @pytest.mark.parametrize("query", [VALID_PARAMETERS, {}, {"redirect_uri": "http://evil.example"}])
    def test_is_checked_before_the_parameters(self, anyone, query):
        reply = anyone.get(f"{PATH}?{urlencode(query)}")
        assert reply.error == (401, "missing_credentials")
        assert reply.headers["Content-Type"] == "application/json"
        assert reply.headers["WWW-Authenticate"] == "Bearer"

    def test_with_a_forged_token_is_refused(self, anyone):
        assert anyone.get(path(), authorization="Bearer cxa_x").error == (401, "invalid_token")

    def test_is_refused_after_a_logout(self, alice):
        alice.post("/auth/logout")
        assert alice.get(path()).error == (401, "invalid_token")

    def test_needs_a_session_of_the_user_and_not_a_scoped_token(self, alice):
        every_scope = " ".join(sorted(consent.SCOPES))
        LoginSession.update(scopes=every_scope).where(LoginSession.user_id == alice.user.id).execute()
        assert alice.get(path()).error == (403, "insufficient_scope")


INVALID = [
    *[(name, None) for name in VALID_PARAMETERS],
    *[(name, "") for name in VALID_PARAMETERS],
    ("client_id", "service-cli "),
    ("client_id", "SERVICE-CLI"),
    ("client_id", "other"),
    ("response_type", "token"),
    ("response_type", "code token"),
    ("response_type", "CODE"),
    ("code_challenge_method", "plain"),
    ("code_challenge_method", "s256"),
    ("code_challenge_method", "S512"),
    ("code_challenge", CHALLENGE[:-1]),
    ("code_challenge", f"{CHALLENGE}A"),
    ("code_challenge", f"{CHALLENGE}="),
    ("code_challenge", f"{CHALLENGE[:-1]}="),
    ("code_challenge", f"{CHALLENGE[:-1]}+"),
    ("code_challenge", f"{CHALLENGE[:-1]}/"),
    ("code_challenge", f"{CHALLENGE}\n"),
    ("code_challenge", f"{CHALLENGE[:-1]}٣"),
    ("state", "x" * 513),
    ("state", "a\0b"),
    ("state", "a\nb"),
    ("state", "a\u202eb"),
    ("install_id", "x" * 129),
    ("install_id", "a\rb"),
    ("install_id", "a\u2066b"),
    ("install_name", "x" * 65),
    ("install_name", "a\tb"),
    ("install_name", "a\u200fb"),
    ("scope", 'chats "quoted"'),
    ("scope", "chats\nbots"),
    ("scope", "chäts"),
    ("scope", "x" * 1001),
]


class TestTheParameters:
    @pytest.mark.parametrize(("name", "value"), INVALID)
    def test_invalid_parameter_is_listed(self, alice, name, value):
        with nothing_changes():
            reply = alice.get(path(**{name: value}))
        assert reply.status == 400
        assert [error.partition(":")[0] for error in errors_of(reply)] == [name]

    @pytest.mark.parametrize("name", [*VALID_PARAMETERS, *OPTIONAL])
    def test_repeated_parameter_is_refused(self, alice, name):
        repeated = quote((VALID_PARAMETERS | OPTIONAL)[name])
        reply = alice.get(f"{path(**OPTIONAL)}&{name}={repeated}")
        assert reply.status == 400
        assert errors_of(reply) == [f"{name}: given more than once."]

    def test_all_invalid_parameters_are_listed(self, alice):
        listed = {error.partition(":")[0] for error in errors_of(alice.get(PATH))}
        assert listed == set(VALID_PARAMETERS) - {"install_id"}  # which clients other than service-cli do not have

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("state", "x" * 512),
            ("state", "x"),
            ("state", " &=?#+%;\"'<>"),
            ("install_id", "x" * 128),
            ("install_name", "ñ" * 64),
            ("install_name", "مكتب آنا"),
            ("install_name", "👩\u200d💻"),
            ("install_name", ""),
            ("code_challenge", "_" * 43),
            ("scope", "profile  chats"),
        ],
    )
    def test_accept_the_longest_and_unusual_values(self, alice, name, value):
        assert alice.get(path(**{name: value})).status == 200

    def test_unknown_parameters_are_ignored(self, alice):
        assert alice.get(f"{path()}&prompt=none&prompt=login").status == 200

    @pytest.mark.parametrize("raw", ["%ff", "%ed%a0%80", "%00"])
    def test_invalid_encoding_is_an_error(self, alice, raw):
        reply = alice.get(f"{path(state=None)}&state={raw}")
        assert reply.status == 400
        assert errors_of(reply)[0].startswith("state: ")


def errors_of(reply):
    """Return the errors that a page lists."""
    shown = parse_page(reply)
    assert "nothing was sent" in shown.text
    return re.findall(r"<li><bdi>(.*?)</bdi></li>", reply.raw.decode(), re.DOTALL)


def words_of(text):
    """Split a text into words."""
    return text.split()


ACCEPTED = words_of("""
http://127.0.0.1 http://127.0.0.1/ http://127.0.0.1:1 http://127.0.0.1:65535/ http://127.0.0.1:8976/callback
http://127.0.0.1:8976?x=1 http://127.0.0.1:8976/a/b;c?d=e&f=g/h?i http://127.0.0.1:80/%2e%2E/%0d%0a http://[::1]
http://[::1]/ http://[::1]:8976/callback?x=y http://127.0.0.1/@evil.example http://127.0.0.1/?@evil.example
http://127.0.0.1//evil.example http://127.0.0.1:80/:@!$&'()*+,;=~._-
""")

REFUSED = words_of("""
https://127.0.0.1/ HTTP://127.0.0.1/ Http://127.0.0.1/ ftp://127.0.0.1/ ws://127.0.0.1/ javascript:alert(1)
data:text/html,x file:///etc/passwd http: http:// http:/127.0.0.1/ http:127.0.0.1 http:///127.0.0.1/ //127.0.0.1/
127.0.0.1 /callback http://localhost/ http://localhost:8976/ http://LOCALHOST/ http://localhost.evil.example/
http://evil.example/ http://evil.example:8976/ http://127.0.0.1.evil.example/ http://127.0.0.1@evil.example/
http://127.0.0.1:80@evil.example/ http://evil.example@127.0.0.1/ http://user:password@127.0.0.1/ http://@127.0.0.1/
http://127.0.0.1\\@evil.example/ http://evil.example\\@127.0.0.1/ http://127.0.0.1\\evil.example/
http://evil.example/http://127.0.0.1/ http://evil.example?http://127.0.0.1/ http://evil.example#http://127.0.0.1/
http://127.0.0.1#fragment http://127.0.0.1/#fragment http://127.0.0.1/?x#y http://127.0.0.1/# http://127.1/
http://127.0.1/ http://127.0.0.2/ http://127.255.255.255/ http://127.0.0.01/ http://0127.0.0.1/ http://0x7f.0.0.1/
http://0x7f000001/ http://2130706433/ http://017700000001/ http://0/ http://0.0.0.0/ http://127.0.0.1./
http://127-0-0-1/ http://127x0x0x1/ http://１２７.0.0.1/ http://①②⑦.0.0.1/ http://[::]/ http://[::2]/
http://[0:0:0:0:0:0:0:1]/ http://[0000::0001]/ http://[::0:1]/ http://[::ffff:127.0.0.1]/ http://[::127.0.0.1]/
http://[::1%25lo]/ http://[::1%lo]/ http://::1/ http://[::1/ http://::1]/ http://[[::1]]/ http://[::1].evil.example/
http://[::1]@evil.example/ http://[fe80::1]/ http://127.0.0.1:/ http://127.0.0.1:0/ http://127.0.0.1:00080/
http://127.0.0.1:080/ http://127.0.0.1:65536/ http://127.0.0.1:99999/ http://127.0.0.1:100000/ http://127.0.0.1:-1/
http://127.0.0.1:+80/ http://127.0.0.1:8o/ http://127.0.0.1:٨٠/ http://127.0.0.1:80:80/
http://127.0.0.1:80.evil.example/ http://127.0.0.1:80evil.example/ http://127.0.0.1/ü http://127.0.0.1/%
http://127.0.0.1/%2 http://127.0.0.1/%zz http://127.0.0.1/[x] http://127.0.0.1/{x} http://127.0.0.1/<x>
http://127.0.0.1/^ http://127.0.0.1/| http://127.0.0.1/` http://%31%32%37.0.0.1/ http://127.0.0.1%2f@evil.example/
http://127.0.0.1&@evil.example/ http://127.0.0.1,evil.example/ http://127.0.0.1;evil.example/
view-source:http://127.0.0.1/ blob:http://127.0.0.1/
""") + [
    "http://127\u30020\u30020\u30021/",
    'http://127.0.0.1/"x"',
    " http://127.0.0.1/",
    "http://127.0.0.1/ ",
    "\thttp://127.0.0.1/",
    "http://127.0.0.1/\n",
    "http://127.0.0.1/\r\nSet-Cookie: a=b",
    "ht\ntp://127.0.0.1/",
    "http://127.0.0.1\t@evil.example/",
    "http://127.0.0.1 /",
    "http://127.0.0.1/a b",
    "http://127.0.0.1/\x7f",
    "http://127.0.0.1/\xa0",
    "http://evil.example\u3002127.0.0.1/",
    "http://127.0.0.1\u2044@evil.example/",
    "http://127.0.0.1/" + "x" * 2048,
]


class TestTheRedirectUri:
    @pytest.mark.parametrize("uri", ACCEPTED)
    def test_accepts_loopback_addresses(self, alice, uri):
        assert alice.get(path(redirect_uri=uri)).status == 200

    @pytest.mark.parametrize("uri", REFUSED)
    def test_refuses_other_addresses(self, alice, uri):
        reply = alice.get(path(redirect_uri=uri))
        assert reply.status == 400
        assert [error.partition(":")[0] for error in errors_of(reply)] == ["redirect_uri"]

    def test_page_shows_its_host_and_port(self, alice):
        text = parse_page(alice.get(path(redirect_uri="http://[::1]:49152/cb?next=http://evil.example"))).text
        assert "[::1]:49152" in text
        assert "evil.example" not in text

    PIECES = some.sampled_from(
        [
            *words_of("http https :// / // \\ @ : ? # [ ] [::1] 127.0.0.1 localhost evil.example 80 %2f . ; & ="),
            *"\t\n\0。ü",
        ]
    )

    @given(some.lists(PIECES, max_size=12).map("".join))
    def test_accepted_addresses_are_always_loopback(self, text):
        try:
            consent.loopback_uri(text)
        except ValueError:
            return
        rest = text.removeprefix("http://").removeprefix("127.0.0.1").removeprefix("[::1]")
        assert text.startswith(("http://127.0.0.1", "http://[::1]"))
        assert re.match(r"(:[0-9]+)?([/?]|\Z)", rest)


class TestHostileText:
    @pytest.mark.parametrize("text", SCRIPTS)
    @pytest.mark.parametrize("name", ["state", "install_id", "install_name", "scope"])
    def test_is_escaped(self, alice, name, text):
        reply = alice.get(path(**{name: text}))
        shown = parse_page(reply)
        if reply.status == 200 and name in ("install_id", "install_name"):
            assert text in "".join(shown.words)

    @pytest.mark.parametrize("text", SCRIPTS)
    @pytest.mark.parametrize("name", VALID_PARAMETERS)
    def test_is_escaped_in_error_messages(self, alice, name, text):
        parse_page(alice.get(path(**{name: text * 99})))

    @pytest.mark.parametrize("text", SCRIPTS)
    def test_in_names_of_parameters_is_not_shown(self, alice, text):
        assert text not in parse_page(alice.get(f"{path()}&{quote(text)}=x")).text

    def test_in_an_email_address_is_escaped(self, person):
        mallory = person("mallory")
        email = fold_email("<b>mallory</b>@example.com")
        User.update(email=email).where(User.id == mallory.user.id).execute()
        assert email in parse_page(mallory.get(path())).text


class TestScopes:
    def test_each_has_a_description(self):
        assert {f"{name}:read" for name in consent.SCOPE_TEXTS} | set(consent.SCOPE_TEXTS) == consent.SCOPES

    def test_equal_the_scopes_of_the_operations(self):
        from service.routes import operations

        reserved = ("consent", "account", "console")  # never granted to a token
        own = {f"{name}{suffix}" for name in reserved for suffix in ("", ":read")}
        needed = {operation.needed_scope for operation in operations()} - {"", *own}
        assert needed <= consent.SCOPES
        assert {scope.removesuffix(":read") for scope in needed} == set(consent.SCOPE_TEXTS)

    @pytest.mark.parametrize(
        ("requested", "granted"),
        [
            ("", list(consent.SCOPE_TEXTS)),
            ("chats:read", ["chats:read"]),
            ("chats chats:read", ["chats", "chats:read"]),
            ("x chats", ["chats"]),
            ("x", []),
        ],
    )
    def test_known_scopes_are_granted(self, requested, granted):
        assert consent.requested_access(requested).scopes == granted
