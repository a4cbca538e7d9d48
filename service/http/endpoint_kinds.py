"""The endpoints of operations whose response is not JSON in the envelope: OAuth, media, event streams, HTML pages."""

import functools
from collections.abc import Iterable
from wsgiref.types import WSGIEnvironment

import msgspec

from service import translation
from service.api.event_stream import EventStream
from service.api.operations import Operation
from service.api.parameter_types import Download, HtmlPage, Media, Redirect, RequestInfo
from service.console import layout, sign_in
from service.errors import ApiError, BadRequest, InvalidParameter, RateLimited, Unauthenticated
from service.http import html_pages, pagination, responses
from service.http.endpoints import Endpoint, PreparedRequest
from service.http.responses import Response
from service.settings import Settings


class OAuthEndpoint(Endpoint):
    """Serves an operation of OAuth: JSON without the envelope (RFC 6749, section 5)."""

    def encode(self, request: PreparedRequest, result: object) -> bytes:
        return msgspec.json.encode(result)

    def respond_to_error(self, error: ApiError, request_info: RequestInfo) -> Response:
        return responses.oauth_error_response(error)


class MediaEndpoint(Endpoint):
    """Serves an operation whose response is bytes, such as a picture."""

    def respond(self, request: PreparedRequest, result: Media) -> Response:
        return responses.media_response(result, self.operation.produces, request.if_none_match)


class EventStreamEndpoint(Endpoint):
    """Serves an operation whose response is a stream of events."""

    def respond(self, request: PreparedRequest, result: EventStream) -> Response:
        return responses.stream_response(result, self.operation.produces)


class PageEndpoint(Endpoint):
    """Serves an operation whose response is an HTML page, a redirect, or a download from a page."""

    def prepare(
        self, environ: WSGIEnvironment, identifiers: dict[str, str], request_info: RequestInfo
    ) -> PreparedRequest | Response:
        """As for every operation; the handler runs in the language of the user, and with limited lists."""
        request = super().prepare(environ, identifiers, request_info)
        if isinstance(request, PreparedRequest):
            request.language = sign_in.language_of(request_info, request.caller)
            request.run = functools.partial(html_pages.run, request.run, request.language)
        return request

    def respond(self, request: PreparedRequest, result: HtmlPage | Redirect | Download) -> Response:
        if isinstance(result, Download):
            return responses.download_response(result, self.operation.produces)
        if isinstance(result, HtmlPage) and result.page:
            query = request.query
            position = (query, query.cursor.number + 1, result.page.next_key) if query else (None, 0, ())
            result.values["next_cursor"] = pagination.make(self.operation, request.bound_to, *position)
        with translation.use(request.language):
            return html_pages.page_response(self.operation.status, result, self.settings)

    def respond_to_error(self, error: ApiError, request_info: RequestInfo) -> Response:
        """Return a page for navigation and malformed requests; JSON for the scripts of a page."""
        if not (request_info.is_navigation or isinstance(error, BadRequest)):
            return super().respond_to_error(error, request_info)
        info = error.info(self.operation.all_statuses)
        make_page = functools.partial(self.error_page, error, request_info)
        return html_pages.error_response(info, request_info, self.settings, make_page)

    def error_page(self, error: ApiError, request_info: RequestInfo) -> HtmlPage:
        """Return the sign-in page if signing in helps, otherwise a page with the message."""
        if isinstance(error, Unauthenticated | RateLimited) and not self.settings.documented_only:
            return sign_in.page_for_error(request_info, error)
        if self.operation.scope == "console":
            return layout.error_page(error.info(self.operation.all_statuses), request_info)
        problems = error.problems if isinstance(error, InvalidParameter) else ()
        return HtmlPage("consent-error.html", {"problems": problems, "message": translation.gettext(str(error))})


def endpoint_of(operation: Operation, settings: Settings, operations: Iterable[Operation]) -> Endpoint:
    """Return the endpoint of an operation, by the kind of its response."""
    kinds = {Media: MediaEndpoint, EventStream: EventStreamEndpoint}
    kind = PageEndpoint if operation.is_page else OAuthEndpoint if operation.is_oauth else Endpoint
    return (operation.endpoint or kinds.get(operation.data, kind))(operation, settings, operations)
