"""Bodies that are not JSON, and multipart forms that are malformed."""

from tests.support import pictures


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]", core: bytes = b"") -> bytes:
    """An object with nested lists, `levels` deep including itself."""
    return b'{"anything":' + opening * (levels - 1) + core + closing * (levels - 1) + b"}"


NOT_JSON = {
    "a word": b"nonsense",
    "cut off": b'{"name": "x',
    "two": b"{} {}",
    "single quotes": b"{'name': 'x'}",
    "trailing comma": b'{"name": "x",}',
    "comment": b"{} // x",
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "Latin-1": '{"name": "é"}'.encode("latin-1"),
    "overlong UTF-8": b'{"name": "\xc0\xaf"}',
    "surrogate in UTF-8": b'{"name": "\xed\xa0\x80"}',
    "duplicate member": b'{"name": "x", "name": "y"}',
    "duplicate member inside": b'{"inner": {"numbers": [1], "numbers": [2]}}',
    "duplicate after unescaping": b'{"name": "x", "n\\u0061me": "y"}',
    "NaN": b'{"score": NaN}',
    "Infinity": b'{"score": Infinity}',
    "-Infinity": b'{"score": -Infinity}',
    "1e999": b'{"score": 1e999}',
    "-1e999 in an unknown member": b'{"unknown": [[-1e999]]}',
    "lone surrogate": b'{"name": "\\ud800"}',
    "lone low surrogate": b'{"name": "\\udc00x"}',
    "lone surrogate in a name": b'{"\\ud800": 1}',
    "NUL": b'{"name": "a\\u0000b"}',
    "NUL in a name": b'{"a\\u0000b": 1}',
    "raw control character": b'{"name": "a\nb"}',
    "raw NUL": b'{"name": "a\0b"}',
    "leading zero": b'{"score": 01}',
    "5,000 digits": b'{"location": [' + b"9" * 5000 + b"]}",
    "5,000 digits in an unknown member": b'{"unknown": ' + b"9" * 5000 + b"}",
    "101 levels": nested(101),
    "101 levels with text in it": nested(101, core=b'"x"'),
    "101 levels of objects": nested(101, b'{"a":', b"}", b"1"),
    "100,000 levels": nested(100_000),
    "100,000 openings": b"[" * 100_000,
    "100,000 objects": b'{"a":' * 100_000,
}

PICTURE = pictures.save(pictures.plain(), "PNG")


def part(content: bytes = PICTURE, name: str = "avatar", head: bytes = b"", more: bytes = b"") -> bytes:
    """A part of a form; a file by default."""
    head = head or b'Content-Disposition: form-data; name="%s"; filename="me.png"' % name.encode()
    return b"--b\r\n" + head + b"\r\n" + more + b"\r\n" + content + b"\r\n"


def text(content: bytes = b"hello", name: str = "avatar") -> bytes:
    return part(content, head=b'Content-Disposition: form-data; name="%s"' % name.encode())


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


INVALID_FORMS = {
    "nothing": b"",
    "garbage": b"x" * 100_000,
    "only line ends": b"\r\n" * 2_500_000,
    "line ends without a carriage return": form(part()).replace(b"\r\n", b"\n"),
    "another boundary": form(part()).replace(b"--b", b"--c"),
    "no end": part(),
    "half an end": part() + b"--b-",
    "a header without end": b"--b\r\nContent-Disposition: form-data; name=",
    "a line that is not a header": form(part(head=b"hello")),
    "a header with an invalid name": form(part(more=b"a b: c\r\n")),
    "no Content-Disposition": form(part(head=b"Content-Type: image/png")),
    "a part with another disposition": form(part(head=b'Content-Disposition: attachment; name="avatar"; filename="x"')),
    "a name that is not UTF-8": form(part(head=b'Content-Disposition: form-data; name="avatar"; filename="\xff"')),
    "an endless header": form(part(more=b"X: " + b"a" * 1_000_000)),
    "five megabytes of a folded header": form(part(more=b"X: a\r\n" + b" b\r\n" * 1_250_000)),
    "three hundred thousand headers": form(part(more=b"X: abcdefgh\r\n" * 300_000)),
    "forty thousand parts": form(part(), text(name="x") * 80_000),
    "one part too many": form(part(), *[text(name="x")] * 32),
    "a length that is not a number": form(part(more=b"Content-Length: abc\r\n")),
    "a length of digits that are not ASCII": form(part(more="Content-Length: ٣\r\n".encode())),
    "a length that is too short": form(part(more=b"Content-Length: 1\r\n")),
    "a length that is too long": form(part(more=b"Content-Length: 99999\r\n")),
    "a length of thousands of digits": form(part(more=b"Content-Length: " + b"9" * 4_050 + b"\r\n")),
    "two files": form(part(), part()),
    "two files, the first empty": form(part(b""), part()),
    "text after a boundary": form(part(PICTURE + b"\r\n--bx")),
    "text before the first boundary": b"x" + form(part()),
}

FORMS_WITHOUT_FILE = {
    "no parts": b"--b--\r\n",
    "no known parts": form(part(name="unknown")),
    "a name in capitals": form(part(name="Avatar")),
    "no name": form(part(head=b'Content-Disposition: form-data; filename="x"')),
    "an empty file": form(part(b"")),
    "a browser's form without a file": form(  # browsers send an empty name and a type
        part(
            b"",
            head=b'Content-Disposition: form-data; name="avatar"; filename=""',
            more=b"Content-Type: application/octet-stream\r\n",
        )
    ),
    "a text": form(text()),
    "a text with a content type": form(
        part(head=b'Content-Disposition: form-data; name="avatar"\r\nContent-Type: text/plain; charset=x')
    ),
    "an empty text": form(text(b"")),
}

CONTENT_TYPES = [
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
