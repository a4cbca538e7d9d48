"""The index of prepared questions finds what a comparison with all of them finds, at a bounded cost."""

import json
import random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from service import clock, db, responder, transfer
from service.models import Bot, BotAnswer, BotAnswerWord, answer_index
from service.models.answering import prepared_answer, words_in
from service.responder import PHRASES, Prepared, choose
from tests.postgres import on_sqlite_alone
from tests.watching import database_steps, statements

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
PLACES = ["", "en", "de-AT", "de"]


def prepare(bot, questions, languages=("en",)):
    """Give a bot answers that are their own questions, in place of those that it has; the answers, by identifier."""
    BotAnswer.delete().execute()
    BotAnswerWord.delete().execute()
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
    with db.write(), BotAnswer.indexed_anew([row["id"] for row in rows]):
        for start in range(0, len(rows), 500):
            BotAnswer.insert_many(rows[start : start + 500]).execute()
    return sorted(Prepared(row["id"], row["language"], row["words"]) for row in rows)


def chosen_by_index(bot, known, text, languages):
    found = set(answer_index.candidates(bot.id, text))
    return choose([one for one in known if one.name in found], text, languages)


def indexed():
    return set(BotAnswerWord.select().tuples())


def expected():
    rows = BotAnswer.select(BotAnswer.id, BotAnswer.bot_id, BotAnswer.words).tuples()
    return {row for answer in rows for row in answer_index.rows_of(*answer)}


