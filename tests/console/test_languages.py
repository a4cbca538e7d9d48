"""The language of pages: that of the user's settings, else of the browser, else English."""

from typing import Any

import pytest

from service import clock, translation
from service.console.times import Times, age_of
from service.models import ChatSession
from service.translation import Html, gettext, html, ngettext
from service.translation.numbers import format_number, format_size
from tests.support.client import Client
from tests.support.observe import at_once
from tests.support.web_client import Browser


@pytest.fixture
def browser(alice: Client, application: Any) -> Browser:
    return Browser(application).signed_in(alice)


def language_of(browser: Browser) -> str:
    return browser.reply.raw.decode().partition('<html lang="')[2].partition('"')[0]


class TestTheLanguage:
    @pytest.mark.parametrize(
        ("accepted", "expected"),
        [
            ("", "en"),
            ("*", "en"),
            ("de-AT,en;q=0.8", "de"),
            ("en;q=0.8, fr", "fr"),
            ("nl, es-MX;q=0.5", "es"),
            ("pt-PT", "pt-BR"),
            ("pt-BR", "pt-BR"),
            ("zh-CN", "zh-Hans"),
            ("zh", "zh-Hans"),
            ("zh-TW, ja;q=0.5", "ja"),
            ("ar-EG", "ar"),
            ("arn", "en"),  # Mapudungun, not Arabic
            ("x" * 5_000, "en"),
        ],
    )
    def test_of_the_browser_counts_without_a_setting(
        self, accepted: str, expected: str, browser: Browser, application: Any
    ) -> None:
        stranger = Browser(application)
        stranger.languages = browser.languages = accepted
        for one in (stranger, browser):
            one.open("/")
            assert language_of(one) == expected

    def test_of_the_settings_has_precedence(self, browser: Browser, alice: Client) -> None:
        browser.languages = "fr"
        browser.open("/console/settings")
        browser.send(2, act="settings", language="de")
        assert (language_of(browser), alice.get("/users/me/settings").data["appearance"]["language"]) == ("de", "de")
        assert "Gespeichert." in browser.text and "Einstellungen" in browser.text
        browser.send(2, act="settings", language="")
        assert language_of(browser) == "fr"

    def test_without_a_translation_is_kept_in_the_settings(self, browser: Browser, alice: Client) -> None:
        alice.patch("/users/me/settings", {"appearance": {"language": "nl-BE"}})
        browser.languages = "es"
        browser.open("/console/settings")
        assert language_of(browser) == "es"
        browser.send(2, act="settings", theme="dark")
        assert alice.get("/users/me/settings").data["appearance"]["language"] == "nl-BE"

    def test_is_that_of_error_pages(self, browser: Browser, application: Any) -> None:
        browser.languages = "de"
        for one in (browser, Browser(application)):
            one.languages = "de"
            one.open("/no/such/page")
            assert language_of(one) == "de" and "Page not found" not in one.text
        assert browser.open("/console/chats/00000000-0000-4000-8000-000000000000").status == 404
        assert language_of(browser) == "de" and "There is no such" not in browser.text

    def test_is_that_of_the_errors_of_forms(self, browser: Browser, application: Any) -> None:
        browser.languages = "de"
        browser.open("/console/settings")
        assert browser.send(1, act="profile", phone="12").status == 400
        assert "Telefon: " in browser.text and "expected" not in browser.text
        stranger = Browser(application)
        stranger.languages = "de"
        stranger.open("/")
        assert stranger.send(email="alice@example.com", password="wrong").status == 401
        assert "The e-mail address or the password is wrong" not in stranger.text

    def test_is_written_from_the_right_if_it_is_arabic(self, browser: Browser) -> None:
        browser.languages = "ar"
        assert b'<html lang="ar" dir="rtl"' in browser.open("/").raw
        browser.languages = "de"
        assert b"dir=" not in browser.open("/").raw.partition(b">")[0]

    def test_is_separate_for_concurrent_requests(self, application: Any) -> None:
        tags = [*translation.LANGUAGES]

        def open_pages(number: int) -> set[str]:
            browser = Browser(application)
            browser.languages = tags[number]
            return {
                browser.open("/sign-in").raw.decode().partition('<html lang="')[2].partition('"')[0] for _ in range(4)
            }

        assert at_once(len(tags), open_pages) == [{tag} for tag in tags]

    def test_does_not_change_names_and_messages(self, browser: Browser, session: ChatSession, alice: Client) -> None:
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Delete"}})
        browser.languages = "de"
        browser.open(f"/console/chats/{session.id}")
        assert '<p class="text" dir="auto">Delete</p>' in browser.reply.raw.decode()


