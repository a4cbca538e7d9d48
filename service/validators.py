"""Validators of texts. Each returns the text to store, or raises ValueError with the expected form."""

import functools
import re
import unicodedata
from importlib.resources import files

from service import clock

MAX_EMAIL_LENGTH = 254  # characters (RFC 5321, section 4.5.3.1.3, with erratum 1690)
MAX_LANGUAGES = 10  # of an Accept-Language header that are used
MAX_HEADER_LENGTH = 2000  # characters of an Accept-Language header that are parsed

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_PHONE = re.compile(r"\+[1-9][0-9]{1,14}", re.ASCII)
_WEB_ADDRESS = re.compile(  # optionally with user information, a port, a path, a query and a fragment
    r"https?://([^/?#@]*@)?([^/?#@:\[\]]+|\[[0-9a-f:.]+\])(:[0-9]{0,5})?([/?#].*)?", re.ASCII | re.IGNORECASE
)
_NOT_IN_ADDRESS = re.compile(r"[\s\\\x00-\x1f\x7f-\x9f]")
# Line separators, and controls that change the direction of the surrounding text.
_MISLEADING = re.compile(r"[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LANGUAGE_RANGE = re.compile(
    r"([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8}){0,8})(?:\s*;\s*q=([01](?:\.[0-9]{0,3})?))?", re.ASCII
)
_PLAIN_LANGUAGE = re.compile(r"([a-z]{2,3})(-[a-z]{4})?(-[a-z]{2}|-[0-9]{3})?(?![a-z0-9])", re.ASCII | re.IGNORECASE)
_LANGUAGE_TAG = re.compile(
    r"""
    (?: (?: [a-z]{2,3} (?: -[a-z]{3} ){0,3} | [a-z]{4,8} )  # language, extended language
        (?: -[a-z]{4} )?                                    # script
        (?: -(?: [a-z]{2} | [0-9]{3} ) )?                             # region
        (?P<variants> (?: -(?: [a-z0-9]{5,8} | [0-9][a-z0-9]{3} ) )* )
        (?P<extensions> (?: -[0-9a-wy-z] (?: -[a-z0-9]{2,8} )+ )* )
        (?: -x (?: -[a-z0-9]{1,8} )+ )?
    |   x (?: -[a-z0-9]{1,8} )+                                       # private use
    |   en-gb-oed | i-(?: ami|bnn|default|enochian|hak|klingon|lux|mingo|navajo|pwn|tao|tay|tsu )
    |   sgn-(?: be-fr|be-nl|ch-de ) | art-lojban | cel-gaulish | no-(?: bok|nyn )
    |   zh-(?: guoyu|hakka|min|min-nan|xiang )
    )
    """,
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)


def slug(text: str) -> str:
    """Return a name for programs: ASCII letters, digits, `_` and `-`, beginning with a letter or digit."""
    if not _SLUG.fullmatch(text):
        raise ValueError("expected a word of letters, digits, _ and -")
    return text


def identifier(text: str) -> str:
    """Return an identifier of any system. A UUID is returned in lower case, as those of users and bots are stored."""
    try:
        return clock.read_uuid(text)
    except ValueError:
        return text


def fold_email(text: str) -> str:
    """Return the form in which e-mail addresses are stored and compared."""
    return text.strip().casefold()


def email_address(text: str) -> str:
    """Return an e-mail address in its stored form: text before and after one @, at most 254 characters, no spaces."""
    folded = fold_email(text)
    if len(folded) > MAX_EMAIL_LENGTH or not _EMAIL.fullmatch(folded) or not folded.isprintable():
        raise ValueError("expected an e-mail address such as ada@example.com")
    return folded


def language_tag(text: str) -> str:
    """Return a well-formed language tag (BCP 47; RFC 5646, section 2.1), with its case unchanged."""
    match = _LANGUAGE_TAG.fullmatch(text)
    variants = (match["variants"] or "").lower().split("-")[1:] if match else []
    singletons = re.findall(r"-(\w)(?=-)", (match["extensions"] or "").lower()) if match else []
    if not match or len(set(variants)) < len(variants) or len(set(singletons)) < len(singletons):
        raise ValueError("expected a language tag such as en or pt-BR")
    return text


def plain_language(text: str) -> str:
    """Return the language, script and region of a language tag, in their usual case (RFC 5646, section 2.1.1)."""
    match = _PLAIN_LANGUAGE.match(language_tag(text))
    if not match:
        raise ValueError("expected a language tag such as en or pt-BR")
    language, script, region = match.groups("")
    return language.lower() + script.title() + region.upper()


def accepted_languages(header: str) -> list[str]:
    """Return the language tags of an `Accept-Language` header (RFC 9110, section 12.5.4), sorted by preference.

    Malformed parts are ignored.
    """
    ranges = [_LANGUAGE_RANGE.fullmatch(part.strip()) for part in header[:MAX_HEADER_LENGTH].split(",")]
    weighted = [(float(match[2] or 1), match[1]) for match in ranges if match]
    return [tag for weight, tag in sorted(weighted, key=lambda pair: -pair[0]) if weight > 0][:MAX_LANGUAGES]


def accept_language(header: str) -> str:
    """Return a normalized `Accept-Language` header: the tags sorted by preference, without weights."""
    tags = accepted_languages(header)
    if not tags:
        raise ValueError("expected language tags, as in an Accept-Language header")
    return ", ".join(tags)


def time_zone(text: str) -> str:
    """Return the name of a time zone in the IANA database."""
    if text not in time_zones():
        raise ValueError("expected an IANA time zone such as Europe/Berlin")
    return text


@functools.cache
def time_zones() -> frozenset[str]:
    """Return the names of all time zones in the IANA database."""
    return frozenset((files("tzdata") / "zones").read_text("utf-8").split())


def phone_number(text: str) -> str:
    """Return a telephone number in the international format of ITU-T E.164."""
    if not _PHONE.fullmatch(text):
        raise ValueError("expected a phone number such as +4930123456")
    return text


def web_address(text: str) -> str:
    """Return an http or https URL with a host. Backslashes are rejected, because some parsers read them as slashes."""
    if not _WEB_ADDRESS.fullmatch(text) or _NOT_IN_ADDRESS.search(text) or _MISLEADING.search(text):
        raise ValueError("expected a URL that begins with http:// or https://")
    return text


def country(text: str) -> str:
    """Return a country code of two letters (ISO 3166-1 alpha-2) in upper case, or the empty string."""
    if not re.fullmatch(r"([A-Za-z]{2})?", text, re.ASCII):
        raise ValueError("expected a country code of two letters such as DE")
    return text.upper()


def fold(text: str) -> str:
    """Return the form of a text in which searches compare it: case folded and in NFC (Unicode, section 3.13)."""
    if text.isascii():
        return text.lower()  # the same in less time
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def displayable(text: str) -> str:
    """Return a text that is safe to display: without control characters, and without changes of the direction."""
    if _MISLEADING.search(text) or any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("expected no control characters")
    return text


def byte_size(count: int) -> str:
    """Return a number of bytes for display, in MiB or KiB if it is a whole number of them."""
    for unit, name in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if count and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} bytes"
