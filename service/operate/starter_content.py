"""Content to begin with: an app, and a bot with canned answers, in the language of the first admin."""

import msgspec

from service import translation
from service.db import write
from service.models import App, Bot, CannedAnswer
from service.models.audit_log import OPERATOR
from service.translation import gettext, gettext_noop

ANSWERS = (
    (
        gettext_noop("Hello"),
        gettext_noop("Hello! Ask me a question, or describe what you need. A person reads every message."),
    ),
    (
        gettext_noop("What can you do?"),
        gettext_noop("I answer frequent questions. Otherwise, a member of our staff replies here."),
    ),
    (
        gettext_noop("When are you open?"),
        gettext_noop("I reply at any time. Our staff replies from Monday to Friday."),
    ),
    (
        gettext_noop("How do I reach a person?"),
        gettext_noop("Describe your question here. A member of our staff reads it and replies."),
    ),
    (
        gettext_noop("Thank you"),
        gettext_noop("You are welcome!"),
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
        for question, answer in ANSWERS:
            texts = {"language": language, "question": gettext(question), "answer": gettext(answer)}
            CannedAnswer.add(bot_id, texts, OPERATOR)
    return bot_id
