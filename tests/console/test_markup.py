"""Links in texts, and matches of a search."""

import pytest

from service.console.markup import EXCERPT, highlighted, linked

LINK = '<a href="{0}" target="_blank" rel="noopener noreferrer nofollow">{0}</a>'


@pytest.mark.parametrize(
    ("text", "address", "rest"),
    [
        ("See https://a.example/b?c=d#e now", "https://a.example/b?c=d#e", "See {} now"),
        ("HTTP://A.EXAMPLE", "HTTP://A.EXAMPLE", "{}"),
        ("Is it http://a.example/?", "http://a.example/", "Is it {}?"),
        ("(https://a.example/b_(c))", "https://a.example/b_(c)", "({})"),
        ("https://a.example/東京、", "https://a.example/東京", "{}、"),
        ("https://a.example\u202egpj.exe", "https://a.example", "{}\u202egpj.exe"),
        ("<https://a.example/>", "https://a.example/", "&lt;{}&gt;"),
    ],
)
def test_addresses_are_links(text: str, address: str, rest: str) -> None:
    assert linked(text) == rest.format(LINK.format(address))


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "ftp://a.example",
        "www.a.example",
        "https://",
        "http:// a",
        "mailto:a@b.example",
        "//a.example",
    ],
)
def test_other_texts_are_no_links(text: str) -> None:
    assert linked(text) == text


def test_markup_in_texts_and_addresses_is_escaped() -> None:
    assert linked("<b>&'\"") == "&lt;b&gt;&amp;&#x27;&quot;"
    assert linked("https://a.example/?b&c=<script>") == LINK.format("https://a.example/?b&amp;c=") + "&lt;script&gt;"
    assert linked('https://a.example/"onclick="x') == LINK.format("https://a.example/") + "&quot;onclick=&quot;x"


@pytest.mark.parametrize(
    ("text", "search", "shown"),
    [
        ("A Needle in the hay", "nEEdle", "A <mark>Needle</mark> in the hay"),
        ("aXa", "a", "<mark>a</mark>X<mark>a</mark>"),
        ("1 < 2 & 3", "< 2", "1 <mark>&lt; 2</mark> &amp; 3"),
        ("a.b", "A.", "<mark>a.</mark>b"),
        ("cafe\u0301", "CAFÉ", "<mark>café</mark>"),
        ("Strasse", "straße", "Strasse"),  # found by the search, and not marked
    ],
)
def test_matches_are_marked(text: str, search: str, shown: str) -> None:
    assert highlighted(text, search) == shown


def test_excerpt_begins_shortly_before_the_match() -> None:
    shown = highlighted("x" * 1000 + "needle" + "y" * 1000, "needle")
    assert shown.startswith("…xxx") and shown.endswith("yyy…")
    assert "<mark>needle</mark>" in shown
    assert len(shown) == EXCERPT + len("…<mark></mark>…")
