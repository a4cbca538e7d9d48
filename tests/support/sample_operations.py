"""Operations for the tests only, with parameters, bodies and responses that no operation of the service has."""

from typing import Annotated, Any, Literal

import msgspec
import peewee
import pytest
from msgspec import Meta, Raw, Struct

from service import clock
from service.api.operations import Operation, Routes
from service.api.parameter_types import Cursor, HtmlPage, LowerBound, OAuthBody, RequestInfo, UpperBound
from service.db import Order, Page, page, render
from service.errors import GrantLimitReached, PinLimitReached
from service.fields import AnyUuid, Int64
from service.http.application import build_app
from service.models import App, ChatSession, Notification
from service.models.callers import Caller
from service.routes import operations
from service.settings import Settings
from tests.support.client import Client

routes = Routes("Samples", extension=True)
pages = Routes("Samples", extension=True, produces="text/html")

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


class NewApp(Struct):
    name: str
    fails: bool = False


class InboxWindow(Struct):
    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100)] = 25
    unread_only: bool = False
    since: LowerBound = ""
    until: UpperBound = "~"


class AppFilter(Struct):
    app_id: AnyUuid
    cursor: Cursor = Cursor()
    per_page: Annotated[int, Meta(ge=1, le=100)] = 25
    search: Annotated[str, Meta(max_length=20)] = ""
    kind: Literal["", "bot", "nobot"] = ""
    rating: Annotated[Literal["", "good"], Meta(description="Rating of the app.")] = ""
    presence: Literal["online", "away"] | None = None
    featured_only: bool = False
    starts: LowerBound = msgspec.field(name="from", default="")
    ends: UpperBound = msgspec.field(name="to", default="~")


class CutOff(Struct):
    before: str = "~"

    def __post_init__(self) -> None:
        if self.before not in ("", "~"):
            self.before = clock.read_timestamp(self.before)

    @classmethod
    def nothing(cls) -> "CutOff":
        return cls(before="")


class Selected(Struct):
    count: int


class Everything(Struct, omit_defaults=True):
    location: list[Int64] = []
    name: str = ""
    score: float = 0.0
    is_open: bool = False
    kind: Literal["bot", "nobot"] = "nobot"
    anything: Any = None
    inner: "Inner | None" = None


class Inner(Struct):
    numbers: list[int]


class TextResponse(Struct):
    text: str


class OAuthTextResponse(OAuthBody):
    text: str


@routes.post("/sample-apps", statuses=(201, 400))
def create_sample_app(caller: Caller, body: NewApp) -> Annotated[Raw, App]:
    """Create an app."""
    app = App.create(name=body.name)
    if body.fails:
        raise RuntimeError("after the app was created")
    return render(App, app.id)


@routes.post("/other-sample-apps", statuses=(201, 400))
def create_other_sample_app(caller: Caller, body: NewApp) -> Annotated[Raw, App]:
    """Create an app with another operation."""
    return create_sample_app(caller, body)


@routes.get("/inbox", statuses=(200,), meta=("next_cursor", "page", "per_page", "total", "unread_count"))
def list_inbox(caller: Caller, query: InboxWindow) -> Page[Notification]:
    """Notifications, newest first."""
    own = Notification.select().where(Notification.user_id == caller.id)
    unread = own.where(Notification.read_at.is_null())
    selected = unread if query.unread_only else own
    selected = selected.where(Notification.created_at.between(query.since, query.until))
    order = [Order(Notification.created_at, descending=True), Order(Notification.id)]
    return page(selected, order, query.cursor, query.limit, total=selected.count(), unread_count=unread.count())


@routes.patch("/inbox", statuses=(200,))
def count_older(caller: Caller, body: CutOff) -> Selected:
    """Count the notifications before a cut-off."""
    return Selected(Notification.select().where(Notification.created_at < body.before).count())


@routes.get("/sample-apps", statuses=(200, 400), meta=("next_cursor", "per_page"))
def list_sample_apps(caller: Caller, query: AppFilter) -> Page[App]:
    """Apps by name."""
    found = App.select().where(App.name.contains(query.search))
    return page(found, [Order(App.name), Order(App.id)], query.cursor, query.per_page)


@routes.get("/filters", statuses=(200, 400))
def show_filters(caller: Caller, query: AppFilter) -> dict[str, Any]:
    """Return the decoded query."""
    decoded = msgspec.structs.asdict(query)
    del decoded["cursor"]
    return decoded


@routes.put("/everything", statuses=(200, 400))
def echo(caller: Caller, body: Everything) -> Everything:
    """Return the decoded body."""
    return body


@routes.put("/sessions/{id}", statuses=(200, 400, 403, 404))
def touch_session(session: ChatSession, query: AppFilter, body: NewApp) -> TextResponse:
    """Check everything about a request."""
    return TextResponse(session.id)


@routes.get("/crash", statuses=(200, 400))
def crash(caller: Caller, request_info: RequestInfo) -> TextResponse:
    """Fail."""
    raise RuntimeError("an internal detail")


@routes.post("/oauth-crash", statuses=(200, 400), public=True)
def crash_for_oauth(request_info: RequestInfo) -> OAuthTextResponse:
    """Fail in an operation for OAuth clients."""
    raise RuntimeError("an internal detail")


@pages.get("/page-crash", statuses=(200, 400))
def crash_on_page(caller: Caller) -> HtmlPage:
    """Fail on a page."""
    raise RuntimeError("an internal detail")


@routes.get("/wrong-status", statuses=(200,))
def raise_undeclared_status(caller: Caller) -> TextResponse:
    """Raise an error with a status that is not declared."""
    ChatSession.get_for(caller, UNKNOWN_ID)
    raise peewee.IntegrityError


@routes.get("/wrong-code", statuses=(200, 400), errors=(PinLimitReached,))
def raise_undeclared_code(caller: Caller) -> TextResponse:
    """Raise an error with a code that is not declared."""
    raise GrantLimitReached


@routes.get("/wrong-shape", statuses=(200,))
def return_undeclared_type(caller: Caller) -> TextResponse:
    """Return another type than declared."""
    return {"text": 5}  # type: ignore[return-value]


def sample(name: str) -> Operation:
    """Return the operation with a name."""
    return next(operation for operation in routes if operation.name == name)


@pytest.fixture(name="eve")
def eve_fixture(alice: Client, settings: Settings) -> Client:
    """Return a client of Alice for a service with these operations added; import this fixture by name."""
    return Client(build_app([*operations(), *routes, *pages], settings), alice.token, alice.user)
