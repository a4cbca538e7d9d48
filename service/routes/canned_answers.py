"""Canned answers of bots, for the staff of their app."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service.api.operations import Routes
from service.api.parameter_types import Cursor
from service.api.schemas import BodyColumns
from service.db import Page
from service.models import App, Bot, CannedAnswer
from service.models.callers import Caller
from service.types import JsonObject

routes = Routes("Canned answers", scope="bots", extension=True)

NEW_ANSWER = BodyColumns(CannedAnswer, "question", "answer", "language", "actions")
NewAnswer = Annotated[JsonObject, NEW_ANSWER]
AnswerChanges = Annotated[
    JsonObject, BodyColumns(CannedAnswer, "question", "answer", "language", "actions", partial=True)
]


class AnswersQuery(Struct):
    """Search text and page size for the canned answers of a bot."""

    search: Annotated[str, Meta(max_length=200, description="Words to find in the question; case-insensitive.")] = ""
    cursor: Cursor = Cursor()
    per_page: Annotated[int, Meta(ge=1, le=100, description="Maximum number of canned answers to return.")] = 25


class Removed(Struct):
    """Whether the canned answer was deleted."""

    deleted: bool


@routes.get("/apps/{app_id}/bots/{bot_id}/answers", statuses=(200, 400, 403, 404), meta=("next_cursor", "per_page"))
def list_answers(app: App, bot: Bot, query: AnswersQuery) -> Page[CannedAnswer]:
    """List the canned answers of a bot by question (staff only)."""
    return CannedAnswer.page_of(bot.id, query.search, query.cursor, query.per_page)


@routes.post(
    "/apps/{app_id}/bots/{bot_id}/answers",
    statuses=(201, 400, 403, 404),
    example={"question": "When are you open?", "answer": "From nine to five.", "language": "en"},
)
def create_answer(caller: Caller, app: App, bot: Bot, body: NewAnswer) -> Annotated[Raw, CannedAnswer]:
    """Add a canned answer to a bot (staff only).

    The bot offers its `actions` with the answer, as staff does in `action_payload` of a message. The bot replies to
    the label of the action that the customer chooses, as to any message.
    """
    return CannedAnswer.add(bot.id, body, caller.id)


@routes.patch(
    "/apps/{app_id}/bots/{bot_id}/answers/{id}",
    statuses=(200, 400, 403, 404),
    example={"answer": "From nine to six."},
)
def update_answer(
    caller: Caller, app: App, bot: Bot, answer: CannedAnswer, body: AnswerChanges
) -> Annotated[Raw, CannedAnswer]:
    """Update a canned answer of a bot (staff only)."""
    return answer.edit(body, caller.id)


@routes.delete("/apps/{app_id}/bots/{bot_id}/answers/{id}", statuses=(200, 400, 403, 404))
def delete_answer(caller: Caller, app: App, bot: Bot, answer: CannedAnswer) -> Removed:
    """Delete a canned answer of a bot (staff only)."""
    answer.remove(caller.id)
    return Removed(True)
