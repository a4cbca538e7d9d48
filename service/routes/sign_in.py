"""Signing in and out with a browser (contract, section 10)."""

from typing import Annotated

from msgspec import Meta, Struct

from service.auth import credentials, sign_in
from service.errors import InvalidCredentials, RateLimited, StaleForm, Unauthenticated
from service.models.people import Caller
from service.operations import FORM, Routes
from service.settings import Settings
from service.signature import Form, Html, Moved, Origin

routes = Routes("Pages", prefix="", extension=True, produces="text/html")

Next = Annotated[str, Meta(description="Where to go on: a path of this site."), sign_in.own_path]


class Going(Struct):
    """Where somebody was going."""

    next: Next = "/"


class SignInForm(Form):
    """What a person signs in with."""

    email: Annotated[str, Meta(min_length=1)]
    password: Annotated[str, Meta(min_length=1)]
    ticket: str


class SignOutForm(Form):
    """Where to go on after signing out."""

    next: Next = "/"


@routes.get(sign_in.PATH, answers=(200, 400), public=True)
def show_sign_in(query: Going, origin: Origin) -> Html:
    """Ask for an e-mail address and a password."""
    return sign_in.form(origin, query.next)


@routes.post(sign_in.PATH, answers=(303, 400, 401), public=True, most=FORM, raises=(InvalidCredentials, StaleForm))
def sign_in_browser(query: Going, body: SignInForm, origin: Origin, settings: Settings) -> Moved:
    """Sign in with a browser."""
    sign_in.expect_own_form(origin, body.ticket)
    try:
        with credentials.logging_in(body.email, body.password, origin.address, settings) as user_id:
            return Moved(query.next, sign_in.begin(user_id, origin))
    except (Unauthenticated, RateLimited) as refusal:
        refusal.given = {"email": body.email}
        raise


@routes.post("/sign-out", answers=(303, 400, 401), most=FORM)
def sign_out_browser(caller: Caller, body: SignOutForm, origin: Origin) -> Moved:
    """Sign out."""
    return Moved(body.next, sign_in.end(caller, origin))
