"""Texts with a form of their own: what each function takes, gives back and refuses."""

import re
import unicodedata
import zoneinfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from service import validators

RIGHT_TO_LEFT = "\u202e"

# What every form refuses: nothing at all, what stands around it, and look-alikes from elsewhere in Unicode.
ALWAYS_WRONG = ["", " ", "\n", "\x00", "\u00a0", "é", "한국어", "\U0001f35e", RIGHT_TO_LEFT]


def each(name, words):
    """One test for each of the words."""
    return pytest.mark.parametrize(name, words.split())


def reason(form, text):
    """Why a form refuses a text; nothing if it takes it."""
    try:
        form(text)
    except ValueError as error:
        return str(error)
    return ""


def refuses(form, text):
    """Whether a form refuses a text, and says what it expected instead, whatever the text is."""
    return reason(form, text).startswith("expected ") and reason(form, text) == reason(form, "\0")


class TestLanguageTags:
    """RFC 5646: the grammar of section 2.1, the examples of its appendix A, and the rules on repetition of 2.2."""

    @each(
        "tag",
        """
        de fr ja i-enochian zh-Hant zh-Hans sr-Cyrl sr-Latn zh-cmn-Hans-CN cmn-Hans-CN zh-yue-HK yue-HK zh-Hans-CN
        sr-Latn-RS sl-rozaj sl-rozaj-biske sl-nedis de-CH-1901 sl-IT-nedis hy-Latn-IT-arevela de-DE en-US es-419
        de-CH-x-phonebk az-Arab-x-AZE-derbend x-whatever qaa-Qaaa-QM-x-southern de-Qaaa sr-Latn-QM sr-Qaaa-RS
        en-US-u-islamcal zh-CN-a-myext-x-private en-a-myext-b-another
        """,
    )
    def test_of_the_examples_in_the_standard_are_taken(self, tag):
        assert validators.language_tag(tag) == tag

    @pytest.mark.parametrize("tag", ["de-419-DE", "a-DE", "ar-a-aaa-b-bbb-a-ccc"])
    def test_that_the_standard_calls_invalid_are_refused(self, tag):
        assert refuses(validators.language_tag, tag)

    @each(
        "tag",
        """
        en-GB-oed i-ami i-bnn i-default i-enochian i-hak i-klingon i-lux i-mingo i-navajo i-pwn i-tao i-tay i-tsu
        sgn-BE-FR sgn-BE-NL sgn-CH-DE art-lojban cel-gaulish no-bok no-nyn zh-guoyu zh-hakka zh-min zh-min-nan zh-xiang
        """,
    )
    def test_that_are_grandfathered_are_taken_in_any_case(self, tag):
        for spelt in (tag, tag.lower(), tag.upper()):
            assert validators.language_tag(spelt) == spelt

    @pytest.mark.parametrize("tag", ["EN", "en-gb", "EN-gb", "ZH-hANT-tw", "X-Mine", "Sl-ROZAJ"])
    def test_keep_their_case(self, tag):
        assert validators.language_tag(tag) == tag

    @pytest.mark.parametrize(
        "tag",
        [
            "abcd",  # four letters are reserved, and well-formed
            "abcdefgh",
            "zh-min-nan",
            "zh-cmn-yue-gan",  # three extended languages
            "de-1996",
            "de-1a2b",
            "de-1901-1996",
            "en-a-bb",
            "en-0-abc-1-abc",
            "en-u-ca-gregory-nu-latn",
            "en-t-jp-u-hc-h12",
            "en-a-abcdefgh",
            "x-a",
            "x-12345678-1",
            "en-x-1-1-a-a",  # private use may repeat what it likes
            "de-1901-x-1901-1901",
        ],
    )
    def test_that_are_rare_but_well_formed_are_taken(self, tag):
        assert validators.language_tag(tag) == tag

    @pytest.mark.parametrize(
        "tag",
        [
            *ALWAYS_WRONG,
            "en_US",
            "e",
            "en-",
            "-en",
            "en--US",
            "en US",
            " en",
            "en ",
            "en\n",
            "en-U",
            "en-U$",
            "1n",
            "12",
            "abcdefghi",  # nine letters
            "abcd-cmn",  # an extended language after four letters
            "zh-cmn-yue-gan-wuu",
            "en-Latn-Cyrl",
            "en-US-GB",
            "en-US-Latn",
            "en-12",
            "en-1234-12",
            "en-abcdefghi",
            "en-a",  # a singleton without a value
            "en-a-b",
            "en-a-x-b",
            "en-a-abcdefghi",
            "x",
            "x-",
            "en-x",
            "x-abcdefghi",
            "i-german",
            "i",
            "en.UTF-8",
            "en-US@euro",
            "*",
            "en-*",
            "C",
            "\uff45\uff4e",  # full-width letters
            "e\u0131",  # a dotless i
            "en-\u212a\u212a",  # Kelvin signs, which fold to k
            "en-\u0661\u0662\u0663",  # Arabic digits
            "ſk",  # a long s, which folds to s
        ],
    )
    def test_that_are_malformed_are_refused(self, tag):
        assert refuses(validators.language_tag, tag)

    @pytest.mark.parametrize(
        "tag",
        [
            "de-1901-1901",
            "sl-rozaj-ROZAJ",
            "sl-rozaj-biske-rozaj",
            "en-a-bbb-a-ccc",
            "en-a-bbb-A-ccc",
            "en-u-ca-gregory-t-jp-U-nu-latn",
        ],
    )
    def test_that_repeat_a_variant_or_an_extension_are_refused(self, tag):
        assert refuses(validators.language_tag, tag)

    letters, alphanumerics = "[A-Za-z]", "[A-Za-z0-9]"

    @given(
        some.from_regex(f"{letters}{{2,3}}(-{letters}{{3}}){{0,3}}|{letters}{{4,8}}", fullmatch=True),
        some.from_regex(f"(-{letters}{{4}})?(-({letters}{{2}}|[0-9]{{3}}))?", fullmatch=True),
        some.lists(
            some.from_regex(f"-({alphanumerics}{{5,8}}|[0-9]{alphanumerics}{{3}})", fullmatch=True),
            max_size=3,
            unique_by=str.lower,
        ),
        some.lists(
            some.from_regex(f"-[0-9A-WY-Za-wy-z](-{alphanumerics}{{2,8}}){{1,3}}", fullmatch=True),
            max_size=3,
            unique_by=lambda extension: extension[1].lower(),
        ),
        some.from_regex(f"(-[xX](-{alphanumerics}{{1,8}}){{1,3}})?", fullmatch=True),
    )
    @pytest.mark.slow
    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    def test_made_by_the_grammar_are_taken_and_repetitions_of_their_parts_are_not(
        self, language, place, variants, extensions, private
    ):
        tag = language + place + "".join(variants) + "".join(extensions) + private
        assert validators.language_tag(tag) == tag
        for again in variants:
            assert refuses(validators.language_tag, language + place + "".join([*variants, again.swapcase()]))
        for again in extensions:
            assert refuses(validators.language_tag, language + place + "".join([*extensions, again.swapcase()]))
        assert refuses(validators.language_tag, tag.replace("-", "_") if "-" in tag else f"{tag}_US")
        assert refuses(validators.language_tag, f"{tag}-")


