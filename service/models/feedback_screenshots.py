"""Screenshots of feedback, stored as base64 text, as in exports."""

from collections.abc import Collection
from typing import NamedTuple, Self

import peewee
from msgspec import Raw

from service import clock
from service.db import Query, Table, render, write
from service.errors import FeedbackNotFound, Forbidden, ImageLimitReached, ScreenshotNotFound
from service.fields import EXPORT_ONLY, INTERNAL, Integer, SqlValue, Text, reference
from service.models.callers import Caller
from service.models.encoded_pictures import USER_LIMITS, EncodedPicture, WithThumbnail
from service.models.feedback import SCREENSHOT_PATH, Feedback, require_admin


class ScreenshotSize(NamedTuple):
    """The size of a screenshot in pixels."""

    width: int
    height: int


class FeedbackScreenshot(WithThumbnail, Table):
    """The screenshot of feedback, which has at most one."""

    get_for_errors = (FeedbackNotFound, ScreenshotNotFound, Forbidden)
    feedback_id = reference("feedback", primary_key=True, visibility=EXPORT_ONLY)
    width = Integer(default=0, visibility=INTERNAL)
    height = Integer(default=0, visibility=INTERNAL)
    thumbnail = Text(visibility=INTERNAL)
    image = Text(default=None, visibility=EXPORT_ONLY)

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the picture: unchanged if it was exported, otherwise converted like an upload."""
        return EncodedPicture.from_import("feedback_screenshot", given)._asdict()

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return the screenshot of feedback, for its author and admins; one without a picture if there is none.

        Raises FeedbackNotFound or Forbidden.
        """
        feedback = Feedback.find(id)
        if feedback is None:
            raise FeedbackNotFound
        if feedback.user_id != caller.id:
            require_admin(caller)
        return cls.find(id) or cls(feedback_id=id, image="")

    def require_picture(self) -> None:
        """Raise ScreenshotNotFound without a picture."""
        if not self.image:
            raise ScreenshotNotFound

    def store(self, caller: Caller, picture: EncodedPicture) -> Raw:
        """Set the picture, for the author of the feedback. Return the feedback, rendered.

        Raises Forbidden, FeedbackNotFound or ImageLimitReached.
        """
        with write(caller.id, self.feedback_id):
            self._require_author(caller)
            FeedbackScreenshot.delete().where(FeedbackScreenshot.feedback_id == self.feedback_id).execute()
            if FeedbackScreenshot.count_of(caller.id) >= USER_LIMITS[caller.role]:
                raise ImageLimitReached("You have sent too many screenshots; remove some to send more.")
            FeedbackScreenshot.create(feedback_id=self.feedback_id, **picture._asdict())
            return self._set_address(SCREENSHOT_PATH.format(self.feedback_id))

    def remove(self, caller: Caller) -> Raw:
        """Remove the picture, or an external URL, for the author of the feedback. Return the feedback, rendered.

        No effect without a screenshot. Raises Forbidden or FeedbackNotFound.
        """
        with write(caller.id, self.feedback_id):
            self._require_author(caller)
            FeedbackScreenshot.delete().where(FeedbackScreenshot.feedback_id == self.feedback_id).execute()
            return self._set_address("")

    def _require_author(self, caller: Caller) -> None:
        """Read the feedback again, inside a write. Raises FeedbackNotFound, or Forbidden for all but its author."""
        feedback = Feedback.find(self.feedback_id)
        if feedback is None:
            raise FeedbackNotFound
        if feedback.user_id != caller.id:
            raise Forbidden(not_found=FeedbackNotFound)

    def _set_address(self, address: str) -> Raw:
        """Set `screenshot_url`, inside a write. Return the feedback, rendered. No effect if it is the same."""
        changed = (Feedback.id == self.feedback_id) & (Feedback.screenshot_url != address)
        Feedback.update(screenshot_url=address, updated_at=clock.timestamp()).where(changed).execute()
        return render(Feedback, self.feedback_id)

    @classmethod
    def sizes_of(cls, feedback_ids: Collection[str]) -> dict[str, ScreenshotSize]:
        """Return the sizes of the screenshots of feedback, by feedback."""
        found = cls.select(cls.feedback_id, cls.width, cls.height).where(cls.feedback_id.in_(feedback_ids))
        rows: Query = found.tuples()
        return {id: ScreenshotSize(*size) for id, *size in rows}

    @classmethod
    def count_of(cls, user_id: str) -> int:
        """Return the number of screenshots in the feedback of a user."""
        return int(cls.select().where(cls.feedback_id.in_(_feedback_of(user_id))).count())

    @classmethod
    def purge(cls, user_id: str) -> int:
        """Remove the screenshots in the feedback of a user, inside a write. Return their number."""
        removed = int(cls.delete().where(cls.feedback_id.in_(_feedback_of(user_id))).execute())
        cls.recompute()
        return removed

    @classmethod
    def recompute(cls) -> None:
        """Set `screenshot_url` of feedback to the stored screenshots, and clear the addresses of missing ones."""
        before, after = SCREENSHOT_PATH.split("{}")
        address = peewee.Value(before).concat(Feedback.id).concat(after)
        stored = peewee.fn.EXISTS(cls.select(cls.feedback_id).where(cls.feedback_id == Feedback.id))
        Feedback.update(screenshot_url=address).where(stored, Feedback.screenshot_url != address).execute()
        Feedback.update(screenshot_url="").where(~stored, Feedback.screenshot_url == address).execute()


def _feedback_of(user_id: str) -> Query:
    return Feedback.select(Feedback.id).where(Feedback.user_id == user_id)
