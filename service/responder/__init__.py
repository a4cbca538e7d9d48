"""What a bot answers by itself, without a network and without an AI: prepared answers, and what its profile says.

It looks a message up in the bot's prepared questions, then in a few questions about the bot itself, and else says that
it is automatic and that a person will read the message. Nothing here touches the database, and the cost of a message is
bounded: its first 2,000 characters are looked at, and the caller gives the few prepared answers that may be like it.
"""

import functools
import hashlib
import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from service.formats import LANGUAGES
from service.responder.phrases import COMMON, PHRASES, Phrases

LONGEST = 2000  # characters of a message that are looked at
SENTENCES = 5  # of them
ENOUGH = 2 / 3  # likeness of a message and a question from which on they mean the same
WORD, COMMON_WORD = 5, 1  # weights; stored with prepared answers, so a change needs a migration that indexes them anew
LONGEST_KEY = 64  # characters
LATEST = 8  # messages whose words are kept in memory, since each is asked about several times
PIECE = 200  # characters that are decomposed at a time
FIRST_MARK = 10  # combining classes: accents and points have this one or more; parts of letters, as in Hindi, have less

_END = re.compile(r"[.!?…;\n。\uff01\uff1f؟।]+")
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")  # of letters that are written without blanks, or with them
_UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
_ASCII_WORD = re.compile("[0-9a-z]+")
_OTHERS = re.compile(r"[\W_]+")  # what is no letter and no number, which leaves marks
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
    text = text[:LONGEST]
    if text.isascii():
        return frozenset(_ASCII_WORD.findall(text.lower()))
    apart = _decomposed(text).translate(_SAME)[:LONGEST]
    plain = unicodedata.normalize("NFC", _OTHERS.sub(_without_accents, apart))
    spaced = _OTHERS.sub(_blank_unless_marks, plain)
    return frozenset(word for run in spaced.split() for part in _RUN.findall(run) for word in _cut(part))


def _without_accents(found: re.Match[str]) -> str:
    return "".join(one for one in found[0] if unicodedata.combining(one) < FIRST_MARK)


def _blank_unless_marks(found: re.Match[str]) -> str:
    return "".join(one if unicodedata.category(one)[0] == "M" else " " for one in found[0])


def _decomposed(text: str) -> str:
    """A text in its compatibility decomposition, without case; piece by piece, as a character may become eighteen."""
    found = ""
    for place in range(0, len(text), PIECE):
        found += unicodedata.normalize("NFKD", text[place : place + PIECE]).casefold()
        if len(found) >= LONGEST:
            break
    return found


def _cut(run: str) -> Sequence[str]:
    if len(run) == 1 or not _UNSPACED_LETTER.match(run):
        return [run]
    return [run[place : place + 2] for place in range(len(run) - 1)]


def sentences(text: str) -> tuple[frozenset[str], ...]:
    """The words of a message as a whole and of its first sentences, each set of words once; none without any words."""
    return _sets_of_words(text[:LONGEST])


@functools.lru_cache(LATEST)
def _sets_of_words(text: str) -> tuple[frozenset[str], ...]:
    return tuple(dict.fromkeys(filter(None, map(words_of, _sentences(text)))))


def weight(words: frozenset[str]) -> int:
    """What the words of a text weigh together."""
    return WORD * len(words) - (WORD - COMMON_WORD) * len(words & _common())


def weights(words: frozenset[str]) -> dict[str, int]:
    """What each of some words weighs; those that say most come first, as far as their length tells."""
    common = _common()
    rest = sorted(words - common, key=lambda word: (-len(word), word))
    return dict.fromkeys(rest, WORD) | dict.fromkeys(sorted(words & common), COMMON_WORD)


def key(*words: str) -> str:
    """The key of a word, or of several together, in an index, where it must be short."""
    together = " ".join(sorted(words))
    return together if len(together) <= LONGEST_KEY else hashlib.sha256(together.encode()).hexdigest()


def keys(words: frozenset[str]) -> set[str]:
    """The keys of a question in an index: those of each of its words, and of all together."""
    return {*map(key, words), *([key(*words)] if words else ())}


def choose(known: Iterable[Prepared], text: str, languages: Sequence[str]) -> Prepared | None:
    """The question that is most like a message or one of its sentences; of equals the preferred language, the first."""
    asked = [(words, weight(words)) for words in sentences(text)]
    anywhere = frozenset[str]().union(*(words for words, _ in asked))
    best, found = (ENOUGH, float("-inf")), None
    for one in known:
        own = frozenset(one.words.split())
        if own.isdisjoint(anywhere):
            continue
        total = weight(own)
        likeness = max(2 * weight(own & words) / (total + other) for words, other in asked)  # Dice: 1 for the same
        rank = (likeness, -_distance(one.language, languages))
        if rank > best:
            best, found = rank, one
    return found


def improvise(about: About, text: str, languages: Sequence[str]) -> str:
    """An answer from a bot's profile, or else that there is none: in the first of `languages` that we speak.

    Where we speak none of them, in the one of the question, or in English.
    """
    by_word = _topics()
    topics = {topic for words in sentences(text) for word in words for topic in by_word.get(word, ())}
    topic = choose((one for _, one in sorted(topics)), text, languages)
    spoken = (tag.partition("-")[0].lower() for tag in (*languages, topic.language if topic else "en", "en"))
    phrases = PHRASES[next(language for language in spoken if language in PHRASES)]
    return (topic and _tell(topic.name, about, phrases)) or phrases.otherwise


def _sentences(text: str) -> Iterator[str]:
    yield text
    yield from _END.split(text[:LONGEST])[:SENTENCES]


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
def _topics() -> dict[str, list[tuple[int, Prepared]]]:
    """The questions about the bot itself by their words, each with its place among all of them."""
    found: dict[str, list[tuple[int, Prepared]]] = defaultdict(list)
    places = itertools.count()
    for language, phrases in PHRASES.items():
        for topic in ("who", "contact", "place"):
            for question in getattr(phrases, topic).split("|"):
                words = words_of(question)
                entry = (next(places), Prepared(topic, language, " ".join(words)))
                for word in words:
                    found[word].append(entry)
    return dict(found)
