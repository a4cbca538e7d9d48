"""Canned answers of bots, and the replies of a bot without an assistant: a canned answer, or one from its profile."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

import msgspec
import peewee
from msgspec import Raw

from service import clock, db, responder, validators
from service.db import (
    Order,
    Page,
    Position,
    Query,
    Table,
    compiled,
    contains,
    literal,
    pad_values,
    page,
    render,
    search_pattern,
    write,
)
from service.errors import AnswerNotFound
from service.fields import INTERNAL, Identifier, SqlValue, Text, reference
from service.models import canned_answer_index
from service.models.actions import NO_ACTIONS, Action, Actions
from service.models.audit_log import AuditLog
from service.models.bots import Bot
from service.models.callers import Caller
from service.models.chats import ChatSession

BATCH_SIZE = 500  # rows written by one statement
NEAREST_FACTOR = 9  # similarity of at least 0.2: one distinctive word of a short question
NEAREST_LIMIT = 20
NEAREST_BYTES = 8 * 1024  # of all questions and answers, in UTF-8


class BotReply(NamedTuple):
    """A reply of a bot: its text, and the actions that it offers, as stored."""

    text: str
    actions: str = NO_ACTIONS


class CannedAnswer(Table):
    """A canned answer of a bot, with the question that it answers."""

    get_for_errors = (AnswerNotFound,)
    id = Identifier(primary_key=True, default=clock.uuid)
    bot_id = reference("bot")
    language = Text(64, validator=validators.language_tag)
    question = Text(500, min_length=1, default=None)
    answer = Text(10_000, min_length=1, default=None)
    actions = Actions()  # that the bot offers with the answer
    words = Text(visibility=INTERNAL)  # of the question, in the form that the responder compares

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the words of the question."""
        return {"words": words_in(given.get("question", ""))}

    @property
    def offered(self) -> list[Action]:
        """The actions that the bot offers with the answer."""
        return msgspec.json.decode(self.actions, type=list[Action])

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return a canned answer of the bot above it. Raises AnswerNotFound."""
        answer = cls.find(id)
        bot = above[-1]
        if answer is None or not isinstance(bot, Bot) or answer.bot_id != bot.id:
            raise AnswerNotFound
        return answer

    @classmethod
    def page_of(cls, bot_id: str, search: str, after: Position, limit: int) -> "Page[CannedAnswer]":
        """Return a page of a bot's canned answers by question: those with all words of `search`, or parts of words."""
        own = cls.select().where(cls.bot_id == bot_id)
        for word in responder.tokenize(search):
            own = own.where(contains(cls.words, search_pattern(word)))
        return page(own, [Order(cls.question), Order(cls.id)], after, limit)

    @classmethod
    def add(cls, bot_id: str, columns: dict[str, SqlValue], actor_id: str) -> Raw:
        """Create a canned answer. Return it, rendered. `actor_id` is the author of the entry in the audit log."""
        answer = cls(bot_id=bot_id, **columns)
        with write(bot_id):
            answer.save(force_insert=True)
            AuditLog.record("answer_added", actor_id, bot_id, answer=answer.id)
        return render(CannedAnswer, answer.id)

    def edit(self, columns: dict[str, SqlValue], actor_id: str) -> Raw:
        """Set columns. Return the canned answer, rendered. Raises AnswerNotFound if it was deleted concurrently."""
        with write(self.bot_id):
            answer = CannedAnswer.get_or_none(CannedAnswer.id == self.id)
            if answer is None:
                raise AnswerNotFound
            changed = sorted(name for name, value in columns.items() if value != getattr(answer, name))
            for name in changed:
                setattr(answer, name, columns[name])
            if changed:
                answer.save()
                AuditLog.record("answer_changed", actor_id, self.bot_id, answer=self.id, columns=changed)
            return render(CannedAnswer, self.id)

    def remove(self, actor_id: str) -> None:
        """Delete the canned answer. Raises AnswerNotFound if it was deleted concurrently."""
        with write(self.bot_id):
            if not self.delete_instance():
                raise AnswerNotFound
            AuditLog.record("answer_removed", actor_id, self.bot_id, answer=self.id)

    @classmethod
    def add_all(cls, bot_id: str, answers: Sequence[dict[str, SqlValue]], actor_id: str) -> tuple[int, int]:
        """Add canned answers to a bot; one with the same question and language is replaced.

        Returns how many were added, and how many replaced. `answers` are the columns of each, with the words of the
        question; without actions, those of the replaced answer stay. Of several with the same question and language,
        the last one counts.
        """
        columns = cls._meta.sorted_fields
        with write(bot_id):
            own: Query = (
                cls.select(cls.language, cls.question, cls.id, cls.actions).where(cls.bot_id == bot_id).tuples()
            )
            existing = {(language, question): {"id": id, "actions": actions} for language, question, id, actions in own}
            rows = {(row["language"], row["question"]): row for row in answers}
            complete = (
                {"bot_id": bot_id, **(existing.get(key) or {"id": clock.uuid(), "actions": NO_ACTIONS}), **row}
                for key, row in rows.items()
            )
            values = [[row[column.name] for column in columns] for row in complete]
            for start in range(0, len(values), BATCH_SIZE):
                batch = values[start : start + BATCH_SIZE]
                with cls.reindexing([id for id, *_ in batch]):
                    db.database.bulk_insert(
                        '"bot_answer"',
                        [column.sql for column in columns],
                        batch,
                        "ON CONFLICT (id) DO UPDATE SET answer = excluded.answer, actions = excluded.actions",
                    )
            replaced = len(existing.keys() & rows.keys())
            if rows:
                AuditLog.record("answers_imported", actor_id, bot_id, added=len(rows) - replaced, replaced=replaced)
        return len(rows) - replaced, replaced

    def save(self, force_insert: bool = False, only: Sequence[peewee.Field] | None = None) -> int:
        self.words = words_in(self.question)
        with write(self.bot_id), self.reindexing([self.id]):
            return super().save(force_insert, only)

    def delete_instance(self, recursive: bool = False, delete_nullable: bool = False) -> int:
        with write(self.bot_id), self.reindexing([self.id]):
            return super().delete_instance(recursive, delete_nullable)

    @classmethod
    @contextmanager
    def reindexing(cls, identifiers: Sequence[str]) -> Iterator[None]:
        rows: Query = cls.select(cls.bot_id).where(cls.id.in_(identifiers)).distinct().tuples()
        bots = [bot_id for (bot_id,) in rows]
        if bots:
            canned_answer_index.remove(bots, identifiers)
        yield
        answers: Query = cls.select(cls.id, cls.bot_id, cls.words).where(cls.id.in_(identifiers)).tuples()
        canned_answer_index.add(answers)

    class Meta:
        table_name = "bot_answer"  # the name of its records
        indexes = ((("bot_id", "id"), False), (("bot_id", "question", "id"), False))


