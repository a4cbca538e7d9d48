"""The instructions to the assistant: the bot, its app and profile, the customer, and canned answers. Nothing else."""

import itertools
from collections.abc import Iterator, Sequence

from service.models.bot_replies import Question
from service.models.bots import Bot

FOR_BOT = "You are {name}, and talk with a customer in a chat."
FOR_STAFF = (
    "You draft the next message of a member of the staff of {app}, who talks with a customer in a chat. A person reads"
    " the draft, and may change it. Write the message only, without an introduction and without quotation marks."
)
MAX_PROFILE = 16 * 1024  # bytes in UTF-8; those of the canned answers are limited where they are read


def messages_to_assistant(question: Question, *, for_staff: bool = False) -> list[dict[str, str]]:
    """Return the instructions and the messages of a question in the format of the assistant.

    Consecutive messages with the same role become one, since many models require alternating roles.
    """
    groups = itertools.groupby(question.messages, key=lambda message: message.role)
    merged = [{"role": role, "content": "\n\n".join(message.text for message in group)} for role, group in groups]
    return [{"role": "system", "content": instructions(question, for_staff=for_staff)}, *merged]


def instructions(question: Question, *, for_staff: bool = False) -> str:
    """Return the system message for a question, to which the bot replies, or staff with a draft of the assistant."""
    bot, app = question.bot, question.app.name
    name = " of ".join(filter(None, (bot.name or "the bot", app)))
    lines = [FOR_STAFF.format(app=app or "a shop") if for_staff else FOR_BOT.format(name=name)]
    lines.append(_within("\n".join(_profile(bot)), MAX_PROFILE))
    if question.first_name:
        lines.append(f"The first name of the customer is {question.first_name}.")
    lines += _answers(question.answers)
    lines += _languages(question.languages)
    return "\n".join(filter(None, lines))


def _profile(bot: Bot) -> Iterator[str]:
    """Yield the parts of a bot's profile that are set."""
    contact = ", ".join(filter(None, (bot.contact_email, bot.contact_phone, bot.contact_website)))
    location = ", ".join(filter(None, (bot.city, bot.region, bot.country)))
    named = ("", bot.tagline), ("Contact: ", contact), ("Location: ", location), ("", bot.description)
    yield from (f"{name}{text.strip()}" for name, text in named if text.strip())


def _answers(answers: Sequence[tuple[str, str]]) -> Iterator[str]:
    if answers:
        yield "Prepared questions and answers follow, those nearest to the last message first. Where one fits, say"
        yield "what it says. Do not contradict them, and do not invent facts, such as prices, times and addresses."
    for question, answer in answers:
        yield f"Q: {question.strip()}\nA: {answer.strip()}"


def _languages(languages: Sequence[str]) -> Iterator[str]:
    """Yield the languages of the customer to answer in, preferred first."""
    if not languages:
        yield "Answer in the language of the customer."
        return
    yield f"Answer in the language {languages[0]} (a BCP 47 tag), whatever the language of the messages."
    if len(languages) > 1:
        yield f"If you do not speak it, answer in {' or '.join(languages[1:])}."


def _within(text: str, limit: int) -> str:
    """Return the beginning of a text of at most `limit` bytes in UTF-8."""
    return text.encode()[:limit].decode(errors="ignore")
