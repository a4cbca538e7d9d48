"""Device authorization: a client without a browser, and the page on which a user approves it (RFC 8628)."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from service import clock, validators
from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Form, HtmlPage, OAuthBody, RequestInfo
from service.auth import consent, csrf, device_codes
from service.errors import ApiError, InstallLimitReached, InvalidClient, InvalidUserCode, RateLimited, StaleForm
from service.models import DeviceAuthorization, User
from service.models.callers import Caller
from service.settings import Settings
from service.translation import gettext

clients = Routes("Command-line clients", extension=True)
pages = Routes("Command-line clients", prefix="", scope="consent", extension=True, produces="text/html")

PAGE = "/device"

UserCode = Annotated[str, Meta(max_length=64, description="The code that the client shows.")]


class DeviceAuthorizationRequest(Form):
    """A request for a device code (RFC 8628, section 3.1)."""

    client_id: str
    install_id: Annotated[str, Meta(min_length=1, max_length=128), validators.displayable]
    scope: Annotated[
        str, Meta(max_length=1000, description="Separated by spaces; all if empty."), consent.scope_list
    ] = ""
    install_name: Annotated[str, Meta(max_length=64), validators.displayable] = ""


class DeviceAuthorizationAnswer(OAuthBody):
    """The codes of a request, and the page for the user (RFC 8628, section 3.2)."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int  # seconds
    interval: int  # seconds between two token requests


class DeviceQuery(Struct):
    """The code to fill in."""

    user_code: UserCode = ""


class DeviceForm(Form):
    """A user code, and what to do with its request."""

    csrf_token: str
    user_code: UserCode
    answer: Literal["continue", "approve", "deny"]


@clients.post(
    device_codes.ENDPOINT,
    statuses=(200, 400),
    public=True,
    max_body=MAX_FORM,
    errors=(InvalidClient,),
    example={"client_id": "service-cli", "install_id": "laptop-1", "install_name": "Anna's laptop", "scope": "chats"},
)
def authorize_device(body: DeviceAuthorizationRequest, request_info: RequestInfo) -> DeviceAuthorizationAnswer:
    """Request a device code, for a client without a browser (RFC 8628)."""
    if body.client_id != consent.CLIENT_ID:
        raise InvalidClient
    codes = device_codes.begin(body.scope, body.install_id, body.install_name, request_info.address)
    page = f"{request_info.base_url}{PAGE}"
    times = device_codes.LIFETIME // clock.SECOND, device_codes.INTERVAL // clock.SECOND
    return DeviceAuthorizationAnswer(*codes, page, f"{page}?user_code={codes.user_code}", *times)


@pages.get(PAGE, statuses=(200, 400, 401))
def show_device(caller: Caller, query: DeviceQuery) -> HtmlPage:
    """Show the page on which the code of a client without a browser is entered."""
    return _code_page(caller, query.user_code)


@pages.post(
    PAGE,
    statuses=(200, 400, 401),
    max_body=MAX_FORM,
    errors=(InstallLimitReached, InvalidUserCode, StaleForm),
)
def answer_device(caller: Caller, body: DeviceForm, request_info: RequestInfo, settings: Settings) -> HtmlPage:
    """Show the request of a user code, approve it or deny it."""
    try:
        csrf.expect_token(caller, body.csrf_token)
        found = device_codes.find(caller, body.user_code, request_info.address, settings)
        return _request_page(caller, body, found) if body.answer == "continue" else _decide(caller, body, found)
    except (InstallLimitReached, InvalidUserCode, RateLimited, StaleForm) as error:
        return _code_page(caller, body.user_code, error)


def _code_page(caller: Caller, user_code: str, error: ApiError | None = None) -> HtmlPage:
    values = {
        "user_code": user_code,
        "message": gettext(str(error)) if error else "",
        "user": User.get_by_id(caller.id),
    }
    return HtmlPage("device.html", {**values, "csrf_token": csrf.make_token(caller)}, error=error)


def _request_page(caller: Caller, body: DeviceForm, found: DeviceAuthorization) -> HtmlPage:
    values = {
        "user": User.get_by_id(caller.id),
        "client_id": consent.CLIENT_ID,
        "request": found,
        "user_code": device_codes.shown(device_codes.normalized(body.user_code)),
        "access": consent.requested_access(found.scope),
        "csrf_token": csrf.make_token(caller),
    }
    return HtmlPage("device-request.html", values)


def _decide(caller: Caller, body: DeviceForm, found: DeviceAuthorization) -> HtmlPage:
    granted = body.answer == "approve"
    device_codes.record_decision(caller, found, granted)
    return HtmlPage("device-decided.html", {"granted": granted})
