"""A browser in Python: it stores cookies, follows redirects, and submits the forms of pages."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode

from service import db
from service.api.parameter_types import RequestInfo
from service.console import sign_in
from tests.support.client import Client, Reply
from tests.support.server_process import Served

FORM = "application/x-www-form-urlencoded"


class Forms(HTMLParser):
    """The forms of a page: the action and the fields of each."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.field = ""  # the select whose options are being read
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append((attributes["action"], {}))
        elif tag in ("select", "textarea"):
            self.field = attributes["name"]
            self.found[-1][1][self.field] = ""
        elif tag == "option" and "selected" in attributes:
            self.found[-1][1][self.field] = attributes["value"]
        elif (
            tag == "input"
            and "name" in attributes
            and (attributes.get("type") != "checkbox" or "checked" in attributes)
        ):
            self.found[-1][1][attributes["name"]] = attributes.get("value", "")


class Browser:
    """A browser, and its current page."""

    def __init__(self, application: Any, site: str = "http://test") -> None:
        scheme, _, host = site.partition("://")
        self.client, self.scheme, self.host = Client(application), scheme, host
        self.cookies: dict[str, str] = {}
        self.languages = ""  # the Accept-Language header
        self.path = ""
        self.reply: Reply

    def signed_in(self, user: Client) -> "Browser":
        """This browser, with a user signed in."""
        with db.write():
            self.store_cookie(
                sign_in.begin(user.user.id, RequestInfo("127.0.0.1", "tests", f"{self.scheme}://{self.host}"))
            )
        return self

    def open(self, path: str) -> Reply:
        """Open an address."""
        return self.navigate("GET", path)

    def send(self, number: int = 0, **values: str) -> Reply:
        """Submit a form of the page, with the values of some fields."""
        action, fields = Forms(self.reply.raw.decode()).found[number]
        return self.navigate("POST", action, {**fields, **values})

    def navigate(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Reply:
        """Send a request as a navigation does, and follow redirects."""
        headers = {"sec_fetch_mode": "navigate", "accept": "text/html,*/*", "host": self.host} | headers
        if form is not None:
            headers = {"content_type": FORM} | headers
        if self.languages:
            headers = {"accept_language": self.languages} | headers
        if self.cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        raw = None if form is None else urlencode(form).encode()
        self.path = path
        self.reply = self.client.call(method, f"/{path.partition('#')[0]}", raw=raw, **headers)
        self.store_cookie(self.reply.headers.get("Set-Cookie", ""))
        if self.reply.status == 303:
            return self.open(self.reply.headers["Location"])
        return self.reply

    def store_cookie(self, line: str) -> None:
        """Store or delete the cookie of a Set-Cookie header."""
        name, _, value = line.partition(";")[0].partition("=")
        if "Max-Age=0" in line:
            self.cookies.pop(name, None)
        elif name:
            self.cookies[name] = value

    @property
    def text(self) -> str:
        """The text of the page."""
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", self.reply.raw.decode())))

    @property
    def redirect_url(self) -> str:
        """The address of the page's automatic redirect."""
        [url] = re.findall(r'http-equiv="refresh" content="0; url=([^"]*)"', self.reply.raw.decode())
        return unescape(url)


def remote(served: Served) -> Any:
    """A running server, as an application for a `Browser`."""

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        names = {"CONTENT_TYPE": "Content-Type"} | {
            name: name.removeprefix("HTTP_").replace("_", "-") for name in environ if name.startswith("HTTP_")
        }
        headers = {header: environ[name] for name, header in names.items() if name in environ}
        path = quote(environ["PATH_INFO"]) + (f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else "")
        reply = served.call(environ["REQUEST_METHOD"], path, environ["wsgi.input"].read() or None, headers=headers)
        start_response(f"{reply.status} -", [*reply.headers.items(), ("X-Request-ID", reply.headers["X-Request-ID"])])
        return [reply.raw]

    return application
