"""The page of the branding of the installation, for admins."""

from msgspec import Struct

from service.api.operations import KIB, MAX_FORM, Routes
from service.api.parameter_types import MAX_PICTURE, HtmlPage, PictureFile, Redirect, Upload
from service.branding import make_logo, values_of
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.errors import Busy, ImageTooLarge, ImageUnreadable, InvalidBody, UnsupportedMediaType
from service.models import StoredBranding
from service.models.callers import Caller
from service.settings import Settings, colour, short_text
from service.translation import gettext, gettext_noop

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)

SHORT_TEXT = short_text, gettext_noop("expected a text of at most 200 characters in one line")
READERS = {
    "name": SHORT_TEXT,
    "contact": SHORT_TEXT,
    "accent": (colour, gettext_noop("expected a colour such as #0b6e5f")),
}
DEFAULT_ACCENT = "#0b6e5f"  # of static/style.css in light mode


class BrandingQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class BrandingForm(ConsoleForm, kw_only=True):
    """Name, contact and accent colour. Members that settings determine are ignored."""

    name: str = ""
    contact: str = ""
    has_accent: bool = False
    accent: str = ""


class LogoQuery(Struct):
    """The CSRF token of the form, whose body contains only the file."""

    csrf_token: str = ""


class LogoUpload(Upload):
    """The image file of a logo."""

    picture: PictureFile


@routes.get("/console/branding", statuses=(200, 400, 401, 403))
def show_branding(caller: Caller, query: BrandingQuery, settings: Settings) -> HtmlPage:
    """Show the page of the branding of the installation (admins only)."""
    return branding_page(caller, query, settings)


def branding_page(
    caller: Caller, query: BrandingQuery, settings: Settings, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page of the branding of the installation."""
    stored = StoredBranding.values()
    return layout.show(
        caller,
        "branding",
        gettext("Branding"),
        done=query.done,
        failure=failure,
        fixed=values_of(settings),
        stored=stored,
        current=stored._asdict() | {"has_accent": bool(stored.accent)} | failure.values,
        default_accent=DEFAULT_ACCENT,
        max_picture=MAX_PICTURE,
    )


@routes.post("/console/branding", statuses=(303, 400, 401, 403), max_body=MAX_FORM)
@layout.form_handler(branding_page, BrandingQuery)
def change_branding(caller: Caller, body: BrandingForm, settings: Settings) -> Redirect:
    """Change the name, contact and accent colour of the installation (admins only)."""
    fixed, values = values_of(settings), {"name": body.name, "contact": body.contact, "accent": body.accent}
    if not body.has_accent:
        values["accent"] = ""
    columns = {name: read(name, text) for name, text in values.items() if not getattr(fixed, name)}
    StoredBranding.edit(caller.id, **columns)
    return Redirect("/console/branding?done=changed")


def read(name: str, text: str) -> str:
    """Return the text to store. Raises InvalidBody."""
    reader, message = READERS[name]
    try:
        return reader(text) if text else ""
    except ValueError:
        raise InvalidBody(f"$.{name}: {message}") from None


@routes.post(
    "/console/branding/logo",
    statuses=(303, 400, 401, 403, 413, 415, 503),
    max_body=6 * 1024 * KIB,
    errors=(Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType),
)
@layout.form_handler(branding_page, BrandingQuery)
def change_logo(caller: Caller, query: LogoQuery, body: LogoUpload, settings: Settings) -> Redirect:
    """Upload the logo of the installation (admins only)."""
    StoredBranding.edit(caller.id, logo=make_logo(body.picture))
    return Redirect("/console/branding?done=picture")


@routes.post("/console/branding/logo/removal", statuses=(303, 400, 401, 403), max_body=MAX_FORM)
@layout.form_handler(branding_page, BrandingQuery)
def remove_logo(caller: Caller, body: ConsoleForm, settings: Settings) -> Redirect:
    """Remove the logo of the installation (admins only)."""
    StoredBranding.edit(caller.id, logo="")
    return Redirect("/console/branding?done=removed")
