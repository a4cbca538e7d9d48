"""The index of canned answers finds the same answer as a comparison with all questions, at a bounded cost."""

import json
import random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service import clock, db, responder
from service.models import Bot, CannedAnswer, CannedAnswerWord, canned_answer_index
from service.models.canned_answers import words_in
from service.operate import import_export
from service.responder import PHRASES, Candidate, best_match
from tests.support.bot_replies import reply_text
from tests.support.observe import database_steps, statements

WORDS = [
    "shoes",
    "red",
    "size",
    "norway",
    "shipping",
    "price",
    "the",
    "is",
    "can",
    "you",
    "do",
    "営業時間",
    "何時",
    "é",
]
LANGUAGES = ["", "en", "de-AT", "de"]


def prepare(bot, questions, languages=("en",)):
    """Replace the canned answers of a bot by answers to the given questions. Returns them sorted by identifier."""
    CannedAnswer.delete().execute()
    CannedAnswerWord.delete().execute()
    rows = [
        {
            "id": clock.uuid(),
            "bot_id": bot.id,
            "language": languages[number % len(languages)],
            "question": question,
            "answer": f"{number}: {question}",
            "words": words_in(question),
        }
        for number, question in enumerate(questions)
    ]
    with db.write(), CannedAnswer.reindexing([row["id"] for row in rows]):
        for start in range(0, len(rows), 500):
            CannedAnswer.insert_many(rows[start : start + 500]).execute()
    return sorted(Candidate(row["id"], row["language"], row["words"]) for row in rows)


def chosen_by_index(bot, known, text, languages):
    found = set(canned_answer_index.candidates(bot.id, text))
    return best_match([one for one in known if one.id in found], text, languages)


def indexed():
    return set(CannedAnswerWord.select().tuples())


def expected():
    rows = CannedAnswer.select(CannedAnswer.id, CannedAnswer.bot_id, CannedAnswer.words).tuples()
    return {row for answer in rows for row in canned_answer_index.rows_of(*answer)}


questions = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