class TestTimeZones:
    @each(
        "name",
        """
        Europe/Berlin America/Argentina/Buenos_Aires Asia/Kolkata Asia/Calcutta Pacific/Kiritimati UTC Etc/UTC
        Etc/GMT+12 Etc/GMT-14 EST5EDT CET Zulu America/Port-au-Prince Europe/Kyiv Europe/Kiev
        """,
    )
    def test_of_the_database_are_taken_old_names_too(self, name):
        assert validators.time_zone(name) == name

    @pytest.mark.parametrize(
        "name",
        [
            *ALWAYS_WRONG,
            "europe/berlin",
            "EUROPE/BERLIN",
            "Europe",
            "Europe/",
            "Europe/Atlantis",
            "Europe/Berlin ",
            " Europe/Berlin",
            "Europe/Berlin\n",
            "Europe/Berlin\nUTC",
            "+01:00",
            "UTC+1",
            "GMT+25",
            "local",
            "localtime",
            "posixrules",
            "posix/UTC",
            "right/UTC",
            "zone.tab",
            "tzdata.zi",
            "../zones",
            "/etc/localtime",
            "Europe/../UTC",
        ],
    )
    def test_of_no_place_are_refused(self, name):
        assert refuses(validators.time_zone, name)

    def test_are_known_without_a_database_of_the_host(self):
        zoneinfo.reset_tzpath(to=())
        try:
            names = zoneinfo.available_timezones()
            assert len(names) > 400
            assert all(zoneinfo.ZoneInfo.no_cache(name).key == validators.time_zone(name) for name in names)
        finally:
            zoneinfo.reset_tzpath()


