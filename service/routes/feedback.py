"""Feedback from within the app (section 4.6 of the document; contract, section 7)."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from service import formats
from service.db import Page
from service.errors import Forbidden
from service.models import Feedback
from service.models.people import Caller
from service.operations import Routes
from service.shapes import Writes
from service.signature import Cursor

routes = Routes("Feedback", scope="feedback")

NewFeedback = Annotated[
    dict[str, Any],
    Writes(Feedback, "app_version", "description", "feedback_type", "screenshot_url", device_info=dict[str, Any]),
]


class FeedbackWindow(Struct):
    """Which feedback, and how much."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100)] = 25
    status: Annotated[str, Meta(description="Only what has this status."), formats.word] = ""
    everybody: Annotated[bool, Meta(description="Not only yours; for admins.")] = False


class Progress(Struct):
    """How far the work on some feedback is."""

    status: Literal["new", "seen", "in_progress", "done", "declined"]


@routes.post(
    "/feedback",
    answers=(201, 400, 401),
    example={
        "feedback_type": "praise",
        "description": "The new search is fast.",
        "app_version": "1.4.2",
        "device_info": {"os": "Android 16", "model": "Pixel 9"},
    },
)
def submit_feedback(caller: Caller, body: NewFeedback) -> Annotated[Raw, Feedback]:
    """Tell the makers of the app something."""
    return Feedback.submit(caller.id, **body)


@routes.get(
    "/feedback", answers=(200, 400, 401, 403), meta=("next_cursor", "per_page"), extension=True, raises=(Forbidden,)
)
def list_feedback(caller: Caller, query: FeedbackWindow) -> Page[Feedback]:
    """The feedback that you gave, or for admins that of everybody, the newest first."""
    return Feedback.listed_for(caller, query.cursor, query.limit, everybody=query.everybody, status=query.status)


@routes.patch(
    "/feedback/{id}",
    answers=(200, 400, 401, 403, 404),
    extension=True,
    example={"status": "in_progress"},
)
def change_feedback_status(caller: Caller, feedback: Feedback, body: Progress) -> Annotated[Raw, Feedback]:
    """Say how far the work on some feedback is."""
    return feedback.become(body.status, caller)