class TestTexts:
    def test_have_values_for_placeholders(self) -> None:
        with translation.use("de"):
            assert gettext("Status of {name}", name="{x}") == "Status von {x}"
            assert gettext("Save") == "Speichern"
            assert gettext("no such text {x}") == "no such text {x}"

    def test_with_html_escape_values(self) -> None:
        assert html("by <bdi>{name}</bdi>", name="<b>") == "by <bdi>&lt;b&gt;</bdi>"
        assert html("since {time}", time=Html("<time></time>")) == "since <time></time>"

    @pytest.mark.parametrize(
        ("language", "count", "expected"),
        [("en", 1, "1 day"), ("en", 2, "2 days"), ("de", 1, "1 Tag"), ("de", 5, "5 Tage"), ("ja", 1, "1 日")],
    )
    def test_depend_on_numbers(self, language: str, count: int, expected: str) -> None:
        with translation.use(language):
            assert ngettext("{count} day", "{count} days", count).replace("1日", "1 日") == expected

    def test_have_all_plural_forms_of_arabic(self) -> None:
        with translation.use("ar"):
            assert (
                len({ngettext("{count} day", "{count} days", n).replace(str(n), "") for n in (1, 2, 3, 11, 100)}) >= 4
            )


class TestNumbers:
    @pytest.mark.parametrize(
        ("language", "number", "size"),
        [
            ("en", "1,234,567.9", "1.4 MiB"),
            ("ar", "1,234,567.9", "1.4 MiB"),
            ("de", "1.234.567,9", "1,4 MiB"),
            ("fr", "1\u202f234\u202f567,9", "1,4 MiB"),
        ],
    )
    def test_have_the_separators_of_the_language(self, language: str, number: str, size: str) -> None:
        with translation.use(language):
            assert (format_number(1_234_567.89, 1), format_size(1_500_000)) == (number, size)

    @pytest.mark.parametrize(
        ("size", "expected"), [(0, "0 KiB"), (708_608, "692 KiB"), (1_023_999, "1.0 MiB"), (5 << 50, "5,120 TiB")]
    )
    def test_of_bytes_have_units(self, size: int, expected: str) -> None:
        assert format_size(size) == expected


class TestDates:
    @pytest.mark.parametrize(
        ("language", "full", "day"),
        [
            ("en", "20 Nov 2026, 14:05", "Friday, 20 November 2026"),
            ("de", "20. Nov. 2026, 14:05", "Freitag, 20. November 2026"),
            ("fr", "20 nov. 2026, 14:05", "vendredi 20 novembre 2026"),
            ("es", "20 nov 2026, 14:05", "viernes, 20 de noviembre de 2026"),
            ("pt-BR", "20 de nov. de 2026 14:05", "sexta-feira, 20 de novembro de 2026"),
            ("ja", "2026年11月20日 14:05", "2026年11月20日金曜日"),
            ("zh-Hans", "2026年11月20日 14:05", "2026年11月20日星期五"),
            ("ar", "20 نوفمبر 2026، 14:05", "الجمعة، 20 نوفمبر 2026"),
        ],
    )
    def test_are_in_the_language(self, language: str, full: str, day: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clock, "timestamp", lambda: "2027-01-02T12:00:00.000Z")
        with translation.use(language):
            times = Times("")
            assert times.full("2026-11-20T14:05:00.000Z") == full
            assert times.day("2026-11-20T14:05:00.000Z") == day
            assert times.brief("2027-01-02T11:00:00.000Z") == "11:00"
            assert age_of("2027-01-01T12:00:00.000Z") == ngettext("{count} day", "{count} days", 1)