def words_in(question: str) -> str:
    """Return the words of a question, as stored."""
    return " ".join(sorted(responder.tokenize(question)))


def automatic_reply(
    session: ChatSession, text: str, languages: Sequence[str], *, only_answers: bool = False
) -> BotReply | None:
    """Return the reply of a chat session's bot to a message, or None if the bot does not reply.

    It does not reply if there is no bot, if staff replies in its place (its `kind` is not `bot`), if it is not visible
    to customers, or if the text has no letter and no digit. Otherwise there is always a reply: the canned answer whose
    question is most similar to the text or one of its sentences; otherwise a reply from the profile, if the question
    is who the bot is, how or when to reach its staff, or where they are; otherwise that the bot replies automatically
    and that a person will read the message, or with `only_answers`, None.

    `languages` are those of the customer, preferred first, as from `languages_of`; they decide between canned answers
    of equal similarity. Without any, the language of the bot's first canned answer counts.

    Only the first 2,000 characters of a message are compared. This reads only, with at most three statements, and
    uses a few milliseconds of processor time for any message and number of canned answers (see `canned_answer_index`);
    call it before the write that stores the message. The caller decides whether the bot may reply now, and stores the
    reply with `sender_type` `bot` and the bot as `sender_id`.
    """
    if not responder.sentences(text) or session.bot_id is None:
        return None
    compared = canned_answer_index.candidates(session.bot_id, text)
    rows = _compared(session.bot_id, *pad_values(compared or [""]), needs_language=not languages).rows()
    if not rows:
        return None
    answers = sorted(responder.Candidate(*row[:3]) for row in rows if row[0] is not None)
    chosen = responder.best_match(answers, text, languages)
    if chosen:
        return next(BotReply(answer, actions) for id, _, _, answer, actions, *_ in rows if id == chosen.id)
    name, tagline, email, phone, website, city, region, country, *first_language = rows[0][5:]
    about = responder.Profile(
        name,
        tagline,
        contact=", ".join(filter(None, (email, phone, website))),
        location=", ".join(filter(None, (city, region, country))),
    )
    known_languages = languages or [one for one in first_language if one is not None]
    reply = responder.profile_reply if only_answers else responder.fallback_reply
    written = reply(about, text, known_languages)
    return None if written is None else BotReply(written)


