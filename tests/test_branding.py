"""The name, colour, logo and contact of an installation."""

import base64
import dataclasses
import hashlib
import random
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from app import build
from service.branding import (
    CONTRAST,
    DARK_BACKGROUND,
    DARK_MUTED,
    LIGHT_BACKGROUND,
    LIGHT_MUTED,
    Colour,
    branding_of,
    contrast,
)
from service.settings import Settings
from tests.support import sample_data
from tests.support.client import Client
from tests.support.paths import ROOT
from tests.support.web_client import Browser

PROGRAM = [sys.executable, str(ROOT / "app.py")]
COLOURS = ["#000000", "#ffffff", "#ffff00", "#0000ff", "#ff0000", "#808080", "#0b6e5f"]
MODES = [(LIGHT_BACKGROUND, LIGHT_MUTED), (DARK_BACKGROUND, DARK_MUTED)]
EVIL = "<script>\"'&</script>"


def run(*arguments: str) -> str:
    """Run a command that fails; return its error line."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, timeout=60, text=True)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def branded(settings: Settings) -> Callable[..., Any]:
    """Return the application with other settings."""
    return lambda **values: build(dataclasses.replace(settings, **values))


def colours(style: str) -> dict[str, tuple[Colour, Colour]]:
    """Return the colours of a style sheet in light and dark mode by name."""
    found = re.findall(r"--([\w-]+): light-dark\(#(\w{6}), #(\w{6})\)", style)
    return {name: (parse(light), parse(dark)) for name, light, dark in found}


def parse(text: str) -> Colour:
    red, green, blue = bytes.fromhex(text)
    return red, green, blue


def test_every_accent_is_readable() -> None:
    generator = random.Random(1)
    for accent in [*COLOURS, *(f"#{generator.randrange(2**24):06x}" for _ in range(1_000))]:
        found = colours(branding_of(Settings(accent=accent)).style)
        for mode, (background, muted) in enumerate(MODES):
            assert contrast(found["accent"][mode], background) >= CONTRAST, accent
            assert contrast(muted, found["accent-background"][mode]) >= CONTRAST, accent
            assert contrast(found["accent-text"][mode], found["accent-background"][mode]) >= CONTRAST, accent


def test_muted_texts_have_the_colours_of_the_style_sheet() -> None:
    (pair,) = re.findall(r"--muted: light-dark\(#(\w{6}), #(\w{6})\)", (ROOT / "static" / "style.css").read_text())
    assert tuple(map(parse, pair)) == (LIGHT_MUTED, DARK_MUTED)


def test_readable_colour_is_not_changed() -> None:
    found = colours(branding_of(Settings(accent="#0b5e4f")).style)
    assert found["accent"][0] == parse("0b5e4f")


def test_contrast_is_that_of_the_guidelines() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == 21
    assert round(contrast((0x77, 0x77, 0x77), (255, 255, 255)), 2) == 4.48


def test_style_is_allowed_by_its_hash(branded: Callable[..., Any]) -> None:
    reply = Browser(branded(accent="#aa3300")).open("/sign-in")
    (style,) = re.findall(r"<style>(.*?)</style>", reply.raw.decode(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'self' 'sha256-{digest}';" in reply.headers["Content-Security-Policy"]


def test_pages_without_branding_have_no_style(branded: Callable[..., Any]) -> None:
    reply = Browser(branded()).open("/sign-in")
    assert "<style>" not in reply.raw.decode()
    assert "style-src 'self';" in reply.headers["Content-Security-Policy"]


def test_name_is_on_all_pages(branded: Callable[..., Any], alice: Client) -> None:
    browser = Browser(branded(name=EVIL))
    for path in ("/sign-in", "/unknown", "/oauth/authorize?x=1"):
        html = browser.open(path).raw.decode()
        assert EVIL not in html
        (title,) = re.findall("<title>(.*?)</title>", html)
        assert unescape(title).endswith(f" – {EVIL}")
        assert unescape(html).count(f"<span>{EVIL}</span>") == 1
    html = unescape(browser.signed_in(alice).open("/").raw.decode())
    assert html.count(f"<span>{EVIL}</span>") == 2  # at the top of narrow and of wide screens
    assert "<span>Console</span>" not in html


def test_logo_is_a_small_square_on_all_pages(branded: Callable[..., Any], alice: Client, tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(sample_data.picture(side=300))
    browser = Browser(branded(logo=str(tmp_path / "logo.png")))
    for path, number in (("/sign-in", 1), ("/", 2)):
        if path == "/":
            browser.signed_in(alice)
        found = re.findall(r'<img class="logo" src="data:image/webp;base64,([^"]+)"', browser.open(path).raw.decode())
        assert len(found) == number
        assert base64.b64decode(found[0])[8:12] == b"WEBP"
        assert len(found[0]) < 20_000


@pytest.mark.parametrize(
    ("contact", "shown"),
    [
        ("", "Ask the administrator of this service for a new one."),
        ("help@shop.example", '<a href="mailto:help@shop.example">help@shop.example</a>'),
        ("https://shop.example/help", '<a href="https://shop.example/help">https://shop.example/help</a>'),
        ("the front desk, room 4", "Ask for a new one: the front desk, room 4"),
        ("javascript:alert(1)", "Ask for a new one: javascript:alert(1)"),
        ("<b>", "Ask for a new one: &lt;b&gt;"),
    ],
)
def test_sign_in_page_names_the_contact(contact: str, shown: str, branded: Callable[..., Any]) -> None:
    html = Browser(branded(contact=contact)).open("/sign-in").raw.decode()
    assert shown in re.sub(r"\s*\n\s*", " ", html)


@pytest.mark.parametrize(
    ("flag", "value", "error"),
    [
        ("--accent", "green", "--accent must be a colour such as #0b6e5f"),
        ("--accent", "#12345", "--accent must be a colour such as #0b6e5f"),
        ("--name", "a\nb", "--name must be a text of at most 200 characters in one line"),
        ("--contact", "x" * 201, "--contact must be a text of at most 200 characters in one line"),
        ("--logo", "/nowhere/logo.png", "--logo: cannot read /nowhere/logo.png: No such file or directory"),
    ],
)
def test_invalid_values_end_the_start(flag: str, value: str, error: str, tmp_path: Path) -> None:
    assert error in run("serve", "--data", str(tmp_path / "data"), flag, value)
    assert not (tmp_path / "data").exists()


def test_file_that_is_no_picture_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "logo.txt").write_text("no picture")
    error = run("serve", "--data", str(tmp_path / "data"), "--logo", str(tmp_path / "logo.txt"))
    assert error.startswith(f"cx-service: --logo: {tmp_path / 'logo.txt'}: ")


def test_name_of_an_app_is_not_the_name_of_the_installation(tmp_path: Path) -> None:
    assert "--name" not in run("app", "add", "x" * 201, "--data", str(tmp_path / "data"))
