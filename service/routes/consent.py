"""The consent page of a command-line client (section 4.1 of the document; contract, section 10)."""

from urllib.parse import urlsplit

from service.auth import consent
from service.auth.consent import ConsentRequest
from service.models import User
from service.models.people import Caller
from service.operations import Routes
from service.signature import Html

# A scope that no token is ever given: only a person's own login may widen what a client may do.
routes = Routes("Command-line clients", scope="consent", produces="text/html")


@routes.get("/auth/cli/authorize", answers=(200, 400, 401))
def show_consent(caller: Caller, query: ConsentRequest) -> Html:
    """Ask a person whether a command-line client may act in their name."""
    asked = consent.understand(query.scope)
    values = {"asked": asked, "request": query, "target": urlsplit(query.redirect_uri).netloc}
    return Html("consent.html", {"user": User.get_by_id(caller.id), **values})
