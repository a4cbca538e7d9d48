"""The catalogues of the pages are complete, and their texts fit those of the source."""

import re
import string
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from babel import Locale, dates
from babel.messages import pofile
from babel.messages.catalog import Catalog

from service import translation
from service.translation.dates import FORMATS
from service.translation.language_names import TAGS, language_name

ROOT = Path(__file__).parents[2]
TRANSLATED = sorted(set(translation.LANGUAGES) - {translation.SOURCE})
NOT_TRANSLATED = {"api-reference.html", "part-icon.html"}


def read(language: str) -> Catalog:
    with (translation.FOLDER / f"{language}.po").open("rb") as file:
        return pofile.read_po(file, locale=language.replace("-", "_"))


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def elements(text: str) -> Counter[str]:
    return Counter(re.findall(r"<[^>]*>", text))


def test_every_language_has_a_catalogue() -> None:
    assert [path.stem for path in sorted(translation.FOLDER.glob("*.po"))] == TRANSLATED
    assert set(FORMATS) == set(translation.LANGUAGES)


@pytest.mark.slow
def test_catalogues_have_exactly_the_texts_of_the_source(tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in translation.FOLDER.glob("*.po")}
    try:
        subprocess.run([sys.executable, ".ci/translations.py"], cwd=ROOT, check=True, capture_output=True)
        changed = [path.name for path, content in before.items() if path.read_bytes() != content]
    finally:
        for path, content in before.items():
            path.write_bytes(content)
    assert not changed, "run `make translations`"


@pytest.mark.parametrize("language", TRANSLATED)
class TestEveryText:
    def test_is_translated(self, language: str) -> None:
        catalogue = read(language)
        missing = [
            message.id
            for message in catalogue
            if message.id and not (all(message.string) if message.pluralizable else message.string)
        ]
        assert not missing and not [message.id for message in catalogue if message.id and message.fuzzy]

    def test_has_the_placeholders_of_the_source(self, language: str) -> None:
        wrong = []
        for message in filter(lambda message: message.id, read(language)):
            if message.pluralizable:
                expected = placeholders(message.id[1])
                found = [placeholders(text) for text in message.string]
                is_wrong = any(one - expected or expected - one - {"count"} for one in found) or found[-1] != expected
            else:
                is_wrong = bool(re.search(r"\{[a-z]", message.id)) and (
                    placeholders(message.id) != placeholders(message.string)
                )
            if is_wrong:
                wrong.append((message.id, message.string))
        assert not wrong

    def test_has_the_elements_of_the_source(self, language: str) -> None:
        wrong = [
            (message.id, message.string)
            for message in read(language)
            if message.id and not message.pluralizable and elements(message.id) != elements(message.string)
        ]
        assert not wrong

    def test_ends_like_the_source(self, language: str) -> None:
        ends = (".", "。", "…", "!", "！")
        wrong = [
            (message.id, message.string)
            for message in read(language)
            if message.id
            and not message.pluralizable
            and message.id.endswith(".") != message.string.rstrip("\u200f\u200e)").endswith(ends)
            and not message.id.endswith(("…", "!", ". Head: {head}"))
        ]
        assert not wrong


@pytest.mark.parametrize("template", sorted((ROOT / "templates").glob("*.html")), ids=lambda path: path.name)
def test_templates_have_no_other_texts(template: Path) -> None:
    if template.name in NOT_TRANSLATED:
        return
    lines = [line for line in template.read_text("utf-8").split("\n") if not line.lstrip().startswith("%")]
    page = re.sub(r"<!--.*?-->", "", re.sub(r"\{\{.*?\}\}+", "", "\n".join(lines)), flags=re.DOTALL)
    named = re.findall(r'\b(?:aria-label|alt|title|placeholder)="([^"]*[a-z]{3}[^"]*)"', page)
    texts = re.findall(r"[^\W\d_]{2,}", re.sub(r"<[^>]*>", " ", page))
    assert not texts and not named


@pytest.mark.parametrize(
    "name", ["canned-replies.js", "chat.js", "console.js", "images.js", "push.js", "push-worker.js", "shortcuts.js"]
)
def test_scripts_have_no_texts(name: str) -> None:
    code = re.sub(r"(^|\s)//.*", "", (ROOT / "static" / name).read_text("utf-8"))
    texts = re.findall(r"""["'`]([A-Z][a-z]+ [^"'`]*)["'`]""", code)
    assert not texts
    used = set(re.findall(r"\btexts\.(\w+)", code))
    pages = "".join(
        (ROOT / "templates" / page).read_text("utf-8") for page in ("layout-console.html", "console-chat.html")
    )
    given = {
        re.sub(r"-(\w)", lambda match: match[1].upper(), attribute)
        for element in re.findall(r"<template data-texts[^\n]*", pages)
        for attribute in re.findall(r" data-([a-z-]+)=", element)
    }
    assert used <= given


@pytest.mark.parametrize("language", sorted(translation.LANGUAGES))
def test_names_of_languages_are_those_of_cldr(language: str) -> None:
    languages = Locale.parse(language.replace("-", "_")).languages
    with translation.use(language):
        names = {tag: language_name(tag) for tag in TAGS.split()}
    assert names == {tag: languages[tag.replace("-", "_")] for tag in names}


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("pt-BR", "Portuguese"),
        ("PT", "Portuguese"),
        ("zh-hant-TW", "Traditional Chinese"),
        ("zh-TW", "Chinese"),
        ("tlh", "tlh"),
        ("x-one", "x-one"),
    ],
)
def test_language_has_a_name_without_its_region(tag: str, name: str) -> None:
    assert language_name(tag) == name


@pytest.mark.parametrize("language", sorted(translation.LANGUAGES))
def test_dates_are_those_of_cldr(language: str) -> None:
    locale = Locale.parse("en_GB" if language == "en" else language.replace("-", "_"))
    formats, names = FORMATS[language], Locale.parse("en") if language == "en" else locale
    months, short = (dates.get_month_names(width, locale=names) for width in ("wide", "abbreviated"))
    assert formats.months.split() == [months[number] for number in range(1, 13)]
    assert formats.short_months.split() == [short[number] for number in range(1, 13)]
    assert formats.weekdays.split() == [dates.get_day_names("wide", locale=names)[number] for number in range(7)]
    day = datetime(2026, 1, 31)  # noqa: DTZ001
    for own, skeleton in ((formats.date, "yMMMd"), (formats.date_of_year, "MMMd")):
        assert formats.format(own, day) == dates.format_skeleton(skeleton, day, locale=locale)
    assert formats.format(formats.full_date, day) == dates.format_date(day, "full", locale=locale)
