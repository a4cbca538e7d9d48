"""Login, logout, tokens, login sessions and the password."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from service.api.operations import Routes
from service.api.parameter_types import Cursor, RequestInfo
from service.auth import credentials, passwords, tokens
from service.auth.consent import ACCOUNT
from service.auth.tokens import Tokens
from service.db import Page, render
from service.errors import InsufficientScope, InvalidCredentials, InvalidToken, WrongPassword
from service.models import LoginSession, User
from service.models.callers import Caller
from service.models.logins import Login
from service.settings import Settings

routes = Routes("Authentication")
account = Routes("Authentication", scope=ACCOUNT, extension=True)


class Credentials(Struct):
    """E-mail address and password."""

    email: Annotated[str, Meta(min_length=1)]
    password: Annotated[str, Meta(min_length=1)]


class LoggedIn(Struct):
    """The tokens of a new login session, and its user."""

    tokens: Tokens
    user: Annotated[Raw, User]


class Refresh(Struct):
    """A refresh token to exchange."""

    refresh_token: str


class Refreshed(Struct):
    """A new pair of tokens."""

    tokens: Tokens


class Logout(Struct):
    """The login sessions to end: `local` is the current one, `global` all sessions of the user."""

    scope: Literal["local", "global"] = "local"


class LoggedOut(Struct):
    """The login session has ended."""

    logged_out: bool


class LoginsQuery(Struct):
    """Page size for the list of login sessions."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of login sessions to return.")] = 25


class Ended(Struct):
    """The login session has ended and its tokens are invalid."""

    ended: bool


class NewPassword(Struct):
    """The current and the new password."""

    current_password: Annotated[str, Meta(min_length=1)]
    new_password: Annotated[str, Meta(min_length=passwords.MIN_LENGTH, max_length=passwords.MAX_LENGTH)]


class Changed(Struct):
    """The password has changed."""

    changed: bool


@routes.post(
    "/auth/login",
    statuses=(200, 400, 401),
    public=True,
    errors=(InvalidCredentials,),
    example={"email": "alice@demo.example", "password": "demo-password"},
    runs="slow",
)
def log_in(body: Credentials, request_info: RequestInfo, settings: Settings) -> LoggedIn:
    """Log in with an e-mail address and a password."""
    with credentials.logging_in(body.email, body.password, request_info.address, settings) as user_id:
        pair = tokens.log_in(user_id, settings, request_info.user_agent)
        return LoggedIn(pair, render(User, user_id))


@routes.post(
    "/auth/refresh",
    statuses=(200, 400, 401),
    public=True,
    extension=True,
    errors=(InvalidToken,),
    example={"refresh_token": "cxr_…"},
)
def refresh_tokens(body: Refresh, settings: Settings) -> Refreshed:
    """Exchange a refresh token for a new pair of tokens."""
    return Refreshed(tokens.rotate(body.refresh_token, settings))


@routes.post(
    "/auth/logout",
    statuses=(200, 400, 401),
    extension=True,
    example={"scope": "local"},
)
def log_out(caller: Caller, body: Logout) -> LoggedOut:
    """Log out of the current login session, or of all with scope `global`."""
    everywhere = body.scope == "global"
    if everywhere and not caller.may(ACCOUNT):
        raise InsufficientScope(ACCOUNT)
    tokens.log_out(caller, everywhere=everywhere)
    return LoggedOut(True)


@account.get("/auth/sessions", statuses=(200, 400, 401), meta=("next_cursor", "per_page"), runs="slow")
def list_logins(caller: Caller, query: LoginsQuery) -> Page[Login]:
    """List your login sessions, newest first."""
    return LoginSession.list_open(caller, query.cursor, query.limit)


@account.delete("/auth/sessions/{id}", statuses=(200, 400, 401, 404))
def end_login(login: LoginSession) -> Ended:
    """End one of your login sessions."""
    login.end()
    return Ended(True)


@account.post(
    "/auth/password",
    statuses=(200, 400, 401),
    errors=(WrongPassword,),
    example={"current_password": "demo-password", "new_password": "another demo-password"},
    runs="slow",
)
def change_password(caller: Caller, body: NewPassword, request_info: RequestInfo, settings: Settings) -> Changed:
    """Change your password. Signs out all other sessions."""
    credentials.change_password(caller, body.current_password, body.new_password, request_info.address, settings)
    return Changed(True)
