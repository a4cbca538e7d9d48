"""What a handler's signature may name beside tables and structs: bounds, cursors, origins, pages, files, forms."""

from functools import partial
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from service import clock
from service.db import Position

LowerBound = Annotated[
    str,
    Meta(description="An RFC 3339 timestamp, or a date for the start of that day."),
    partial(clock.read_timestamp, bare_date="start"),
]
UpperBound = Annotated[
    str,
    Meta(description="An RFC 3339 timestamp, or a date for the end of that day."),
    partial(clock.read_timestamp, bare_date="end"),
]
Cursor = Position
"""The type of a `cursor` parameter: handed in as the position that its text stands for."""


class Origin(Struct, frozen=True):
    """Where a request comes from, and what came with it."""

    address: str
    user_agent: str
    site: str = ""  # under which we were asked: https://chat.example
    path: str = ""  # and query, as asked for
    cookies: dict[str, str] = {}
    is_navigation: bool = False  # a browser asks for something to show to a person


class Html(NamedTuple):
    """A page for people: a template in templates/ and what it shows; `scripted` ones may run scripts of ours."""

    template: str
    values: dict[str, Any] = {}
    scripted: bool = False
    cookie: str = ""  # a Set-Cookie line


class Moved(NamedTuple):
    """On to another page of ours, after a form (303)."""

    location: str
    cookie: str = ""


class Media(NamedTuple):
    """Bytes of a type that the declaration names; `tag` changes when they do, `lasting` ones never do."""

    content: bytes
    tag: str
    lasting: bool = False


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
