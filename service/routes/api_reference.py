"""The API reference: Swagger UI on the OpenAPI document."""

import msgspec

from service.api import openapi
from service.api.operations import Operation, Routes
from service.api.parameter_types import HtmlPage, Media
from service.settings import Settings

routes = Routes("Pages", prefix="", public=True, extension=True)


@routes.get("/docs", statuses=(200,), produces="text/html")
def show_reference() -> HtmlPage:
    """Show the API reference."""
    return HtmlPage("api-reference.html", scripted=True)


@routes.get("/docs/openapi.json", statuses=(200, 304), produces="application/vnd.oai.openapi+json", runs="slow")
def get_openapi_document(operations: tuple[Operation, ...], settings: Settings) -> Media:
    """Get the OpenAPI 3.1 document of this service."""
    described = msgspec.json.encode(openapi.document(operations, settings.public_url))
    return Media(described)