def nearest_answers(bot_id: str, text: str, languages: Sequence[str]) -> list[tuple[str, str]]:
    """Return the questions and answers of a bot nearest to a text, nearest first, then others, within the limits.

    An answer that exceeds the rest of NEAREST_BYTES is omitted.
    """
    columns = CannedAnswer.id, CannedAnswer.language, CannedAnswer.words, CannedAnswer.question, CannedAnswer.answer
    own: Query = CannedAnswer.select(*columns).where(CannedAnswer.bot_id == bot_id).tuples()
    compared = canned_answer_index.candidates(bot_id, text, NEAREST_FACTOR)
    rows = {row[0]: row for row in own.where(CannedAnswer.id.in_(compared))}
    similar = responder.ranked((responder.Candidate(*rows[id][:3]) for id in sorted(rows)), text, languages)
    nearest = [rows[answer.id] for _, answer in sorted(similar, key=lambda found: found[0], reverse=True)]
    others = (
        own.where(CannedAnswer.id.not_in(list(rows)))
        .order_by(CannedAnswer.question, CannedAnswer.id)
        .limit(NEAREST_LIMIT)
    )
    found, remaining = list[tuple[str, str]](), NEAREST_BYTES
    for *_, question, answer in [*nearest, *others][:NEAREST_LIMIT]:
        size = len(question.encode()) + len(answer.encode())
        if size <= remaining:
            remaining -= size
            found.append((question, answer))
    return found


@compiled
def _compared(bot_id: str, *answer_ids: str, needs_language: bool) -> Query:
    """Select the answers to compare, each with the profile of the bot; without answers, a row with the profile only."""
    first = CannedAnswer.alias("first")
    language = first.select(first.language).where(first.bot_id == Bot.id).order_by(first.id).limit(literal(1))
    about = (Bot.name, Bot.tagline, Bot.contact_email, Bot.contact_phone, Bot.contact_website)
    address = (Bot.city, Bot.region, Bot.country)
    own = (CannedAnswer.bot_id == Bot.id) & CannedAnswer.id.in_(answer_ids)
    answer = (CannedAnswer.id, CannedAnswer.language, CannedAnswer.words, CannedAnswer.answer, CannedAnswer.actions)
    found = Bot.select(*answer, *about, *address, *([language] if needs_language else ()))
    found = found.join(CannedAnswer, peewee.JOIN.LEFT_OUTER, on=own)
    return found.where(Bot.id == bot_id, Bot.kind == "bot", Bot.is_visible())
