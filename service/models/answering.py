"""What a bot says to a message by itself: its prepared answers, and what `service.responder` makes of its profile."""

from collections.abc import Sequence
from typing import Any

from service import clock, formats, responder
from service.db import Table
from service.fields import NEVER, Identifier, Text, reference
from service.models.bots import Bot
from service.models.chats import ChatSession

MOST = 5000  # prepared answers of a bot that are looked through


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
        return super().save(*arguments, **options)

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

    Reads only, at most three statements and, for the largest of bots and the worst of texts, some tenths of a second:
    call it before the write that stores the message, or inside if the two must not be parted. Whether the bot should
    speak at all, where a person may have taken over or the session is put away, is the caller's to know; so is that
    the answer is stored with `sender_type` `bot` and the bot as `sender_id`.
    """
    if not responder.words_of(text):
        return None
    bot = Bot.get_or_none(Bot.id == session.bot_id, Bot.kind == "bot", Bot.shown())
    if bot is None:
        return None
    own = BotAnswer.select(BotAnswer.id, BotAnswer.language, BotAnswer.words).where(BotAnswer.bot_id == bot.id)
    rows: Any = own.order_by(BotAnswer.id).limit(MOST).tuples()
    known = [responder.Prepared(*row) for row in rows]
    chosen = responder.choose(known, text, languages)
    found = chosen and BotAnswer.get_or_none(BotAnswer.id == chosen.name)
    if found:
        return str(found.answer)
    about = responder.About(
        bot.name,
        bot.tagline,
        ways=", ".join(filter(None, (bot.contact_email, bot.contact_phone, bot.contact_website))),
        place=", ".join(filter(None, (bot.city, bot.region, bot.country))),
    )
    return responder.improvise(about, text, languages or [one.language for one in known[:1]])
