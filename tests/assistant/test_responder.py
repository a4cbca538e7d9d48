"""Replies of bots without an AI: canned answers, replies from the profile, and the fallback."""

import json
import random
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from service import clock, db, responder
from service.models import Bot, CannedAnswer, ChatSession
from service.operate import import_export
from service.responder import Candidate, Profile, best_match, fallback_reply, tokenize
from service.responder.phrases import PHRASES
from tests.support.bot_replies import reply_text
from tests.support.observe import nothing_changes, query_plan, statements

pytestmark = pytest.mark.database


LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr", "ar", "hi", "zh", "ja")
HILDA = Profile("Hilda", "Knows shoes.", "hilda@example.com, +4930123456", "Ulm, DE")
EMPTY = Profile("", "", "", "")
TOPICS = {"identity": "Hilda", "contact": "+4930123456", "location": "Ulm, DE"}
EVERY_QUESTION = [
    (language, topic, question)
    for language, phrases in PHRASES.items()
    for topic in TOPICS
    for question in getattr(phrases, topic).split("|")
]


def canned(*questions, language="en"):
    return [Candidate(question, language, " ".join(tokenize(question))) for question in questions]


def found(text, *questions, languages=()):
    """The question that matches a text best."""
    match = best_match(canned(*questions), text, languages)
    return match and match.id


class TestWords:
    @pytest.mark.parametrize(
        ("some", "others"),
        [
            ("WHERE is it?!", "where Is, it"),
            ("Öffnungszeiten", "o\u0308FFNUNGSZEITEN"),
            ("Straße", "STRASSE"),
            ("naïve café", "naive cafe"),
            ("İSTANBUL ılık", "istanbul ilik"),
            ("Łódź źdźbło", "lodz zdzblo"),
            ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
            ("ｱﾌﾟﾘ", "アプリ"),
            ("أين أنتَ", "اين انت"),
            ("don't", "don’t"),
            ("«bot»…", "bot"),
            ("½", "1⁄2"),
        ],
    )
    def test_ignore_case_accents_and_punctuation(self, some, others):
        assert tokenize(some) == tokenize(others) != frozenset()

    @pytest.mark.parametrize(("some", "others"), [("か", "が"), ("कि", "की"), ("1", "2"), ("bot", "boat")])
    def test_keep_distinguishing_marks(self, some, others):
        assert tokenize(some) != tokenize(others)

    def test_of_scripts_without_spaces_are_pairs_of_letters(self):
        assert tokenize("营业时间?") == {"营业", "业时", "时间"}
        assert tokenize("是 A4纸") == {"是", "a4", "纸"}

    @pytest.mark.parametrize("text", ["", " \t\n", "?!…", "👍🏽", "\u0301", "\x00\x07", "\u202e"])
    def test_are_empty_for_a_text_without_letters_and_digits(self, text):
        assert tokenize(text) == frozenset()

    @pytest.mark.slow
    @given(some.text())
    @hypothesis_settings(max_examples=200, database=None, derandomize=True)
    def test_contain_no_spaces_and_are_stable(self, text):
        words = tokenize(text)
        assert all(word and not any(c.isspace() for c in word) for word in words)
        assert tokenize(" ".join(words)) == words


