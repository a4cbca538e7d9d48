"""Types for the parameters and results of handlers: bounds, cursors, request information, pages, media, uploads."""

import string
from functools import partial
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from msgspec import Meta, Struct

from service import clock
from service.api.long_poll import LongPoll
from service.branding import UNSET, BrandingValues
from service.db import Page, Position
from service.errors import ApiError

MAX_PARAMETERS = 100  # of a query or a form; checked before any is unescaped

_SAFE = string.punctuation.replace("\\", "")  # in a query; browsers send backslashes, which own paths exclude

_MOMENT = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}]}
LowerBound = Annotated[
    str,
    Meta(description="An RFC 3339 timestamp, or a date for the start of that day.", extra_json_schema=_MOMENT),
    partial(clock.read_timestamp, bare_date="start"),
]
UpperBound = Annotated[
    str,
    Meta(description="An RFC 3339 timestamp, or a date for the end of that day.", extra_json_schema=_MOMENT),
    partial(clock.read_timestamp, bare_date="end"),
]
Cursor = Position
"""The type of a `cursor` parameter. The handler gets the decoded position."""


class RequestInfo(Struct, frozen=True):
    """The origin of a request, and some of its headers."""

    address: str  # of the client
    user_agent: str
    base_url: str = ""  # of the service, as the client addressed it: https://chat.example
    target: tuple[str, str] = ("", "")  # the decoded path, and the query
    cookie: str = ""  # the Cookie header
    languages: str = ""  # the Accept-Language header
    is_navigation: bool = False  # a browser loads a page
    is_proxied: bool = False  # an untrusted proxy passed it on, or the trusted one without an address
    long_poll: LongPoll = LongPoll()  # lets the handler wait for changes
    last_event_id: str = ""  # of the last event that an event stream has received before
    authorization: str = ""  # the Authorization header

    @property
    def path_and_query(self) -> str:
        """The path and the query, encoded."""
        path, query = self.target
        return quote(path) + ("?" + quote(query.encode("latin-1"), safe=_SAFE) if query else "")

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies by name.

        Strips only the white space of HTTP: browsers protect names that begin with __Host-, but not such names after
        another white space character.
        """
        pairs = (pair.strip(" \t").partition("=") for pair in self.cookie.split(";"))
        return {name: value for name, _, value in pairs}


TemplateValue: TypeAlias = Any  # Bottle gives no types for its templates


class HtmlPage(NamedTuple):
    """An HTML page: a template and its values."""

    template: str  # in templates/
    values: dict[str, TemplateValue] = {}
    scripted: bool = False  # may run the scripts of this service
    cookie: str = ""  # a Set-Cookie line
    error: ApiError | None = None  # shown on the page; the response has its status and headers
    page: Page[object] | None = None  # the list on it; the template gets its `next_cursor`
    branding: BrandingValues = UNSET  # as stored


class Redirect(NamedTuple):
    """A redirect to another page of this service after a form was handled (303)."""

    location: str
    cookie: str = ""


class Media(NamedTuple):
    """Bytes of the type that the operation declares."""

    content: bytes
    tag: str = ""  # changes when the content does; by default a hash of the content
    lasting: bool = False  # never changes
    personal: bool = False  # may be cached by the client, not by proxies
    file_name: str = ""  # for a client that saves it


class Download(NamedTuple):
    """A file for a client that saves it; it is sent in pieces, and then closed."""

    file: BinaryIO
    size: int  # bytes
    name: str


class File(NamedTuple):
    """Annotates a member of an Upload: a file of at most `max_size` bytes. An optional one may be missing or empty."""

    max_size: int
    optional: bool = False


FileContent: TypeAlias = Any  # not `bytes`, which msgspec would describe as base64 in the OpenAPI document

BINARY = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}


MAX_PICTURE = 5 * 1024 * 1024  # bytes of an uploaded picture

PictureFile: TypeAlias = Annotated[
    FileContent,
    File(MAX_PICTURE),
    Meta(description="JPEG, PNG or WebP, at most 5 MiB.", extra_json_schema=BINARY),
]
"""A member of an Upload: a picture."""

OptionalPictureFile: TypeAlias = Annotated[
    FileContent,
    File(MAX_PICTURE, optional=True),
    Meta(description="JPEG, PNG or WebP, at most 5 MiB, or empty.", extra_json_schema=BINARY),
]
"""A member of an Upload: a picture, or no bytes."""


class ImageQuery(Struct):
    """The size of a picture."""

    size: Annotated[Literal["full", "thumbnail"], Meta(description="`thumbnail`: at most 320 pixels a side.")] = "full"


class Form(Struct):
    """A body of type application/x-www-form-urlencoded; its members are decoded like those of a query."""


class Upload(Struct):
    """A body of type multipart/form-data.

    Its files are bytes, each `Annotated[FileContent, File(…), Meta(…)]`; its other members are texts, as in a Form.
    """


class BareBody(Struct):
    """A response without the envelope."""


class OAuthBody(BareBody):
    """A response without the envelope; so are its errors (RFC 6749, section 5)."""
