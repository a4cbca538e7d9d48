"""An index of the words of prepared questions: it leads from a message to the few questions that may be like it.

Words have weights. A question that is like a sentence by two thirds (Dice) shares words with it that weigh at least
half as much as the sentence, and weighs itself between half and twice as much. So it holds at least one of any words of
the sentence whose rest weighs less than half: the rarest such words are looked up, among questions of those weights.
From the words that a question is found under follows the highest likeness that it can have; the best are compared.

The result is the same as that of a comparison with all questions of the bot, unless one of the bounds below is reached:
a message has more than 128 words in its sentences, even its rarest words stand in thousands of questions of the bot, or
more than 32 questions may be like it. Then only the questions under the rarest words are considered, as many as fit,
and of them the 32 that share most with the message. A question that has exactly the words of a sentence is found even
then.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from service import responder
from service.db import Prepared, Table, database, prepared, sum_of
from service.fields import NEVER, Identifier, Integer, Text

LOOKUPS = 128  # keys that are looked up for a message, each once for each sentence that it stands in
COUNTED = 4_096  # rows that are counted for a message, to find its rarest words
FETCHED = 3_000  # rows that are read for a message
LONGEST_LIST = 1_000  # of them under one key
COMPARED = 32  # questions that are compared with a message

NONE = (0.0, 0.0)

COLUMNS = ("bot_id", "word", "weight", "answer_id")


class BotAnswerWord(Table):
    """A word of a prepared question. Derived from `bot_answer`; in no export, since an import makes it anew."""

    bot_id = Identifier(leaves=NEVER)
    word = Text(leaves=NEVER)  # a key, as `responder.keys` gives them
    weight = Integer(leaves=NEVER)  # of the question
    answer_id = Identifier(leaves=NEVER)

    class Meta:
        primary_key = peewee.CompositeKey(*COLUMNS)


def rows_of(answer_id: str, bot_id: str, words: str) -> list[tuple[str, str, int, str]]:
    """The rows of the index for a prepared answer."""
    own = frozenset(words.split())
    weight = responder.weight(own)
    return [(bot_id, key, weight, answer_id) for key in responder.keys(own)]


def add(answers: Iterable[Sequence[str]]) -> None:
    """Put answers into the index, given their identifiers, bots and words."""
    rows = sorted(row for answer in answers for row in rows_of(*answer))
    database.fill('"bot_answer_word"', COLUMNS, rows, "ON CONFLICT DO NOTHING")


def remove(bot_ids: Sequence[str], answer_ids: Sequence[str]) -> None:
    """Take answers of some bots out of the index."""
    own = BotAnswerWord.bot_id.in_(bot_ids) & BotAnswerWord.answer_id.in_(answer_ids)
    BotAnswerWord.delete().where(own).execute()


@dataclass(slots=True)
class _Lookup:
    """A key that is looked up for a sentence, among questions that weigh from `low` to `high`."""

    key: str
    low: int
    high: int
    weight: int  # of the words that the key stands for
    count: int = 0  # its rows, counted up to a limit
    found: Sequence[str] = ()  # weight and identifier of the questions that were read, apart by a blank


@dataclass(slots=True)
class _Sentence:
    """A sentence of a message, and what is looked up for it."""

    weight: int
    same: _Lookup  # finds the questions that have exactly its words
    words: list[_Lookup]

    def rarest(self) -> Iterator[_Lookup]:
        """Words of which every question that is like the sentence has at least one."""
        rest = self.weight
        for lookup in sorted(self.words, key=lambda one: (one.count, -one.weight)):
            if 2 * rest < self.weight:
                return
            rest -= lookup.weight
            yield lookup

    def likeness(self, limit: int) -> Iterator[tuple[str, tuple[float, float]]]:
        """The answers whose questions may be like the sentence, and how much at most and at least.

        `limit` is that of the counts.
        """
        shared: dict[str, int] = {}
        for lookup in (self.same, *self.words):
            for question in lookup.found:
                shared[question] = shared.get(question, 0) + lookup.weight
        read = (one.weight for one in self.words if one.count == 0 or one.found and one.count < limit)
        unknown = self.weight - sum(read)
        for question, known in shared.items():
            words, _, answer_id = question.partition(" ")
            weight = int(words)
            both = weight + self.weight
            highest = 2 * min(known + unknown, weight, self.weight) / both
            if highest >= responder.ENOUGH:
                yield answer_id, (highest, known / both)


def candidates(bot_id: str, text: str) -> list[str]:
    """The identifiers of the answers to compare with a message: at most 32, found by two statements."""
    sentences = _sentences(text)
    lookups = [lookup for one in sentences for lookup in (one.same, *one.words)]
    limit = min(LONGEST_LIST, COUNTED // max(1, len(lookups)))
    for lookup, count in zip(lookups, _ask(_counted, bot_id, limit, lookups), strict=True):
        lookup.count = count
    same = [one.same for one in sentences if one.same.count]
    chosen = _within_bounds(same or [lookup for one in sentences for lookup in one.rarest()], limit)
    for lookup, found in zip(chosen, _ask(_listed, bot_id, LONGEST_LIST, chosen), strict=True):
        lookup.found = found.split(",") if found else ()
    likeness: dict[str, tuple[float, float]] = {}
    for answer_id, bounds in itertools.chain.from_iterable(one.likeness(limit) for one in sentences):
        if bounds > likeness.get(answer_id, NONE):
            likeness[answer_id] = bounds
    return heapq.nlargest(COMPARED, likeness, key=likeness.__getitem__)


def _sentences(text: str) -> list[_Sentence]:
    """The sentences of a message, the shortest first, with as many of their words as are looked up."""
    known = sorted(responder.sentences(text), key=len)
    left = LOOKUPS - len(known)
    found = []
    for words in known:
        weight = responder.weight(words)
        weights = responder.weights(words)
        first = list(weights)[:left]
        left -= len(first)
        own = [_Lookup(responder.key(word), -(-weight // 2), 2 * weight, weights[word]) for word in first]
        found.append(_Sentence(weight, _Lookup(responder.key(*words), weight, weight, weight), own))
    return found


def _within_bounds(lookups: Iterable[_Lookup], limit: int) -> list[_Lookup]:
    """The lookups with the fewest rows, as many as may be read."""
    chosen, rows = list[_Lookup](), 0
    for lookup in sorted((one for one in lookups if one.count), key=lambda one: one.count):
        rows += lookup.count if lookup.count < limit else LONGEST_LIST
        if rows > FETCHED:
            break
        chosen.append(lookup)
    return chosen


def _ask(statement: Callable[..., Prepared], bot_id: str, limit: int, lookups: Sequence[_Lookup]) -> list[Any]:
    """What a statement finds for each lookup. Their number is filled up to a power of two, so there are few texts."""
    if not lookups:
        return []
    rows = [(number, one.key, one.low, one.high) for number, one in enumerate(lookups)]
    empty = (1 << (len(rows) - 1).bit_length()) - len(rows)
    values = itertools.chain.from_iterable(rows + [(-1, "", 0, 0)] * empty)
    found = dict(statement(bot_id, limit, *values).rows())
    return [found[number] for number in range(len(rows))]


@prepared
def _counted(bot_id: str, limit: int, *values: Any) -> Any:
    return _for_each(values, bot_id, limit, peewee.SQL("1"), lambda part: peewee.fn.count(peewee.SQL("*")))


@prepared
def _listed(bot_id: str, limit: int, *values: Any) -> Any:
    join = getattr(peewee.fn, database.text_aggregate)
    question = peewee.NodeList((BotAnswerWord.weight, peewee.SQL("|| ' ' ||"), BotAnswerWord.answer_id))
    return _for_each(
        values, bot_id, limit, question.alias("question"), lambda part: join(part.c.question, peewee.SQL("','"))
    )


def _for_each(values: Sequence[Any], bot_id: str, limit: Any, column: Any, aggregate: Callable[[Any], Any]) -> Any:
    """For each lookup, an aggregate of its first rows in the index."""
    lookup = peewee.ValuesList([values[place : place + 4] for place in range(0, len(values), 4)], alias="lookup")
    table: Any = BotAnswerWord
    which = (table.bot_id == bot_id) & (table.word == lookup.c.column2)
    which &= table.weight.between(lookup.c.column3, lookup.c.column4)
    part = table.select(column).where(which).limit(sum_of(limit)).alias("part")
    aggregated = peewee.Select((part,), (aggregate(part),))
    return peewee.Select((lookup,), (lookup.c.column1, aggregated)).bind(database)
