"""A browser without a window: it keeps cookies, follows redirects, and sends the forms that it finds on pages."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode

from service import db
from service.auth import sign_in
from service.signature import Origin
from tests.conftest import Client, Reply
from tests.serving import Served

FORM = "application/x-www-form-urlencoded"


class Forms(HTMLParser):
    """The forms of a page: where each goes, and what it sends."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.field = ""  # the select whose options are being read
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append((given["action"], {}))
        elif tag in ("select", "textarea"):
            self.field = given["name"]
            self.found[-1][1][self.field] = ""
        elif tag == "option" and "selected" in given:
            self.found[-1][1][self.field] = given["value"]
        elif tag == "input" and (given.get("type") != "checkbox" or "checked" in given):
            self.found[-1][1][given["name"]] = given.get("value", "")


class Browser:
    """Somebody's browser, at the page where it is."""

    def __init__(self, application: Any, site: str = "http://test") -> None:
        scheme, _, host = site.partition("://")
        self.client, self.scheme, self.host = Client(application), scheme, host
        self.cookies: dict[str, str] = {}
        self.path = ""
        self.reply: Reply

    def signed_in(self, person: Client) -> "Browser":
        """This browser, with somebody signed in."""
        with db.write():
            self.keep(sign_in.begin(person.user.id, Origin("127.0.0.1", "tests", f"{self.scheme}://{self.host}")))
        return self

    def open(self, path: str) -> Reply:
        """Go to an address."""
        return self.ask("GET", path)

    def send(self, number: int = 0, **values: str) -> Reply:
        """Send a form of the page, some of it filled in."""
        action, given = Forms(self.reply.raw.decode()).found[number]
        return self.ask("POST", action, {**given, **values})

    def ask(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Reply:
        """One navigation, and on to where it leads."""
        headers = {"sec_fetch_mode": "navigate", "accept": "text/html,*/*", "host": self.host} | headers
        if form is not None:
            headers = {"content_type": FORM} | headers
        if self.cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        raw = None if form is None else urlencode(form).encode()
        self.path = path
        self.reply = self.client.call(method, f"/{path.partition('#')[0]}", raw=raw, **headers)
        self.keep(self.reply.headers.get("Set-Cookie", ""))
        if self.reply.status == 303:
            return self.open(self.reply.headers["Location"])
        return self.reply

    def keep(self, line: str) -> None:
        """Mind a Set-Cookie line."""
        name, _, value = line.partition(";")[0].partition("=")
        if "Max-Age=0" in line:
            self.cookies.pop(name, None)
        elif name:
            self.cookies[name] = value

    @property
    def text(self) -> str:
        """What the page says."""
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", self.reply.raw.decode())))

    @property
    def onward(self) -> str:
        """Where the page moves on to by itself."""
        [url] = re.findall(r'http-equiv="refresh" content="0; url=([^"]*)"', self.reply.raw.decode())
        return unescape(url)


def remote(served: Served) -> Any:
    """A running server, as an application for a `Browser`."""

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        names = {"CONTENT_TYPE": "Content-Type"} | {
            name: name.removeprefix("HTTP_").replace("_", "-") for name in environ if name.startswith("HTTP_")
        }
        headers = {shown: environ[name] for name, shown in names.items() if name in environ}
        path = quote(environ["PATH_INFO"]) + (f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else "")
        reply = served.call(environ["REQUEST_METHOD"], path, environ["wsgi.input"].read() or None, headers=headers)
        start_response(f"{reply.status} -", [*reply.headers.items(), ("X-Request-ID", reply.headers["X-Request-ID"])])
        return [reply.raw]

    return application
