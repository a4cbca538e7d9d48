"""The page on which admins set the name, the accent colour, the contact and the logo of the installation."""

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from app import build
from service import db
from service.branding import UNSET, branding_of
from service.models import AuditLog, StoredBranding
from service.settings import Settings
from tests.support.access import as_form
from tests.support.client import Client, Reply
from tests.support.faults import disk_full
from tests.support.observe import nothing_changes
from tests.support.sample_data import picture
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

PAGE = "/console/branding"
EVIL = "<script>\"'&</script>"


@pytest.fixture
def browser(admin: Client) -> Browser:
    return Browser(admin.application).signed_in(admin)


@pytest.fixture
def visitor(admin: Client) -> Browser:
    """A browser that is not signed in."""
    return Browser(admin.application)


def csrf_token(browser: Browser) -> str:
    forms = Forms(browser.open(PAGE).raw.decode()).found
    return next(fields["csrf_token"] for _, fields in forms if "csrf_token" in fields)


def save(browser: Browser, **values: str) -> Reply:
    """Send the form; a field that is not named is empty, as in a browser."""
    fields = {"csrf_token": csrf_token(browser), "name": "", "contact": "", **values}
    return browser.navigate("POST", PAGE, fields)


def upload(browser: Browser, content: bytes, token: str = "") -> Reply:
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    path = f"/{PAGE}/logo?csrf_token={token or csrf_token(browser)}"
    return browser.client.post(path, cookie=cookie, sec_fetch_mode="navigate", **as_form({"picture": content}))


def entries() -> list[tuple[str, dict[str, Any]]]:
    found = AuditLog.select().where(AuditLog.kind == "branding_changed").order_by(AuditLog.position)
    return [(entry.actor_id, json.loads(entry.details)) for entry in found]


def test_saved_values_are_on_all_pages(browser: Browser, visitor: Browser, admin: Client) -> None:
    reply = save(browser, name=f" {EVIL} ", contact="help@example.com", has_accent="true", accent="#AA3300")
    assert reply.status == 200
    assert "Saved." in browser.text
    assert StoredBranding.values() == (EVIL, "#aa3300", "help@example.com", "")
    style = branding_of(Settings(accent="#aa3300"))
    for one, path in ((browser, "/"), (browser, PAGE), (visitor, "/sign-in"), (visitor, "/"), (visitor, "/missing")):
        reply = one.open(path)
        assert "&lt;script&gt;" in reply.raw.decode()
        assert EVIL.encode() not in reply.raw
        assert style.style.encode() in reply.raw
        assert style.style_source in reply.headers["Content-Security-Policy"]
    assert "mailto:help@example.com" in visitor.open("/sign-in").raw.decode()
    assert entries() == [(admin.user.id, {"columns": ["accent", "contact", "name"]})]


def test_values_are_shown_in_the_form_and_can_be_removed(browser: Browser) -> None:
    save(browser, name="Chocolate", contact="Ask at the desk", has_accent="true", accent="#aa3300")
    [form] = [fields for action, fields in Forms(browser.open(PAGE).raw.decode()).found if action == PAGE]
    shown = {"name": "Chocolate", "contact": "Ask at the desk", "has_accent": "true", "accent": "#aa3300"}
    assert {name: form[name] for name in shown} == shown
    save(browser, accent="#aa3300")
    assert StoredBranding.values() == UNSET
    assert "<style>" not in browser.open("/").raw.decode()
    assert StoredBranding.select().count() == 1


def test_repeated_form_changes_nothing(browser: Browser) -> None:
    save(browser, name="Chocolate")
    with nothing_changes():
        save(browser, name="Chocolate")
    assert len(entries()) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "x" * 201}, "Name: expected a text of at most 200 characters in one line."),
        ({"contact": "a\nb"}, "Contact: expected a text of at most 200 characters in one line."),
        ({"has_accent": "true", "accent": "green"}, "Accent: expected a colour such as #0b6e5f."),
        ({"has_accent": "true", "accent": "#0b6e5f}</style>"}, "Accent: expected a colour such as #0b6e5f."),
    ],
)
def test_invalid_values_are_refused(values: dict[str, str], message: str, browser: Browser) -> None:
    token = csrf_token(browser)
    with nothing_changes():
        reply = browser.navigate("POST", PAGE, {"csrf_token": token, "name": "", "contact": "", **values})
    assert reply.status == 400
    assert message in browser.text


