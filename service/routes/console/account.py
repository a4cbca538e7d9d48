"""The pages of profile and settings, of the profile picture, and of the account: login sessions and password."""

from contextlib import suppress
from typing import Literal

from msgspec import Struct

from service import pictures, translation, validators
from service.api.operations import KIB, MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, PictureFile, Redirect, RequestInfo, Upload
from service.api.schemas import BodyColumns
from service.auth import account_mail, credentials, passwords
from service.console import display_names, layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.errors import InvalidBody, MailNotConfigured, NotFound
from service.models import Avatar, Delivery, LoginSession, User
from service.models.callers import Caller
from service.models.deliveries import SWITCHES, Channel
from service.settings import Settings
from service.translation import gettext, ngettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

PROFILE = ("display_name", "first_name", "last_name", "locale", "phone", "timezone")
PRIVACY_SWITCHES = (
    "show_read_receipts",
    "show_typing_indicator",
)  # the service collects no usage data and no crash reports
CHANGES = BodyColumns(User, *PROFILE, partial=True)


class SuccessQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class SettingsForm(ConsoleForm, kw_only=True):
    """Profile or settings."""

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
    show_read_receipts: bool = False
    show_typing_indicator: bool = False
    muted_until: str = ""


class PictureQuery(Struct):
    """The CSRF token of the upload form, whose body contains only the file."""

    csrf_token: str = ""
    done: str = ""


class PictureForm(Upload):
    """The image file of a new profile picture."""

    avatar: PictureFile


class AccountQuery(Struct):
    """Filter of the login sessions: command-line clients, or browsers and apps."""

    clients: bool = False
    cursor: Cursor = Cursor()
    done: str = ""


class AccountForm(ConsoleForm, kw_only=True):
    """A new password, a login session to end, the removal of the profile picture, or a verification of the address."""

    act: Literal["password", "end", "revoke", "remove_picture", "verify"]
    id: OptionalUuid = ""
    current_password: str = ""
    new_password: str = ""


@routes.get("/console/settings", statuses=(200, 400, 401))
def show_settings(caller: Caller, query: SuccessQuery) -> HtmlPage:
    """Show the page of profile and settings."""
    return settings_page(caller, query)


