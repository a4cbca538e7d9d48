"""The layout of the console's pages, and the handling of their forms."""

import functools
import hashlib
import inspect
import re
import secrets
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from service import clock, db, updates
from service.api.parameter_types import Download, Form, HtmlPage, Redirect, RequestInfo, TemplateValue
from service.auth import csrf
from service.console import display_names, sign_in
from service.console.labels import capitalized_label
from service.console.times import Times
from service.db import Page
from service.errors import ApiError, ErrorInfo, IdempotencyKeyReused, StaleForm, Unauthenticated
from service.models import Notification, StoredMail, User, idempotency_keys
from service.models.callers import Caller
from service.models.idempotency_keys import KeyedRequest, Replay, Stored
from service.signing import sign
from service.translation import gettext, gettext_noop
from service.types import JsonObject

# The message after a form was handled, by the value of the query parameter `done`.
SUCCESS_MESSAGES = {
    "added": gettext_noop("Event added."),
    "answer_added": gettext_noop("Canned answer added."),
    "app_added": gettext_noop("App created."),
    "archived": gettext_noop("Chat archived."),
    "assigned": gettext_noop("Assigned."),
    "backup_begun": gettext_noop("The backup is being made."),
    "bot_added": gettext_noop("Bot created."),
    "browser_added": gettext_noop("This browser now shows your notifications."),
    "browser_removed": gettext_noop("Push notifications in this browser ended."),
    "browsers_removed": gettext_noop("Push notifications in all browsers ended."),
    "changed": gettext_noop("Saved."),
    "credential_added": gettext_noop("Credential added."),
    "credential_revoked": gettext_noop("Credential revoked."),
    "deleted": gettext_noop("Deleted."),
    "edited": gettext_noop("Message edited."),
    "ended": gettext_noop("Session signed out."),
    "feed_created": gettext_noop("Calendar address created."),
    "feed_revoked": gettext_noop("Calendar address revoked."),
    "given_back": gettext_noop("Given back to the bot."),
    "handed_over": gettext_noop("A person was called."),
    "granted": gettext_noop("Access granted."),
    "invited": gettext_noop("User invited by e-mail."),
    "moved": gettext_noop("Status changed."),
    "password": gettext_noop("Password changed. All other sessions are signed out."),
    "picture": gettext_noop("Picture updated."),
    "pinned": gettext_noop("Pinned."),
    "push_ended": gettext_noop("Push notifications ended."),
    "push_renewed": gettext_noop("Push address created."),
    "rated": gettext_noop("Thank you for your rating."),
    "read": gettext_noop("Marked as read."),
    "removed": gettext_noop("Picture removed."),
    "reply_added": gettext_noop("Canned reply added."),
    "announced": gettext_noop("The announcement is being sent."),
    "retried": gettext_noop("The delivery is tried again now."),
    "resolved": gettext_noop("Chat ended."),
    "revoked": gettext_noop("Access revoked."),
    "screenshot_removed": gettext_noop("Screenshot removed."),
    "secret_replaced": gettext_noop("Secret replaced."),
    "snoozed": gettext_noop("Snoozed."),
    "thanks": gettext_noop("Thank you! Your feedback has arrived."),
    "unpinned": gettext_noop("Unpinned."),
    "user_added": gettext_noop("User added."),
    "verification_sent": gettext_noop("An e-mail with a link is on its way to you."),
    "verified": gettext_noop("Your e-mail address is verified."),
    "unread": gettext_noop("Marked as unread."),
}

ERROR_TITLES = {
    400: gettext_noop("Invalid request"),
    403: gettext_noop("Not allowed"),
    404: gettext_noop("Page not found"),
    405: gettext_noop("This page cannot be opened directly"),
    413: gettext_noop("Too large"),
}

ALREADY_SENT = gettext_noop("This form was already sent with different content. To send it again, submit it once more.")

PAGE_ROWS = 25  # maximum length of a list on a page

_MEMBER_PATH = re.compile(r"^\$\.(\w+)[^:]*: ")


def optional(reader: Callable[[str], str]) -> Callable[[str], str]:
    """Return a reader that accepts empty text."""

    def read(text: str) -> str:
        return reader(text) if text else ""

    return read


OptionalUuid = Annotated[str, Meta(description="UUID or empty."), optional(clock.read_uuid)]
OptionalUlid = Annotated[str, Meta(description="ULID or empty."), optional(clock.read_ulid)]


Argument: TypeAlias = Any  # of a handler, by the name of its parameter
Created = TypeVar("Created")
FormResult: TypeAlias = Redirect | HtmlPage | Download
Row = JsonObject
"""A row of a list, decoded from JSON."""


class ConsoleForm(Form):
    """The members of every form: a CSRF token, and a number that makes it idempotent."""

    csrf_token: str = ""
    number: str = ""


class FormFailure(NamedTuple):
    """The error of a form that was sent, and the values to show in it again."""

    error: ApiError | None = None
    values: dict[str, TemplateValue] = {}


NO_FAILURE = FormFailure()


