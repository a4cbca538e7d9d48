"""What bots answer by themselves: prepared answers, what their profile says, and nothing beyond."""

import json
import random
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from service import clock, db, responder, transfer
from service.models import Bot, BotAnswer, ChatSession
from service.models.answering import prepared_answer
from service.responder import About, Prepared, choose, improvise, words_of
from service.responder.phrases import PHRASES
from tests.watching import nothing_changes, query_plan, statements

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr", "ar", "hi", "zh", "ja")
HILDA = About("Hilda", "Knows shoes.", "hilda@example.com, +4930123456", "Ulm, DE")
NOTHING = About("", "", "", "")
TOPICS = {"who": "Hilda", "contact": "+4930123456", "place": "Ulm, DE"}
EVERY_QUESTION = [
    (language, topic, question)
    for language, phrases in PHRASES.items()
    for topic in TOPICS
    for question in getattr(phrases, topic).split("|")
]


def prepared(*questions, language="en"):
    return [Prepared(question, language, " ".join(words_of(question))) for question in questions]


def found(text, *questions, languages=()):
    """The question that is chosen for a text."""
    chosen = choose(prepared(*questions), text, languages)
    return chosen and chosen.name


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
    def test_are_the_same_whatever_case_accents_and_punctuation(self, some, others):
        assert words_of(some) == words_of(others) != frozenset()

    @pytest.mark.parametrize(("some", "others"), [("か", "が"), ("कि", "की"), ("1", "2"), ("bot", "boat")])
    def test_keep_what_makes_another_word(self, some, others):
        assert words_of(some) != words_of(others)

    def test_of_unspaced_writing_are_pairs(self):
        assert words_of("营业时间?") == {"营业", "业时", "时间"}
        assert words_of("是 A4纸") == {"是", "a4", "纸"}

    @pytest.mark.parametrize("silent", ["", " \t\n", "?!…", "👍🏽", "\u0301", "\x00\x07", "\u202e"])
    def test_are_none_where_nothing_is_said(self, silent):
        assert words_of(silent) == frozenset()

    @given(some.text())
    @hypothesis_settings(max_examples=200, database=None, derandomize=True)
    def test_of_any_text_hold_no_blanks_and_are_words_themselves(self, text):
        words = words_of(text)
        assert all(word and not any(c.isspace() for c in word) for word in words)
        assert words_of(" ".join(words)) == words


class TestChoosing:
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
    def test_finds_the_question_that_is_meant(self, text):
        assert found(text, "Do you ship to France?", "What are your opening hours?") == "What are your opening hours?"

    @pytest.mark.parametrize(
        "text", ["What are your prices?", "What is it?", "Do you ship to Norway?", "are you the", "👍"]
    )
    def test_finds_nothing_where_only_common_words_agree(self, text):
        assert found(text, "Do you ship to France?", "What are your opening hours?") is None

    def test_prefers_the_question_that_is_more_alike(self):
        assert found("size of red shoes", "red shoes", "size of red shoes", "size of shoes") == "size of red shoes"

    def test_takes_the_first_of_equals(self):
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
    def test_prefers_the_language_of_the_user_among_equals(self, languages, chosen):
        known = [Prepared(language, language, "wlan") for language in ("en", "de", "fr", "fr-CA", "")]
        assert choose(known, "WLAN?", languages).name == chosen

    def test_prefers_the_better_question_to_the_language(self):
        known = [Prepared("de", "de", "wlan defekt"), Prepared("en", "en", "wlan")]
        assert choose(known, "WLAN", ["de"]).name == "en"

    def test_knows_when_there_is_nothing_to_choose_from(self):
        assert choose([], "hello", ["en"]) is None
        assert choose([Prepared("x", "en", "")], "hello", []) is None

    def test_looks_at_the_beginning_of_a_long_text_only(self):
        assert found("x " * 900 + ". red shoes", "red shoes") == "red shoes"
        assert found("x " * 1000 + ". red shoes", "red shoes") is None
        assert found("u. v. w. x. y. z. red shoes", "red shoes") is None

    @pytest.mark.parametrize("text", ["\ufdfa" * 65536, ".a" * 32768, "你好吗" * 21845, "a" * 65536, "\u0300" * 65536])
    def test_takes_as_little_from_a_hostile_text_as_from_any(self, text):
        """What is compared is bounded, whatever is sent."""
        assert len(words_of(text)) <= responder.LONGEST
        assert len(list(responder._sentences(text))) <= responder.SENTENCES + 1
        assert choose(prepared(*map(str, range(5000))), text, ["en"]) is None

    def test_depends_on_nothing_but_what_it_is_given(self):
        pool = random.Random(7)
        vocabulary = [f"w{number}" for number in range(60)]
        known = prepared(*(" ".join(pool.sample(vocabulary, 5)) for _ in range(300)))
        text = " ".join(pool.sample(vocabulary, 6))
        assert len({choose(known, text, ["en"]) for _ in range(5)}) == 1


