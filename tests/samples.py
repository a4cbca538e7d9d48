"""Operations that exist for the tests only: they need the rules of the wire that no present operation shows."""

from typing import Annotated, Any, Literal

import msgspec
import peewee
import pytest
from msgspec import Meta, Raw, Struct

from service import clock
from service.db import Order, Page, page, render
from service.errors import GrantLimitReached, PinLimitReached
from service.fields import AnyUuid, Int64
from service.models import App, ChatSession, Notification
from service.models.people import Caller
from service.operations import Operation, Routes
from service.routes import operations
from service.settings import Settings
from service.signature import Bare, Cursor, Html, LowerBound, Origin, UpperBound
from service.web import build_app
from tests.conftest import Client

routes = Routes("Samples", extension=True)
pages = Routes("Samples", extension=True, produces="text/html")

NOBODY = "00000000-0000-4000-8000-000000000000"


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
    mood: Annotated[Literal["", "glad"], Meta(description="How the app feels.")] = ""
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


class Told(Struct):
    text: str


class ToldBarely(Bare):
    text: str


@routes.post("/apps", answers=(201, 400))
def create_app(caller: Caller, body: NewApp) -> Annotated[Raw, App]:
    """Make an app."""
    made = App.create(name=body.name)
    if body.fails:
        raise RuntimeError("after the app was made")
    return render(App, made.id)


@routes.post("/other-apps", answers=(201, 400))
def create_other_app(caller: Caller, body: NewApp) -> Annotated[Raw, App]:
    """Make an app elsewhere."""
    return create_app(caller, body)


@routes.get("/inbox", answers=(200,), meta=("next_cursor", "page", "per_page", "total", "unread_count"))
def list_inbox(caller: Caller, query: InboxWindow) -> Page[Notification]:
    """Notifications, newest first."""
    mine = Notification.select().where(Notification.user_id == caller.id)
    unread = mine.where(Notification.read_at.is_null())
    chosen = unread if query.unread_only else mine
    chosen = chosen.where(Notification.created_at.between(query.since, query.until))
    order = [Order(Notification.created_at, descending=True), Order(Notification.id)]
    return page(chosen, order, query.cursor, query.limit, total=chosen.count(), unread_count=unread.count())


@routes.patch("/inbox", answers=(200,))
def count_older(caller: Caller, body: CutOff) -> Selected:
    """Count the notifications before a cut-off."""
    return Selected(Notification.select().where(Notification.created_at < body.before).count())


@routes.get("/apps", answers=(200, 400), meta=("next_cursor", "per_page"))
def list_apps(caller: Caller, query: AppFilter) -> Page[App]:
    """Apps by name."""
    found = App.select().where(App.name.contains(query.search))
    return page(found, [Order(App.name), Order(App.id)], query.cursor, query.per_page)


@routes.get("/filters", answers=(200, 400))
def show_filters(caller: Caller, query: AppFilter) -> dict[str, Any]:
    """Say how the query was understood."""
    understood = msgspec.structs.asdict(query)
    del understood["cursor"]
    return understood


@routes.put("/everything", answers=(200, 400))
def echo(caller: Caller, body: Everything) -> Everything:
    """Say how the body was understood."""
    return body


@routes.put("/sessions/{id}", answers=(200, 400, 403, 404))
def touch_session(session: ChatSession, query: AppFilter, body: NewApp) -> Told:
    """Everything that can be checked about a request."""
    return Told(session.id)


@routes.get("/crash", answers=(200, 400))
def crash(caller: Caller, origin: Origin) -> Told:
    """Fail."""
    raise RuntimeError("the secret of the house")


@routes.post("/bare-crash", answers=(200, 400), public=True)
def crash_barely(origin: Origin) -> ToldBarely:
    """Fail where OAuth clients ask."""
    raise RuntimeError("the secret of the house")


@pages.get("/page-crash", answers=(200, 400))
def crash_before_people(caller: Caller) -> Html:
    """Fail where people look."""
    raise RuntimeError("the secret of the house")


@routes.get("/wrong-status", answers=(200,))
def refuse_wrongly(caller: Caller) -> Told:
    """Refuse with a status that is not declared."""
    raise peewee.IntegrityError if caller is None else ChatSession.reach(caller, NOBODY)


@routes.get("/wrong-code", answers=(200, 400), raises=(PinLimitReached,))
def refuse_with_another_code(caller: Caller) -> Told:
    """Refuse with a code that is not declared."""
    raise GrantLimitReached


@routes.get("/wrong-shape", answers=(200,))
def answer_wrongly(caller: Caller) -> Told:
    """Answer with other data than declared."""
    return {"text": 5}  # type: ignore[return-value]


def sample(name: str) -> Operation:
    """The operation of a name."""
    return next(operation for operation in routes if operation.name == name)


@pytest.fixture(name="eve")
def eve_fixture(alice: Client, settings: Settings) -> Client:
    """Alice, calling a service that has the operations of this module too; import this fixture by name."""
    return Client(build_app([*operations(), *routes, *pages], settings), alice.token, alice.user)