class TestTheBestMatch:
    @pytest.mark.parametrize(
        "text",
        [
            "What are your opening hours?",
            "what are YOUR opening hours",
            "Opening hours, please!",
            "Hello. I bought a pair of red shoes yesterday. What are your opening hours? Thank you",
            "hours of opening",
        ],
    )
    def test_is_the_similar_question(self, text):
        assert found(text, "Do you ship to France?", "What are your opening hours?") == "What are your opening hours?"

    @pytest.mark.parametrize(
        "text", ["What are your prices?", "What is it?", "Do you ship to Norway?", "are you the", "👍"]
    )
    def test_is_none_if_only_common_words_agree(self, text):
        assert found(text, "Do you ship to France?", "What are your opening hours?") is None

    def test_is_the_more_similar_question(self):
        assert found("size of red shoes", "red shoes", "size of red shoes", "size of shoes") == "size of red shoes"

    def test_is_the_first_of_equally_similar_questions(self):
        assert found("red shoes", "shoes: red", "red shoes", "the red shoes") == "shoes: red"

    @pytest.mark.parametrize(
        ("languages", "chosen"),
        [
            ((), "en"),
            (("de",), "de"),
            (("de-AT", "fr"), "de"),
            (("it", "fr"), "fr"),
            (("pt", "fr-CA"), "fr-CA"),
            (("FR",), "fr"),
        ],
    )
    def test_has_the_preferred_language_among_equally_similar_questions(self, languages, chosen):
        answers = [Candidate(language, language, "wlan") for language in ("en", "de", "fr", "fr-CA", "")]
        assert best_match(answers, "WLAN?", languages).id == chosen

    def test_depends_on_similarity_before_language(self):
        answers = [Candidate("de", "de", "wlan defekt"), Candidate("en", "en", "wlan")]
        assert best_match(answers, "WLAN", ["de"]).id == "en"

    def test_is_none_without_questions(self):
        assert best_match([], "hello", ["en"]) is None
        assert best_match([Candidate("x", "en", "")], "hello", []) is None

    def test_depends_on_the_beginning_of_a_long_text_only(self):
        assert found("x " * 900 + ". red shoes", "red shoes") == "red shoes"
        assert found("x " * 1000 + ". red shoes", "red shoes") is None
        assert found("u. v. w. x. y. z. red shoes", "red shoes") is None

    @pytest.mark.parametrize("text", ["\ufdfa" * 65536, ".a" * 32768, "你好吗" * 21845, "a" * 65536, "\u0300" * 65536])
    def test_has_bounded_cost_for_a_hostile_text(self, text):
        """The amount of text that is compared is bounded."""
        assert len(tokenize(text)) <= responder.MAX_CHARACTERS
        assert len(list(responder._sentences(text))) <= responder.MAX_SENTENCES + 1
        assert best_match(canned(*map(str, range(5000))), text, ["en"]) is None

    def test_is_deterministic(self):
        pool = random.Random(7)
        vocabulary = [f"w{number}" for number in range(60)]
        answers = canned(*(" ".join(pool.sample(vocabulary, 5)) for _ in range(300)))
        text = " ".join(pool.sample(vocabulary, 6))
        assert len({best_match(answers, text, ["en"]) for _ in range(5)}) == 1


class TestTheFallbackReply:
    def test_exists_in_thirteen_languages(self):
        assert tuple(PHRASES) == LANGUAGES
        fields = {
            "identity_reply": ["name"],
            "contact_reply": ["contact"],
            "location_reply": ["location"],
            "no_answer": [],
        }
        for phrases in PHRASES.values():
            used = {name: [f for _, f, *_ in Formatter().parse(getattr(phrases, name)) if f] for name in fields}
            assert used == fields

    @pytest.mark.parametrize(("language", "topic", "question"), EVERY_QUESTION, ids=lambda text: text)
    def test_answers_questions_about_the_bot(self, language, topic, question):
        reply = fallback_reply(HILDA, f"{question}?", [language])
        assert TOPICS[topic] in reply
        assert reply.startswith(getattr(PHRASES[language], f"{topic}_reply").format(**HILDA._asdict()))

    def test_about_identity_ends_with_the_tagline(self):
        assert fallback_reply(HILDA, "Who are you?", ["en"]).endswith(" Knows shoes.")
        assert fallback_reply(HILDA._replace(tagline=""), "Who are you?", ["en"]).endswith("automatically.")

    def test_has_the_preferred_language_of_the_user(self):
        assert fallback_reply(HILDA, "Wo seid ihr?", ["fr"]) == "Vous nous trouvez ici : Ulm, DE"
        assert fallback_reply(HILDA, "Wo seid ihr?", ["sv", "pt-BR"]) == "Estamos aqui: Ulm, DE"
        assert fallback_reply(HILDA, "Wo seid ihr?", ["sv"]) == "Sie finden uns hier: Ulm, DE"
        assert fallback_reply(HILDA, "Wo seid ihr?", []) == "Sie finden uns hier: Ulm, DE"

    @pytest.mark.parametrize(
        "question", ["Who are you?", "What is your phone number?", "Where are you?", "Will it rain?"]
    )
    def test_contains_no_information_that_the_profile_lacks(self, question):
        assert fallback_reply(EMPTY, question, ["en"]) == PHRASES["en"].no_answer

    def test_may_contain_braces(self):
        assert "{name} {0}" in fallback_reply(HILDA._replace(name="{name} {0}"), "Who are you?", ["en"])

    @pytest.mark.parametrize(
        ("languages", "used"), [([], "en"), (["sv", "tlh"], "en"), (["ZH-Hant-TW"], "zh"), (["sv", "ja"], "ja")]
    )
    def test_to_other_questions_says_that_there_is_no_answer(self, languages, used):
        assert fallback_reply(HILDA, "xyzzy plugh", languages) == PHRASES[used].no_answer


