"""The API reference: a page that renders the OpenAPI document and lets people try it."""

import msgspec

from service import openapi
from service.operations import Operation, Routes
from service.settings import Settings
from service.signature import Html, Media

routes = Routes("Pages", prefix="", public=True, extension=True)


@routes.get("/docs", answers=(200,), produces="text/html")
def show_reference() -> Html:
    """Read about every operation, and try it."""
    return Html("docs.html", scripted=True)


@routes.get("/docs/openapi.json", answers=(200, 304), produces="application/vnd.oai.openapi+json", runs="slow")
def get_openapi_document(operations: tuple[Operation, ...], settings: Settings) -> Media:
    """The OpenAPI 3.1 document of this service."""
    described = msgspec.json.encode(openapi.document(operations, settings.public_url))
    return Media(described)
