"""Logging in, refreshing tokens, logging out (section 4.1 of the document; contract, section 3)."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from service.auth import credentials, tokens
from service.auth.tokens import Tokens
from service.db import render
from service.models import LoginSession, User
from service.models.people import Caller
from service.operations import Routes
from service.settings import Settings
from service.signature import Origin

routes = Routes("Authentication")


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


@routes.post("/auth/login", answers=(200, 400, 401), public=True)
def log_in(body: Credentials, origin: Origin, settings: Settings) -> LoggedIn:
    """Log in with an e-mail address and a password."""
    with credentials.logging_in(body.email, body.password, origin.address, settings) as user_id:
        pair = tokens.begin(user_id, settings, origin.user_agent)
        return LoggedIn(pair, render(User.select().where(User.id == user_id)))


@routes.post("/auth/refresh", answers=(200, 400, 401), public=True, extension=True)
def refresh_tokens(body: Refresh, settings: Settings) -> Refreshed:
    """Trade a refresh token for a new pair of tokens."""
    return Refreshed(tokens.rotate(body.refresh_token, settings))


@routes.post("/auth/logout", answers=(200, 400, 401), extension=True)
def log_out(caller: Caller, body: Logout) -> LoggedOut:
    """End this login session, or with scope `global` all of them."""
    if body.scope == "global":
        LoginSession.end_all(caller.id)
    else:
        LoginSession(id=caller.session_id).end()
    return LoggedOut(True)
