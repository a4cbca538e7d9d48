"""The consent page: who may see it, what it says, which parameters it takes, and that nothing in them can hurt."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as some

from service.auth import consent
from service.formats import fold_email
from service.models import LoginSession, User
from service.routes import operations
from service.web import build_app
from tests.conftest import Client
from tests.watching import nothing_changes

PATH = "/auth/cli/authorize"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"  # of RFC 7636, appendix B
GOOD = {
    "client_id": "service-cli",
    "response_type": "code",
    "code_challenge": CHALLENGE,
    "code_challenge_method": "S256",
    "redirect_uri": "http://127.0.0.1:8976/callback",
    "state": "af0ifjsldkj",
    "install_id": "laptop-1",
}
OPTIONAL = {"scope": "chats:read", "install_name": "Anna's laptop"}
TAGS = {"html", "head", "meta", "title", "link", "body", "main", "h1", "h2", "p", "ul", "li", "dl", "dt", "dd"} | {
    *("bdi", "strong", "code", "form", "button", "input", "div")
}


def path(**changes):
    """The address of the page; a parameter that is None is left out."""
    chosen = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return f"{PATH}?{urlencode(chosen)}"


class Page(HTMLParser):
    """What of a page is markup, and what is text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))


def page(reply):
    """A page, which has the headers that every page of this flow carries."""
    headers = reply.headers
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; ")) == {
        "default-src": "'none'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert "Location" not in headers
    found = Page(reply.raw.decode())
    assert set(found.tags) <= TAGS, "markup that is not ours"
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
    links = [value for name, value in found.attributes if name in ("href", "src", "action")]
    assert all(link.startswith("/") and not link.startswith("//") for link in links)
    return found


class TestTheDocumentedOperationsOnly:
    """Nothing takes an answer then, and nobody can sign in with a browser."""

    @pytest.fixture
    def alone(self, settings, alice):
        return Client(build_app(operations(documented_only=True), replace(settings, documented_only=True)), alice.token)

    def test_show_what_is_asked_for_and_no_form(self, alone):
        shown = page(alone.get(path(**OPTIONAL)))
        assert "Anna's laptop" in shown.text
        assert "takes no answer" in shown.text
        assert "form" not in shown.tags

    def test_ask_nobody_to_sign_in(self, alone):
        stranger = Client(alone.application)
        reply = stranger.get(path(), sec_fetch_mode="navigate")
        assert reply.status == 401
        assert "Missing credentials" in page(reply).text
        assert "form" not in page(reply).tags
        assert stranger.get(path()).error == (401, "missing_credentials")


class TestThePage:
    def test_says_who_asks_for_what_and_where_the_answer_goes(self, alice):
        text = page(alice.get(path(**OPTIONAL))).text
        for shown in ("alice@example.com", "service-cli", "Anna's laptop", "laptop-1", "127.0.0.1:8976"):
            assert shown in text
        assert "Read your chats" in text
        assert "Pin and delete" not in text

    def test_works_without_what_is_optional(self, alice):
        text = page(alice.get(path())).text
        for reading, changing in consent.MEANINGS.values():
            assert reading in text
            assert changing in text

    @pytest.mark.parametrize("scope", ["", " ", "  "])
    def test_takes_no_scope_for_all(self, alice, scope):
        assert "Change your profile" in page(alice.get(path(scope=scope))).text

    def test_names_scopes_that_nobody_knows_and_does_not_grant_them(self, alice):
        text = page(alice.get(path(scope="events root events bots:write"))).text
        assert "Change your events" in text
        assert text.count("root") == text.count("bots:write") == 1
        assert "does not know" in text

    def test_says_what_stays_when_access_ends(self, alice):
        for scope, grants_stay in (("", True), ("data-shares chats", True), ("data-shares:read events", False)):
            text = page(alice.get(path(scope=scope))).text
            assert "You can end its access at any time" in text
            assert "What it has done in your name by then stays" in text
            assert ("data shares that it has granted, until you revoke them." in text) == grants_stay

    def test_says_that_unknown_scopes_alone_allow_nothing(self, alice):
        text = page(alice.get(path(scope="root"))).text
        assert "not be allowed to do anything" in text
        assert not any(reading in text for reading, _ in consent.MEANINGS.values())

    def test_writes_nothing(self, alice):
        alice.get(path())
        with nothing_changes():
            assert alice.get(path(**OPTIONAL)).status == 200

    def test_answers_head_as_get(self, alice):
        assert alice.call("HEAD", path()).status == 200

    @pytest.mark.parametrize("name", ["alice", "agent", "other_agent", "admin"])
    def test_is_for_everybody_who_is_logged_in(self, request, name):
        someone = request.getfixturevalue(name)
        assert someone.user.email in page(someone.get(path())).text


