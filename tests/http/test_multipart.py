"""Multipart forms of clients, browsers and attackers: read in parts, within limits, without crashes."""

import io
import itertools
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import pytest

from service.api.parameter_types import File, Upload
from service.errors import ApiError, FileMissing, FileTooLarge, InvalidBody
from service.http import multipart
from service.routes import operations
from service.routes.users import AvatarForm
from tests.support.malformed_bodies import CONTENT_TYPES, FORMS_WITHOUT_FILE, INVALID_FORMS, PICTURE, form, part, text
from tests.support.observe import nothing_changes

KIND = "multipart/form-data; boundary=b"
LIMIT = 5_242_880
HEAD = b'Content-Disposition: form-data; name="avatar"; filename="me.png"\r\n\r\n'


class Reader:
    """A body that arrives in pieces of a given size. Records the largest size that was requested."""

    def __init__(self, body: bytes, piece: int = 0) -> None:
        self.stream, self.piece, self.largest = io.BytesIO(body), piece, 0

    def read(self, size: int) -> bytes:
        self.largest = max(self.largest, size)
        return self.stream.read(min(size, self.piece) if self.piece else size)


def read(body: bytes, content_type: str = KIND, piece: int = 0, length: int | None = None) -> bytes:
    """The file in a form."""
    content_length = len(body) if length is None else length
    return multipart.read_upload(Reader(body, piece).read, content_length, content_type, AvatarForm).avatar


VALID_FORMS = {
    "usual": form(part()),
    "without its last line end": form(part())[:-2],
    "with a preamble": b"This is a form.\r\n" + form(part()),
    "with an epilogue": form(part()) + b"That was a form.\r\n",
    "with a long epilogue": form(part()) + b"x" * 200_000,
    "with other parts": form(text(name="title"), part(), text(name="note"), part(b"other", "other")),
    "with the file as the last part": form(part(b"x" * 100_000, "first"), part()),
    "with other parts of the same other name": form(part(), text(name="tag"), text(name="tag")),
    "with a text and a file of one name": form(text(), part()),
    "with a file and a text of one name": form(part(), text()),
    "with a name that is not quoted": form(part(head=b"Content-Disposition: form-data; name=avatar; filename=x")),
    "without spaces": form(part(head=b'content-disposition:form-data;name="avatar";filename="x"')),
    "in capitals": form(part(head=b'CONTENT-DISPOSITION: Form-Data; NAME="avatar"; FILENAME="x"')),
    "with a folded header": form(part(head=b'Content-Disposition: form-data;\r\n name="avatar";\r\n\tfilename="x"')),
    "with no file name but a type": form(
        part(head=b'Content-Disposition: form-data; name="avatar"\r\nContent-Type: image/png')
    ),
    "with an empty file name": form(part(head=b'Content-Disposition: form-data; name="avatar"; filename=""')),
    "with NUL in the file name": form(part(head=b'Content-Disposition: form-data; name="avatar"; filename="a\0b"')),
    "with a path for a file name": form(
        part(head=b'Content-Disposition: form-data; name="avatar"; filename="../../etc/x"')
    ),
    "with both file names": form(
        part(head=b'Content-Disposition: form-data; name="avatar"; filename="x"; filename*=UTF-8\'\'%ff')
    ),
    "with the length of the part": form(part(more=b"Content-Length: %d\r\n" % len(PICTURE))),
    "with an unknown charset of the part": form(part(more=b"Content-Type: image/png; charset=bogus\r\n")),
    "with an encoding without effect": form(part(more=b"Content-Transfer-Encoding: binary\r\n")),
    "with 31 other parts": form(*[text(name="x")] * 31, part()),
}


@pytest.mark.parametrize("body", VALID_FORMS.values(), ids=VALID_FORMS)
def test_a_form_is_decoded(body: bytes) -> None:
    assert read(body) == PICTURE


@pytest.mark.parametrize("body", INVALID_FORMS.values(), ids=INVALID_FORMS)
def test_other_content_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidBody) as caught:
        read(body)
    assert str(caught.value).endswith((".", "more than once"))
    assert "Error(" not in str(caught.value)


@pytest.mark.parametrize("body", FORMS_WITHOUT_FILE.values(), ids=FORMS_WITHOUT_FILE)
def test_a_form_without_the_file_is_refused(body: bytes) -> None:
    with pytest.raises(FileMissing, match="avatar: expected a file that is not empty"):
        read(body)


