"""Decodes multipart/form-data (RFC 7578) in chunks, so that a body takes no more memory than its files and texts may.

Unlike the parser in Bottle, `multipart` limits headers and parts.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from service.api.parameter_types import File, Form, Upload
from service.api.schemas import hints_of
from service.errors import FileMissing, FileTooLarge, InvalidBody
from service.fields import Decoded, WireType
from service.http.decoding import read_form
from service.validators import byte_size

MAX_PARTS = 32  # of a form
MAX_TEXT = 256 * 1024  # bytes of a text in a form


def read_upload(read: Callable[[int], bytes], length: int, content_type: str, kind: type[Upload]) -> Upload:
    """Return a body of `length` bytes as the type `kind`. Unknown parts are ignored.

    Raises FileTooLarge at the first byte over the limit, FileMissing for required files that are missing or empty,
    InvalidBody, and InvalidParameter for invalid texts.
    """
    limits = file_limits(kind)
    files: dict[str, bytearray] = {}
    texts: list[tuple[str, bytearray]] = []
    open_file, limit = None, 0
    try:
        for part in _parts(read, length, content_type):
            if isinstance(part, MultipartSegment):
                open_file, limit = None, limits.get(part.name, 0)
                if limit and _is_file(part):
                    if part.name in files:
                        raise InvalidBody(f"{part.name}: given more than once")
                    open_file = files[part.name] = bytearray()
                elif part.name in _text_members(kind):
                    open_file, limit = bytearray(), MAX_TEXT
                    texts.append((part.name, open_file))
            elif part and open_file is not None:
                if len(open_file) + len(part) > limit:
                    raise FileTooLarge(f"The file is larger than {byte_size(limit)}.")
                open_file += part
    except MultipartError as error:
        raise InvalidBody(f"The form is malformed: {error.args[0]}.") from None
    for name, note in _files(kind).items():
        if not note.optional and not files.get(name):
            raise FileMissing(f"{name}: expected a file that is not empty.")
    fields = _read_texts(texts, kind) if _text_members(kind) else {}
    return kind(**fields, **{name: bytes(files.get(name, b"")) for name in limits})


@functools.cache
def file_limits(kind: type[Upload]) -> dict[str, int]:
    """Return the files of a form, and the maximum size of each in bytes."""
    return {name: note.max_size for name, note in _files(kind).items()}


@functools.cache
def _files(kind: type[Upload]) -> dict[str, File]:
    """Return the files of a form."""
    notes = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints_of(kind).items()}
    return {name: note for name, note in notes.items() if isinstance(note, File)}


@functools.cache
def _text_members(kind: type[Upload]) -> dict[str, WireType]:
    """Return the members of a form that are texts."""
    return {name: hint for name, hint in hints_of(kind).items() if name not in file_limits(kind)}


@functools.cache
def _text_form(kind: type[Upload]) -> type[Struct]:
    """Return the form without its files."""
    names = _text_members(kind)
    fields = [field for field in msgspec.structs.fields(kind) if field.name in names]
    required: list[tuple[str, WireType]] = [(field.name, names[field.name]) for field in fields if field.required]
    optional = [(field.name, names[field.name], field.default) for field in fields if not field.required]
    return msgspec.defstruct(kind.__name__, [*required, *optional], bases=(Form,), kw_only=True)


def _read_texts(texts: list[tuple[str, bytearray]], kind: type[Upload]) -> dict[str, Decoded]:
    """Return the texts of a form, decoded as in other forms. Raises InvalidBody or InvalidParameter."""
    encoded = urlencode([(name, bytes(text)) for name, text in texts]).encode()
    return msgspec.structs.asdict(read_form(encoded, "application/x-www-form-urlencoded", _text_form(kind)))


def digest(upload: Upload) -> bytes:
    """Return a digest of all files of an upload."""
    return b"".join(hashlib.sha256(getattr(upload, name)).digest() for name in file_limits(type(upload)))


def _is_file(part: MultipartSegment) -> bool:
    """Return whether a part is a file, not text. Its file name is optional (RFC 7578, section 4.2)."""
    return part.filename is not None or part.content_type not in (None, "text/plain")


def _parts(
    read: Callable[[int], bytes], length: int, content_type: str
) -> Iterator[MultipartSegment | bytes | bytearray | None]:
    media_type, options = parse_options_header(content_type)
    if media_type != "multipart/form-data" or not options.get("boundary"):
        raise InvalidBody("Content-Type: expected multipart/form-data with a boundary.")
    parser = PushMultipartParser(options["boundary"], content_length=length, max_segment_count=MAX_PARTS)
    parts: Iterator[MultipartSegment | bytes | bytearray | None] = parser.parse_blocking(read)
    return parts