class TestTheCaller:
    @pytest.mark.parametrize("query", [GOOD, {}, {"redirect_uri": "http://evil.example"}])
    def test_comes_before_the_parameters(self, anyone, query):
        reply = anyone.get(f"{PATH}?{urlencode(query)}")
        assert reply.error == (401, "missing_credentials")
        assert reply.headers["Content-Type"] == "application/json"
        assert reply.headers["WWW-Authenticate"] == "Bearer"

    def test_is_refused_with_a_forged_token(self, anyone):
        assert anyone.get(path(), authorization="Bearer cxa_x").error == (401, "invalid_token")

    def test_is_refused_after_logging_out(self, alice):
        alice.post("/auth/logout")
        assert alice.get(path()).error == (401, "invalid_token")

    def test_needs_a_login_of_its_own_and_not_a_token_given_to_a_program(self, alice):
        every_scope = " ".join(sorted(consent.SCOPES))
        LoginSession.update(scopes=every_scope).where(LoginSession.user_id == alice.user.id).execute()
        assert alice.get(path()).error == (403, "insufficient_scope")


FAULTY = [
    *[(name, None) for name in GOOD],
    *[(name, "") for name in GOOD],
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
    @pytest.mark.parametrize(("name", "value"), FAULTY)
    def test_are_named_when_they_are_faulty(self, alice, name, value):
        with nothing_changes():
            reply = alice.get(path(**{name: value}))
        assert reply.status == 400
        assert [fault.partition(":")[0] for fault in faults(reply)] == [name]

    @pytest.mark.parametrize("name", [*GOOD, *OPTIONAL])
    def test_are_taken_once_only(self, alice, name):
        again = quote((GOOD | OPTIONAL)[name])
        reply = alice.get(f"{path(**OPTIONAL)}&{name}={again}")
        assert reply.status == 400
        assert faults(reply) == [f"{name}: given more than once."]

    def test_are_all_named_when_all_are_faulty(self, alice):
        assert {fault.partition(":")[0] for fault in faults(alice.get(PATH))} == set(GOOD)

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
    def test_may_be_as_long_and_odd_as_allowed(self, alice, name, value):
        assert alice.get(path(**{name: value})).status == 200

    def test_that_are_unknown_are_ignored(self, alice):
        assert alice.get(f"{path()}&prompt=none&prompt=login").status == 200

    @pytest.mark.parametrize("raw", ["%ff", "%ed%a0%80", "%00"])
    def test_that_cannot_be_read_are_faults(self, alice, raw):
        reply = alice.get(f"{path(state=None)}&state={raw}")
        assert reply.status == 400
        assert faults(reply)[0].startswith("state: ")


def faults(reply):
    """The faults that a page tells."""
    shown = page(reply)
    assert "nothing was sent" in shown.text
    return re.findall(r"<li><bdi>(.*?)</bdi></li>", reply.raw.decode(), re.DOTALL)


def apart(text):
    """The words of a text."""
    return text.split()


TAKEN = apart("""
http://127.0.0.1 http://127.0.0.1/ http://127.0.0.1:1 http://127.0.0.1:65535/ http://127.0.0.1:8976/callback
http://127.0.0.1:8976?x=1 http://127.0.0.1:8976/a/b;c?d=e&f=g/h?i http://127.0.0.1:80/%2e%2E/%0d%0a http://[::1]
http://[::1]/ http://[::1]:8976/callback?x=y http://127.0.0.1/@evil.example http://127.0.0.1/?@evil.example
http://127.0.0.1//evil.example http://127.0.0.1:80/:@!$&'()*+,;=~._-
""")

REFUSED = apart("""
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


class TestWhereTheAnswerGoes:
    @pytest.mark.parametrize("uri", TAKEN)
    def test_may_be_this_computer(self, alice, uri):
        assert alice.get(path(redirect_uri=uri)).status == 200

    @pytest.mark.parametrize("uri", REFUSED)
    def test_may_be_nothing_else(self, alice, uri):
        reply = alice.get(path(redirect_uri=uri))
        assert reply.status == 400
        assert [fault.partition(":")[0] for fault in faults(reply)] == ["redirect_uri"]

    def test_is_shown_as_the_host_and_port_that_it_is(self, alice):
        text = page(alice.get(path(redirect_uri="http://[::1]:49152/cb?next=http://evil.example"))).text
        assert "[::1]:49152" in text
        assert "evil.example" not in text

    PIECES = some.sampled_from(
        [
            *apart("http https :// / // \\ @ : ? # [ ] [::1] 127.0.0.1 localhost evil.example 80 %2f . ; & ="),
            *"\t\n\0。ü",
        ]
    )

    @given(some.lists(PIECES, max_size=12).map("".join))
    def test_is_this_computer_whatever_is_put_together(self, text):
        try:
            consent.loopback_uri(text)
        except ValueError:
            return
        rest = text.removeprefix("http://").removeprefix("127.0.0.1").removeprefix("[::1]")
        assert text.startswith(("http://127.0.0.1", "http://[::1]"))
        assert re.match(r"(:[0-9]+)?([/?]|\Z)", rest)


SCRIPTS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</code></dd><h1>Approved",
    "{{1+1}}",
    "<% import os %>",
    "% import os",
    "&lt;script&gt;",
    "]]><!--",
]


class TestHostileText:
    @pytest.mark.parametrize("text", SCRIPTS)
    @pytest.mark.parametrize("name", ["state", "install_id", "install_name", "scope"])
    def test_stays_text(self, alice, name, text):
        reply = alice.get(path(**{name: text}))
        shown = page(reply)
        if reply.status == 200 and name in ("install_id", "install_name"):
            assert text in "".join(shown.words)

    @pytest.mark.parametrize("text", SCRIPTS)
    @pytest.mark.parametrize("name", GOOD)
    def test_stays_text_where_it_is_a_fault(self, alice, name, text):
        page(alice.get(path(**{name: text * 99})))

    @pytest.mark.parametrize("text", SCRIPTS)
    def test_in_the_names_of_parameters_is_not_shown(self, alice, text):
        assert text not in page(alice.get(f"{path()}&{quote(text)}=x")).text

    def test_in_an_address_stays_text(self, person):
        mallory = person("mallory")
        email = fold_email("<b>mallory</b>@example.com")
        User.update(email=email).where(User.id == mallory.user.id).execute()
        assert email in page(mallory.get(path())).text


class TestScopes:
    def test_have_a_meaning_each(self):
        assert {f"{name}:read" for name in consent.MEANINGS} | set(consent.MEANINGS) == consent.SCOPES

    def test_are_those_that_operations_need(self):
        from service.routes import operations

        ungiven = ("consent", "account", "console")  # no token is ever given these
        own = {f"{name}{suffix}" for name in ungiven for suffix in ("", ":read")}
        needed = {operation.needed_scope for operation in operations()} - {"", *own}
        assert needed <= consent.SCOPES
        assert {scope.removesuffix(":read") for scope in needed} == set(consent.MEANINGS)

    @pytest.mark.parametrize(
        ("asked", "granted"),
        [
            ("", list(consent.MEANINGS)),
            ("chats:read", ["chats:read"]),
            ("chats chats:read", ["chats", "chats:read"]),
            ("x chats", ["chats"]),
            ("x", []),
        ],
    )
    def test_are_granted_as_far_as_they_are_known(self, asked, granted):
        assert consent.understand(asked).scopes == granted
