"""The page that creates the first admin."""

import functools
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

from service import clock
from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Form, HtmlPage, Redirect, RequestInfo
from service.auth import credentials, first_admin, passwords
from service.console import layout, sign_in
from service.db import write
from service.errors import ApiError, InvalidBody, InvalidSetupLink, StaleForm, UserExists
from service.models.users import ADMINS
from service.operate import starter_content

routes = Routes("Pages", prefix="", extension=True, produces="text/html", public=True)

Token = Annotated[str, Meta(description="The token of the link that `serve` prints while there is no admin.")]


class SetupQuery(Struct):
    """The token of the link."""

    token: Token = ""


class SetupForm(Form):
    """The first admin."""

    csrf_token: str
    token: Token = ""
    email: str = ""
    display_name: Annotated[str, Meta(max_length=100)] = ""
    password: str = ""
    starter: Annotated[str, Meta(description="Not empty: add an app, and a bot with canned answers.")] = ""


@routes.get(first_admin.PATH, statuses=(200, 400), errors=(InvalidSetupLink,))
def show_setup(query: SetupQuery, request_info: RequestInfo) -> HtmlPage:
    """Show the page that creates the first admin."""
    first_admin.expect_token(query.token)
    return _page(request_info, SetupForm(csrf_token="", token=query.token, starter="yes"))


def shows_errors(handler: Callable[..., Redirect]) -> Callable[..., Redirect | HtmlPage]:
    """Decorate the handler of the form: show errors in its values on the page."""

    @functools.wraps(handler)
    def handle(body: SetupForm, request_info: RequestInfo) -> Redirect | HtmlPage:
        try:
            return handler(body, request_info)
        except (InvalidBody, UserExists) as error:
            return _page(request_info, body, error)

    return handle


@routes.post(first_admin.PATH, statuses=(303, 400), max_body=MAX_FORM, errors=(InvalidSetupLink, StaleForm, UserExists))
@shows_errors
def create_first_admin(body: SetupForm, request_info: RequestInfo) -> Redirect:
    """Create the first admin, and sign in."""
    sign_in.expect_own_form(request_info, body.csrf_token)
    first_admin.expect_token(body.token)  # before the slow hash
    email, password_hash = credentials.read_email(body.email), credentials.hash_new_password(body.password)
    with write(ADMINS):
        columns = {"email": email, "password_hash": password_hash, "display_name": body.display_name}
        admin = first_admin.create(body.token, **columns, last_login_at=clock.timestamp())
        if body.starter:
            starter_content.add()
        return Redirect("/", sign_in.begin(admin.id, request_info))


def _page(request_info: RequestInfo, form: SetupForm, error: ApiError | None = None) -> HtmlPage:
    """Return the page, with the values of a form but its password."""
    message = layout.error_text(error) if error else ""
    limits = {"min_password_length": passwords.MIN_LENGTH}
    return sign_in.form_page("setup.html", request_info, error=error, form=form, message=message, **limits)
