"""What a bot says to a message by itself: its prepared answers, and what `service.responder` makes of its profile."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import peewee

from service import clock, formats, responder
from service.db import Table, fixed, padded, prepared, write
from service.fields import NEVER, Identifier, Text, reference
from service.models import answer_index
from service.models.bots import Bot
from service.models.chats import ChatSession


class BotAnswer(Table):
    """A question that a bot is prepared for, and the answer to it."""

    id = Identifier(primary_key=True, default=clock.uuid)
    bot_id = reference("bot")
    language = Text(64, form=formats.language_tag)
    question = Text(500, least=1, default=None)
    answer = Text(10_000, least=1, default=None)
    words = Text(leaves=NEVER)  # of the question, as the responder compares them

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What is compared follows from the question."""
        return {"words": words_in(given.get("question", ""))}

    def save(self, *arguments: Any, **options: Any) -> Any:
        self.words = words_in(self.question)
        with write(self.bot_id), self.indexed_anew([self.id]):
            return super().save(*arguments, **options)

    def delete_instance(self, *arguments: Any, **options: Any) -> Any:
        with write(self.bot_id), self.indexed_anew([self.id]):
            return super().delete_instance(*arguments, **options)

    @classmethod
    @contextmanager
    def indexed_anew(cls, identifiers: Sequence[str]) -> Iterator[None]:
        rows: Any = cls.select(cls.bot_id).where(cls.id.in_(identifiers)).distinct().tuples()
        bots = [bot_id for (bot_id,) in rows]
        if bots:
            answer_index.remove(bots, identifiers)
        yield
        answers: Any = cls.select(cls.id, cls.bot_id, cls.words).where(cls.id.in_(identifiers)).tuples()
        answer_index.add(answers)

    class Meta:
        indexes = ((("bot_id", "id"), False),)


def words_in(question: str) -> str:
    """The words of a question, as they are stored."""
    return " ".join(sorted(responder.words_of(question)))


def prepared_answer(session: ChatSession, text: str, languages: Sequence[str]) -> str | None:
    """What the bot of a chat session answers to a message, or None if it has to keep silent.

    It keeps silent if there is no bot, if people answer for it (its `kind` is not `bot`), if clients do not meet it (a
    draft, or not active), and if the text holds no letter and no digit. Otherwise there always is an answer: the
    prepared one whose question is most like the text or a sentence of it; else what the bot's profile says, if it is
    asked who it is, how to reach its people (also when they are open) or where they are; else that it answers
    automatically and that a person will read the message.

    `languages` are those of the user, the dearest first, as `languages_of` gives them; of prepared
    answers that fit equally well, they choose one. Without any, the language of the bot's first answer counts.

    Of a message, the first 2,000 characters are looked at. Reads only, three statements at most, which with all that
    follows take a few milliseconds of the processor, whatever the message and however many prepared answers there are
    (see `answer_index`): call it before the write that stores the message. Whether the bot should speak at all, where a
    person may have taken over or the session is archived, is the caller's to know; so is that the answer is stored with
    `sender_type` `bot` and the bot as `sender_id`.
    """
    if not responder.sentences(text) or session.bot_id is None:
        return None
    compared = answer_index.candidates(session.bot_id, text)
    rows = _compared(session.bot_id, *padded(compared or [""]), needs_language=not languages).rows()
    if not rows:
        return None
    known = sorted(responder.Prepared(*row[:3]) for row in rows if row[0] is not None)
    chosen = responder.choose(known, text, languages)
    if chosen:
        return next(str(answer) for id, _, _, answer, *_ in rows if id == chosen.name)
    name, tagline, email, phone, website, city, region, country, *first_language = rows[0][4:]
    about = responder.About(
        name,
        tagline,
        ways=", ".join(filter(None, (email, phone, website))),
        place=", ".join(filter(None, (city, region, country))),
    )
    return responder.improvise(about, text, languages or [one for one in first_language if one is not None])


@prepared
def _compared(bot_id: str, *answer_ids: str, needs_language: bool) -> Any:
    """The answers to compare, each with the profile of the bot; if there are none, a row with the profile alone."""
    first = BotAnswer.alias("first")
    language = first.select(first.language).where(first.bot_id == Bot.id).order_by(first.id).limit(fixed(1))
    about = (Bot.name, Bot.tagline, Bot.contact_email, Bot.contact_phone, Bot.contact_website)
    place = (Bot.city, Bot.region, Bot.country)
    own = (BotAnswer.bot_id == Bot.id) & BotAnswer.id.in_(answer_ids)
    columns = (BotAnswer.id, BotAnswer.language, BotAnswer.words, BotAnswer.answer, *about, *place)
    found = Bot.select(*columns, *([language] if needs_language else ()))
    found = found.join(BotAnswer, peewee.JOIN.LEFT_OUTER, on=own)
    return found.where(Bot.id == bot_id, Bot.kind == "bot", Bot.shown())