questions = some.lists(some.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


class TestTheSameAnswer:
    @given(
        some.lists(questions, max_size=30),
        some.lists(questions, min_size=1, max_size=7).map(". ".join),
        some.lists(some.sampled_from(["en", "de", "de-AT", "fr"]), max_size=2),
    )
    @hypothesis_settings(
        max_examples=80,
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    def test_is_found_as_by_comparing_all(self, bot, catalogue, text, languages):
        known = prepare(bot, catalogue, PLACES)
        assert chosen_by_index(bot, known, text, languages) == choose(known, text, languages)

    def test_is_found_among_hundreds_of_questions_while_few_are_compared(self, bot):
        pool = random.Random(1)
        vocabulary = [f"w{number}" for number in range(400)] + WORDS
        known = prepare(bot, [" ".join(pool.sample(vocabulary, pool.randint(1, 8))) for _ in range(800)], PLACES)
        sizes, answered = [], 0
        for _ in range(150):
            words = pool.choice(known).words.split()
            text = " ".join(pool.sample(words, len(words) - len(words) // 3) + pool.sample(vocabulary, len(words) // 3))
            text += pool.choice(["", ". ", "? "]) + " ".join(pool.sample(vocabulary, 3))
            sizes.append(len(answer_index.candidates(bot.id, text)))
            best = choose(known, text, ["de"])
            answered += best is not None
            assert chosen_by_index(bot, known, text, ["de"]) == best
        assert max(sizes) <= answer_index.COMPARED and sum(sizes) < 150 * 10 and answered > 75

    def test_is_found_when_all_questions_share_all_words_but_one(self, bot):
        shared = [f"shared{number}" for number in range(20)]
        known = prepare(bot, [" ".join([*shared, f"own{number}"]) for number in range(500)])
        for one in known[::50]:
            assert chosen_by_index(bot, known, one.words, []) == one
            assert chosen_by_index(bot, known, f"{one.words} unknown", []) == one

    def test_is_found_by_exactly_its_words_when_no_word_tells_questions_apart(self, bot):
        shared = [f"w{number}" for number in range(40)]
        pool = random.Random(2)
        known = prepare(bot, [" ".join(pool.sample(shared, 30)) for _ in range(2000)])
        for one in known[::200]:
            assert chosen_by_index(bot, known, f"Hello there. {one.words}. Thanks", []) == one

    def test_is_found_for_words_of_any_length(self, bot):
        long = "x" * 500
        known = prepare(bot, [long, f"{'y' * 200} {'z' * 200}", "営" + "業" * 499, "\ufdfa" * 500])
        for one in known:
            assert chosen_by_index(bot, known, one.words, []) == one
        assert max(len(word) for _, word, *_ in indexed()) <= responder.LONGEST_KEY

    def test_is_none_of_another_bot(self, bot):
        other = Bot.create(app_id=bot.app_id, name="Otto", kind="bot", status="published")
        known = prepare(bot, ["red shoes"])
        assert answer_index.candidates(bot.id, "red shoes") == [known[0].name]
        assert answer_index.candidates(other.id, "red shoes") == []


class TestTheCost:
    @pytest.fixture
    def degenerate(self, bot):
        """5,000 questions of 110 words, and a message made of all of their words."""
        pool = random.Random(3)
        vocabulary = [f"{number:x}" for number in range(256, 256 + 400)]
        prepare(bot, [" ".join(pool.sample(vocabulary, 110)) for _ in range(5000)])
        sentences = [" ".join(pool.sample(vocabulary, 70)) for _ in range(5)]
        return [" ".join(vocabulary)[:2000], (". ".join(sentences) + " " + " ".join(vocabulary))[:2000]]

    @pytest.mark.slow
    def test_is_bounded_for_the_largest_catalogue_and_message(self, bot, session, degenerate, monkeypatch):
        read, compared = [], []
        ask, choose = answer_index._ask, responder.choose

        def counting(statement, bot_id, limit, lookups):
            found = ask(statement, bot_id, limit, lookups)
            read.append(sum(one if isinstance(one, int) else one.count(",") + 1 for one in found))
            assert len(found) <= answer_index.LOOKUPS
            return found

        def comparing(known, *more):
            known = list(known)
            compared.append(len(known))
            return choose(known, *more)

        monkeypatch.setattr(answer_index, "_ask", counting)
        monkeypatch.setattr(responder, "choose", comparing)
        for text in degenerate:
            read.clear()
            compared.clear()
            with statements() as seen:
                assert prepared_answer(session, text, ["en"]) == PHRASES["en"].otherwise
            assert len(seen) <= 3
            counted, *listed = read
            assert counted <= answer_index.COUNTED and sum(listed) <= answer_index.FETCHED
            assert compared[0] <= answer_index.COMPARED

    @on_sqlite_alone
    @pytest.mark.slow
    def test_of_the_database_does_not_grow_with_the_catalogue(self, bot, degenerate):
        for text in degenerate:
            assert database_steps(lambda text=text: answer_index.candidates(bot.id, text)) < 400_000

    def test_of_a_message_that_no_question_shares_a_word_with_is_one_statement(self, bot):
        prepare(bot, ["red shoes"])
        with statements() as seen:
            assert answer_index.candidates(bot.id, "blue hats") == []
        assert len(seen) == 1


class TestTheIndex:
    @pytest.fixture
    def take_in(self, application, tmp_path):
        def act(*records):
            file = tmp_path / "in.jsonl"
            file.write_text("\n".join(json.dumps(record) for record in records))
            assert list(transfer.take_in([file]) or []) == []

        return act

    def test_follows_answers_that_are_saved_and_deleted(self, bot):
        answer = BotAnswer.create(bot_id=bot.id, question="Red shoes?", answer="a")
        assert indexed() == expected() != set()
        answer.question = "Blue hats?"
        answer.save()
        assert indexed() == expected()
        assert answer_index.candidates(bot.id, "red shoes") == []
        answer.delete_instance()
        assert indexed() == set()

    def test_follows_an_import_that_replaces_answers_and_moves_them_to_another_bot(self, bot, take_in):
        other = Bot.create(app_id=bot.app_id, name="Otto", kind="bot", status="published")
        record = {"id": clock.uuid(), "bot_id": bot.id, "question": "Red shoes?", "answer": "a"}
        more = [record | {"id": clock.uuid(), "question": f"Hat {number}?"} for number in range(3)]
        take_in(*({"bot_answer": one} for one in [record, *more]))
        assert indexed() == expected()
        take_in({"bot_answer": record | {"bot_id": other.id, "question": "Blue shoes?"}})
        assert indexed() == expected()
        assert answer_index.candidates(bot.id, "red shoes") == []
        assert answer_index.candidates(other.id, "blue shoes") == [record["id"]]

    def test_is_in_no_export(self, bot):
        BotAnswer.create(bot_id=bot.id, question="Red shoes?", answer="a")
        written = []
        transfer.give_out(written.append)
        assert {next(iter(json.loads(line))) for line in written} == {"app", "bot", "bot_answer"}