def settings_page(caller: Caller, query: SuccessQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of profile and settings."""
    user = User.get_by_id(caller.id)
    preferences = User.preferences_of(caller.id)
    current = {name: getattr(user, name) for name in PROFILE}
    current |= {**preferences["appearance"], **preferences["notifications"]}
    current |= {name: preferences["privacy"][name] for name in PRIVACY_SWITCHES}
    current |= {"chat_language": preferences["chat_language"], "language": User.chosen_language(caller.id)}
    current["muted_until"] = layout.times_of(caller).field(current["muted_until"])
    names = {"profile": set(PROFILE), "settings": set(current) - set(PROFILE)}.get(failure.values.get("act", ""), set())
    current |= {name: failure.values[name] for name in names}
    own = {current["language"]: current["language"]} if current["language"] else {}  # may have no translation
    return layout.show(
        caller,
        "settings",
        gettext("Settings"),
        query=query,
        done=query.done,
        current=current,
        zones=sorted(validators.time_zones()),
        languages=own | translation.LANGUAGES,
        switches=offered_switches(),
        privacy_switches=PRIVACY_SWITCHES,
        channels=configured_channels(),
        failure=failure,
    )


@routes.post("/console/settings", statuses=(303, 400, 401), max_body=MAX_FORM)
@layout.form_handler(settings_page, SuccessQuery)
def change_person(caller: Caller, body: SettingsForm) -> Redirect:
    """Update your profile or settings."""
    if body.act == "profile":
        changes = {name: getattr(body, name).strip() for name in PROFILE}
        User.update_profile(caller.id, CHANGES.read(changes))
        return Redirect("/console/settings?done=changed")
    try:
        muted = layout.times_of(caller).read(body.muted_until) if body.muted_until else None
    except ValueError as error:
        raise InvalidBody(f"$.muted_until: {error}") from None
    notifications = {name: getattr(body, name) for name in offered_switches()}
    if configured_channels():
        notifications["muted_until"] = muted
    patch = {
        "appearance": {"theme": body.theme or None, "language": body.language.strip() or None},
        "chat_language": body.chat_language.strip() or None,
        "notifications": notifications,
        "privacy": {name: getattr(body, name) for name in PRIVACY_SWITCHES},
    }
    User.patch_preferences(caller.id, patch)
    return Redirect("/console/settings?done=changed")


def configured_channels() -> list[Channel]:
    """Return the channels through which this installation delivers notifications."""
    return [channel for channel in SWITCHES if Delivery.is_configured(channel)]


def offered_switches() -> list[str]:
    """Return the settings of notifications that have an effect in this installation and are on or off."""
    return [*(SWITCHES[channel] for channel in configured_channels()), "marketing_enabled"]


@routes.get("/console/picture", statuses=(200, 400, 401))
def show_picture(caller: Caller, query: SuccessQuery) -> HtmlPage:
    """Show the page of the profile picture."""
    return picture_page(caller, query)


def picture_page(caller: Caller, query: SuccessQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of the profile picture."""
    return layout.show(
        caller, "picture", gettext("Profile picture"), query=query, done=query.done, active="settings", failure=failure
    )


@routes.post("/console/picture", statuses=(303, 400, 401, 413, 415, 503), max_body=6 * 1024 * KIB)
@layout.form_handler(picture_page, SuccessQuery)
def change_picture(caller: Caller, query: PictureQuery, body: PictureForm, settings: Settings) -> Redirect:
    """Upload a profile picture."""
    Avatar.set_for(caller.id, pictures.make_avatar(body.avatar), settings.public_url)
    return Redirect("/console/picture?done=picture")


@routes.get("/console/account", statuses=(200, 400, 401))
def show_account(caller: Caller, query: AccountQuery) -> HtmlPage:
    """Show the page of login sessions and the password."""
    return account_page(caller, query)


def account_page(caller: Caller, query: AccountQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of login sessions and the password."""
    if failure.values.get("act") == "remove_picture":
        return picture_page(caller, SuccessQuery(), failure)
    page = LoginSession.list_open(caller, query.cursor, layout.PAGE_ROWS, clients=query.clients)
    return layout.show(
        caller,
        "account",
        gettext("Account"),
        page=page,
        query=query,
        done=query.done,
        failure=FormFailure(failure.error),  # without the values: a page never contains a password
        clip=layout.clip,
        client_name=display_names.client_name,
        is_verified=User.get_by_id(caller.id).is_verified,
        sends_mail=Delivery.is_configured("email"),
        min_password_length=passwords.MIN_LENGTH,
    )


@routes.post("/console/account", statuses=(303, 400, 401, 404), max_body=MAX_FORM, errors=(MailNotConfigured,))
@layout.form_handler(account_page, AccountQuery)
def change_account(caller: Caller, body: AccountForm, request_info: RequestInfo, settings: Settings) -> Redirect:
    """Change your password, end a login session, or remove the profile picture."""
    if body.act == "remove_picture":
        Avatar.remove_for(caller.id)
        return Redirect("/console/picture?done=removed")
    if body.act == "verify":
        sent = account_mail.request_verification(caller, request_info.address)
        return Redirect(f"/console/account?done={'verification_sent' if sent else 'verified'}")
    if body.act == "password":
        if not passwords.MIN_LENGTH <= len(body.new_password) <= passwords.MAX_LENGTH:
            raise InvalidBody(
                ngettext(
                    "The new password needs at least {count} character.",
                    "The new password needs at least {count} characters.",
                    passwords.MIN_LENGTH,
                )
            )
        if not body.current_password:
            raise InvalidBody("Enter your current password.")
        credentials.change_password(caller, body.current_password, body.new_password, request_info.address, settings)
        return Redirect("/console/account?done=password")
    with suppress(NotFound):  # already ended
        LoginSession.get_for(caller, body.id).end("install_revoked" if body.act == "revoke" else "login_ended")
    return Redirect(f"/console/account?{'clients=true&done=revoked' if body.act == 'revoke' else 'done=ended'}")