@pytest.mark.parametrize(("content_type", "valid"), CONTENT_TYPES, ids=lambda value: str(value)[:60])
def test_the_content_type_must_be_that_of_a_form(content_type: str, valid: bool) -> None:
    if valid:
        assert read(form(part()), content_type) == PICTURE
    else:
        with pytest.raises(InvalidBody):
            read(form(part()), content_type)


def test_a_boundary_may_be_split_anywhere() -> None:
    body = b"preamble\r\n" + form(text(name="x"), part(b"\r\n--\r\n--a\r--b" + PICTURE + b"\r\n--"), text(name="y"))
    for piece in (*range(1, 40), 65_535):
        assert read(body, piece=piece) == b"\r\n--\r\n--a\r--b" + PICTURE + b"\r\n--"


def test_a_file_may_contain_all_bytes_and_most_of_a_boundary() -> None:
    content = bytes(range(256)) * 300 + b"\r\n--" * 5_000 + b"--b--" + b"\r\n-b"
    assert read(form(part(content))) == content


def test_a_body_that_ends_too_early_is_refused() -> None:
    body = form(part())
    for length in range(len(body) - 2):  # the end after the last boundary may be missing
        for content_length in (length, len(body)):
            with pytest.raises(ApiError) as caught:
                read(body[:length], length=content_length)
            assert caught.value.status == 400


def test_bytes_after_the_content_length_are_not_read() -> None:
    assert read(form(part()) + b"GET / HTTP/1.1", length=len(form(part()))) == PICTURE


def test_the_limit_applies_to_the_file() -> None:
    assert len(read(form(part(bytes(LIMIT))))) == LIMIT
    assert len(read(form(part(bytes(900_000), "other"), part(bytes(LIMIT))))) == LIMIT
    for piece in (0, 4_096):
        with pytest.raises(FileTooLarge, match="larger than 5 MiB"):
            read(form(part(bytes(LIMIT + 1))), piece=piece)


def test_reading_stops_at_the_first_byte_over_the_limit() -> None:
    endless = itertools.chain([b"--b\r\n" + HEAD], itertools.repeat(bytes(65_536)))
    count = 0

    def read_more(size: int) -> bytes:
        nonlocal count
        count += 65_536
        return next(endless)[:size]

    with pytest.raises(FileTooLarge):
        multipart.read_upload(read_more, 2**40, KIND, AvatarForm)
    assert count < LIMIT + 3 * 65_536


def test_other_parts_are_skipped() -> None:
    reader = Reader(form(part(bytes(900_000), "other"), part()))
    multipart.read_upload(reader.read, 2**40, KIND, AvatarForm)
    assert reader.largest <= 65_536


def test_a_form_may_have_several_files() -> None:
    class Pair(Upload):
        one: Annotated[Any, File(3)]
        other: Annotated[Any, File(5)]

    def read_pair(*parts: bytes) -> Any:
        body = form(*parts)
        return multipart.read_upload(io.BytesIO(body).read, len(body), KIND, Pair)

    assert read_pair(part(b"12345", "other"), part(b"123", "one")) == Pair(b"123", b"12345")
    with pytest.raises(FileTooLarge):
        read_pair(part(b"12345", "other"), part(b"1234", "one"))
    with pytest.raises(FileMissing, match="other: expected"):
        read_pair(part(b"123", "one"))


def errors_of(client: Any, bodies: Iterable[bytes], content_type: str = KIND) -> set[tuple[int, str]]:
    replies = [client.post("/users/me/avatar", raw=body, content_type=content_type) for body in bodies]
    return {reply.error for reply in replies}


def test_the_response_is_in_the_envelope(alice: Any) -> None:
    with nothing_changes():
        small = [body for body in INVALID_FORMS.values() if len(body) < 2**20]
        assert errors_of(alice, small) == {(400, "invalid_body")}
        assert errors_of(alice, FORMS_WITHOUT_FILE.values()) == {(400, "file_missing")}
        assert errors_of(alice, [form(part(bytes(LIMIT + 1)))]) == {(413, "file_too_large")}
    for body in VALID_FORMS.values():
        assert alice.post("/users/me/avatar", raw=body, content_type=KIND).status == 200


def test_all_forms_declare_their_limits() -> None:
    for operation in operations():
        if operation.accepts.startswith("multipart/"):
            files = multipart.file_limits(operation.body)
            assert files
            assert all(field.required for field in msgspec.structs.fields(operation.body) if field.name in files)
            assert operation.max_body > LIMIT
