"""Tickets of the console's forms: only a page that we have shown to a login can send a form in its name.

They stand beside the cookie's SameSite=Lax, and last as long as the login does.
"""

import hmac

from service.auth.signing import sign, verify
from service.errors import StaleForm
from service.models.people import Caller


def make(caller: Caller) -> str:
    """The ticket for the forms of the caller's login."""
    return sign("console", [caller.session_id])


def expect(caller: Caller, ticket: str) -> None:
    """Raises StaleForm for a ticket that is missing, forged, or of another login."""
    try:
        (session_id,) = verify("console", ticket)
    except ValueError:
        raise StaleForm from None
    if not hmac.compare_digest(session_id, caller.session_id):
        raise StaleForm
