"""The name, colour and logo of an installation, and whom to ask about a lost password, on all pages."""

import base64
import colorsys
import functools
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from service import pictures
from service.errors import ApiError
from service.settings import Settings

LOGO = pictures.Shape(1, 96)  # in pixels; shown at a third of it, for screens with three pixels per point
MAX_LOGO = 5 * 1024 * 1024  # bytes of the file
CONTRAST = 4.5  # of text and its background, at least (WCAG 2.2, 1.4.3)
STEP = 0.01  # of the lightness, from 0 to 1
# The backgrounds of pages with the least contrast: in light mode the darkest one, in dark mode the lightest one.
LIGHT_BACKGROUND, DARK_BACKGROUND = (0xE6, 0xE3, 0xDE), (0x2A, 0x2F, 0x35)
LIGHT_MUTED, DARK_MUTED = (0x5A, 0x61, 0x69), (0xA3, 0xA9, 0xB0)  # the texts with the least contrast
TINT_LIGHT, TINT_DARK = 0.12, 0.22  # the part of the accent colour in a tinted background, at most

Colour = tuple[int, int, int]


class BrandingValues(NamedTuple):
    """The branding of an installation, as admins set it. Empty values are unset."""

    name: str = ""
    accent: str = ""
    contact: str = ""
    logo: str = ""  # WebP as base64


UNSET = BrandingValues()


class Branding(NamedTuple):
    """What pages show of an installation; empty members are not shown."""

    name: str
    contact: str
    contact_link: str  # the address of `contact`, if it is an e-mail address or a URL
    logo: str  # a data: URL
    style: str  # a style sheet
    style_source: str  # the source expression of `style` in a Content-Security-Policy


@functools.lru_cache(maxsize=8)
def values_of(settings: Settings) -> BrandingValues:
    """Return the branding in the settings. Raises ValueError if the logo is not a picture."""
    logo = _read_logo(settings.logo) if settings.logo else ""
    return BrandingValues(settings.name, settings.accent, settings.contact, logo)


def branding_of(settings: Settings, stored: BrandingValues = UNSET) -> Branding:
    """Return the branding of an installation: the values in the settings, else the stored ones."""
    return _rendered(BrandingValues(*(own or other for own, other in zip(values_of(settings), stored, strict=True))))


def make_logo(content: bytes) -> str:
    """Return a picture as stored, cropped to a square. Raises the errors of `pictures.make_cropped`."""
    return base64.b64encode(pictures.make_cropped(content, LOGO)).decode()


@functools.lru_cache(maxsize=8)
def _rendered(values: BrandingValues) -> Branding:
    style = _style(values.accent) if values.accent else ""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Branding(
        values.name,
        values.contact,
        _link(values.contact),
        f"data:{pictures.CONTENT_TYPE};base64,{values.logo}" if values.logo else "",
        style,
        f"'sha256-{digest}'" if style else "",
    )


def _link(contact: str) -> str:
    if re.fullmatch(r"https?://\S+", contact):
        return contact
    return f"mailto:{contact}" if re.fullmatch(r"[^\s@]+@[^\s@]+", contact) else ""


def _read_logo(path: str) -> str:
    """Return the picture in a file as stored."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_LOGO + 1)
        if len(content) > MAX_LOGO:
            raise ValueError(f"--logo: {path} is larger than 5 MiB")
        return make_logo(content)
    except OSError as error:
        raise ValueError(f"--logo: cannot read {path}: {error.strerror}") from None
    except ApiError as error:
        raise ValueError(f"--logo: {path}: {error}") from None


def _style(accent: str) -> str:
    """Return a style sheet that sets the accent colour, and the colours that are derived from it."""
    colour = _parse(accent)
    light, dark = _with_contrast(colour, LIGHT_BACKGROUND), _with_contrast(colour, DARK_BACKGROUND)
    light_tint = _tint(light, (0xFF, 0xFF, 0xFF), TINT_LIGHT, LIGHT_MUTED)
    dark_tint = _tint(dark, (0x1D, 0x20, 0x24), TINT_DARK, DARK_MUTED)
    pairs = {
        "accent": (light, dark),
        "accent-background": (light_tint, dark_tint),
        "accent-text": (_with_contrast(light, light_tint), _with_contrast(dark, dark_tint)),
    }
    rules = (f"--{name}: light-dark({_hex(first)}, {_hex(second)})" for name, (first, second) in pairs.items())
    return f":root {{ {'; '.join(rules)} }}"


def _with_contrast(colour: Colour, background: Colour) -> Colour:
    """Return the nearest lightness of a colour that is readable on a background."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*(part / 255 for part in colour))
    step = -STEP if _luminance(background) > _luminance((0x80, 0x80, 0x80)) else STEP
    while contrast(colour, background) < CONTRAST:
        lightness += step
        red, green, blue = colorsys.hls_to_rgb(hue, min(max(lightness, 0), 1), saturation)
        colour = round(red * 255), round(green * 255), round(blue * 255)
    return colour


def contrast(first: Colour, second: Colour) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Colour) -> float:
    """Return the relative luminance of a colour, from 0 to 1 (WCAG 2.2)."""
    parts = (part / 255 for part in colour)
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _tint(colour: Colour, background: Colour, part: float, text: Colour) -> Colour:
    """Return a background with a part of a colour, less if a text would not be readable on it."""
    while contrast(text, tinted := _mix(colour, background, part)) < CONTRAST:
        part -= STEP
    return tinted


def _mix(colour: Colour, background: Colour, part: float) -> Colour:
    red, green, blue = (round(part * one + (1 - part) * other) for one, other in zip(colour, background, strict=True))
    return red, green, blue


def _parse(text: str) -> Colour:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