class TestTheProfile:
    def test_is_told_in_thirteen_languages(self):
        assert tuple(PHRASES) == LANGUAGES
        for phrases in PHRASES.values():
            sentences = {name: getattr(phrases, name) for name in ("i_am", "reach_us", "find_us", "otherwise")}
            used = {
                name: [field for _, field, *_ in Formatter().parse(text) if field] for name, text in sentences.items()
            }
            assert used == {"i_am": ["name"], "reach_us": ["ways"], "find_us": ["place"], "otherwise": []}

    @pytest.mark.parametrize(("language", "topic", "question"), EVERY_QUESTION, ids=lambda text: text)
    def test_is_told_to_whoever_asks(self, language, topic, question):
        told = improvise(HILDA, f"{question}?", [language])
        assert TOPICS[topic] in told
        sentence = {"who": "i_am", "contact": "reach_us", "place": "find_us"}[topic]
        own = getattr(PHRASES[language], sentence).format(name="Hilda", ways=HILDA.ways, place=HILDA.place)
        assert told.startswith(own)

    def test_holds_the_tagline_where_somebody_asks_who_that_is(self):
        assert improvise(HILDA, "Who are you?", ["en"]).endswith(" Knows shoes.")
        assert improvise(HILDA._replace(tagline=""), "Who are you?", ["en"]).endswith("answers.")

    def test_is_told_in_the_language_that_the_user_prefers(self):
        assert improvise(HILDA, "Wo seid ihr?", ["fr"]) == "Vous nous trouvez ici : Ulm, DE"
        assert improvise(HILDA, "Wo seid ihr?", ["sv", "pt-BR"]) == "Estamos aqui: Ulm, DE"
        assert improvise(HILDA, "Wo seid ihr?", ["sv"]) == "Sie finden uns hier: Ulm, DE"
        assert improvise(HILDA, "Wo seid ihr?", []) == "Sie finden uns hier: Ulm, DE"

    @pytest.mark.parametrize(
        "question", ["Who are you?", "What is your phone number?", "Where are you?", "Will it rain?"]
    )
    def test_that_says_nothing_is_not_made_up(self, question):
        assert improvise(NOTHING, question, ["en"]) == PHRASES["en"].otherwise

    def test_may_hold_braces(self):
        assert "{name} {0}" in improvise(HILDA._replace(name="{name} {0}"), "Who are you?", ["en"])

    @pytest.mark.parametrize(
        ("languages", "spoken"), [([], "en"), (["sv", "tlh"], "en"), (["ZH-Hant-TW"], "zh"), (["sv", "ja"], "ja")]
    )
    def test_has_nothing_on_other_questions_and_says_so(self, languages, spoken):
        assert improvise(HILDA, "xyzzy plugh", languages) == PHRASES[spoken].otherwise


@pytest.fixture
def prepare(bot):
    """Gives the bot an answer."""

    def make(question, answer, language="en", of=bot, **columns):
        return BotAnswer.create(bot_id=of.id, question=question, answer=answer, language=language, **columns)

    return make


class TestABot:
    def test_gives_its_prepared_answer(self, session, prepare):
        prepare("What are your opening hours?", "From nine to five.")
        prepare("Wann habt ihr geöffnet?", "Von neun bis fünf.", "de")
        assert prepared_answer(session, "OPENING HOURS?", ["de"]) == "From nine to five."
        assert prepared_answer(session, "Hallo! Wann habt ihr denn geöffnet?", ["en"]) == "Von neun bis fünf."

    def test_puts_its_prepared_answers_before_its_profile(self, session, prepare):
        assert prepared_answer(session, "Who are you?", ["en"]).startswith("I am Hilda, ")
        prepare("Who are you?", "Guess!")
        assert prepared_answer(session, "Who are you?", ["en"]) == "Guess!"

    def test_tells_what_its_profile_says(self, session, bot):
        about = {"contact_email": "a@b.c", "contact_website": "https://b.c", "city": "Ulm", "country": "DE"}
        Bot.update(about).where(Bot.id == bot.id).execute()
        assert prepared_answer(session, "How can I reach you?", []) == "You can reach us here: a@b.c, https://b.c"
        assert prepared_answer(session, "Where are you?", []) == "You find us here: Ulm, DE"

    def test_says_what_it_is_where_it_knows_nothing(self, session, prepare):
        for language in LANGUAGES:
            assert prepared_answer(session, "xyzzy", [language]) == PHRASES[language].otherwise
        assert prepared_answer(session, "xyzzy", []) == PHRASES["en"].otherwise
        prepare("x", "y", "pl-PL")
        assert prepared_answer(session, "xyzzy", []) == PHRASES["pl"].otherwise

    @pytest.mark.parametrize("text", ["", " ", "?", "👍", "\u200b"])
    def test_keeps_silent_where_nothing_is_said(self, session, prepare, text):
        prepare("?", "What?")
        assert prepared_answer(session, text, ["en"]) is None

    @pytest.mark.parametrize("columns", [{"kind": "nobot"}, {"status": "draft"}, {"is_active": False}])
    def test_keeps_silent_where_people_answer_or_nobody_should_meet_it(self, session, bot, prepare, columns):
        prepare("hello", "Hi")
        assert prepared_answer(session, "hello", ["en"]) == "Hi"
        Bot.update(columns).where(Bot.id == bot.id).execute()
        assert prepared_answer(session, "hello", ["en"]) is None

    def test_keeps_silent_where_there_is_none(self, alice, shop):
        assert prepared_answer(ChatSession.create(app_id=shop.id, user_id=alice.user.id), "hello", ["en"]) is None

    def test_knows_nothing_of_what_others_are_prepared_for(self, session, shop, prepare):
        other = Bot.create(app_id=shop.id, name="Otto", kind="bot", status="published")
        prepare("What is the secret?", "42", of=other)
        assert prepared_answer(session, "What is the secret?", ["en"]) == PHRASES["en"].otherwise

    def test_reads_three_times_at_most_and_writes_nothing(self, session, prepare):
        prepare("hello there", "Hi")
        for text in ("hello there", "nonsense", "?"):
            with nothing_changes(), statements() as seen:
                prepared_answer(session, text, ["en"])
            assert len(seen) <= 3

    def test_finds_its_answers_by_an_index(self, session, prepare):
        prepare("hello", "Hi")
        with statements() as seen:
            prepared_answer(session, "hello", ["en"])
        for sql, values in seen:
            plan = query_plan(sql, values)
            assert plan.ranges and not plan.scans and not plan.sorts, plan

    def test_with_thousands_of_answers_and_a_hostile_message_still_answers(self, session, bot):
        pool = random.Random(1)
        vocabulary = [f"w{number}" for number in range(200)]
        questions = [" ".join(pool.sample(vocabulary, 20)) for _ in range(5000)]
        rows = [
            {"id": clock.uuid(), "bot_id": bot.id, "language": "en", "question": text, "answer": "a", "words": text}
            for text in questions
        ]
        with db.write(), BotAnswer.indexed_anew([row["id"] for row in rows]):
            for start in range(0, 5000, 100):
                BotAnswer.insert_many(rows[start : start + 100]).execute()
        assert prepared_answer(session, " ".join(vocabulary) * 100, ["en"]) == PHRASES["en"].otherwise
        assert prepared_answer(session, questions[-1], ["en"]) == "a"