@pytest.fixture
def add_answer(bot):
    """Add a canned answer to the bot."""

    def make(question, answer, language="en", of=bot, **columns):
        return CannedAnswer.create(bot_id=of.id, question=question, answer=answer, language=language, **columns)

    return make


class TestABot:
    def test_sends_its_canned_answer(self, session, add_answer):
        add_answer("What are your opening hours?", "From nine to five.")
        add_answer("Wann habt ihr geöffnet?", "Von neun bis fünf.", "de")
        assert reply_text(session, "OPENING HOURS?", ["de"]) == "From nine to five."
        assert reply_text(session, "Hallo! Wann habt ihr denn geöffnet?", ["en"]) == "Von neun bis fünf."

    def test_prefers_canned_answers_to_its_profile(self, session, add_answer):
        assert reply_text(session, "Who are you?", ["en"]).startswith("I am Hilda, ")
        add_answer("Who are you?", "Guess!")
        assert reply_text(session, "Who are you?", ["en"]) == "Guess!"

    def test_replies_from_its_profile(self, session, bot):
        about = {"contact_email": "a@b.c", "contact_website": "https://b.c", "city": "Ulm", "country": "DE"}
        Bot.update(about).where(Bot.id == bot.id).execute()
        assert reply_text(session, "How can I reach you?", []) == "You can reach us here: a@b.c, https://b.c"
        assert reply_text(session, "Where are you?", []) == "You can find us here: Ulm, DE"

    def test_says_that_it_has_no_answer(self, session, add_answer):
        for language in LANGUAGES:
            assert reply_text(session, "xyzzy", [language]) == PHRASES[language].no_answer
        assert reply_text(session, "xyzzy", []) == PHRASES["en"].no_answer
        add_answer("x", "y", "pl-PL")
        assert reply_text(session, "xyzzy", []) == PHRASES["pl"].no_answer

    @pytest.mark.parametrize("text", ["", " ", "?", "👍", "\u200b"])
    def test_does_not_reply_to_a_message_without_letters_and_digits(self, session, add_answer, text):
        add_answer("?", "What?")
        assert reply_text(session, text, ["en"]) is None

    @pytest.mark.parametrize("columns", [{"kind": "nobot"}, {"status": "draft"}, {"is_active": False}])
    def test_does_not_reply_for_agents_or_if_it_is_hidden(self, session, bot, add_answer, columns):
        add_answer("hello", "Hi")
        assert reply_text(session, "hello", ["en"]) == "Hi"
        Bot.update(columns).where(Bot.id == bot.id).execute()
        assert reply_text(session, "hello", ["en"]) is None

    def test_that_does_not_exist_does_not_reply(self, alice, shop):
        assert reply_text(ChatSession.create(app_id=shop.id, user_id=alice.user.id), "hello", ["en"]) is None

    def test_does_not_use_canned_answers_of_other_bots(self, session, shop, add_answer):
        other = Bot.create(app_id=shop.id, name="Otto", kind="bot", status="published")
        add_answer("What is the secret?", "42", of=other)
        assert reply_text(session, "What is the secret?", ["en"]) == PHRASES["en"].no_answer

    def test_reads_three_times_at_most_and_does_not_write(self, session, add_answer):
        add_answer("hello there", "Hi")
        for text in ("hello there", "nonsense", "?"):
            with nothing_changes(), statements() as seen:
                reply_text(session, text, ["en"])
            assert len(seen) <= 3

    def test_finds_its_answers_by_an_index(self, session, add_answer):
        add_answer("hello", "Hi")
        with statements() as seen:
            reply_text(session, "hello", ["en"])
        for sql, values in seen:
            plan = query_plan(sql, values)
            assert plan.ranges and not plan.scans and not plan.sorts, plan

    @pytest.mark.slow
    def test_with_thousands_of_answers_replies_to_a_hostile_message(self, session, bot):
        pool = random.Random(1)
        vocabulary = [f"w{number}" for number in range(200)]
        questions = [" ".join(pool.sample(vocabulary, 20)) for _ in range(5000)]
        rows = [
            {"id": clock.uuid(), "bot_id": bot.id, "language": "en", "question": text, "answer": "a", "words": text}
            for text in questions
        ]
        with db.write(), CannedAnswer.reindexing([row["id"] for row in rows]):
            for start in range(0, 5000, 100):
                CannedAnswer.insert_many(rows[start : start + 100]).execute()
        assert reply_text(session, " ".join(vocabulary) * 100, ["en"]) == PHRASES["en"].no_answer
        assert reply_text(session, questions[-1], ["en"]) == "a"


