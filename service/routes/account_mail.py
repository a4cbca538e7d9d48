"""The pages that the links in e-mails open, the request of a new password, and of the verification of an address."""

from typing import Annotated

from msgspec import Meta, Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Form, HtmlPage, RequestInfo
from service.auth import account_mail, credentials, mail_links, passwords
from service.auth.consent import ACCOUNT
from service.console import layout, sign_in
from service.errors import ApiError, InvalidBody, InvalidMailLink, MailNotConfigured, RateLimited, StaleForm
from service.models.callers import Caller
from service.translation import gettext

account = Routes("Profile and settings", scope=ACCOUNT, extension=True)
routes = Routes("Pages", prefix="", extension=True, produces="text/html", public=True)

Token = Annotated[str, Meta(description="The token of a link in an e-mail.")]


class Verification(Struct):
    """Whether an e-mail with a link was queued; false if the address is verified already."""

    sent: bool


class LinkQuery(Struct):
    """The token of the link."""

    token: Token = ""


class AddressForm(Form):
    """The e-mail address of the user who needs a new password."""

    csrf_token: str
    email: str = ""


class PasswordForm(Form):
    """A new password."""

    csrf_token: str
    token: Token = ""
    new_password: str = ""


@account.post(
    "/users/me/email-verification",
    statuses=(200, 401, 404),
    errors=(MailNotConfigured,),
)
def request_email_verification(caller: Caller, request_info: RequestInfo) -> Verification:
    """Send an e-mail with a link that verifies your address. 404 if the service sends no e-mails."""
    return Verification(account_mail.request_verification(caller, request_info.address))


@routes.get(mail_links.VERIFICATION, statuses=(200, 400), errors=(InvalidMailLink,))
def show_verification(query: LinkQuery) -> HtmlPage:
    """Show the page with the button that verifies an e-mail address."""
    user = mail_links.user_to_verify(query.token)
    text = gettext("Verify that {email} is your address.", email=user.email)
    action = f"{mail_links.VERIFICATION}?token={query.token}"
    return _page(gettext("Verify your e-mail address"), text, button=gettext("Verify e-mail address"), action=action)


@routes.post(mail_links.VERIFICATION, statuses=(200, 400), errors=(InvalidMailLink,))
def verify_email(query: LinkQuery) -> HtmlPage:
    """Verify an e-mail address."""
    account_mail.verify_address(query.token)
    return _page(gettext("Your e-mail address is verified"), gettext("You can close this page."))


@routes.get(mail_links.UNSUBSCRIPTION, statuses=(200, 400), errors=(InvalidMailLink,))
def show_unsubscription(query: LinkQuery) -> HtmlPage:
    """Show the page with the button that turns e-mails for notifications off."""
    user = mail_links.user_to_unsubscribe(query.token)
    text = gettext("Stop the e-mails for notifications to {email}.", email=user.email)
    action = f"{mail_links.UNSUBSCRIPTION}?token={query.token}"
    return _page(gettext("Unsubscribe"), text, button=gettext("Unsubscribe"), action=action)


@routes.post(mail_links.UNSUBSCRIPTION, statuses=(200, 400), errors=(InvalidMailLink,))
def unsubscribe_user(query: LinkQuery) -> HtmlPage:
    """Turn e-mails for notifications off, with one click in a mail program (RFC 8058)."""
    account_mail.unsubscribe(query.token)
    text = gettext("You get no more e-mails for notifications. You can turn them on again in your settings.")
    return _page(gettext("Unsubscribed"), text)


@routes.get("/forgot-password", statuses=(200, 404), errors=(MailNotConfigured,))
def show_forgotten_password(request_info: RequestInfo) -> HtmlPage:
    """Show the page that requests an e-mail for a new password."""
    account_mail.require_configured()
    return sign_in.form_page("forgot-password.html", request_info, email="", message="")


@routes.post("/forgot-password", statuses=(200, 400, 404), max_body=MAX_FORM, errors=(MailNotConfigured, StaleForm))
def request_new_password(body: AddressForm, request_info: RequestInfo) -> HtmlPage:
    """Send an e-mail with which a user chooses a new password. The response is the same for unknown addresses."""
    sign_in.expect_own_form(request_info, body.csrf_token)
    try:
        account_mail.request_password(credentials.read_email(body.email), request_info.address)
    except (InvalidBody, RateLimited) as error:
        values = {"email": body.email, "message": layout.error_text(error)}
        return sign_in.form_page("forgot-password.html", request_info, error=error, **values)
    text = gettext("If there is an account with this address, an e-mail with a link is on its way to it.")
    return _page(gettext("Look into your e-mails"), text)


@routes.get(mail_links.PASSWORD, statuses=(200, 400), errors=(InvalidMailLink,))
def show_new_password(query: LinkQuery, request_info: RequestInfo) -> HtmlPage:
    """Show the page on which a user chooses a password."""
    return _password_page(request_info, query.token)


@routes.post(mail_links.PASSWORD, statuses=(200, 400), max_body=MAX_FORM, errors=(InvalidMailLink, StaleForm))
def set_new_password(body: PasswordForm, request_info: RequestInfo) -> HtmlPage:
    """Choose a password. Signs out all sessions of the user."""
    sign_in.expect_own_form(request_info, body.csrf_token)
    try:
        account_mail.set_password(body.token, body.new_password)
    except InvalidBody as error:
        return _password_page(request_info, body.token, error)
    return _page(gettext("Your password is set"), gettext("Sign in with your new password."), link=sign_in.PATH)


def _page(title: str, text: str, *, button: str = "", action: str = "", link: str = "") -> HtmlPage:
    values = {"title": title, "text": text, "button": button, "action": action, "link": link}
    return HtmlPage("mail-link.html", values)


def _password_page(request_info: RequestInfo, token: str, error: ApiError | None = None) -> HtmlPage:
    values = {"email": mail_links.user_to_reset(token).email, "min_password_length": passwords.MIN_LENGTH}
    message = layout.error_text(error) if error else ""
    return sign_in.form_page("reset-password.html", request_info, error=error, token=token, message=message, **values)
