"""The pages of the e-mails that a demo stores in place of sending them, for admins."""

from msgspec import Struct

from service import clock
from service.api.operations import Routes
from service.api.parameter_types import Cursor, HtmlPage, Media
from service.console import layout
from service.models import StoredMail
from service.models.callers import Caller
from service.models.stored_mails import LIFETIME, MAX_MAILS
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)


class MailsQuery(Struct):
    """A position in the list."""

    cursor: Cursor = Cursor()


@routes.get("/console/mails", statuses=(200, 400, 401, 403))
def show_mails(caller: Caller, query: MailsQuery) -> HtmlPage:
    """Show the page of the stored e-mails (admins only)."""
    page = StoredMail.list_page(query.cursor, layout.PAGE_ROWS)
    days = LIFETIME // clock.DAY
    return layout.show(caller, "mails", gettext("E-mails"), page=page, query=query, count=MAX_MAILS, days=days)


@routes.get("/console/mails/{id}", statuses=(200, 400, 401, 403, 404))
def show_mail(caller: Caller, mail: StoredMail) -> HtmlPage:
    """Show an e-mail: its headers and its text part (admins only)."""
    message = mail.message
    return layout.show(
        caller, "mail", mail.subject, active="mails", mail=mail, headers=message.items(), text=mail.part("plain")
    )


@routes.get("/console/mails/{id}/html", statuses=(200, 304, 400, 401, 403, 404), produces="text/html; charset=utf-8")
def get_mail_html(mail: StoredMail) -> Media:
    """Get the HTML part of an e-mail, as a document without rights (admins only)."""
    return Media(mail.part("html").encode(), personal=True)
