"""Sign-in and sign-out in a browser."""

from typing import Annotated

from msgspec import Meta, Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Form, HtmlPage, Redirect, RequestInfo
from service.auth import credentials
from service.console import sign_in
from service.errors import InvalidCredentials, RateLimited, StaleForm, Unauthenticated
from service.models.callers import Caller
from service.settings import Settings

routes = Routes("Pages", prefix="", extension=True, produces="text/html")

NextPath = Annotated[str, Meta(description="Path of this site to open next."), sign_in.local_path]


class SignInQuery(Struct):
    """The page to open after sign-in."""

    next: NextPath = "/"


class SignInForm(Form):
    """E-mail address and password."""

    email: Annotated[str, Meta(min_length=1)]
    password: Annotated[str, Meta(min_length=1)]
    csrf_token: str


class SignOutForm(Form):
    """The page to open after sign-out."""

    next: NextPath = "/"


@routes.get(sign_in.PATH, statuses=(200, 400), public=True)
def show_sign_in(query: SignInQuery, request_info: RequestInfo) -> HtmlPage:
    """Show the sign-in page."""
    return sign_in.form(request_info, query.next)


@routes.post(
    sign_in.PATH, statuses=(303, 400, 401), public=True, max_body=MAX_FORM, errors=(InvalidCredentials, StaleForm)
)
def sign_in_browser(query: SignInQuery, body: SignInForm, request_info: RequestInfo, settings: Settings) -> Redirect:
    """Sign in with a browser."""
    sign_in.expect_own_form(request_info, body.csrf_token)
    try:
        with credentials.logging_in(body.email, body.password, request_info.address, settings) as user_id:
            return Redirect(query.next, sign_in.begin(user_id, request_info))
    except (Unauthenticated, RateLimited) as error:
        error.form_values = {"email": body.email}
        raise


@routes.post("/sign-out", statuses=(303, 400, 401), max_body=MAX_FORM)
def sign_out_browser(caller: Caller, body: SignOutForm, request_info: RequestInfo) -> Redirect:
    """Sign out with a browser."""
    return Redirect(body.next, sign_in.end(caller, request_info))
