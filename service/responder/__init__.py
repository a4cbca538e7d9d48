"""What a bot answers by itself, without a network and without an AI: prepared answers, and what its profile says.

It looks a message up in the bot's prepared questions, then in a few questions about the bot itself, and else says that
it is automatic and that a person will read the message. Nothing here touches the database, and whatever a message
holds, looking it up among thousands of prepared answers takes some hundredths of a second, at worst some tenths.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from service.formats import LANGUAGES
from service.responder.phrases import COMMON, PHRASES, Phrases

LONGEST = 2000  # characters of a message that are looked at
SENTENCES = 5  # of them
ENOUGH = 2 / 3  # likeness of a message and a question from which on they mean the same
LITTLE = 0.2  # what a common word counts, where others count 1
FIRST_MARK = 10  # combining classes: accents and points have this one or more; parts of letters, as in Hindi, have less

_END = re.compile(r"[.!?…;\n。\uff01\uff1f؟।]+")
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")  # of letters that are written without blanks, or with them
_SAME = str.maketrans("ıłøđىـ", "ilodي ")  # letters that Unicode does not take apart


class Prepared(NamedTuple):
    """A question with an answer: its name, its language (a tag, or empty) and its words, apart by blanks."""

    name: str
    language: str
    words: str


class About(NamedTuple):
    """What a bot's profile says of it; empty where it says nothing."""

    name: str
    tagline: str
    ways: str  # to reach its people
    place: str


def words_of(text: str) -> frozenset[str]:
    """The words of a text, whatever their case, accents and punctuation; of unspaced writing, pairs of letters."""
    apart = unicodedata.normalize("NFKD", text[:LONGEST]).casefold().translate(_SAME)
    plain = unicodedata.normalize("NFC", "".join(c for c in apart[:LONGEST] if unicodedata.combining(c) < FIRST_MARK))
    spaced = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in plain)
    return frozenset(word for run in spaced.split() for part in _RUN.findall(run) for word in _cut(part))


def _cut(run: str) -> Sequence[str]:
    if len(run) == 1 or not _RUN.fullmatch(run[0]) or not re.match(f"[{_UNSPACED}]", run):
        return [run]
    return [run[place : place + 2] for place in range(len(run) - 1)]


def choose(known: Iterable[Prepared], text: str, languages: Sequence[str]) -> Prepared | None:
    """The question that is most like a message or one of its sentences; of equals the preferred language, the first."""
    asked = [(words, _weight(words)) for words in map(words_of, _sentences(text)) if words]
    anywhere = frozenset[str]().union(*(words for words, _ in asked))
    best, found = (ENOUGH, float("-inf")), None
    for one in known:
        own = frozenset(one.words.split())
        if own.isdisjoint(anywhere):
            continue
        weight = _weight(own)
        likeness = max(2 * _weight(own & words) / (weight + other) for words, other in asked)  # Dice: 1 for the same
        rank = (likeness, -_distance(one.language, languages))
        if rank > best:
            best, found = rank, one
    return found


def improvise(about: About, text: str, languages: Sequence[str]) -> str:
    """An answer from a bot's profile, or else that there is none: in the first of `languages` that we speak.

    Where we speak none of them, in the one of the question, or in English.
    """
    topic = choose(_topics(), text, languages)
    spoken = (tag.partition("-")[0].lower() for tag in (*languages, topic.language if topic else "en", "en"))
    phrases = PHRASES[next(language for language in spoken if language in PHRASES)]
    return (topic and _tell(topic.name, about, phrases)) or phrases.otherwise


def _sentences(text: str) -> Iterator[str]:
    yield text
    yield from _END.split(text[:LONGEST])[:SENTENCES]


def _weight(words: frozenset[str]) -> float:
    return len(words) - (1 - LITTLE) * len(words & _common())


def _distance(language: str, languages: Sequence[str]) -> int:
    """How far down a list of preferred languages one is; just behind its place if only the region differs."""
    near = language.lower().partition("-")[0]
    for place, tag in enumerate(languages[:LANGUAGES]):
        if tag.lower() == language.lower():
            return 2 * place
        if tag.lower().partition("-")[0] == near:
            return 2 * place + 1
    return 2 * LANGUAGES


def _tell(topic: str, about: About, phrases: Phrases) -> str | None:
    """What a profile says to a question about the bot; None if it says nothing."""
    if topic == "who" and about.name:
        return f"{phrases.i_am.format(name=about.name)} {about.tagline}".rstrip()
    if topic == "contact" and about.ways:
        return phrases.reach_us.format(ways=about.ways)
    if topic == "place" and about.place:
        return phrases.find_us.format(place=about.place)
    return None


@functools.cache
def _common() -> frozenset[str]:
    return frozenset(word for written in COMMON.split() for word in words_of(written))


@functools.cache
def _topics() -> tuple[Prepared, ...]:
    return tuple(
        Prepared(topic, language, " ".join(words_of(question)))
        for language, phrases in PHRASES.items()
        for topic in ("who", "contact", "place")
        for question in getattr(phrases, topic).split("|")
    )
