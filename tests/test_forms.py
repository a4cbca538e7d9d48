"""Forms as clients, browsers and attackers send them: read as they arrive, within bounds, and never a crash."""

import io
import itertools
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import pytest

from service import forms
from service.errors import FileMissing, FileTooLarge, InvalidBody, Refusal
from service.routes import operations
from service.routes.users import AvatarForm
from service.signature import File, Upload
from tests import pictures as made
from tests.watching import nothing_changes

KIND = "multipart/form-data; boundary=b"
MOST = 5_242_880
HEAD = b'Content-Disposition: form-data; name="avatar"; filename="me.png"\r\n\r\n'
PICTURE = made.save(made.plain(), "PNG")


def part(content: bytes = PICTURE, name: str = "avatar", head: bytes = b"", more: bytes = b"") -> bytes:
    """A part of a form, a file unless told otherwise."""
    head = head or b'Content-Disposition: form-data; name="%s"; filename="me.png"' % name.encode()
    return b"--b\r\n" + head + b"\r\n" + more + b"\r\n" + content + b"\r\n"


def text(content: bytes = b"hello", name: str = "avatar") -> bytes:
    return part(content, head=b'Content-Disposition: form-data; name="%s"' % name.encode())


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


class Reader:
    """A body that arrives in pieces of a size, and counts what was asked of it."""

    def __init__(self, body: bytes, piece: int = 0) -> None:
        self.stream, self.piece, self.largest = io.BytesIO(body), piece, 0

    def read(self, size: int) -> bytes:
        self.largest = max(self.largest, size)
        return self.stream.read(min(size, self.piece) if self.piece else size)


def read(body: bytes, content_type: str = KIND, piece: int = 0, length: int | None = None) -> bytes:
    """The file in a form."""
    told = len(body) if length is None else length
    return forms.read_upload(Reader(body, piece).read, told, content_type, AvatarForm).avatar


TAKEN = {
    "as it should be": form(part()),
    "without its last line end": form(part())[:-2],
    "with a preamble": b"This is a form.\r\n" + form(part()),
    "with an epilogue": form(part()) + b"That was a form.\r\n",
    "with a long epilogue": form(part()) + b"x" * 200_000,
    "with other parts beside it": form(text(name="title"), part(), text(name="note"), part(b"other", "other")),
    "with the file that counts last": form(part(b"x" * 100_000, "first"), part()),
    "with other parts of the same other name": form(part(), text(name="tag"), text(name="tag")),
    "with a text and a file of one name": form(text(), part()),
    "with a file and a text of one name": form(part(), text()),
    "with a name that is not quoted": form(part(head=b"Content-Disposition: form-data; name=avatar; filename=x")),
    "without blanks": form(part(head=b'content-disposition:form-data;name="avatar";filename="x"')),
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
    "with an encoding that means nothing": form(part(more=b"Content-Transfer-Encoding: binary\r\n")),
    "with 31 other parts": form(*[text(name="x")] * 31, part()),
}

REFUSED = {
    "nothing": b"",
    "garbage": b"x" * 100_000,
    "only line ends": b"\r\n" * 2_500_000,
    "line ends of the other kind": form(part()).replace(b"\r\n", b"\n"),
    "another boundary": form(part()).replace(b"--b", b"--c"),
    "no end": part(),
    "half an end": part() + b"--b-",
    "a header without end": b"--b\r\nContent-Disposition: form-data; name=",
    "a header that is none": form(part(head=b"hello")),
    "a header with a strange name": form(part(more=b"a b: c\r\n")),
    "no Content-Disposition": form(part(head=b"Content-Type: image/png")),
    "a part of another kind": form(part(head=b'Content-Disposition: attachment; name="avatar"; filename="x"')),
    "a name that is not UTF-8": form(part(head=b'Content-Disposition: form-data; name="avatar"; filename="\xff"')),
    "an endless header": form(part(more=b"X: " + b"a" * 1_000_000)),
    "five megabytes of a folded header": form(part(more=b"X: a\r\n" + b" b\r\n" * 1_250_000)),
    "three hundred thousand headers": form(part(more=b"X: abcdefgh\r\n" * 300_000)),
    "forty thousand parts": form(part(), text(name="x") * 80_000),
    "a part too many": form(part(), *[text(name="x")] * 32),
    "a length that is no number": form(part(more=b"Content-Length: abc\r\n")),
    "a length of other digits": form(part(more="Content-Length: ٣\r\n".encode())),
    "a length that is too short": form(part(more=b"Content-Length: 1\r\n")),
    "a length that is too long": form(part(more=b"Content-Length: 99999\r\n")),
    "a length of thousands of digits": form(part(more=b"Content-Length: " + b"9" * 4_050 + b"\r\n")),
    "two files": form(part(), part()),
    "two files, the first empty": form(part(b""), part()),
    "something behind a boundary": form(part(PICTURE + b"\r\n--bx")),
    "something before the first boundary": b"x" + form(part()),
}