def show(
    caller: Caller,
    template: str,
    title: str,
    *,
    page: Page[object] | None = None,
    failure: FormFailure = NO_FAILURE,
    done: str = "",
    query: Struct | None = None,
    after: str = "",
    **values: object,
) -> HtmlPage:
    """Return a page of the console.

    `page` is the list on the page, selected by `query`. The error of `failure` is shown on the page, and its values in
    the form. `after` is the position in `updates` up to which the page is current; by default now.
    """
    after = after or updates.since(caller, "").after
    user = User.get_by_id(caller.id)
    (profile,) = display_names.users([user.id]).values()
    values |= {
        "caller": caller,
        "after": after,
        "own_profile": profile._replace(name=display_names.user_name(user) or user.email),
        "email": user.email,
        "theme": User.preferences_of(user.id)["appearance"]["theme"],
        "times": Times(user.timezone or caller.timezone),
        "profile_timezone": user.timezone,
        "stores_mails": StoredMail.is_enabled(),
        "unread": Notification.count_unread(user.id),
        "csrf_token": csrf.make_token(caller),
        "number": secrets.token_urlsafe(12),
        "title": title,
        "page_name": template,
        "rows": msgspec.json.decode(page.rows) if page else [],
        "query": query,
        "page_link": functools.partial(page_link, query) if query else None,
        "success": gettext(SUCCESS_MESSAGES[done]) if done in SUCCESS_MESSAGES else "",
        "error": error_text(failure.error) if failure.error else "",
        "form_values": failure.values,
    }
    return HtmlPage(f"console-{template}.html", values, scripted=True, error=failure.error, page=page)


def error_page(info: ErrorInfo, request_info: RequestInfo) -> HtmlPage:
    """Return the page for an error: with the navigation of the console if the user is signed in."""
    title = gettext(ERROR_TITLES.get(info.status, ERROR_TITLES[400]))
    retry_address = request_info.path_and_query.partition("?")[0] if info.status in (400, 413) else ""
    message = _with_period(gettext(info.message))
    plain = HtmlPage("error.html", {"title": title, "message": message})
    if info.status < 500:
        caller = sign_in.find_caller(request_info)
        if caller:
            page = functools.partial(show, caller, "error", title, message=message, retry_address=retry_address)
            return db.read_or(plain, page)
    return plain


def times_of(caller: Caller) -> Times:
    """Return the formatter for the time zone of the caller's profile, else of the browser, else UTC."""
    return Times(User.get_by_id(caller.id).timezone or caller.timezone)


def page_link(query: Struct, **changes: object) -> str:
    """Return the query string of the current page with some members changed; empty members are omitted."""
    members = {name: value for name, value in msgspec.structs.asdict(query).items() if name not in ("cursor", "done")}
    members = {
        name: str(value).lower() if value is True else value for name, value in (members | changes).items() if value
    }
    return "?" + urlencode(members)


def error_text(error: ApiError) -> str:
    """Return the message of an error for people: with the label of a member instead of its path."""
    path, text = _MEMBER_PATH.match(str(error)), _MEMBER_PATH.sub("", str(error))
    label = f"{capitalized_label(path[1])}: " if path else ""
    return _with_period(label + gettext(text.replace("starts_at", "the start")))


def _with_period(text: str) -> str:
    return text if text.endswith((".", "?", "!", "。", "؟")) else f"{text}."


def form_handler(
    page: Callable[..., HtmlPage], query: type[Struct]
) -> Callable[[Callable[..., FormResult]], Callable[..., FormResult]]:
    """Decorate the handler of a form: check the CSRF token, and show errors on `page`.

    `page` is called with those arguments of the handler that it accepts, with `query` (an empty one if that of the
    handler has another type), and `failure`.
    """
    accepted = inspect.signature(page).parameters

    def wrap(handler: Callable[..., FormResult]) -> Callable[..., FormResult]:
        @functools.wraps(handler)
        def handle(**arguments: Argument) -> FormResult:
            body, own_query = arguments.get("body"), arguments.get("query")
            try:
                csrf.expect_token(
                    arguments["caller"], getattr(body, "csrf_token", "") or getattr(own_query, "csrf_token", "")
                )
                return handler(**arguments)
            except Unauthenticated:  # the login session ended meanwhile
                raise
            except ApiError as error:
                values = msgspec.structs.asdict(body) if isinstance(body, ConsoleForm) else {}
                page_arguments = {
                    name: value for name, value in arguments.items() if name in accepted and name != "query"
                }
                return page(
                    **page_arguments,
                    query=own_query if isinstance(own_query, query) else query(),
                    failure=FormFailure(error, values),
                )

        return handle

    return wrap


def run_once(caller: Caller, operation: str, body: ConsoleForm, create: Callable[[], Created]) -> Created:
    """Return the result of `create`, which runs once even if the form is sent repeatedly; it must be JSON-encodable.

    Raises StaleForm if the form was sent before with different content.
    """
    content = {name: value for name, value in msgspec.structs.asdict(body).items() if name != "csrf_token"}
    # A digest, because the database must not have the numbers from which `derived_secret` makes secrets.
    key = hashlib.sha256((body.number or secrets.token_urlsafe(12)).encode()).hexdigest()
    request = KeyedRequest(caller.id, f"console: {operation}", key, repr(content).encode())
    try:
        result = idempotency_keys.run_once(request, create, lambda made: Stored(msgspec.json.encode({"made": made})))
    except IdempotencyKeyReused:
        raise StaleForm(ALREADY_SENT) from None
    return msgspec.json.decode(result.body)["made"] if isinstance(result, Replay) else result


def derived_secret(caller: Caller, purpose: str, body: ConsoleForm) -> str:
    """Return 256 random bits as 43 characters: the same if the form is sent repeatedly."""
    return sign(purpose, [caller.id, body.number or secrets.token_urlsafe(12)]).rpartition(".")[2]


def clip(text: str, length: int) -> str:
    """Return a text, shortened to `length` characters and an ellipsis if it is longer."""
    return text if len(text) <= length else f"{text[:length]}…"


def clean_text(text: str) -> str:
    """Return the text of a form field with LF line ends, without surrounding whitespace; browsers send CRLF."""
    return text.replace("\r\n", "\n").strip()
