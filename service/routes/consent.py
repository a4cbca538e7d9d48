"""How a command-line client is let in: the consent page, and what comes of it (section 4.1; contract, section 10)."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from service import clock
from service.auth import codes, consent
from service.auth.consent import ConsentRequest
from service.errors import (
    InstallLimitReached,
    InvalidClient,
    InvalidGrant,
    InvalidParameter,
    StaleForm,
    UnsupportedGrantType,
)
from service.fields import Stamp, Uuid
from service.models import LoginSession, User
from service.models.people import Caller
from service.operations import FORM, PREFIX, Routes
from service.settings import Settings
from service.signature import Bare, Form, Html, Origin

# A scope that no token is ever given: only a person's own login may widen what a client may do.
routes = Routes("Command-line clients", scope="consent", produces="text/html")
clients = Routes("Command-line clients", extension=True)

PAGE = "/auth/cli/authorize"


# The parameters that each grant type requires (RFC 6749, sections 4.1.3 and 6; RFC 7636, section 4.5).
NEEDED = {
    "authorization_code": ("client_id", "code", "code_verifier", "redirect_uri"),
    "refresh_token": ("refresh_token",),
}


class ConsentForm(Form):
    """A person's answer."""

    ticket: str
    answer: Literal["approve", "deny"]


class TokenRequest(Form):
    """What a client trades in (RFC 6749, sections 4.1.3 and 6)."""

    # Only shown: other words are refused with a code of their own.
    grant_type: Annotated[str, Meta(extra_json_schema={"enum": list(NEEDED)})]
    client_id: str = ""
    code: str = ""
    code_verifier: str = ""
    redirect_uri: str = ""
    refresh_token: str = ""

    def expect_parameters(self) -> None:
        """Raises the error of RFC 6749, section 5.2, for a request that is incomplete or of another kind."""
        if not self.grant_type:
            raise InvalidParameter("grant_type: required.")
        if self.grant_type not in NEEDED:
            raise UnsupportedGrantType
        missing = [name for name in NEEDED[self.grant_type] if not getattr(self, name)]
        if missing:
            raise InvalidParameter(*(f"{name}: required." for name in missing))
        if self.client_id not in ("service-cli", ""):
            raise InvalidClient


class TokenAnswer(Bare, omit_defaults=True):
    """A pair of tokens (RFC 6749, section 5.1)."""

    access_token: str
    token_type: str
    expires_in: int  # seconds
    refresh_token: str
    scope: str = ""


class Metadata(Bare):
    """What OAuth clients need to know of this service (RFC 8414)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    scopes_supported: list[str]
    response_types_supported: list[str]
    grant_types_supported: list[str]
    code_challenge_methods_supported: list[str]
    token_endpoint_auth_methods_supported: list[str]
    authorization_response_iss_parameter_supported: bool


class Install(Struct):
    """A command-line client that may act for you."""

    id: Uuid
    install_id: str
    install_name: str
    scopes: list[str]
    created_at: Stamp


class Revoked(Struct):
    """The client may act no longer."""

    revoked: bool


@routes.get(PAGE, answers=(200, 400, 401))
def show_consent(caller: Caller, query: ConsentRequest, origin: Origin, settings: Settings) -> Html:
    """Ask a person whether a command-line client may act in their name."""
    values: dict[str, Any] = {"user": User.get_by_id(caller.id), "request": query, "here": origin.path}
    values |= {"can_answer": not settings.documented_only}  # the answer is an extension
    values |= {"asked": consent.understand(query.scope), "target": urlsplit(query.redirect_uri).netloc}
    return Html("consent.html", {**values, "ticket": codes.make_ticket(caller, query)})


@routes.post(PAGE, answers=(200, 400, 401), extension=True, most=FORM, raises=(InstallLimitReached, StaleForm))
def answer_consent(caller: Caller, body: ConsentForm, origin: Origin) -> Html:
    """Approve or deny what a command-line client asked for."""
    granted = body.answer == "approve"
    target = codes.answer(caller, body.ticket, granted, origin.site)
    return Html("answered.html", {"granted": granted, "target": target})


@clients.post(
    "/auth/cli/token",
    answers=(200, 400),
    public=True,
    most=FORM,
    raises=(InvalidClient, InvalidGrant, UnsupportedGrantType),
    example={
        "grant_type": "authorization_code",
        "client_id": "service-cli",
        "code": "cxc_…",
        "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        "redirect_uri": "http://127.0.0.1:8976/callback",
    },
)
def exchange_code(body: TokenRequest, settings: Settings) -> TokenAnswer:
    """Trade a code or a refresh token for a pair of tokens (RFC 6749)."""
    body.expect_parameters()
    if body.grant_type == "refresh_token":
        pair, scope = codes.refresh(body.refresh_token, settings)
    else:
        pair, scope = codes.exchange(body.code, body.code_verifier, body.redirect_uri, settings)
    lasting = settings.access_minutes * clock.MINUTE // clock.SECOND
    return TokenAnswer(pair.access_token, "Bearer", lasting, pair.refresh_token, scope)


@clients.get("/.well-known/oauth-authorization-server", answers=(200,), public=True, prefix="")
def describe_authorization(origin: Origin) -> Metadata:
    """Where OAuth clients find what they need (RFC 8414)."""
    return Metadata(
        issuer=origin.site,
        authorization_endpoint=f"{origin.site}{PREFIX}{PAGE}",
        token_endpoint=f"{origin.site}{PREFIX}/auth/cli/token",
        scopes_supported=sorted(consent.SCOPES),
        response_types_supported=["code"],
        grant_types_supported=["authorization_code", "refresh_token"],
        code_challenge_methods_supported=["S256"],
        token_endpoint_auth_methods_supported=["none"],
        authorization_response_iss_parameter_supported=True,
    )


@clients.get("/users/me/installs", answers=(200, 401), scope=consent.ACCOUNT, runs="slow")
def list_installs(caller: Caller) -> list[Install]:
    """The command-line clients that may act for you, the newest first."""
    return [
        Install(login.id, login.install_id, login.label, login.scopes.split(), clock.timestamp(login.created_at))
        for login in LoginSession.installs_of(caller.id)
    ]


@clients.delete("/users/me/installs/{id}", answers=(200, 400, 401, 404), scope=consent.ACCOUNT)
def revoke_install(login: LoginSession) -> Revoked:
    """Let a command-line client act for you no longer."""
    login.expect_install()
    login.end("install_revoked")
    return Revoked(True)
