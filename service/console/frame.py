"""What stands around every page of the console, and what happens to its forms."""

import functools
import inspect
import re
import secrets
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from service import clock, db, keeping, updates
from service.auth import sign_in, tickets
from service.console import faces
from service.console.times import Times
from service.db import Page
from service.errors import IdempotencyKeyReused, Refusal, StaleForm, Told, Unauthenticated
from service.models import Notification, User
from service.models.people import Caller
from service.signature import Form, Html, Moved, Origin

# The message that a page shows after a form was handled, by the value of `done` in its address.
DONE = {
    "added": "Event added.",
    "archived": "Chat archived.",
    "changed": "Saved.",
    "deleted": "Deleted.",
    "edited": "Message edited.",
    "ended": "Session signed out.",
    "granted": "Access granted.",
    "moved": "Status changed.",
    "password": "Password changed. All other sessions are signed out.",
    "picture": "Picture updated.",
    "pinned": "Pinned.",
    "read": "Marked as read.",
    "removed": "Picture removed.",
    "resolved": "Chat ended.",
    "revoked": "Access revoked.",
    "thanks": "Thank you! Your feedback has arrived.",
    "unpinned": "Unpinned.",
    "unread": "Marked as unread.",
}

ERROR_TITLES = {
    400: "This request cannot be answered",
    403: "Not allowed",
    404: "Page not found",
    405: "This address does not open as a page",
    413: "Too large",
}

SENT_BEFORE = "You have sent this already, with something else in it. Send it again if you mean it."

_PLACE = re.compile(r"^\$\.(\w+)[^:]*: ")


def optional(reader: Callable[[str], str]) -> Callable[[str], str]:
    """A reader of what may be left empty."""

    def read(text: str) -> str:
        return reader(text) if text else ""

    return read


OptionalUuid = Annotated[str, Meta(description="A UUID, or empty."), optional(clock.read_uuid)]
OptionalUlid = Annotated[str, Meta(description="A ULID, or empty."), optional(clock.read_ulid)]


class ConsoleForm(Form):
    """What every form of the console holds: its ticket, and a number that it keeps when it is sent twice."""

    ticket: str = ""
    number: str = ""


def show(
    caller: Caller,
    template: str,
    title: str,
    *,
    page: Page[Any] | None = None,
    refusal: Refusal | None = None,
    given: dict[str, Any] | None = None,
    done: str = "",
    query: Any = None,
    after: str = "",
    **values: Any,
) -> Html:
    """A page of the console for a caller.

    `page` is the list that it shows, as asked for with `query`; `refusal` is told in place, and its form holds what was
    `given`. It shows everything that happened before `after`, a position in `updates`; without one, the present.
    """
    after = after or updates.since(caller, "").after
    user = User.get_by_id(caller.id)
    (face,) = faces.people([user.id]).values()
    values |= {
        "caller": caller,
        "after": after,
        "me": face._replace(name=faces.name_of(user) or user.email),
        "email": user.email,
        "theme": User.preferences_of(user.id)["appearance"]["theme"],
        "times": times_of(user),
        "unread": Notification.count_unread(user.id),
        "ticket": tickets.make(caller),
        "number": secrets.token_urlsafe(12),
        "title": title,
        "here": template,
        "rows": msgspec.json.decode(page.rows) if page else [],
        "query": query,
        "link": functools.partial(link, query),
        "done": DONE.get(done, ""),
        "trouble": sentence(refusal) if refusal else "",
        "given": given or {},
    }
    status = refusal.status if refusal else 0
    return Html(f"console-{template}.html", values, scripted=True, status=status, page=page)


def error_page(told: Told, origin: Origin) -> Html:
    """The page that reports an error to a person: in the frame of the console if they are signed in."""
    title = ERROR_TITLES.get(told.status, ERROR_TITLES[400])
    again = origin.path.partition("?")[0] if told.status in (400, 413) else ""
    message = _complete(told.message)
    if told.status < 500:
        try:
            return show(sign_in.caller_of(origin), "error", title, told=message, again=again)
        except Unauthenticated:
            pass
        except Exception as error:
            db.after_failure(error)
            if not db.is_unavailable(error):
                raise
    return Html("error.html", {"title": title, "told": message})


def times_of(user: User) -> Times:
    """The moments of a user."""
    return Times(user.timezone)


def link(query: Any, **changes: Any) -> str:
    """The query of a page like this one, but for some members; what is empty is left out."""
    asked = {name: value for name, value in msgspec.structs.asdict(query).items() if name not in ("cursor", "done")}
    asked = {name: str(value).lower() if value is True else value for name, value in (asked | changes).items() if value}
    return "?" + urlencode(asked)


def sentence(refusal: Refusal) -> str:
    """A refusal as a person reads it on a page: without the path of the member that is wrong."""
    told = _PLACE.sub(lambda found: f"{found[1].replace('_', ' ').capitalize()}: ", str(refusal))
    return _complete(told.replace("starts_at", "the start"))


def _complete(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def told_on(page: Callable[..., Html], query: type[Struct]) -> Callable[[Callable[..., Moved]], Callable[..., Moved]]:
    """For the handler of a form: nothing happens without its ticket, and refusals are told on a `page`.

    The page gets those of the handler's arguments that it takes, an empty `query` unless the handler has one of the
    same kind, `refusal`, and in `given` what was filled in.
    """
    wanted = inspect.signature(page).parameters

    def wrap(handler: Callable[..., Moved]) -> Callable[..., Moved]:
        @functools.wraps(handler)
        def act(**arguments: Any) -> Any:
            body, asked = arguments.get("body"), arguments.get("query")
            try:
                tickets.expect(arguments["caller"], getattr(body, "ticket", "") or getattr(asked, "ticket", ""))
                return handler(**arguments)
            except Unauthenticated:  # the login has ended meanwhile
                raise
            except Refusal as refusal:
                given = msgspec.structs.asdict(body) if isinstance(body, ConsoleForm) else {}
                chosen = {name: value for name, value in arguments.items() if name in wanted and name != "query"}
                return page(
                    **chosen, query=asked if isinstance(asked, query) else query(), refusal=refusal, given=given
                )

        return act

    return wrap


def once(caller: Caller, what: str, body: ConsoleForm, act: Callable[[], Any]) -> Any:
    """What `act` gives; however often a form is sent, it acts once. Its result can be told in JSON.

    Raises StaleForm if the form was sent before with something else in it.
    """
    content = {name: value for name, value in msgspec.structs.asdict(body).items() if name != "ticket"}
    key = body.number or secrets.token_urlsafe(12)
    asked = keeping.Asked(caller.id, f"console: {what}", key[:64], repr(content).encode())
    try:
        answer, _ = keeping.once(asked, lambda: msgspec.json.encode({"made": act()}))
    except IdempotencyKeyReused:
        raise StaleForm(SENT_BEFORE) from None
    return msgspec.json.decode(answer)["made"]


def plain(text: str) -> str:
    """A text from a form: browsers end lines as computers of old did."""
    return text.replace("\r\n", "\n").strip()
