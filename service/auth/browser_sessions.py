"""Login sessions of browsers: a signed identifier for a cookie, which gives access to pages but not to the API."""

from contextlib import suppress

from service import clock
from service.auth import tokens
from service.errors import InvalidToken, Unauthenticated
from service.models.callers import Caller
from service.signing import sign, verify

LIFETIME = 12 * clock.HOUR  # a working day


def begin(user_id: str, label: str, previous: str = "") -> str:
    """Create a login session inside a write, and return its signed identifier.

    `previous` is the earlier identifier of the browser. Its session ends: without the cookie, the browser could not
    end it.
    """
    with suppress(Unauthenticated):
        tokens.log_out(caller_of(previous))
    session = tokens.create_session(user_id, LIFETIME, label=label, kind="browser")
    return sign("sign-in", [session.id])


def caller_of(identifier: str) -> Caller:
    """Return the caller of a signed identifier. Raises Unauthenticated without one, InvalidToken if it is invalid.

    The row of the session is read at every use, as for tokens.
    """
    if not identifier:
        raise Unauthenticated
    try:
        (session_id,) = verify("sign-in", identifier)
    except ValueError:
        raise InvalidToken from None
    return tokens.caller_of(session_id)
