"""Authorization of clients: the consent page, the token endpoint, registration, and the clients of a user.

OAuth 2.0 authorization code flow with PKCE for native apps (RFC 6749, RFC 7636, RFC 8252, RFC 9207).
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from service import clock, validators
from service.api.operations import MAX_FORM, PREFIX, Operation, Routes
from service.api.parameter_types import Form, HtmlPage, OAuthBody, RequestInfo
from service.auth import authorization_codes, consent, device_codes, registered_clients
from service.auth.consent import ConsentRequest
from service.errors import (
    AccessDenied,
    AuthorizationPending,
    ExpiredToken,
    InstallLimitReached,
    InvalidClient,
    InvalidGrant,
    InvalidParameter,
    InvalidRedirectUri,
    InvalidTarget,
    SlowDown,
    StaleForm,
    UnsupportedGrantType,
)
from service.fields import DateTime, Uuid
from service.mcp.access import access_of_tools
from service.models import LoginSession, User
from service.models.callers import Caller
from service.settings import Settings

# No token is ever issued with this scope: only a login by the user may extend the access of a client.
routes = Routes("Command-line clients", scope="consent", produces="text/html")
clients = Routes("Command-line clients", extension=True)

PAGE = "/auth/cli/authorize"
REGISTRATION = "/auth/cli/register"
MAX_NAME = 64  # characters of a client's name


# The parameters that each grant type requires (RFC 6749, sections 4.1.3 and 6; RFC 7636, section 4.5; RFC 8628, 3.4).
REQUIRED_PARAMETERS = {
    "authorization_code": ("client_id", "code", "code_verifier", "redirect_uri"),
    "refresh_token": ("refresh_token",),
    device_codes.GRANT_TYPE: ("client_id", "device_code"),
}


class ConsentForm(Form):
    """The decision of the user."""

    csrf_token: str
    answer: Literal["approve", "deny"]


class TokenRequest(Form):
    """A request to the token endpoint (RFC 6749, sections 4.1.3 and 6; RFC 8628, section 3.4)."""

    # The enumeration is for the OpenAPI document only: others are refused with `unsupported_grant_type`.
    grant_type: Annotated[str, Meta(extra_json_schema={"enum": list(REQUIRED_PARAMETERS)})]
    client_id: str = ""
    code: str = ""
    code_verifier: str = ""
    redirect_uri: str = ""
    refresh_token: str = ""
    device_code: str = ""
    resource: str = ""

    def expect_parameters(self, site: str) -> str:
        """Return the registered client that asks; empty for the command-line client.

        Raises the error of RFC 6749, section 5.2, for an incomplete request or an unsupported grant type.
        """
        if not self.grant_type:
            raise InvalidParameter("grant_type: required.")
        if self.grant_type not in REQUIRED_PARAMETERS:
            raise UnsupportedGrantType
        missing = [name for name in REQUIRED_PARAMETERS[self.grant_type] if not getattr(self, name)]
        if missing:
            raise InvalidParameter(*(f"{name}: required." for name in missing))
        is_registered = self.client_id not in (consent.CLIENT_ID, "")
        if is_registered and self.grant_type == device_codes.GRANT_TYPE:
            raise InvalidClient
        if self.resource not in ("", site + consent.RESOURCE if is_registered else ""):
            raise InvalidTarget
        return registered_clients.find(self.client_id).id if is_registered else ""


class TokenAnswer(OAuthBody, omit_defaults=True):
    """A pair of tokens (RFC 6749, section 5.1)."""

    access_token: str
    token_type: str
    expires_in: int  # seconds
    refresh_token: str
    scope: str = ""


class Metadata(OAuthBody):
    """The authorization server metadata (RFC 8414)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    scopes_supported: list[str]
    response_types_supported: list[str]
    grant_types_supported: list[str]
    code_challenge_methods_supported: list[str]
    registration_endpoint: str
    token_endpoint_auth_methods_supported: list[str]
    authorization_response_iss_parameter_supported: bool
    device_authorization_endpoint: str  # RFC 8628, section 4


class Registration(Struct):
    """The metadata of a client (RFC 7591, section 2). Other members are ignored; it gets no secret."""

    redirect_uris: Annotated[list[str], Meta(description="One to five addresses on the loopback interface.")]
    client_name: Annotated[str, Meta(max_length=1000), validators.displayable] = ""


class Registered(OAuthBody):
    """A registered client (RFC 7591, section 3.2.1)."""

    client_id: str
    client_id_issued_at: int  # seconds
    client_name: str
    redirect_uris: list[str]
    token_endpoint_auth_method: str = "none"
    grant_types: tuple[str, ...] = ("authorization_code", "refresh_token")
    response_types: tuple[str, ...] = ("code",)


class Install(Struct):
    """A client with access to your account."""

    id: Uuid
    install_id: str
    install_name: str
    scopes: list[str]
    created_at: DateTime


class Revoked(Struct):
    """The access of the client is revoked."""

    revoked: bool


