"""Reading multipart/form-data (RFC 7578) as it arrives, so that no body costs more memory than its files may have.

The parser is `multipart`, of Bottle's author: unlike the one inside Bottle it bounds headers and parts.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from service.errors import FileMissing, FileTooLarge, InvalidBody
from service.formats import byte_size
from service.shapes import hints_of
from service.signature import Upload

PARTS = 32  # of a form; more is no form of ours


def read_upload(read: Callable[[int], bytes], length: int, content_type: str, kind: type[Upload]) -> Upload:
    """A body of `length` bytes as the form that an operation declares; parts that it does not know are passed over.

    Raises FileTooLarge at the first byte too many, FileMissing for a file that is not there or empty, and InvalidBody.
    """
    hints = hints_of(kind)
    limits = {field.encode_name: hints[field.name].__metadata__[0].most for field in msgspec.structs.fields(kind)}
    files: dict[str, bytearray] = {}
    open_file, limit = None, 0
    try:
        for part in _parts(read, length, content_type):
            if isinstance(part, MultipartSegment):
                open_file, limit = None, limits.get(part.name, 0)
                if limit and _is_file(part):
                    if part.name in files:
                        raise InvalidBody(f"{part.name}: given more than once")
                    open_file = files[part.name] = bytearray()
            elif part and open_file is not None:
                if len(open_file) + len(part) > limit:
                    raise FileTooLarge(f"The file is larger than {byte_size(limit)}.")
                open_file += part
    except MultipartError as error:
        raise InvalidBody(f"The form cannot be read: {error.args[0]}.") from None
    for name in limits:
        if not files.get(name):
            raise FileMissing(f"{name}: expected a file that is not empty.")
    return kind(**{name: bytes(content) for name, content in files.items()})


def _is_file(part: MultipartSegment) -> bool:
    """Whether a part is a file and no text; the name of the file may be left out (RFC 7578, section 4.2)."""
    return part.filename is not None or part.content_type not in (None, "text/plain")


def _parts(read: Callable[[int], bytes], length: int, content_type: str) -> Any:
    media_type, options = parse_options_header(content_type)
    if media_type != "multipart/form-data" or not options.get("boundary"):
        raise InvalidBody("Content-Type: expected multipart/form-data with a boundary.")
    parser = PushMultipartParser(options["boundary"], content_length=length, max_segment_count=PARTS)
    return parser.parse_blocking(read)
