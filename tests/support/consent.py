"""The consent page: valid parameters, and a parser that checks the page."""

import re
from html.parser import HTMLParser
from urllib.parse import urlencode

from tests.support.client import Reply
from tests.support.security_headers import PAGE, STRICT, policy

PATH = "/auth/cli/authorize"

CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"  # of RFC 7636, appendix B

VALID_PARAMETERS = {
    "client_id": "service-cli",
    "response_type": "code",
    "code_challenge": CHALLENGE,
    "code_challenge_method": "S256",
    "redirect_uri": "http://127.0.0.1:8976/callback",
    "state": "af0ifjsldkj",
    "install_id": "laptop-1",
}

TAGS = {"html", "head", "meta", "title", "link", "body", "main", "h1", "h2", "p", "ul", "li", "dl", "dt", "dd"} | {
    *("bdi", "strong", "code", "form", "button", "input", "div")
}


def path(**changes: str | None) -> str:
    """Return the path of the page. A parameter that is None is omitted."""
    chosen = {name: value for name, value in (VALID_PARAMETERS | changes).items() if value is not None}
    return f"{PATH}?{urlencode(chosen)}"


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))


def parse_page(reply: Reply) -> Page:
    """Parse a page, and check its security headers and links."""
    headers = reply.headers
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert {name: headers[name] for name in PAGE} == PAGE
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert policy(reply) == STRICT
    assert "Location" not in headers
    found = Page(reply.raw.decode())
    assert set(found.tags) <= TAGS, "unexpected markup"
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
    links = [value or "" for name, value in found.attributes if name in ("href", "src", "action")]
    assert all(link.startswith("/") and not link.startswith("//") for link in links)
    return found


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
