"""Replies of bots without an AI: canned answers, replies from the bot's profile, and a fallback.

A message is compared with the questions of the bot's canned answers, then with built-in questions about the bot itself.
Otherwise the reply says that it is automatic and that a person will read the message. This package does not use the
database. The cost per message is bounded: only its first 2,000 characters are compared, with the few canned answers
that the caller has selected.
"""

import functools
import hashlib
import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from service.responder.phrases import COMMON_WORDS, PHRASES, Phrases
from service.validators import MAX_LANGUAGES

MAX_CHARACTERS = 2000  # of a message
MAX_SENTENCES = 5  # of a message
MIN_SIMILARITY = 2 / 3  # of a message and a question that match
WORD_WEIGHT, COMMON_WORD_WEIGHT = 5, 1  # stored in the index of canned answers: a change needs a migration
MAX_KEY_LENGTH = 64  # characters
NO_RANK = (0.0, 0.0)
CACHE_SIZE = 8  # messages; the words of each are needed several times
CHUNK = 200  # characters that are decomposed at a time
MIN_MARK_CLASS = 10  # combining class of accents and points; parts of letters, as in Hindi, have lower classes

_END = re.compile(r"[.!?…;\n。\uff01\uff1f؟।]+")
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")  # of letters of scripts without, or with, spaces between words
_UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
_ASCII_WORD = re.compile("[0-9a-z]+")
_NON_WORD = re.compile(r"[\W_]+")  # no letters and no digits; may hold combining marks
_FOLDED = str.maketrans("ıłøđىـ", "ilodي ")  # letters without a Unicode decomposition


class Candidate(NamedTuple):
    """A question with a canned answer."""

    id: str
    language: str  # a language tag, or empty
    words: str  # of the question, separated by spaces


class Profile(NamedTuple):
    """The parts of a bot's profile that replies use; each may be empty."""

    name: str
    tagline: str
    contact: str  # e-mail address, telephone number and website
    location: str


def tokenize(text: str) -> frozenset[str]:
    """Return the words of a text without case, accents and punctuation.

    In scripts without spaces between words, these are pairs of adjacent letters.
    """
    text = text[:MAX_CHARACTERS]
    if text.isascii():
        return frozenset(_ASCII_WORD.findall(text.lower()))
    decomposed = _decomposed(text).translate(_FOLDED)[:MAX_CHARACTERS]
    plain = unicodedata.normalize("NFC", _NON_WORD.sub(_without_accents, decomposed))
    spaced = _NON_WORD.sub(_spaces_except_marks, plain)
    return frozenset(word for run in spaced.split() for part in _RUN.findall(run) for word in _split_run(part))


def _without_accents(match: re.Match[str]) -> str:
    return "".join(char for char in match[0] if unicodedata.combining(char) < MIN_MARK_CLASS)


def _spaces_except_marks(match: re.Match[str]) -> str:
    return "".join(char if unicodedata.category(char)[0] == "M" else " " for char in match[0])


def _decomposed(text: str) -> str:
    """Return the compatibility decomposition of a text, without case.

    Works in chunks, since one character may become eighteen, and stops when the result is long enough.
    """
    result = ""
    for place in range(0, len(text), CHUNK):
        result += unicodedata.normalize("NFKD", text[place : place + CHUNK]).casefold()
        if len(result) >= MAX_CHARACTERS:
            break
    return result


def _split_run(run: str) -> Sequence[str]:
    if len(run) == 1 or not _UNSPACED_LETTER.match(run):
        return [run]
    return [run[place : place + 2] for place in range(len(run) - 1)]


def sentences(text: str) -> tuple[frozenset[str], ...]:
    """Return the words of the whole message and of each of its first sentences, without empty or equal sets."""
    return _word_sets(text[:MAX_CHARACTERS])


@functools.lru_cache(CACHE_SIZE)
def _word_sets(text: str) -> tuple[frozenset[str], ...]:
    return tuple(dict.fromkeys(filter(None, map(tokenize, _sentences(text)))))


def weight(words: frozenset[str]) -> int:
    """Return the sum of the weights of some words."""
    return WORD_WEIGHT * len(words) - (WORD_WEIGHT - COMMON_WORD_WEIGHT) * len(words & _common_words())


def weights(words: frozenset[str]) -> dict[str, int]:
    """Return the weight of each word, the most distinctive words first: uncommon ones, then by length."""
    common = _common_words()
    rest = sorted(words - common, key=lambda word: (-len(word), word))
    return dict.fromkeys(rest, WORD_WEIGHT) | dict.fromkeys(sorted(words & common), COMMON_WORD_WEIGHT)


def key(*words: str) -> str:
    """Return the key of one or several words in an index; long keys are hashed."""
    joined = " ".join(sorted(words))
    return joined if len(joined) <= MAX_KEY_LENGTH else hashlib.sha256(joined.encode()).hexdigest()


def keys(words: frozenset[str]) -> set[str]:
    """Return the keys of a question in an index: one per word, and one for all words together."""
    return {*map(key, words), *([key(*words)] if words else ())}