def test_logo_is_uploaded_shown_and_removed(browser: Browser, visitor: Browser, admin: Client) -> None:
    assert upload(browser, picture(side=300)).status == 303
    for one, path in ((browser, "/"), (browser, PAGE), (visitor, "/sign-in")):
        assert re.search(r'<img class="logo" src="data:image/webp;base64,[^"]+"', one.open(path).raw.decode())
    logo = StoredBranding.values().logo
    browser.navigate("POST", f"{PAGE}/logo/removal", {"csrf_token": csrf_token(browser)})
    assert 'class="logo"' not in browser.open("/").raw.decode()
    assert "There is no logo." in browser.open(PAGE).raw.decode()
    assert logo
    assert entries() == [(admin.user.id, {"columns": ["logo"]})] * 2


@pytest.mark.parametrize(
    ("content", "status"), [(b"no picture", 415), (b"\x89PNG\r\n\x1a\n" + bytes(60), 400), (b"", 400)]
)
def test_file_that_is_no_picture_is_refused(content: bytes, status: int, browser: Browser) -> None:
    with nothing_changes():
        assert upload(browser, content).status == status


def test_logo_needs_the_csrf_token(browser: Browser) -> None:
    with nothing_changes():
        assert upload(browser, picture(), "x").status == 400


class TestSettings:
    """The settings of `serve` take precedence."""

    @pytest.fixture
    def configured(self, settings: Settings, admin: Client) -> Callable[..., Browser]:
        """Sign the admin in to a service with other settings."""

        def sign_in(**values: str) -> Browser:
            return Browser(build(dataclasses.replace(settings, **values))).signed_in(admin)  # type: ignore[arg-type]

        return sign_in

    def test_replace_stored_values_and_leave_the_others(self, configured: Callable[..., Browser]) -> None:
        StoredBranding.create(id=1, name="Stored", contact="Stored contact")
        html = configured(name="Configured").open("/sign-in").raw.decode()
        assert "Configured" in html
        assert "Stored contact" in html
        assert "Stored<" not in html

    def test_cannot_be_changed_in_the_console(self, configured: Callable[..., Browser]) -> None:
        StoredBranding.create(id=1, name="Stored", accent="#112233")
        browser = configured(name="Configured", accent="#aa3300")
        html = browser.open(PAGE).raw.decode()
        assert re.search(r'<input name="name" value="Configured"[^>]* disabled', html)
        assert re.search(r'<input type="color"[^>]* value="#aa3300"[^>]* disabled', html)
        assert "Set by <code>--name</code>" in html
        save(browser, name="Other", contact="New contact")
        assert StoredBranding.values() == ("Stored", "#112233", "New contact", "")

    def test_logo_in_the_settings_has_no_form(self, configured: Callable[..., Browser], tmp_path: Any) -> None:
        (tmp_path / "logo.png").write_bytes(picture())
        html = configured(logo=str(tmp_path / "logo.png")).open(PAGE).raw.decode()
        assert f'action="{PAGE}/logo' not in html
        assert "Set by <code>--logo</code>" in html


def test_error_pages_work_without_the_database(visitor: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    StoredBranding.create(id=1, name="Chocolate")
    assert "Chocolate" in visitor.open("/missing").raw.decode()

    def fail() -> None:
        raise disk_full()

    monkeypatch.setattr(StoredBranding, "values", fail)
    monkeypatch.setattr(db, "is_unavailable", lambda error: True)
    monkeypatch.setattr(db, "reconnect_after", lambda error: None)
    reply = visitor.open("/missing")
    assert reply.status == 404
    assert "Chocolate" not in reply.raw.decode()