class TestTransfer:
    @pytest.fixture
    def take_in(self, application, tmp_path):
        def act(*records):
            file = tmp_path / "in.jsonl"
            file.write_text("\n".join(json.dumps({"bot_answer": record}) for record in records))
            return [fault.partition(": ")[2] for fault in transfer.take_in([file])]

        return act

    def test_brings_answers_in_that_count_at_once(self, session, bot, take_in):
        record = {"bot_id": bot.id, "language": "de-AT", "question": "Grüße?", "answer": "Servus!"}
        assert take_in(record) == []
        assert prepared_answer(session, "GRUSSE", []) is not None
        assert prepared_answer(session, "GRÜSSE", []) == "Servus!"
        (kept,) = BotAnswer.select()
        record = {"id": kept.id, **record, "question": "Wetter?"}
        assert take_in(record) == []
        assert prepared_answer(session, "Grüße", ["de"]) == PHRASES["de"].otherwise
        assert prepared_answer(session, "Wetter", []) == "Servus!"

    def test_gives_them_out_as_they_came(self, bot, take_in):
        record = {
            "id": clock.uuid(),
            "bot_id": bot.id,
            "language": "",
            "question": "¿Qué?\n",
            "answer": "\t\u202e'\"\\",
        }
        assert take_in(record) == []
        written = []
        transfer.give_out(written.append)
        assert [json.loads(line)["bot_answer"] for line in written if b"bot_answer" in line] == [record]

    @pytest.mark.parametrize(
        ("members", "fault"),
        [
            ({"question": ""}, "$.bot_answer.question: expected str of length >= 1"),
            ({"question": "x" * 501}, "$.bot_answer.question: expected str of length <= 500"),
            ({"answer": ""}, "$.bot_answer.answer: expected str of length >= 1"),
            ({"answer": "x" * 10_001}, "$.bot_answer.answer: expected str of length <= 10000"),
            ({"language": "x" * 65}, "$.bot_answer.language: expected str of length <= 64"),
            ({"language": "deutsch, bitte"}, "$.bot_answer.language: expected a language tag such as en or pt-BR"),
            ({"bot_id": clock.uuid()}, "$.bot_answer.bot_id: refers to nothing: "),
            ({"words": "x"}, "$.bot_answer: object contains unknown field words"),
        ],
    )
    def test_refuses_what_is_faulty(self, bot, take_in, members, fault):
        good = {"bot_id": bot.id, "question": "q" * 500, "answer": "a" * 10_000, "language": "en"}
        with nothing_changes():
            (told,) = take_in({**good, **members})
        assert told.startswith(fault)
        assert take_in(good) == []

    @pytest.mark.parametrize("missing", ["bot_id", "question", "answer"])
    def test_needs_a_bot_a_question_and_an_answer(self, bot, take_in, missing):
        good = {"bot_id": bot.id, "question": "q", "answer": "a"}
        assert take_in({name: value for name, value in good.items() if name != missing}) == [
            f"$.bot_answer: missing required member {missing}"
        ]