class TestBestMatch:
    @given(
        st.lists(questions, max_size=30),
        st.lists(questions, min_size=1, max_size=7).map(". ".join),
        st.lists(st.sampled_from(["en", "de", "de-AT", "fr"]), max_size=2),
    )
    @hypothesis_settings(
        max_examples=80,
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    def test_is_the_same_as_without_the_index(self, bot, catalogue, text, languages):
        known = prepare(bot, catalogue, LANGUAGES)
        assert chosen_by_index(bot, known, text, languages) == best_match(known, text, languages)

    def test_is_found_among_hundreds_of_questions_with_few_comparisons(self, bot):
        generator = random.Random(1)
        vocabulary = [f"w{number}" for number in range(400)] + WORDS
        known = prepare(
            bot, [" ".join(generator.sample(vocabulary, generator.randint(1, 8))) for _ in range(800)], LANGUAGES
        )
        sizes, answered = [], 0
        for _ in range(150):
            words = generator.choice(known).words.split()
            text = " ".join(
                generator.sample(words, len(words) - len(words) // 3) + generator.sample(vocabulary, len(words) // 3)
            )
            text += generator.choice(["", ". ", "? "]) + " ".join(generator.sample(vocabulary, 3))
            sizes.append(len(canned_answer_index.candidates(bot.id, text)))
            best = best_match(known, text, ["de"])
            answered += best is not None
            assert chosen_by_index(bot, known, text, ["de"]) == best
        assert max(sizes) <= canned_answer_index.MAX_COMPARED and sum(sizes) < 150 * 10 and answered > 75

    def test_is_found_when_all_questions_share_all_words_but_one(self, bot):
        shared = [f"shared{number}" for number in range(20)]
        known = prepare(bot, [" ".join([*shared, f"own{number}"]) for number in range(500)])
        for one in known[::50]:
            assert chosen_by_index(bot, known, one.words, []) == one
            assert chosen_by_index(bot, known, f"{one.words} unknown", []) == one

    def test_is_found_by_its_exact_words_if_no_word_is_selective(self, bot):
        shared = [f"w{number}" for number in range(40)]
        generator = random.Random(2)
        known = prepare(bot, [" ".join(generator.sample(shared, 30)) for _ in range(2000)])
        for one in known[::200]:
            assert chosen_by_index(bot, known, f"Hello there. {one.words}. Thanks", []) == one

    def test_is_found_for_words_of_any_length(self, bot):
        long = "x" * 500
        known = prepare(bot, [long, f"{'y' * 200} {'z' * 200}", "営" + "業" * 499, "\ufdfa" * 500])
        for one in known:
            assert chosen_by_index(bot, known, one.words, []) == one
        assert max(len(word) for _, word, *_ in indexed()) <= responder.MAX_KEY_LENGTH

    def test_excludes_answers_of_other_bots(self, bot):
        other = Bot.create(app_id=bot.app_id, name="Otto", kind="bot", status="published")
        known = prepare(bot, ["red shoes"])
        assert canned_answer_index.candidates(bot.id, "red shoes") == [known[0].id]
        assert canned_answer_index.candidates(other.id, "red shoes") == []


class TestCost:
    @pytest.fixture
    def degenerate(self, bot):
        """5,000 questions of 110 words, and a message made of all of their words."""
        generator = random.Random(3)
        vocabulary = [f"{number:x}" for number in range(256, 256 + 400)]
        prepare(bot, [" ".join(generator.sample(vocabulary, 110)) for _ in range(5000)])
        sentences = [" ".join(generator.sample(vocabulary, 70)) for _ in range(5)]
        return [" ".join(vocabulary)[:2000], (". ".join(sentences) + " " + " ".join(vocabulary))[:2000]]

    @pytest.mark.slow
    def test_is_bounded_for_the_largest_catalogue_and_message(self, bot, session, degenerate, monkeypatch):
        read, compared = [], []
        run, best_match = canned_answer_index._run, responder.best_match

        def counting(statement, bot_id, limit, lookups):
            found = run(statement, bot_id, limit, lookups)
            read.append(sum(one if isinstance(one, int) else one.count(",") + 1 for one in found))
            assert len(found) <= canned_answer_index.MAX_LOOKUPS
            return found

        def comparing(known, *more):
            known = list(known)
            compared.append(len(known))
            return best_match(known, *more)

        monkeypatch.setattr(canned_answer_index, "_run", counting)
        monkeypatch.setattr(responder, "best_match", comparing)
        for text in degenerate:
            read.clear()
            compared.clear()
            with statements() as seen:
                assert reply_text(session, text, ["en"]) == PHRASES["en"].no_answer
            assert len(seen) <= 3
            counted, *listed = read
            assert counted <= canned_answer_index.MAX_COUNTED and sum(listed) <= canned_answer_index.MAX_FETCHED
            assert compared[0] <= canned_answer_index.MAX_COMPARED

    @pytest.mark.sqlite_only
    @pytest.mark.slow
    def test_in_the_database_is_bounded(self, bot, degenerate):
        for text in degenerate:
            assert database_steps(lambda text=text: canned_answer_index.candidates(bot.id, text)) < 400_000

    def test_of_a_message_without_known_words_is_one_statement(self, bot):
        prepare(bot, ["red shoes"])
        with statements() as seen:
            assert canned_answer_index.candidates(bot.id, "blue hats") == []
        assert len(seen) == 1


class TestIndex:
    @pytest.fixture
    def import_records(self, application, tmp_path):
        def act(*records):
            file = tmp_path / "in.jsonl"
            file.write_text("\n".join(json.dumps(record) for record in records))
            assert list(import_export.import_files([file]) or []) == []

        return act

    def test_is_updated_when_answers_are_saved_and_deleted(self, bot):
        answer = CannedAnswer.create(bot_id=bot.id, question="Red shoes?", answer="a")
        assert indexed() == expected() != set()
        answer.question = "Blue hats?"
        answer.save()
        assert indexed() == expected()
        assert canned_answer_index.candidates(bot.id, "red shoes") == []
        answer.delete_instance()
        assert indexed() == set()

    def test_is_updated_by_an_import_that_replaces_and_moves_answers(self, bot, import_records):
        other = Bot.create(app_id=bot.app_id, name="Otto", kind="bot", status="published")
        record = {"id": clock.uuid(), "bot_id": bot.id, "question": "Red shoes?", "answer": "a"}
        more = [record | {"id": clock.uuid(), "question": f"Hat {number}?"} for number in range(3)]
        import_records(*({"bot_answer": one} for one in [record, *more]))
        assert indexed() == expected()
        import_records({"bot_answer": record | {"bot_id": other.id, "question": "Blue shoes?"}})
        assert indexed() == expected()
        assert canned_answer_index.candidates(bot.id, "red shoes") == []
        assert canned_answer_index.candidates(other.id, "blue shoes") == [record["id"]]

    def test_is_not_exported(self, bot):
        CannedAnswer.create(bot_id=bot.id, question="Red shoes?", answer="a")
        written = []
        import_export.export(written.append)
        assert {next(iter(json.loads(line))) for line in written} == {"app", "bot", "bot_answer"}
