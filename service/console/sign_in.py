"""The sign-in page, and the cookie that gives access to the pages."""

import re
import secrets
from urllib.parse import parse_qsl, urlencode

from service import db, translation, validators
from service.api.parameter_types import MAX_PARAMETERS, HtmlPage, RequestInfo, TemplateValue
from service.auth import browser_sessions, csrf, first_admin, tokens
from service.console.cookies import delete_cookie, read_cookie, set_cookie
from service.errors import ApiError, Unauthenticated
from service.models import Delivery, User
from service.models.callers import Caller
from service.translation import gettext

PATH = "/sign-in"
MAX_PATH_LENGTH = 24 * 1024  # characters; more than the longest valid address of the consent page
SESSION_COOKIE, FORM_COOKIE = "cx_signed_in", "cx_form"
TIMEZONE_COOKIE = "cx_timezone"  # set by static/console.js

_LOCAL_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*", re.ASCII)


def local_path(text: str) -> str:
    """Return a path of this site, to open after sign-in. Raises ValueError for any other address."""
    if not _is_local(text):
        raise ValueError("expected a path of this site")
    return text


def _is_local(text: str) -> bool:
    return bool(_LOCAL_PATH.fullmatch(text)) and len(text) <= MAX_PATH_LENGTH


def begin(user_id: str, request_info: RequestInfo) -> str:
    """Create a login session for a browser, inside a write; return the `Set-Cookie` value.

    The previous login session of the browser ends.
    """
    previous = read_cookie(request_info, SESSION_COOKIE)
    identifier = browser_sessions.begin(user_id, request_info.user_agent, previous)
    return set_cookie(request_info, SESSION_COOKIE, identifier)


def end(caller: Caller, request_info: RequestInfo) -> str:
    """End the login session; return the `Set-Cookie` value that deletes its cookie."""
    tokens.log_out(caller)
    return delete_cookie(request_info, SESSION_COOKIE)


def caller_of(request_info: RequestInfo) -> Caller:
    """Return the user that is signed in. Raises Unauthenticated or InvalidToken."""
    caller = browser_sessions.caller_of(read_cookie(request_info, SESSION_COOKIE))
    accepted = validators.accepted_languages(request_info.languages)
    language = translation.choose([User.chosen_language(caller.id), *accepted])
    return caller._replace(timezone=read_timezone(request_info), language=language)


def language_of(request_info: RequestInfo, caller: Caller | None) -> str:
    """Return the language of pages: that of the caller, else that of the browser."""
    accepted = validators.accepted_languages(request_info.languages)
    return (caller.language if caller else "") or translation.choose(accepted)


def find_caller(request_info: RequestInfo) -> Caller | None:
    """Return the user that is signed in; None if there is none, and while the database is unavailable."""
    try:
        return db.read_or(None, lambda: caller_of(request_info))
    except Unauthenticated:
        return None


def read_timezone(request_info: RequestInfo) -> str:
    """Return the time zone of the browser, which the script of the console stores in a cookie; empty if unknown."""
    try:
        return validators.time_zone(request_info.cookies.get(TIMEZONE_COOKIE, ""))
    except ValueError:
        return ""


def page_for_error(request_info: RequestInfo, error: ApiError) -> HtmlPage:
    """Return the sign-in page for a request that needs a login; after sign-in the browser opens the requested page."""
    path, _, query = request_info.path_and_query.partition("?")
    if path != PATH:
        return form(request_info, request_info.path_and_query)
    parameters = {} if query.count("&") >= MAX_PARAMETERS else dict(parse_qsl(query))
    next_path = parameters.get("next", "/")
    return form(
        request_info,
        next_path if _is_local(next_path) else "/",
        gettext(str(error)),
        error.form_values.get("email", ""),
    )


def form(request_info: RequestInfo, next_path: str, message: str = "", email: str = "") -> HtmlPage:
    """Return the sign-in page. After sign-in the browser opens `next_path`; `message` is the last attempt's error."""
    action = f"{PATH}?{urlencode({'next': next_path})}"
    return form_page("sign-in.html", request_info, action=action, message=message, email=email)


def form_page(
    template: str, request_info: RequestInfo, *, error: ApiError | None = None, **values: TemplateValue
) -> HtmlPage:
    """Return a page with a form that needs no login.

    The CSRF token of the form is bound to a cookie, so that no other site can sign a user in to another account.
    """
    value, cookie = read_cookie(request_info, FORM_COOKIE), ""
    if not re.fullmatch(r"[\w-]{22}", value, re.ASCII):
        value = secrets.token_urlsafe(16)
        cookie = set_cookie(request_info, FORM_COOKIE, value)
    values |= {"csrf_token": csrf.make_cookie_token(value), "has_admin": not first_admin.is_missing()}
    values["sends_mail"] = Delivery.is_configured("email")
    return HtmlPage(template, values, cookie=cookie, error=error)


def expect_own_form(request_info: RequestInfo, csrf_token: str) -> None:
    """Raise StaleForm if the form does not come from the page of `form`, in the same browser."""
    csrf.expect_cookie_token(read_cookie(request_info, FORM_COOKIE), csrf_token)
