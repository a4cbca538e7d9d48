"""Feedback from users of the app."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service import pictures, validators
from service.api.operations import KIB, Routes
from service.api.parameter_types import Cursor, ImageQuery, Media, PictureFile, Upload
from service.api.schemas import BodyColumns
from service.db import Page
from service.errors import (
    Busy,
    Forbidden,
    ImageLimitReached,
    ImageTooLarge,
    ImageUnreadable,
    UnsupportedMediaType,
)
from service.models import Feedback, FeedbackScreenshot
from service.models.callers import Caller
from service.models.encoded_pictures import EncodedPicture
from service.models.feedback import Status
from service.types import JsonObject

routes = Routes("Feedback", scope="feedback")
console = Routes("Console", prefix="", scope="console", extension=True)

WebAddress = Annotated[str, Meta(max_length=2048), validators.web_address]
NewFeedback = Annotated[
    JsonObject,
    BodyColumns(
        Feedback, "app_version", "description", "feedback_type", screenshot_url=WebAddress, device_info=JsonObject
    ),
]


class FeedbackQuery(Struct):
    """Filters and page size for the list of feedback."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of records to return.")] = 25
    status: Annotated[str, Meta(description="Return only feedback with this status."), validators.slug] = ""
    everybody: Annotated[bool, Meta(description="Return the feedback of all users (admins only).")] = False


class ScreenshotForm(Upload):
    """The image file of a screenshot."""

    screenshot: PictureFile


class Progress(Struct):
    """The status of feedback."""

    status: Status


@routes.post(
    "/feedback",
    statuses=(201, 400, 401),
    example={
        "feedback_type": "praise",
        "description": "The new search is fast.",
        "app_version": "1.4.2",
        "device_info": {"os": "Android 16", "model": "Pixel 9"},
    },
)
def submit_feedback(caller: Caller, body: NewFeedback) -> Annotated[Raw, Feedback]:
    """Submit feedback."""
    return Feedback.submit(caller.id, **body)


@routes.get(
    "/feedback", statuses=(200, 400, 401, 403), meta=("next_cursor", "per_page"), extension=True, errors=(Forbidden,)
)
def list_feedback(caller: Caller, query: FeedbackQuery) -> Page[Feedback]:
    """List your feedback, or with `everybody` that of all users (admins only), newest first."""
    return Feedback.list_page(caller, query.cursor, query.limit, all_users=query.everybody, status=query.status)


@routes.patch(
    "/feedback/{id}",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    example={"status": "in_progress"},
)
def change_feedback_status(caller: Caller, feedback: Feedback, body: Progress) -> Annotated[Raw, Feedback]:
    """Set the status of feedback (admins only)."""
    return feedback.set_status(body.status, caller)


def encoded_screenshot(body: ScreenshotForm) -> EncodedPicture:
    """Return the screenshot in the form that is stored."""
    return EncodedPicture.of(pictures.make_picture(body.screenshot))


@routes.put(
    "/feedback/{id}/screenshot",
    statuses=(200, 400, 401, 403, 404, 413, 415, 503),
    extension=True,
    max_body=6 * 1024 * KIB,
    prepare=encoded_screenshot,
    errors=(Busy, ImageLimitReached, ImageTooLarge, ImageUnreadable, UnsupportedMediaType),
    runs="slow",
)
def upload_screenshot(
    caller: Caller, screenshot: FeedbackScreenshot, prepared: EncodedPicture
) -> Annotated[Raw, Feedback]:
    """Upload the screenshot of your feedback, in place of the previous one."""
    return screenshot.store(caller, prepared)


@routes.delete("/feedback/{id}/screenshot", statuses=(200, 400, 401, 403, 404), extension=True)
def remove_screenshot(caller: Caller, screenshot: FeedbackScreenshot) -> Annotated[Raw, Feedback]:
    """Remove the screenshot of your feedback."""
    return screenshot.remove(caller)


@routes.get(
    "/feedback/{id}/screenshot",
    statuses=(200, 304, 400, 401, 403, 404),
    extension=True,
    produces=pictures.CONTENT_TYPE,
    runs="slow",
)
def get_screenshot(screenshot: FeedbackScreenshot, query: ImageQuery) -> Media:
    """Get the screenshot of your feedback, or for admins of any feedback; or its thumbnail."""
    return screenshot_media(screenshot, query)


def screenshot_media(screenshot: FeedbackScreenshot, query: ImageQuery) -> Media:
    """Return a screenshot or its thumbnail; clients check on each use whether the caller may still read it."""
    screenshot.require_picture()
    content = screenshot.thumbnail_content if query.size == "thumbnail" else screenshot.content
    return Media(content, personal=True, file_name=f"{screenshot.feedback_id}.webp")


@console.get(
    "/console/feedback/{id}/screenshot",
    statuses=(200, 304, 400, 401, 403, 404),
    produces=pictures.CONTENT_TYPE,
    runs="slow",
)
def show_screenshot(screenshot: FeedbackScreenshot, query: ImageQuery) -> Media:
    """Show the screenshot of feedback, or its thumbnail."""
    return screenshot_media(screenshot, query)
