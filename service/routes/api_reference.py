"""The API reference: Swagger UI on the OpenAPI document."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from service.api import openapi
from service.api.operations import Operation, Routes
from service.api.parameter_types import HtmlPage, Media
from service.settings import Settings

routes = Routes("Pages", prefix="", public=True, extension=True)


class DocumentQuery(Struct):
    """What the OpenAPI document describes."""

    pages: Annotated[bool, Meta(description="Include the pages of the console, which clients do not call.")] = False


@routes.get("/docs", statuses=(200,), produces="text/html")
def show_reference() -> HtmlPage:
    """Show the API reference."""
    return HtmlPage("api-reference.html", scripted=True)


@routes.get("/docs/openapi.json", statuses=(200, 304, 400), produces="application/vnd.oai.openapi+json", runs="slow")
def get_openapi_document(query: DocumentQuery, operations: tuple[Operation, ...], settings: Settings) -> Media:
    """Get the OpenAPI 3.1 document of this service."""
    described = msgspec.json.encode(openapi.document(operations, settings.public_url, pages=query.pages))
    return Media(described)
