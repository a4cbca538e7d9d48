"""Feedback from within the app (section 4.6 of the document; contract, section 7)."""

from typing import Annotated, Any

from msgspec import Raw

from service.models import Feedback
from service.models.people import Caller
from service.operations import Routes
from service.shapes import Writes

routes = Routes("Feedback", scope="feedback")

NewFeedback = Annotated[
    dict[str, Any],
    Writes(Feedback, "app_version", "description", "feedback_type", "screenshot_url", device_info=dict[str, Any]),
]


@routes.post("/feedback", answers=(201, 400, 401))
def submit_feedback(caller: Caller, body: NewFeedback) -> Annotated[Raw, Feedback]:
    """Tell the makers of the app something."""
    return Feedback.submit(caller.id, **body)