class TestPhoneNumbers:
    @pytest.mark.parametrize("number", ["+4930123456", "+12", "+123456789012345", "+14155550100", "+999999999999999"])
    def test_of_e_164_are_taken(self, number):
        assert validators.phone_number(number) == number

    @pytest.mark.parametrize(
        "number",
        [
            *ALWAYS_WRONG,
            "+",
            "+1",
            "+1234567890123456",  # sixteen digits
            "+0301234567",  # no country begins with 0
            "4930123456",
            "004930123456",
            "++4930123456",
            "+49 30 123456",
            "+49-30-123456",
            "+49(30)123456",
            " +4930123456",
            "+4930123456\n",
            "+49301234x",
            "tel:+4930123456",
            "\uff0b4930123456",
            "+\u0664\u0669\u0663\u0660",
        ],
    )
    def test_of_other_forms_are_refused(self, number):
        assert refuses(validators.phone_number, number)


class TestWords:
    @pytest.mark.parametrize("word", ["a", "0", "general", "Bug-2", "a_b-c", "9_", "A" * 500])
    def test_for_programs_are_taken(self, word):
        assert validators.slug(word) == word

    @pytest.mark.parametrize("word", [*ALWAYS_WRONG, "-a", "_a", "a b", "a.b", "a/b", "a\n", "naïve", "<b>", "\u0661"])
    def test_for_people_are_refused(self, word):
        assert refuses(validators.slug, word)


class TestWebAddresses:
    @each(
        "address",
        """
        http://a https://example.com https://example.com/ HTTPS://Example.COM/A?b=c#d http://example.com:8080
        http://example.com:/ http://127.0.0.1/x http://[::1]/ http://[2001:db8::1]:443/a http://u:p@example.com/a
        http://u@[::1]:80/ https://example.com?x=http://other@place https://example.com#@ https://bücher.example/ü
        https://example.com/a@b:c https://例え.jp/画像.png https://example.com/%0d%0a https://example.com/a'b(c)
        """,
    )
    def test_are_taken_as_they_are(self, address):
        assert validators.web_address(address) == address

    @pytest.mark.parametrize(
        "address",
        [
            *ALWAYS_WRONG,
            "example.com",
            "//example.com",
            "http:example.com",
            "http:/example.com",
            "http://",
            "http:///path",
            "http://?x",
            "http://#x",
            "http://:80",
            "http://:80/x",
            "http://@",
            "http://user@",
            "http://user:password@:80/",
            "http://a@b@c/",
            "http://[::1",
            "http://[]",
            "http://[example.com]/",
            "http://::1/",
            "http://example.com:port/",
            "http://example.com:123456/",
            "ftp://example.com",
            "http\u017f://example.com",  # a long s, which folds to s
            "file:///etc/passwd",
            "javascript:alert(1)//http://example.com",
            "data:text/html,http://example.com",
            " https://example.com",
            "https://example.com ",
            "https://exa mple.com",
            "https://example.com/a b",
            "https://example.com/\u00a0",
            "https://example.com\n",
            "https://example.com/\r\nSet-Cookie: a=b",
            "https://example.com/\x7f",
            "https://example.com/\x85",
            "https://good.example\\@evil.example/",
            "https:\\\\example.com",
            "https://example.com/a\\b",
            f"https://example.com/{RIGHT_TO_LEFT}gpj.exe",
        ],
    )
    def test_of_another_kind_or_without_a_host_are_refused(self, address):
        assert refuses(validators.web_address, address)


class TestCountries:
    @pytest.mark.parametrize(("text", "code"), [("DE", "DE"), ("de", "DE"), ("dE", "DE"), ("zz", "ZZ"), ("", "")])
    def test_are_two_letters_in_upper_case_or_nothing(self, text, code):
        assert validators.country(text) == code

    @pytest.mark.parametrize(
        "text", [*ALWAYS_WRONG[1:], "D", "DEU", "D1", "12", "D ", " DE", "DE\n", "ſs", "ıı", "\u212a\u212a"]
    )
    def test_that_are_anything_else_are_refused(self, text):
        assert refuses(validators.country, text)


