"""The pages on which staff lists, adds, edits and deletes the canned answers of a bot."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from service.api.operations import KIB, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.api.schemas import BodyColumns
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.models import App, Bot, CannedAnswer
from service.models.actions import Action, labelled, labels_in
from service.models.callers import Caller
from service.translation import gettext
from service.types import JsonObject

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

TEXTS = ("question", "answer", "language")
ANSWER = BodyColumns(CannedAnswer, *TEXTS, "actions")
MAX_ANSWER_FORM = 160 * KIB  # bytes: an answer may have 10,000 characters of twelve bytes each


class AnswersPageQuery(Struct):
    """Words to find in the question, and the position in the list."""

    search: Annotated[str, Meta(max_length=200)] = ""
    cursor: Cursor = Cursor()
    done: str = ""


class AnswerPageQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class AnswerForm(ConsoleForm, kw_only=True):
    """A canned answer to add."""

    question: str = ""
    answer: str = ""
    language: str = ""
    buttons: str = ""  # labels of the actions, one a line


class AnswerChangeForm(AnswerForm, kw_only=True):
    """A canned answer to change or to delete."""

    act: Literal["save", "delete"]


@routes.get("/console/apps/{app_id}/bots/{bot_id}/answers", statuses=(200, 400, 401, 403, 404))
def show_answers(caller: Caller, app: App, bot: Bot, query: AnswersPageQuery) -> HtmlPage:
    """Show the page of the canned answers of a bot (staff only)."""
    return answers_page(caller, app, bot, query)


def answers_page(
    caller: Caller, app: App, bot: Bot, query: AnswersPageQuery, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page of the canned answers of a bot."""
    page = CannedAnswer.page_of(bot.id, query.search, query.cursor, layout.PAGE_ROWS)
    return layout.show(
        caller,
        "answers",
        gettext("Canned answers of {name}", name=bot.name or gettext("Bot")),
        page=page,
        query=query,
        active="catalogue",
        done=query.done,
        failure=failure,
        app=app,
        bot=bot,
        clip=layout.clip,
        current=failure.values,
    )


@routes.post(
    "/console/apps/{app_id}/bots/{bot_id}/answers", statuses=(303, 400, 401, 403, 404), max_body=MAX_ANSWER_FORM
)
@layout.form_handler(answers_page, AnswersPageQuery)
def add_answer(caller: Caller, app: App, bot: Bot, body: AnswerForm) -> Redirect:
    """Add a canned answer to a bot (staff only)."""
    columns = ANSWER.read(read_answer(body, []))
    layout.run_once(
        caller, "answer", body, lambda: msgspec.json.decode(CannedAnswer.add(bot.id, columns, caller.id))["id"]
    )
    return Redirect(f"{address_of(app, bot)}?done=answer_added")


@routes.get("/console/apps/{app_id}/bots/{bot_id}/answers/{id}", statuses=(200, 400, 401, 403, 404))
def show_answer(caller: Caller, app: App, bot: Bot, answer: CannedAnswer, query: AnswerPageQuery) -> HtmlPage:
    """Show the form of a canned answer (staff only)."""
    return answer_page(caller, app, bot, answer, query)


def answer_page(
    caller: Caller, app: App, bot: Bot, answer: CannedAnswer, query: AnswerPageQuery, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page with the form of a canned answer."""
    return layout.show(
        caller,
        "answer",
        gettext("Canned answer"),
        active="catalogue",
        done=query.done,
        failure=failure,
        app=app,
        bot=bot,
        answer_id=answer.id,
        current=failure.values or values_of(answer),
    )


@routes.post(
    "/console/apps/{app_id}/bots/{bot_id}/answers/{id}", statuses=(303, 400, 401, 403, 404), max_body=MAX_ANSWER_FORM
)
@layout.form_handler(answer_page, AnswerPageQuery)
def edit_answer(caller: Caller, app: App, bot: Bot, answer: CannedAnswer, body: AnswerChangeForm) -> Redirect:
    """Edit or delete a canned answer of a bot (staff only)."""
    if body.act == "delete":
        answer.remove(caller.id)
        return Redirect(f"{address_of(app, bot)}?done=deleted")
    answer.edit(ANSWER.read(read_answer(body, answer.offered)), caller.id)
    return Redirect(f"{address_of(app, bot)}/{answer.id}?done=changed")


def values_of(answer: CannedAnswer) -> dict[str, str]:
    """Return the values of the form of a canned answer."""
    texts = {name: getattr(answer, name) for name in TEXTS}
    return texts | {"buttons": "\n".join(action.label for action in answer.offered)}


def read_answer(body: AnswerForm, known: Sequence[Action]) -> JsonObject:
    """Return the members of a canned answer as the API takes them. Raises InvalidBody.

    Actions that are `known` keep their identifiers and payloads, which the form does not show.
    """
    actions = labelled(labels_in(body.buttons), known)
    return {name: layout.clean_text(getattr(body, name)) for name in TEXTS} | {"actions": msgspec.to_builtins(actions)}


def address_of(app: App, bot: Bot) -> str:
    """Return the address of the page of a bot's canned answers."""
    return f"/console/apps/{app.id}/bots/{bot.id}/answers"
