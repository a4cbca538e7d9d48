"""The index of the words of canned answers' questions: finds the few questions that may be similar to a message.

Words have weights. A question with a similarity to a sentence of at least two thirds (Dice) shares words with it that
weigh at least half as much as the sentence, and itself weighs between half and twice as much. So it contains at least
one of any set of words of the sentence that leaves less than half of its weight: the rarest such words are looked up,
among questions of these weights. The words under which a question is found bound its similarity; the questions with
the highest bounds are compared. With a `factor` in place of two, the similarity is at least `2 / (1 + factor)`.

The result equals that of a comparison with all questions of the bot, unless a limit below is reached: the sentences of
a message have more than 128 words, even the rarest words occur in thousands of questions of the bot, or more than 32
questions may be similar. Then only the questions under the rarest words are considered, as many as fit, and of them
the 32 that share most with the message. A question with exactly the words of a sentence is always found.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import peewee

from service import responder
from service.db import CompiledQuery, Query, Table, compiled, database
from service.fields import INTERNAL, Identifier, Integer, SqlValue, Text

MAX_LOOKUPS = 128  # keys looked up for a message, each once for every sentence that contains it
MAX_COUNTED = 4_096  # rows counted for a message, to find its rarest words
MAX_FETCHED = 3_000  # rows read for a message
MAX_FETCHED_PER_KEY = 1_000
MAX_COMPARED = 32  # questions compared with a message

SIMILAR = 2  # the factor for responder.MIN_SIMILARITY
NONE = (0.0, 0.0)

COLUMNS = ("bot_id", "word", "weight", "answer_id")


class CannedAnswerWord(Table):
    """A word of a canned answer's question. Derived from `bot_answer`, not exported, and recomputed by imports."""

    bot_id = Identifier(visibility=INTERNAL)
    word = Text(visibility=INTERNAL)  # a key of `responder.keys`
    weight = Integer(visibility=INTERNAL)  # of the question
    answer_id = Identifier(visibility=INTERNAL)

    class Meta:
        table_name = "bot_answer_word"
        primary_key = peewee.CompositeKey(*COLUMNS)


def rows_of(answer_id: str, bot_id: str, words: str) -> list[tuple[str, str, int, str]]:
    """Return the index rows of a canned answer."""
    own = frozenset(words.split())
    weight = responder.weight(own)
    return [(bot_id, key, weight, answer_id) for key in responder.keys(own)]


def add(answers: Iterable[Sequence[str]]) -> None:
    """Add answers to the index, given as identifier, bot and words."""
    rows = sorted(row for answer in answers for row in rows_of(*answer))
    database.bulk_insert('"bot_answer_word"', COLUMNS, rows, "ON CONFLICT DO NOTHING")


def remove(bot_ids: Sequence[str], answer_ids: Sequence[str]) -> None:
    """Remove answers of some bots from the index."""
    own = CannedAnswerWord.bot_id.in_(bot_ids) & CannedAnswerWord.answer_id.in_(answer_ids)
    CannedAnswerWord.delete().where(own).execute()


@dataclass(slots=True)
class _Lookup:
    """A key to look up for a sentence, among questions with a weight from `low` to `high`."""

    key: str
    low: int
    high: int
    weight: int  # of the words of the key
    count: int = 0  # number of its rows, up to a limit
    found: Sequence[str] = ()  # weight and answer identifier of the questions, separated by a space


@dataclass(slots=True)
class _Sentence:
    """A sentence of a message and its lookups."""

    weight: int
    factor: int
    same: _Lookup  # finds the questions with exactly its words
    words: list[_Lookup]

    def rarest(self) -> Iterator[_Lookup]:
        """Yield the rarest words such that every similar question has at least one of them."""
        rest = self.weight
        for lookup in sorted(self.words, key=lambda one: (one.count, -one.weight)):
            if self.factor * rest < self.weight:
                return
            rest -= lookup.weight
            yield lookup

    def similarity(self, limit: int) -> Iterator[tuple[str, tuple[float, float]]]:
        """Yield the answers whose questions may be similar to the sentence, with the bounds of their similarity.

        The upper bound comes first. `limit` is the limit up to which rows were counted.
        """
        shared: dict[str, int] = {}
        for lookup in (self.same, *self.words):
            for question in lookup.found:
                shared[question] = shared.get(question, 0) + lookup.weight
        read = (one.weight for one in self.words if one.count == 0 or one.found and one.count < limit)
        unread_weight = self.weight - sum(read)
        for question, known_weight in shared.items():
            words, _, answer_id = question.partition(" ")
            weight = int(words)
            both = weight + self.weight
            highest = 2 * min(known_weight + unread_weight, weight, self.weight) / both
            if highest >= 2 / (1 + self.factor):
                yield answer_id, (highest, known_weight / both)