@routes.get(PAGE, statuses=(200, 400, 401))
def show_consent(
    caller: Caller,
    query: ConsentRequest,
    request_info: RequestInfo,
    settings: Settings,
    operations: tuple[Operation, ...],
) -> HtmlPage:
    """Show the consent page for a client."""
    request = registered_clients.completed(query, request_info.base_url)
    access = consent.requested_access(request.scope)
    return HtmlPage(
        "consent.html",
        {
            "user": User.get_by_id(caller.id),
            "request": request,
            "address": request_info.path_and_query,
            "can_decide": not settings.documented_only,  # the operation that takes the decision is an extension
            "access": access_of_tools(access, operations) if request.resource else access,
            "target": urlsplit(request.redirect_uri).netloc,
            "csrf_token": authorization_codes.make_csrf_token(caller, request),
        },
    )


@routes.post(PAGE, statuses=(200, 400, 401), extension=True, max_body=MAX_FORM, errors=(InstallLimitReached, StaleForm))
def answer_consent(caller: Caller, body: ConsentForm, request_info: RequestInfo) -> HtmlPage:
    """Approve or deny the request of a client."""
    granted = body.answer == "approve"
    target = authorization_codes.record_decision(caller, body.csrf_token, granted, request_info.base_url)
    request = authorization_codes.request_of(body.csrf_token)
    return HtmlPage("consent-decided.html", {"granted": granted, "target": target, "request": request})


@clients.post(
    "/auth/cli/token",
    statuses=(200, 400),
    public=True,
    max_body=MAX_FORM,
    errors=(
        *(InvalidClient, InvalidGrant, InvalidTarget, UnsupportedGrantType),
        *(AuthorizationPending, SlowDown, AccessDenied, ExpiredToken),
    ),
    example={
        "grant_type": "authorization_code",
        "client_id": "service-cli",
        "code": "cxc_…",
        "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        "redirect_uri": "http://127.0.0.1:8976/callback",
    },
)
def exchange_code(body: TokenRequest, request_info: RequestInfo, settings: Settings) -> TokenAnswer:
    """Exchange an authorization code, a device code or a refresh token for a pair of tokens (RFC 6749, RFC 8628)."""
    client = body.expect_parameters(request_info.base_url)
    if body.grant_type == "refresh_token":
        pair, scope = authorization_codes.refresh(body.refresh_token, settings, client)
    elif body.grant_type == device_codes.GRANT_TYPE:
        pair, scope = device_codes.exchange(body.device_code, settings)
    else:
        pair, scope = authorization_codes.exchange(body.code, body.code_verifier, body.redirect_uri, settings, client)
    expires_in = settings.access_minutes * clock.MINUTE // clock.SECOND
    return TokenAnswer(pair.access_token, "Bearer", expires_in, pair.refresh_token, scope)


@clients.post(
    REGISTRATION,
    statuses=(201, 400),
    public=True,
    errors=(InvalidRedirectUri,),
    example={"client_name": "My assistant", "redirect_uris": ["http://127.0.0.1:8976/callback"]},
    runs="read",
)
def register_client(body: Registration) -> Registered:
    """Register a client of the MCP server (RFC 7591). Nothing is stored, and the client has no secret."""
    name = body.client_name[:MAX_NAME].strip() or "MCP"
    issued_at = clock.now() // clock.SECOND
    return Registered(registered_clients.register(name, body.redirect_uris), issued_at, name, body.redirect_uris)


@clients.get("/.well-known/oauth-authorization-server", statuses=(200,), public=True, prefix="")
def describe_authorization(request_info: RequestInfo) -> Metadata:
    """Get the authorization server metadata (RFC 8414)."""
    return Metadata(
        issuer=request_info.base_url,
        authorization_endpoint=f"{request_info.base_url}{PREFIX}{PAGE}",
        token_endpoint=f"{request_info.base_url}{PREFIX}/auth/cli/token",
        scopes_supported=sorted(consent.SCOPES),
        response_types_supported=["code"],
        grant_types_supported=list(REQUIRED_PARAMETERS),
        code_challenge_methods_supported=["S256"],
        registration_endpoint=f"{request_info.base_url}{PREFIX}{REGISTRATION}",
        token_endpoint_auth_methods_supported=["none"],
        authorization_response_iss_parameter_supported=True,
        device_authorization_endpoint=f"{request_info.base_url}{PREFIX}{device_codes.ENDPOINT}",
    )


@clients.get("/users/me/installs", statuses=(200, 401), scope=consent.ACCOUNT, runs="slow")
def list_installs(caller: Caller) -> list[Install]:
    """List the command-line clients with access to your account, newest first."""
    return [
        Install(login.id, login.install_id, login.label, login.scopes.split(), clock.timestamp(login.created_at))
        for login in LoginSession.installs_of(caller.id)
    ]


@clients.delete("/users/me/installs/{id}", statuses=(200, 400, 401, 404), scope=consent.ACCOUNT)
def revoke_install(login: LoginSession) -> Revoked:
    """Revoke the access of a command-line client."""
    login.require_install()
    login.end("install_revoked")
    return Revoked(True)
