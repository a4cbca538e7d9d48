"""What somebody says of themselves and wants of the service; their picture, logins, clients and password."""

from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from service import formats, pictures
from service.auth import credentials, passwords
from service.console import faces, frame
from service.console.frame import ConsoleForm, OptionalUuid
from service.errors import InvalidBody, NotFound
from service.models import Avatar, LoginSession, User
from service.models.people import Caller
from service.operations import FORM, KIB, Routes
from service.settings import Settings as Installation
from service.shapes import Writes
from service.signature import BINARY, Cursor, File, Html, Moved, Origin, Upload

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

PROFILE = ("display_name", "first_name", "last_name", "locale", "phone", "timezone")
CHANGES = Writes(User, *PROFILE, partial=True)


class Flash(Struct):
    """What was done before."""

    done: str = ""


class PersonForm(ConsoleForm, kw_only=True):
    """What somebody says of themselves, or wants of the service."""

    act: Literal["profile", "settings"]
    display_name: str = ""
    first_name: str = ""
    last_name: str = ""
    locale: str = ""
    phone: str = ""
    timezone: str = ""
    theme: str = ""
    language: str = ""
    chat_language: str = ""
    email_enabled: bool = False
    push_enabled: bool = False
    marketing_enabled: bool = False
    muted_until: str = ""
    share_analytics: bool = False
    share_crash_reports: bool = False
    show_read_receipts: bool = False
    show_typing_indicator: bool = False


class Ticket(Struct):
    """The ticket of a form that holds a file."""

    ticket: str = ""
    done: str = ""


class PictureForm(Upload):
    """A new picture."""

    avatar: Annotated[
        Any, File(5 * 1024 * KIB), Meta(description="JPEG, PNG or WebP; at most 5 MiB.", extra_json_schema=BINARY)
    ]


class Logins(Struct):
    """Which login sessions."""

    cursor: Cursor = Cursor()
    done: str = ""


class AccountForm(ConsoleForm, kw_only=True):
    """Another password, or a login to be ended; or no picture any more."""

    act: Literal["password", "end", "revoke", "remove_picture"]
    id: OptionalUuid = ""
    current_password: str = ""
    new_password: str = ""


@routes.get("/console/settings", answers=(200, 400, 401))
def show_settings(caller: Caller, query: Flash) -> Html:
    """Your profile and settings, as a page."""
    return settings_page(caller, query)


def settings_page(caller: Caller, query: Flash, **told: Any) -> Html:
    """The page of profile and settings."""
    user = User.get_by_id(caller.id)
    chosen = User.preferences_of(caller.id)
    held = {name: getattr(user, name) for name in PROFILE}
    held |= {**chosen["appearance"], **chosen["notifications"], **chosen["privacy"]}
    held |= {"chat_language": chosen["chat_language"]}
    held["muted_until"] = frame.times_of(user).field(held["muted_until"])
    given = told.get("given") or {}
    form = {"profile": set(PROFILE), "settings": set(held) - set(PROFILE)}.get(given.get("act", ""), set())
    held |= {name: given[name] for name in form}
    zones = sorted(formats.time_zones())
    return frame.show(caller, "settings", "Settings", query=query, done=query.done, held=held, zones=zones, **told)


@routes.post("/console/settings", answers=(303, 400, 401), most=FORM)
@frame.told_on(settings_page, Flash)
def change_person(caller: Caller, body: PersonForm) -> Moved:
    """Change your profile or your settings."""
    if body.act == "profile":
        changes = {name: getattr(body, name).strip() for name in PROFILE}
        User.update_profile(caller.id, CHANGES.read(changes))
        return Moved("/console/settings?done=changed")
    try:
        muted = frame.times_of(User.get_by_id(caller.id)).read(body.muted_until) if body.muted_until else None
    except ValueError as error:
        raise InvalidBody(f"$.muted_until: {error}") from None
    flags = msgspec.structs.asdict(body)
    patch = {
        "appearance": {"theme": body.theme or None, "language": body.language.strip() or None},
        "chat_language": body.chat_language.strip() or None,
        "notifications": {name: flags[name] for name in ("email_enabled", "push_enabled", "marketing_enabled")}
        | {"muted_until": muted},
        "privacy": {
            name: flags[name]
            for name in ("share_analytics", "share_crash_reports", "show_read_receipts", "show_typing_indicator")
        },
    }
    User.patch_preferences(caller.id, patch)
    return Moved("/console/settings?done=changed")


@routes.get("/console/picture", answers=(200, 400, 401))
def show_picture(caller: Caller, query: Flash) -> Html:
    """Your picture, as a page."""
    return picture_page(caller, query)


def picture_page(caller: Caller, query: Flash, **told: Any) -> Html:
    """The page of somebody's picture."""
    return frame.show(caller, "picture", "Your picture", query=query, done=query.done, active="settings", **told)


@routes.post("/console/picture", answers=(303, 400, 401, 413, 415, 503), most=6 * 1024 * KIB)
@frame.told_on(picture_page, Flash)
def change_picture(caller: Caller, query: Ticket, body: PictureForm, settings: Installation) -> Moved:
    """Show another picture of yourself."""
    Avatar.replace_by(caller.id, pictures.make_avatar(body.avatar), settings.public_url)
    return Moved("/console/picture?done=picture")


@routes.get("/console/account", answers=(200, 400, 401))
def show_account(caller: Caller, query: Logins) -> Html:
    """Where you are logged in, and what may act for you, as a page."""
    return account_page(caller, query)


def account_page(caller: Caller, query: Logins, **told: Any) -> Html:
    """The page of logins, clients and the password."""
    if (told.get("given") or {}).get("act") == "remove_picture":
        return picture_page(caller, Flash(), **told)
    page = LoginSession.open_of(caller, query.cursor, 25)
    told |= {
        "installs": [login.shown_to(caller) for login in LoginSession.installs_of(caller.id)],
        "shortest": passwords.SHORTEST,
    }
    told |= {"faces": faces, "given": {}}  # passwords are never put into a page
    return frame.show(caller, "account", "Account", page=page, query=query, done=query.done, **told)


@routes.post("/console/account", answers=(303, 400, 401, 404), most=FORM)
@frame.told_on(account_page, Logins)
def change_account(caller: Caller, body: AccountForm, origin: Origin, settings: Installation) -> Moved:
    """Give yourself another password, end one of your logins, or take your picture away."""
    if body.act == "remove_picture":
        Avatar.remove_of(caller.id)
        return Moved("/console/picture?done=removed")
    if body.act == "password":
        if not passwords.SHORTEST <= len(body.new_password) <= passwords.LONGEST:
            raise InvalidBody(f"Choose a password of at least {passwords.SHORTEST} characters.")
        if not body.current_password:
            raise InvalidBody("Enter your current password, too.")
        credentials.change_password(caller, body.current_password, body.new_password, origin.address, settings)
        return Moved("/console/account?done=password")
    with suppress(NotFound):  # ended long ago
        LoginSession.reach(caller, body.id).end("install_revoked" if body.act == "revoke" else "login_ended")
    return Moved(f"/console/account?done={'revoked' if body.act == 'revoke' else 'ended'}")
