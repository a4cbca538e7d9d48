"""What a handler's signature may name beside tables and structs: bounds, cursors, origins, pages, files, forms."""

import string
from functools import partial
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from msgspec import Meta, Struct

from service import clock
from service.db import Page, Position
from service.waiting import Patience

MOST_PARAMETERS = 100  # in a query or a form; more are refused before any is unescaped

_AS_ASKED = string.punctuation.replace("\\", "")  # of a query; browsers send backslashes, which paths of ours lack

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
"""The type of a `cursor` parameter: handed in as the position that its text stands for."""


class Origin(Struct, frozen=True):
    """Where a request comes from, and what came with it."""

    address: str
    user_agent: str
    site: str = ""  # under which we were asked: https://chat.example
    asked: tuple[str, str] = ("", "")  # the path, decoded, and the query
    cookie: str = ""  # the header
    languages: str = ""  # that the client would like, as in its Accept-Language
    is_navigation: bool = False  # a browser asks for something to show to a person
    is_hidden: bool = False  # somebody passed the request on who does not say for whom, or is not believed
    patience: Patience = Patience()  # whether, and how long, it may wait

    @property
    def path(self) -> str:
        """And query, as asked for."""
        path, query = self.asked
        return quote(path) + ("?" + quote(query.encode("latin-1"), safe=_AS_ASKED) if query else "")

    @property
    def cookies(self) -> dict[str, str]:
        """Parted by the blanks of HTTP only: browsers guard names that begin with __Host-, not with another blank."""
        pairs = (pair.strip(" \t").partition("=") for pair in self.cookie.split(";"))
        return {name: value for name, _, value in pairs}


class Html(NamedTuple):
    """A page for people: a template in templates/ and what it shows; `scripted` ones may run scripts of ours.

    Of a `page` of a list, the template gets the `next_cursor`.
    """

    template: str
    values: dict[str, Any] = {}
    scripted: bool = False
    cookie: str = ""  # a Set-Cookie line
    status: int = 0  # where it is not that of success
    page: Page[Any] | None = None


class Moved(NamedTuple):
    """On to another page of ours, after a form (303)."""

    location: str
    cookie: str = ""


class Media(NamedTuple):
    """Bytes of a type that the declaration names; `tag` changes when they do, `lasting` ones never do.

    Without a tag they get one that is made of them. `personal` ones may be kept by the client and nobody on the way.
    """

    content: bytes
    tag: str = ""
    lasting: bool = False
    personal: bool = False


class File(NamedTuple):
    """What a form's member is annotated with: a file of at most so many bytes."""

    most: int


BINARY = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}


class Form(Struct):
    """A body that comes as application/x-www-form-urlencoded; its members are texts, read as those of a query are."""


class Upload(Struct):
    """A body that comes as multipart/form-data; its members are bytes, each `Annotated[Any, File(…), Meta(…)]`.

    Of `bytes`, msgspec would say in the OpenAPI document that they travel as base64.
    """


class Bare(Struct):
    """An answer without the envelope, and so are its refusals: what OAuth prescribes (RFC 6749, section 5)."""