MISSING = {
    "no parts": b"--b--\r\n",
    "no parts that we know": form(part(name="picture")),
    "a name in capitals": form(part(name="Avatar")),
    "no name": form(part(head=b'Content-Disposition: form-data; filename="x"')),
    "an empty file": form(part(b"")),
    "a browser's form without a file": form(  # which has an empty name and a type
        part(
            b"",
            head=b'Content-Disposition: form-data; name="avatar"; filename=""',
            more=b"Content-Type: application/octet-stream\r\n",
        )
    ),
    "a text": form(text()),
    "a text that says so": form(
        part(head=b'Content-Disposition: form-data; name="avatar"\r\nContent-Type: text/plain; charset=x')
    ),
    "an empty text": form(text(b"")),
}


@pytest.mark.parametrize("body", TAKEN.values(), ids=TAKEN)
def test_a_form_is_read(body: bytes) -> None:
    assert read(body) == PICTURE


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidBody) as refused:
        read(body)
    assert str(refused.value).endswith((".", "more than once"))
    assert "Error(" not in str(refused.value)


@pytest.mark.parametrize("body", MISSING.values(), ids=MISSING)
def test_a_form_without_the_file_is_refused(body: bytes) -> None:
    with pytest.raises(FileMissing, match="avatar: expected a file that is not empty"):
        read(body)


TYPES = [
    ("multipart/form-data; boundary=b", True),
    ('multipart/form-data; boundary="b"', True),
    ("Multipart/Form-Data; Boundary=b", True),
    ("multipart/form-data;boundary=b;charset=bogus", True),
    ("multipart/form-data; charset=utf-16; boundary=b", True),
    ("multipart/form-data; charset=rot13; boundary=b", True),
    ("multipart/form-data; charset=punycode; boundary=b; x", True),
    ("multipart/form-data; boundary=c; boundary=b", True),
    ("multipart/form-data", False),
    ("multipart/form-data; boundary", False),
    ("multipart/form-data; boundary=", False),
    ('multipart/form-data; boundary=""', False),
    ("multipart/form-data; boundary=c", False),
    ("multipart/form-data; boundary=b; boundary=c", False),
    ("multipart/form-data; boundary=\xff\xfe", False),
    ("multipart/form-data; boundary=" + "c" * 30_000, False),
    ('multipart/form-data; boundary="' + "\\" * 30_000, False),
    ("multipart/form-data" + ';a="' * 8_000, False),
    ("multipart/form-dat; boundary=b", False),
    ("multipart/mixed; boundary=b", False),
    ("application/x-www-form-urlencoded", False),
    ("application/json", False),
    ("image/png", False),
    (";", False),
    ("", False),
]


@pytest.mark.parametrize(("content_type", "taken"), TYPES, ids=lambda value: str(value)[:60])
def test_its_content_type_says_that_it_is_one(content_type: str, taken: bool) -> None:
    if taken:
        assert read(form(part()), content_type) == PICTURE
    else:
        with pytest.raises(InvalidBody):
            read(form(part()), content_type)


