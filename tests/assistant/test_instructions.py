"""The instructions to the assistant: what they have, and what they never have."""

import pytest

from service.assistant.instructions import MAX_PROFILE, instructions
from service.models import App, Bot, CannedAnswer, ChatSession
from service.models.bot_replies import Question
from service.models.canned_answers import NEAREST_BYTES, NEAREST_LIMIT, nearest_answers


def instructed(bot=None, app="The shop", languages=(), **more):
    """The instructions for a question to a bot."""
    question = Question(ChatSession(), App(name=app), bot or Bot(), "Hello?", [], list(languages), **more)
    return instructions(question)


def test_have_the_profile_the_customer_the_answers_and_the_languages():
    profile = {"tagline": "Knows shoes.", "description": "All of them.\n", "contact_phone": "+41 44 000 00 00"}
    bot = Bot(name="Hilda", contact_email="shop@example.com", city="Bern", country="CH", **profile)
    answers = [("When are you open?", "From 9 to 5."), ("Where?", "In Bern.")]
    assert instructed(bot, languages=["de-CH", "fr", "en"], first_name="Alice", answers=answers).splitlines() == [
        "You are Hilda of The shop, and talk with a customer in a chat.",
        "Knows shoes.",
        "Contact: shop@example.com, +41 44 000 00 00",
        "Location: Bern, CH",
        "All of them.",
        "The first name of the customer is Alice.",
        "Prepared questions and answers follow, those nearest to the last message first. Where one fits, say",
        "what it says. Do not contradict them, and do not invent facts, such as prices, times and addresses.",
        "Q: When are you open?",
        "A: From 9 to 5.",
        "Q: Where?",
        "A: In Bern.",
        "Answer in the language de-CH (a BCP 47 tag), whatever the language of the messages.",
        "If you do not speak it, answer in fr or en.",
    ]


def test_omit_what_is_not_set():
    assert instructed(Bot(tagline=" "), app="") == (
        "You are the bot, and talk with a customer in a chat.\nAnswer in the language of the customer."
    )


def test_profile_is_limited_in_bytes():
    shortest = len(instructed(Bot(name="Hilda")).encode())
    longest = instructed(Bot(name="Hilda", tagline="é" * 1000, description="語" * 10_000))
    assert MAX_PROFILE - 3 <= len(longest.encode()) - shortest - 1 <= MAX_PROFILE
    assert "\ufffd" not in longest and longest.endswith("Answer in the language of the customer.")


class TestNearestAnswers:
    @pytest.fixture
    def prepare(self, bot):
        def prepare(*answers, language="en", of_bot=bot):
            return [
                CannedAnswer.create(bot_id=of_bot.id, language=language, question=question, answer=answer)
                for question, answer in answers
            ]

        return prepare

    def test_nearest_comes_first_and_others_follow(self, bot, prepare):
        shoes = ("Which sizes of shoes do you have?", "36 to 48.")
        hours, returns = ("When are you open?", "From 9 to 5."), ("Can I return it?", "Within 30 days.")
        prepare(hours, shoes, returns)
        assert nearest_answers(bot.id, "My shoes are worn. Have you blue ones?", ["en"]) == [shoes, returns, hours]

    def test_language_of_the_customer_comes_first_among_equals(self, bot, prepare):
        prepare(("WLAN?", "Yes"), language="en"), prepare(("WLAN?", "Ja"), language="de")
        assert nearest_answers(bot.id, "WLAN", ["de"])[0] == ("WLAN?", "Ja")

    def test_number_is_limited_and_the_nearest_are_kept(self, bot, prepare):
        prepare(*((f"Question about item{number}?", "Yes.") for number in range(2 * NEAREST_LIMIT)))
        found = nearest_answers(bot.id, "What about item31?", [])
        assert (len(found), found[0][0]) == (NEAREST_LIMIT, "Question about item31?")
        assert len(set(found)) == NEAREST_LIMIT

    def test_bytes_are_limited_and_a_shorter_one_fills_the_rest(self, bot, prepare):
        long, longer = ("red shoes", "語" * (NEAREST_BYTES // 3 - 10)), ("red hats", "x" * NEAREST_BYTES)
        prepare(long, longer, ("Hours?", "9 to 5"))
        assert nearest_answers(bot.id, "red shoes", []) == [long, ("Hours?", "9 to 5")]

    def test_answers_of_other_bots_are_never_among_them(self, bot, shop, prepare):
        other = Bot.create(app_id=shop.id, name="Other", kind="bot", status="published")
        prepare(("red shoes", "No"), of_bot=other)
        assert nearest_answers(bot.id, "red shoes", []) == []