def best_match(answers: Iterable[Candidate], text: str, languages: Sequence[str]) -> Candidate | None:
    """Return the canned answer whose question is most similar to a message or to one of its sentences.

    Of equally similar ones, the preferred language decides, then the order of `answers`. None if none is similar.
    """
    rank, best = max(ranked(answers, text, languages), key=lambda found: found[0], default=(NO_RANK, None))
    return best if rank >= (MIN_SIMILARITY, float("-inf")) else None


def ranked(
    answers: Iterable[Candidate], text: str, languages: Sequence[str]
) -> Iterator[tuple[tuple[float, float], Candidate]]:
    """Yield the answers that share words with a message, with the rank that `best_match` compares."""
    message_words = [(words, weight(words)) for words in sentences(text)]
    all_words = frozenset[str]().union(*(words for words, _ in message_words))
    for answer in answers:
        own = frozenset(answer.words.split())
        if own.isdisjoint(all_words):
            continue
        total = weight(own)
        # Sørensen-Dice coefficient: 1 for equal sets of words
        similarity = max(2 * weight(own & words) / (total + other) for words, other in message_words)
        yield (similarity, -_distance(answer.language, languages)), answer


def fallback_reply(profile: Profile, text: str, languages: Sequence[str]) -> str:
    """Return a reply from the bot's profile, or a sentence that it has no answer.

    The language is the first of `languages` that has phrases, otherwise that of the question, otherwise English.
    """
    question = _built_in_question(text, languages)
    phrases = _phrases((*languages, question.language) if question else languages)
    return profile_reply(profile, text, languages) or phrases.no_answer


def profile_reply(profile: Profile, text: str, languages: Sequence[str]) -> str | None:
    """Return a reply from the bot's profile to a question about the bot, in the language of `fallback_reply`."""
    question = _built_in_question(text, languages)
    if question is None:
        return None
    return _reply_from_profile(question.id, profile, _phrases((*languages, question.language)))


def asks_for_person(text: str) -> bool:
    """Return whether a message, or a sentence of it, asks for a person in place of the bot."""
    question = _built_in_question(text, ())
    return question is not None and question.id == "person"


def handover_reply(languages: Sequence[str]) -> str:
    """Return the sentence that a person was called, in the first of some languages that has phrases, or English."""
    return _phrases(languages).handed_over


def _built_in_question(text: str, languages: Sequence[str]) -> Candidate | None:
    """Return the built-in question that is most similar to a message: its topic, as the identifier, and language."""
    by_word = _questions_by_word()
    candidates = {entry for words in sentences(text) for word in words for entry in by_word.get(word, ())}
    return best_match((answer for _, answer in sorted(candidates)), text, languages)


def _phrases(languages: Sequence[str]) -> Phrases:
    """Return the phrases of the first language that has some, or in English."""
    supported = (tag.partition("-")[0].lower() for tag in (*languages, "en"))
    return PHRASES[next(language for language in supported if language in PHRASES)]


def _sentences(text: str) -> Iterator[str]:
    yield text
    yield from _END.split(text[:MAX_CHARACTERS])[:MAX_SENTENCES]


def _distance(language: str, languages: Sequence[str]) -> int:
    """Return the rank of a language in a list of preferred languages, doubled; plus 1 if only the region differs."""
    primary = language.lower().partition("-")[0]
    for place, tag in enumerate(languages[:MAX_LANGUAGES]):
        if tag.lower() == language.lower():
            return 2 * place
        if tag.lower().partition("-")[0] == primary:
            return 2 * place + 1
    return 2 * MAX_LANGUAGES


def _reply_from_profile(topic: str, profile: Profile, phrases: Phrases) -> str | None:
    """Return the reply to a question about the bot; None if the profile has no such information."""
    if topic == "identity" and profile.name:
        return f"{phrases.identity_reply.format(name=profile.name)} {profile.tagline}".rstrip()
    if topic == "contact" and profile.contact:
        return phrases.contact_reply.format(contact=profile.contact)
    if topic == "location" and profile.location:
        return phrases.location_reply.format(location=profile.location)
    return phrases.handed_over if topic == "person" else None


@functools.cache
def _common_words() -> frozenset[str]:
    return frozenset(word for written in COMMON_WORDS.split() for word in tokenize(written))


@functools.cache
def _questions_by_word() -> dict[str, list[tuple[int, Candidate]]]:
    """Return the built-in questions about the bot by their words, each with a number for a stable order."""
    found: dict[str, list[tuple[int, Candidate]]] = defaultdict(list)
    numbers = itertools.count()
    for language, phrases in PHRASES.items():
        for topic in ("identity", "contact", "location", "person"):
            for question in getattr(phrases, topic).split("|"):
                words = tokenize(question)
                entry = (next(numbers), Candidate(topic, language, " ".join(words)))
                for word in words:
                    found[word].append(entry)
    return dict(found)
