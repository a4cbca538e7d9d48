"""Content to begin with: an app, and a bot with canned answers, in the language of the first admin."""

import msgspec

from service import translation
from service.db import write
from service.models import App, Bot, CannedAnswer
from service.models.actions import Actions, labelled
from service.models.audit_log import OPERATOR
from service.translation import gettext, gettext_noop

CAPABILITIES = gettext_noop("What can you do?")
OPENING_HOURS = gettext_noop("When are you open?")
PERSON = gettext_noop("How do I reach a person?")

# Question, answer, and the buttons that the bot offers with it.
ANSWERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        gettext_noop("Hello"),
        gettext_noop("Hello! Ask me a question, or describe what you need. A person reads every message."),
        (CAPABILITIES, OPENING_HOURS, PERSON),
    ),
    (
        CAPABILITIES,
        gettext_noop("I answer frequent questions. Otherwise, a member of our staff replies here."),
        (),
    ),
    (
        OPENING_HOURS,
        gettext_noop("I reply at any time. Our staff replies from Monday to Friday."),
        (),
    ),
    (
        PERSON,
        gettext_noop("Describe your question here. A member of our staff reads it and replies."),
        (),
    ),
    (
        gettext_noop("Thank you"),
        gettext_noop("You are welcome!"),
        (),
    ),
)


def add() -> str:
    """Add the content in the language of the request. Returns the identifier of the bot."""
    language = translation.current_language()
    profile = {
        "name": gettext("Assistant"),
        "tagline": gettext("Answers frequent questions at any time."),
        "kind": "bot",
        "status": "published",
        "presence": "online",
    }
    with write():
        app = msgspec.json.decode(App.add({"name": gettext("Support")}, OPERATOR))
        bot_id = str(msgspec.json.decode(Bot.add(app["id"], profile, OPERATOR))["id"])
        for question, answer, buttons in ANSWERS:
            actions = Actions().to_stored(labelled([gettext(label) for label in buttons]))
            columns = {"language": language, "question": gettext(question), "answer": gettext(answer)}
            CannedAnswer.add(bot_id, columns | {"actions": actions}, OPERATOR)
    return bot_id
