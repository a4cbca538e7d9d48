"""Logging in and out, tokens, login sessions, passwords (section 4.1 of the document; contract, section 3)."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from service.auth import credentials, passwords, tokens
from service.auth.consent import ACCOUNT
from service.auth.tokens import Tokens
from service.db import Page, render
from service.errors import InsufficientScope, InvalidCredentials, InvalidToken, WrongPassword
from service.models import LoginSession, User
from service.models.people import Caller, Login
from service.operations import Routes
from service.settings import Settings
from service.signature import Cursor, Origin

routes = Routes("Authentication")
account = Routes("Authentication", scope=ACCOUNT, extension=True)


class Credentials(Struct):
    """What a person logs in with."""

    email: Annotated[str, Meta(min_length=1)]
    password: Annotated[str, Meta(min_length=1)]


class LoggedIn(Struct):
    """The tokens of a new login session, and whose it is."""

    tokens: Tokens
    user: Annotated[Raw, User]


class Refresh(Struct):
    """A refresh token to trade in."""

    refresh_token: str


class Refreshed(Struct):
    """The next pair of tokens."""

    tokens: Tokens


class Logout(Struct):
    """Which login sessions to end: this one, or all of the user's."""

    scope: Literal["local", "global"] = "local"


class LoggedOut(Struct):
    """The login session has ended."""

    logged_out: bool


class LoginWindow(Struct):
    """How many login sessions."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100)] = 25


class Ended(Struct):
    """The login session has ended, and its tokens with it."""

    ended: bool


class NewPassword(Struct):
    """Another password, and the proof that it is the owner who wants it."""

    current_password: Annotated[str, Meta(min_length=1)]
    new_password: Annotated[str, Meta(min_length=passwords.SHORTEST, max_length=passwords.LONGEST)]


class Changed(Struct):
    """The password is another one."""

    changed: bool


@routes.post(
    "/auth/login",
    answers=(200, 400, 401),
    public=True,
    raises=(InvalidCredentials,),
    example={"email": "alice@demo.example", "password": "demo-password"},
    runs="slow",
)
def log_in(body: Credentials, origin: Origin, settings: Settings) -> LoggedIn:
    """Log in with an e-mail address and a password."""
    with credentials.logging_in(body.email, body.password, origin.address, settings) as user_id:
        pair = tokens.begin(user_id, settings, origin.user_agent)
        return LoggedIn(pair, render(User, user_id))


@routes.post(
    "/auth/refresh",
    answers=(200, 400, 401),
    public=True,
    extension=True,
    raises=(InvalidToken,),
    example={"refresh_token": "cxr_…"},
)
def refresh_tokens(body: Refresh, settings: Settings) -> Refreshed:
    """Trade a refresh token for a new pair of tokens."""
    return Refreshed(tokens.rotate(body.refresh_token, settings))


@routes.post(
    "/auth/logout",
    answers=(200, 400, 401),
    extension=True,
    example={"scope": "local"},
)
def log_out(caller: Caller, body: Logout) -> LoggedOut:
    """End this login session, or with scope `global` all of them."""
    everywhere = body.scope == "global"
    if everywhere and not caller.may(ACCOUNT):
        raise InsufficientScope(ACCOUNT)
    tokens.log_out(caller, everywhere=everywhere)
    return LoggedOut(True)


@account.get("/auth/sessions", answers=(200, 400, 401), meta=("next_cursor", "per_page"), runs="slow")
def list_logins(caller: Caller, query: LoginWindow) -> Page[Login]:
    """Where you are logged in, the newest login first."""
    return LoginSession.open_of(caller, query.cursor, query.limit)


@account.delete("/auth/sessions/{id}", answers=(200, 400, 401, 404))
def end_login(login: LoginSession) -> Ended:
    """End one of your logins, wherever it is."""
    login.end()
    return Ended(True)


@account.post(
    "/auth/password",
    answers=(200, 400, 401),
    raises=(WrongPassword,),
    example={"current_password": "demo-password", "new_password": "another demo-password"},
    runs="slow",
)
def change_password(caller: Caller, body: NewPassword, origin: Origin, settings: Settings) -> Changed:
    """Give yourself another password, which ends every other login."""
    credentials.change_password(caller, body.current_password, body.new_password, origin.address, settings)
    return Changed(True)
