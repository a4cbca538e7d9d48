"""HTML pages and redirects as responses."""

from collections.abc import Callable

import bottle

from service import assets, db, translation
from service.api.parameter_types import HtmlPage, Redirect, RequestInfo, TemplateValue
from service.branding import UNSET, branding_of
from service.console import sign_in
from service.console.labels import capitalized_label, label_of
from service.errors import ErrorInfo
from service.http.responses import Response
from service.models import StoredBranding
from service.settings import Settings
from service.translation.numbers import format_number, format_size

HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICY = (
    "default-src 'none'; style-src 'self'{style}; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
SCRIPTS = "; script-src 'self'; connect-src 'self'"

_TEMPLATES = [str(assets.folder("templates"))]  # always the same list: Bottle caches compiled templates by its identity

_FUNCTIONS = {  # of templates
    "_": translation.gettext,
    "ngettext": translation.ngettext,
    "html": translation.html,
    "format_number": format_number,
    "format_size": format_size,
    "label_of": label_of,
    "capitalized_label": capitalized_label,
}


def page_response(status: int, page: HtmlPage | Redirect, settings: Settings) -> Response:
    """Return the page in the language of `translation.use`, or a redirect.

    Pages are not cached, not framed, and load nothing from other sites.
    """
    if isinstance(page, Redirect):
        return Response(303, b"", {**HEADERS, "Location": page.location} | _cookie(page))
    brand = branding_of(settings, page.branding)
    html = render(page.template, brand=brand, **page.values)
    policy = POLICY.format(style=brand.style_source and f" {brand.style_source}") + (SCRIPTS if page.scripted else "")
    headers = {**HEADERS, "Content-Security-Policy": policy} | _cookie(page)
    if page.error:
        return Response(page.error.status, html.encode(), headers | page.error.headers)
    return Response(status, html.encode(), headers)


def render(template: str, **values: TemplateValue) -> str:
    """Return the text of a template, in the language of `translation.use`."""
    language = translation.current_language()
    direction = "rtl" if language in translation.RIGHT_TO_LEFT else "ltr"
    values = _FUNCTIONS | {"language": language, "direction": direction} | values
    return str(bottle.template(template, template_lookup=_TEMPLATES, **values))


def error_response(
    info: ErrorInfo, request_info: RequestInfo, settings: Settings, make_page: Callable[[], HtmlPage]
) -> Response:
    """Return the page that `make_page` returns for an error, in the language of the user."""
    branding = db.read_or(UNSET, StoredBranding.values)
    with translation.use(sign_in.language_of(request_info, sign_in.find_caller(request_info))):
        response = page_response(info.status, make_page()._replace(branding=branding), settings)
    response.headers |= info.headers
    response.code = info.code
    return response


def run(handler: Callable[[], object], language: str) -> object:
    """Call the handler of a page, in a language. The lists that it reads end before they have HTML_PAGE_BYTES."""
    with translation.use(language), db.limit_pages(db.HTML_PAGE_BYTES):
        result = handler()
    return result._replace(branding=StoredBranding.values()) if isinstance(result, HtmlPage) else result


def _cookie(page: HtmlPage | Redirect) -> dict[str, str]:
    return {"Set-Cookie": page.cookie} if page.cookie else {}