def test_a_boundary_may_fall_apart_anywhere() -> None:
    body = b"preamble\r\n" + form(text(name="x"), part(b"\r\n--\r\n--a\r--b" + PICTURE + b"\r\n--"), text(name="y"))
    for piece in (*range(1, 40), 65_535):
        assert read(body, piece=piece) == b"\r\n--\r\n--a\r--b" + PICTURE + b"\r\n--"


def test_a_file_may_hold_all_bytes_and_most_of_a_boundary() -> None:
    content = bytes(range(256)) * 300 + b"\r\n--" * 5_000 + b"--b--" + b"\r\n-b"
    assert read(form(part(content))) == content


def test_a_body_that_ends_too_early_is_refused() -> None:
    body = form(part())
    for length in range(len(body) - 2):  # what follows the last boundary may be missing
        for told in (length, len(body)):
            with pytest.raises(Refusal) as refused:
                read(body[:length], length=told)
            assert refused.value.status == 400


def test_what_comes_after_the_told_length_is_not_read() -> None:
    assert read(form(part()) + b"GET / HTTP/1.1", length=len(form(part()))) == PICTURE


def test_the_limit_is_that_of_the_file() -> None:
    assert len(read(form(part(bytes(MOST))))) == MOST
    assert len(read(form(part(bytes(900_000), "other"), part(bytes(MOST))))) == MOST
    for piece in (0, 4_096):
        with pytest.raises(FileTooLarge, match="larger than 5 MiB"):
            read(form(part(bytes(MOST + 1))), piece=piece)


def test_reading_stops_at_the_first_byte_too_many() -> None:
    endless = itertools.chain([b"--b\r\n" + HEAD], itertools.repeat(bytes(65_536)))
    taken = 0

    def more(size: int) -> bytes:
        nonlocal taken
        taken += 65_536
        return next(endless)[:size]

    with pytest.raises(FileTooLarge):
        forms.read_upload(more, 2**40, KIND, AvatarForm)
    assert taken < MOST + 3 * 65_536


def test_other_parts_are_read_past_and_not_kept() -> None:
    reader = Reader(form(part(bytes(900_000), "other"), part()))
    forms.read_upload(reader.read, 2**40, KIND, AvatarForm)
    assert reader.largest <= 65_536


def test_a_form_may_have_several_files() -> None:
    class Pair(Upload):
        one: Annotated[Any, File(3)]
        other: Annotated[Any, File(5)]

    def both(*parts: bytes) -> Any:
        body = form(*parts)
        return forms.read_upload(io.BytesIO(body).read, len(body), KIND, Pair)

    assert both(part(b"12345", "other"), part(b"123", "one")) == Pair(b"123", b"12345")
    with pytest.raises(FileTooLarge):
        both(part(b"12345", "other"), part(b"1234", "one"))
    with pytest.raises(FileMissing, match="other: expected"):
        both(part(b"123", "one"))


def answers(client: Any, bodies: Iterable[bytes], content_type: str = KIND) -> set[tuple[int, str]]:
    replies = [client.post("/users/me/avatar", raw=body, content_type=content_type) for body in bodies]
    return {reply.error for reply in replies}


def test_the_operation_answers_in_the_envelope(alice: Any) -> None:
    with nothing_changes():
        small = [body for body in REFUSED.values() if len(body) < 2**20]
        assert answers(alice, small) == {(400, "invalid_body")}
        assert answers(alice, MISSING.values()) == {(400, "file_missing")}
        assert answers(alice, [form(part(bytes(MOST + 1)))]) == {(413, "file_too_large")}
    for body in TAKEN.values():
        assert alice.post("/users/me/avatar", raw=body, content_type=KIND).status == 200


def test_only_forms_that_declare_their_limits_are_there() -> None:
    for operation in operations():
        if operation.accepts.startswith("multipart/"):
            assert all(field.required for field in msgspec.structs.fields(operation.body))
            assert operation.most > MOST