class TestFolding:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("Hilda", "hILDA"),
            ("Straße", "STRASSE"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("Ångström", "A\u030angstro\u0308m"),
            ("\u212b", "å"),  # the sign of the unit
            ("\u212a", "k"),
            ("ﬁx", "FIX"),
            ("ПРИВЕТ", "привет"),
            ("Ꭰ", "ꭰ"),
            ("q\u0307\u0323", "Q\u0323\u0307"),
            ("\u1fb4", "\u03b1\u0345\u0301"),
            ("\u0390", "\u03aa\u0301"),  # which folding takes apart
            ("\u01f0", "J\u030c"),
        ],
    )
    def test_makes_spellings_of_one_text_equal(self, one, other):
        assert validators.fold(one) == validators.fold(other)

    @pytest.mark.parametrize(("one", "other"), [("e", "é"), ("i", "ı"), ("2", "²"), ("a b", "ab"), ("a", "ａ")])
    def test_keeps_different_texts_apart(self, one, other):
        assert validators.fold(one) != validators.fold(other)

    @given(
        some.text(
            some.sampled_from("aAßẞİıΣσςﬁ\u0130\u0301\u0307\u0323\u0345\u030a\u1fb3\u1fb4\u1e9bÅ가ᄀ")
            | some.characters()
        )
    )
    @example("\u0345\u0301")
    @example("\u0390\u1fb7")
    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    def test_depends_on_the_text_and_not_on_how_it_is_composed(self, text):
        folded = validators.fold(text)
        assert validators.fold(unicodedata.normalize("NFD", text)) == folded
        assert unicodedata.is_normalized("NFC", folded)
        assert validators.fold(folded) == folded


class TestVisibleTexts:
    @pytest.mark.parametrize(
        "text", ["", "Kitchen laptop", "Büro 2", "עברית", "👩\u200d🍳", "<script>", "a\u00a0b", "\ufeff"]
    )
    def test_are_taken(self, text):
        assert validators.displayable(text) == text

    @pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0)])
    def test_hold_no_control_characters(self, code):
        assert refuses(validators.displayable, f"a{chr(code)}b")

    def test_hold_nothing_that_turns_or_breaks_the_text_around(self):
        """The bidirectional controls of Unicode (its property Bidi_Control), and the line and paragraph separators."""
        turning = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]
        for code in [*turning, 0x2028, 0x2029]:
            assert refuses(validators.displayable, f"a{chr(code)}b"), hex(code)
        embeddings = re.compile("LRE|RLE|LRO|RLO|PDF|LRI|RLI|FSI|PDI")
        found = [code for code in range(0x110000) if embeddings.fullmatch(unicodedata.bidirectional(chr(code)))]
        assert set(found) < set(turning)


@pytest.mark.parametrize(
    ("header", "languages"),
    [
        ("", []),
        ("de-CH, fr;q=0.9, en ; q=0.8, *;q=0.5", ["de-CH", "fr", "en"]),
        ("en;q=0.1, de;q=0.9, fr", ["fr", "de", "en"]),
        ("en, de;q=0, fr;q=0.0", ["en"]),
        ("en;q=2, de;q=x, \xff, <script>, ,;, it", ["it"]),
        (",".join(["de"] * 500), ["de"] * 10),
        ("e" * 100_000, []),
        (",".join(["x" * 8 + "-y2345678" * 8] * 30), ["x" * 8 + "-y2345678" * 8] * 10),
    ],
)
def test_the_languages_of_a_header_are_told_with_the_preferred_one_first(header, languages):
    assert validators.accepted_languages(header) == languages
    assert validators.accepted_languages(", ".join(languages)) == languages


@pytest.mark.parametrize(
    ("tag", "expected"),
    [("DE", "de"), ("pt-br", "pt-BR"), ("ZH-HANT-tw-x-a", "zh-Hant-TW"), ("es-419", "es-419"), ("de-1996", "de")],
)
def test_plain_language_has_language_script_and_region(tag, expected):
    assert validators.plain_language(tag) == expected


@pytest.mark.parametrize("tag", ["", "x-private", "english", "i-klingon", "de-", "de--AT"])
def test_tag_without_a_plain_language_is_an_error(tag):
    with pytest.raises(ValueError, match="expected a language tag"):
        validators.plain_language(tag)
