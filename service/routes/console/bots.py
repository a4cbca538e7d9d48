"""Looking for bots, and keeping those of an app that one works for."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from service import formats
from service.console import faces, frame
from service.console.frame import ConsoleForm, OptionalUuid
from service.db import Page
from service.errors import InvalidBody
from service.models import App, Bot, ChatSession
from service.models import conversing as talk
from service.models.people import Caller
from service.operations import FORM, Routes
from service.signature import Cursor, Html, Moved

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

Kind = Literal["nobot", "bot", ""]
Presence = Literal["online", "away", "rsvp", "offline", ""]


class Wanted(Struct):
    """Which bots."""

    app_id: OptionalUuid = ""
    search: str = ""
    category: str = ""
    featured_only: bool = False
    country: Annotated[str, Meta(description="ISO 3166-1 alpha-2, any case."), formats.country] = ""
    city: str = ""
    kind: Kind = ""
    presence: Presence = ""
    cursor: Cursor = Cursor()


class Kept(Struct):
    """Which bots of an app that one works for."""

    app_id: OptionalUuid = ""
    search: str = ""
    status: Literal["draft", "published", ""] = ""
    kind: Kind = ""
    cursor: Cursor = Cursor()
    done: str = ""


class BotForm(ConsoleForm, kw_only=True):
    """With which bot a chat begins."""

    app_id: OptionalUuid = ""
    bot_id: OptionalUuid = ""


class KeepingForm(ConsoleForm, kw_only=True):
    """What becomes of a bot."""

    app_id: OptionalUuid = ""
    bot_id: OptionalUuid = ""
    status: Literal["draft", "published", ""] = ""
    presence: Presence = ""


@routes.get("/console/bots", answers=(200, 400, 401))
def show_bots(caller: Caller, query: Wanted) -> Html:
    """The bots of an app, as a page."""
    return bots_page(caller, query)


def bots_page(caller: Caller, query: Wanted, **told: Any) -> Html:
    """The page of the bots that clients meet."""
    apps = apps_of(caller)
    given = told.get("given") or {}
    query.app_id = query.app_id or given.get("app_id") or (apps[0].id if apps else "")
    page: Page[Any] = Page(b"[]", ())
    if query.app_id:
        page = Bot.feed(
            query.app_id,
            query.cursor,
            24,
            search=query.search,
            country=query.country,
            is_featured=query.featured_only,
            category=query.category,
            city=query.city,
            kind=query.kind,
            presence=query.presence,
        )
    told |= {"apps": apps, "faces": faces_of(page), "links": contacts(page)}
    return frame.show(caller, "bots", "Bots", page=page, query=query, **told)


@routes.post("/console/bots", answers=(303, 400, 401, 404), most=FORM)
@frame.told_on(bots_page, Wanted)
def begin_chat(caller: Caller, body: BotForm) -> Moved:
    """Begin a chat session with a bot."""
    if not body.app_id:
        raise InvalidBody("Choose a bot first.")
    made = frame.once(caller, "begin", body, lambda: talk.begin(caller, body.app_id, body.bot_id or None, None).id)
    return Moved(f"/console/chats/{made}#end")


@routes.get("/console/catalogue", answers=(200, 400, 401, 403, 404), raises=App.reach_raises)
def show_catalogue(caller: Caller, query: Kept) -> Html:
    """All bots of an app that you work for, as a page."""
    return catalogue_page(caller, query)


def catalogue_page(caller: Caller, query: Kept, **told: Any) -> Html:
    """The page of the bots of an app, for its staff."""
    given = told.get("given") or {}
    apps = [app for app in apps_of(caller) if caller.is_staff(app.id)]
    app = App.reach(caller, query.app_id or given.get("app_id") or (apps[0].id if apps else ""))
    query.app_id = app.id
    filters = {"search": query.search, "status": query.status, "kind": query.kind}
    page = Bot.kept_by(app.id, query.cursor, 25, **filters)
    told |= {"apps": apps, "faces": faces_of(page)}
    return frame.show(caller, "catalogue", "Bot catalogue", page=page, query=query, done=query.done, **told)


@routes.post("/console/catalogue", answers=(303, 400, 401, 403, 404), most=FORM, raises=App.reach_raises)
@frame.told_on(catalogue_page, Kept)
def change_bot(caller: Caller, body: KeepingForm) -> Moved:
    """Publish a bot of an app that you work for or make it a draft, or say whether somebody is there for it."""
    app = App.reach(caller, body.app_id)
    bot = Bot.reach(caller, body.bot_id, app)
    if body.status:
        bot.become(Bot.status, body.status, caller)
    if body.presence:
        bot.become(Bot.presence, body.presence, caller)
    return Moved(f"/console/catalogue?app_id={app.id}&done=changed#b-{bot.id}")


def apps_of(caller: Caller) -> list[App]:
    """The apps whose bots somebody may be looking for: where they work, and where they chat; or the only one."""
    if caller.role == "admin":
        return list(App.select().order_by(App.name, App.id))
    chats = ChatSession.select(ChatSession.app_id).where(ChatSession.user_id == caller.id)
    known = list(App.select().where((App.id == caller.app_id) | App.id.in_(chats)).order_by(App.name, App.id))
    every = [] if known else list(App.select().limit(2))
    return known or (every if len(every) == 1 else [])


def faces_of(page: Page[Any]) -> dict[str, faces.Face]:
    """The faces of the bots on a page."""
    return faces.bots(row["id"] for row in msgspec.json.decode(page.rows))


def contacts(page: Page[Any]) -> dict[str, str]:
    """The web addresses of bots that may stand in a link, by the bot's identifier."""
    found: dict[str, str] = {}
    for row in msgspec.json.decode(page.rows):
        try:
            found[row["id"]] = formats.web_address(row["contact_website"])
        except ValueError:  # none, or something that a browser had better not follow
            continue
    return found
