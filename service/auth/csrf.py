"""CSRF tokens: a form is accepted only from a page that this service sent to the same browser.

Defence in depth beside the cookie attribute `SameSite=Lax`. A token of a login session is valid as long as the session.
Before login, a token is bound to a random value in a cookie (signed double-submit cookie).
"""

import hmac

from service.errors import StaleForm
from service.models.callers import Caller
from service.signing import sign, verify


def make_token(caller: Caller) -> str:
    """Return the CSRF token for forms of the caller's login session."""
    return sign("console", [caller.session_id])


def expect_token(caller: Caller, token: str) -> None:
    """Raise StaleForm for a token that is missing, forged, or of another login session."""
    _expect("console", caller.session_id, token)


def make_cookie_token(cookie: str) -> str:
    """Return the CSRF token for a form shown before login, bound to the value of a cookie."""
    return sign("form", [cookie])


def expect_cookie_token(cookie: str, token: str) -> None:
    """Raise StaleForm for a token that is missing, forged, or of another cookie."""
    _expect("form", cookie, token)


def _expect(purpose: str, value: str, token: str) -> None:
    try:
        (signed,) = verify(purpose, token)
    except ValueError:
        raise StaleForm from None
    if not hmac.compare_digest(signed.encode(), value.encode()):
        raise StaleForm
