"""The page of feedback."""

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Raw, Struct

from service import db, pictures, validators
from service.api.operations import KIB, Routes
from service.api.parameter_types import MAX_PICTURE, Cursor, HtmlPage, OptionalPictureFile, Redirect, Upload
from service.api.schemas import BodyColumns
from service.console import display_names, layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.errors import Forbidden, InvalidBody, InvalidParameter
from service.fields import SqlValue
from service.models import Feedback, FeedbackScreenshot
from service.models.callers import Caller
from service.models.encoded_pictures import EncodedPicture
from service.models.feedback import STATUSES, Status
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

NEW_FEEDBACK = BodyColumns(Feedback, "description", "feedback_type")


class FeedbackQuery(Struct):
    """Filters of the list; `everybody` includes all users (admins only)."""

    everybody: bool = False
    status: Annotated[str, layout.optional(validators.slug)] = ""
    cursor: Cursor = Cursor()
    done: str = ""


class FeedbackText(ConsoleForm, kw_only=True):
    """Feedback to submit."""

    feedback_type: str = ""
    description: str = ""


class FeedbackUpload(Upload, FeedbackText, kw_only=True):
    """Feedback to submit, with an optional screenshot."""

    screenshot: OptionalPictureFile


class FeedbackForm(FeedbackText, kw_only=True):
    """Feedback to submit; feedback whose screenshot is removed; or for admins a new status of feedback."""

    act: Literal["give", "remove", "status"]
    id: OptionalUuid = ""
    status: Status | Literal[""] = ""


@routes.get("/console/feedback", statuses=(200, 400, 401, 403), errors=(Forbidden,))
def show_feedback(caller: Caller, query: FeedbackQuery) -> HtmlPage:
    """Show the page of feedback."""
    return feedback_page(caller, query)


def feedback_page(caller: Caller, query: FeedbackQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of feedback."""
    if failure.values.get("act") == "status":
        query = FeedbackQuery(everybody=caller.role == "admin")
    page = Feedback.list_page(caller, query.cursor, layout.PAGE_ROWS, all_users=query.everybody, status=query.status)
    rows = msgspec.json.decode(page.rows)
    return layout.show(
        caller,
        "feedback",
        gettext("Feedback"),
        page=page,
        query=query,
        done=query.done,
        failure=failure,
        profiles=display_names.users(row["user_id"] for row in rows),
        screenshots=FeedbackScreenshot.sizes_of([row["id"] for row in rows]),
        statuses=STATUSES,
        max_picture=MAX_PICTURE,
    )


@routes.post("/console/feedback", statuses=(303, 400, 401, 403, 404), max_body=128 * KIB)
@layout.form_handler(feedback_page, FeedbackQuery)
def change_feedback(caller: Caller, body: FeedbackForm) -> Redirect:
    """Submit feedback, remove its screenshot, or set the status of feedback (admins only)."""
    if body.act == "remove":
        FeedbackScreenshot.get_for(caller, body.id).remove(caller)
        return Redirect(f"/console/feedback?done=screenshot_removed#f-{body.id}")
    if body.act == "status":
        feedback = Feedback.get_for(caller, body.id)
        if not body.status:
            raise InvalidBody("Choose a status first.")
        feedback.set_status(body.status, caller)
        return Redirect(f"/console/feedback?everybody=true&done=changed#f-{feedback.id}")
    columns = read_feedback(body)
    layout.run_once(caller, "feedback", body, lambda: Feedback.submit(caller.id, **columns))
    return Redirect("/console/feedback?done=thanks")


@routes.post(
    "/console/feedback/new",
    statuses=(303, 400, 401, 413, 415, 503),
    max_body=6 * 1024 * KIB,
    errors=(InvalidParameter,),
)
@layout.form_handler(feedback_page, FeedbackQuery)
def give_feedback(caller: Caller, body: FeedbackUpload) -> Redirect:
    """Submit feedback, with an optional screenshot."""
    columns = read_feedback(body)
    picture = EncodedPicture.of(pictures.make_picture(body.screenshot)) if body.screenshot else None
    content = msgspec.structs.replace(body, screenshot=hashlib.sha256(body.screenshot).hexdigest())
    layout.run_once(caller, "feedback", content, lambda: submit(caller, columns, picture))
    return Redirect("/console/feedback?done=thanks")


def read_feedback(body: FeedbackText) -> dict[str, SqlValue]:
    """Return the columns of feedback. Raises InvalidBody."""
    members = {"description": layout.clean_text(body.description), "feedback_type": body.feedback_type}
    if not members["description"]:
        raise InvalidBody("Enter a message.")
    return NEW_FEEDBACK.read(members)


def submit(caller: Caller, columns: dict[str, SqlValue], picture: EncodedPicture | None) -> Raw:
    """Create feedback, with its screenshot if there is one. Return it, rendered. Raises ImageLimitReached."""
    with db.write(caller.id):
        created = Feedback.submit(caller.id, **columns)
        if picture is None:
            return created
        return FeedbackScreenshot(feedback_id=msgspec.json.decode(created)["id"]).store(caller, picture)