def candidates(bot_id: str, text: str, factor: int = SIMILAR) -> list[str]:
    """Return the identifiers of the answers to compare with a message: at most 32, by two statements."""
    sentences = _sentences(text, factor)
    lookups = [lookup for one in sentences for lookup in (one.same, *one.words)]
    limit = min(MAX_FETCHED_PER_KEY, MAX_COUNTED // max(1, len(lookups)))
    for lookup, count in zip(lookups, _run(_counted, bot_id, limit, lookups), strict=True):
        lookup.count = count
    same = [one.same for one in sentences if one.same.count]
    chosen = _within_limit(same or [lookup for one in sentences for lookup in one.rarest()], limit)
    for lookup, found in zip(chosen, _run(_listed, bot_id, MAX_FETCHED_PER_KEY, chosen), strict=True):
        lookup.found = found.split(",") if found else ()
    similarity: dict[str, tuple[float, float]] = {}
    for answer_id, bounds in itertools.chain.from_iterable(one.similarity(limit) for one in sentences):
        if bounds > similarity.get(answer_id, NONE):
            similarity[answer_id] = bounds
    return heapq.nlargest(MAX_COMPARED, similarity, key=similarity.__getitem__)


def _sentences(text: str, factor: int) -> list[_Sentence]:
    """Return the sentences of a message, shortest first, with the words to look up."""
    sentences = sorted(responder.sentences(text), key=len)
    remaining = MAX_LOOKUPS - len(sentences)
    found = []
    for words in sentences:
        weight = responder.weight(words)
        weights = responder.weights(words)
        first = list(weights)[:remaining]
        remaining -= len(first)
        bounds = -(-weight // factor), factor * weight
        own = [_Lookup(responder.key(word), *bounds, weights[word]) for word in first]
        found.append(_Sentence(weight, factor, _Lookup(responder.key(*words), weight, weight, weight), own))
    return found


def _within_limit(lookups: Iterable[_Lookup], limit: int) -> list[_Lookup]:
    """Return the lookups with the fewest rows, within MAX_FETCHED."""
    chosen, rows = list[_Lookup](), 0
    for lookup in sorted((one for one in lookups if one.count), key=lambda one: one.count):
        rows += lookup.count if lookup.count < limit else MAX_FETCHED_PER_KEY
        if rows > MAX_FETCHED:
            break
        chosen.append(lookup)
    return chosen


def _run(
    statement: Callable[..., CompiledQuery], bot_id: str, limit: int, lookups: Sequence[_Lookup]
) -> list[SqlValue]:
    """Return the result of a statement for each lookup, padded to a power of two, so that there are few texts of it."""
    if not lookups:
        return []
    rows = [(number, one.key, one.low, one.high) for number, one in enumerate(lookups)]
    empty = (1 << (len(rows) - 1).bit_length()) - len(rows)
    values = itertools.chain.from_iterable(rows + [(-1, "", 0, 0)] * empty)
    found = dict(statement(bot_id, limit, *values).rows())
    return [found[number] for number in range(len(rows))]


@compiled
def _counted(bot_id: str, limit: int, *values: SqlValue) -> Query:
    return _for_each(values, bot_id, limit, peewee.SQL("1"), lambda part: peewee.fn.count(peewee.SQL("*")))


@compiled
def _listed(bot_id: str, limit: int, *values: SqlValue) -> Query:
    join = getattr(peewee.fn, database.text_aggregate)
    question = peewee.NodeList((CannedAnswerWord.weight, peewee.SQL("|| ' ' ||"), CannedAnswerWord.answer_id))
    return _for_each(
        values, bot_id, limit, question.alias("question"), lambda part: join(part.c.question, peewee.SQL("','"))
    )


def _for_each(
    values: Sequence[SqlValue],
    bot_id: str,
    limit: int,
    column: peewee.Node,
    aggregate: Callable[[peewee.Select], peewee.Node],
) -> Query:
    """Select for each lookup an aggregate of its first index rows."""
    lookup = peewee.ValuesList([values[start : start + 4] for start in range(0, len(values), 4)], alias="lookup")
    table = CannedAnswerWord
    which = (table.bot_id == bot_id) & (table.word == lookup.c.column2)
    which &= table.weight.between(lookup.c.column3, lookup.c.column4)
    part = table.select(column).where(which).limit(limit).alias("part")
    aggregated = peewee.Select((part,), (aggregate(part),))
    return peewee.Select((lookup,), (lookup.c.column1, aggregated)).bind(database)