class TestImportAndExport:
    @pytest.fixture
    def import_records(self, application, tmp_path):
        def run(*records):
            file = tmp_path / "in.jsonl"
            file.write_text("\n".join(json.dumps({"bot_answer": record}) for record in records))
            return [error.partition(": ")[2] for error in import_export.import_files([file])]

        return run

    def test_imported_answers_are_used_at_once(self, session, bot, import_records):
        record = {"bot_id": bot.id, "language": "de-AT", "question": "Grüße?", "answer": "Servus!"}
        assert import_records(record) == []
        assert reply_text(session, "GRUSSE", []) is not None
        assert reply_text(session, "GRÜSSE", []) == "Servus!"
        (stored,) = CannedAnswer.select()
        record = {"id": stored.id, **record, "question": "Wetter?"}
        assert import_records(record) == []
        assert reply_text(session, "Grüße", ["de"]) == PHRASES["de"].no_answer
        assert reply_text(session, "Wetter", []) == "Servus!"

    def test_exported_answers_equal_the_imported_ones(self, bot, import_records):
        record = {
            "id": clock.uuid(),
            "bot_id": bot.id,
            "language": "",
            "question": "¿Qué?\n",
            "answer": "\t\u202e'\"\\",
            "actions": [{"id": "1", "label": '\u202e"¿', "payload": {"\u202e": [None, {}]}}],
        }
        assert import_records(record) == []
        written = []
        import_export.export(written.append)
        assert [json.loads(line)["bot_answer"] for line in written if b"bot_answer" in line] == [record]

    @pytest.mark.parametrize(
        ("members", "error"),
        [
            ({"question": ""}, "$.bot_answer.question: expected str of length >= 1"),
            ({"question": "x" * 501}, "$.bot_answer.question: expected str of length <= 500"),
            ({"answer": ""}, "$.bot_answer.answer: expected str of length >= 1"),
            ({"answer": "x" * 10_001}, "$.bot_answer.answer: expected str of length <= 10000"),
            ({"actions": {}}, "$.bot_answer.actions: expected array"),
            ({"actions": [{"id": "1"}]}, "$.bot_answer.actions[0]: object missing required field label"),
            ({"actions": [{"id": "1", "label": "x"}] * 2}, "$.bot_answer.actions: two actions have the same id"),
            ({"language": "x" * 65}, "$.bot_answer.language: expected str of length <= 64"),
            ({"language": "deutsch, bitte"}, "$.bot_answer.language: expected a language tag such as en or pt-BR"),
            ({"bot_id": clock.uuid()}, "$.bot_answer.bot_id: refers to a missing record: "),
            ({"words": "x"}, "$.bot_answer: object contains unknown field words"),
        ],
    )
    def test_invalid_answers_are_errors(self, bot, import_records, members, error):
        good = {"bot_id": bot.id, "question": "q" * 500, "answer": "a" * 10_000, "language": "en"}
        with nothing_changes():
            (line,) = import_records({**good, **members})
        assert line.startswith(error)
        assert import_records(good) == []

    @pytest.mark.parametrize("missing", ["bot_id", "question", "answer"])
    def test_bot_question_and_answer_are_required(self, bot, import_records, missing):
        good = {"bot_id": bot.id, "question": "q", "answer": "a"}
        assert import_records({name: value for name, value in good.items() if name != missing}) == [
            f"$.bot_answer: missing required member {missing}"
        ]
