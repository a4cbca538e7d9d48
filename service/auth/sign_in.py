"""Signing in with a browser: a cookie that opens pages, and a form that only our own page can send.

The cookie names a login session, whose row is read at every use like those of tokens; it is no credential for an API
operation (contract, section 10).
"""

import re
import secrets
from contextlib import suppress
from urllib.parse import parse_qsl, urlencode

from service import clock
from service.auth import tokens
from service.auth.signing import sign, verify
from service.errors import InvalidToken, Refusal, StaleForm, Unauthenticated
from service.models.people import Caller
from service.signature import MOST_PARAMETERS, Html, Origin

PATH = "/sign-in"
LONGEST = 24 * 1024  # characters of a path; the longest question of a client has fewer
LIFE = 12 * clock.HOUR  # a working day
SIGNED_IN, FORM = "cx_signed_in", "cx_form"

_OWN_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*", re.ASCII)


def own_path(text: str) -> str:
    """A path on this very site: where to go on after signing in."""
    if not _is_own(text):
        raise ValueError("expected a path of this site")
    return text


def _is_own(text: str) -> bool:
    return bool(_OWN_PATH.fullmatch(text)) and len(text) <= LONGEST


def begin(user_id: str, origin: Origin) -> str:
    """Open a login session for a browser, inside a write; the cookie that stands for it.

    The login that this browser had before ends: with its cookie lost, nobody could end it there.
    """
    with suppress(Unauthenticated):
        tokens.log_out(caller_of(origin))
    session = tokens.keep_session(user_id, LIFE, label=origin.user_agent, kind="browser")
    return _cookie(origin, SIGNED_IN, sign("sign-in", [session.id]))


def end(caller: Caller, origin: Origin) -> str:
    """End the login session; the cookie that takes back the one of `begin`."""
    tokens.log_out(caller)
    return f"{_cookie(origin, SIGNED_IN, '')}; Max-Age=0"


def caller_of(origin: Origin) -> Caller:
    """Who is signed in. Raises Unauthenticated or InvalidToken."""
    text = origin.cookies.get(_name(origin, SIGNED_IN), "")
    if not text:
        raise Unauthenticated
    try:
        (session_id,) = verify("sign-in", text)
    except ValueError:
        raise InvalidToken from None
    return tokens.caller_of(session_id)


def ask(origin: Origin, refusal: Refusal) -> Html:
    """The sign-in page for somebody who was refused, to go on to where they were going."""
    path, _, query = origin.path.partition("?")
    if path != PATH:
        return form(origin, origin.path)
    known = {} if query.count("&") >= MOST_PARAMETERS else dict(parse_qsl(query))
    going = known.get("next", "/")
    return form(origin, going if _is_own(going) else "/", str(refusal), refusal.given.get("email", ""))


def form(origin: Origin, next: str, told: str = "", email: str = "") -> Html:
    """The page on which a person signs in, to go on to `next`; `told` says why it is there again, `email` is filled in.

    A browser keeps the number that the form must carry in a cookie that it does not send from other sites, so that
    nobody can be signed in as somebody else from there.
    """
    number, cookie = origin.cookies.get(_name(origin, FORM), ""), ""
    if not re.fullmatch(r"[\w-]{22}", number, re.ASCII):
        number = secrets.token_urlsafe(16)
        cookie = _cookie(origin, FORM, number)
    values = {"action": f"{PATH}?{urlencode({'next': next})}", "ticket": sign("form", [number])}
    values |= {"told": told, "email": email}
    return Html("sign-in.html", values, cookie=cookie)


def expect_own_form(origin: Origin, ticket: str) -> None:
    """Raises StaleForm if a form was not sent from the page that `form` makes."""
    try:
        if verify("form", ticket) == [origin.cookies.get(_name(origin, FORM), "")]:
            return
    except ValueError:
        pass
    raise StaleForm


def _name(origin: Origin, name: str) -> str:
    return f"__Host-{name}" if origin.site.startswith("https:") else name


def _cookie(origin: Origin, name: str, value: str) -> str:
    """A Set-Cookie line (RFC 6265): gone when the browser is closed."""
    secure = "; Secure" if origin.site.startswith("https:") else ""
    return f"{_name(origin, name)}={value}; Path=/; HttpOnly; SameSite=Lax{secure}"
