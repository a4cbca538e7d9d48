"""What a transport is: the part of the outbox that delivers to one target of one channel."""

from collections.abc import Sequence
from typing import Protocol

from service.models import Delivery, Notification
from service.models.deliveries import Channel


class DeliveryError(Exception):
    """A delivery failed. The message is shown to operators, so it holds no secrets and no text of users.

    No further attempt is made if `is_final`, otherwise none before `after` ms. `status` is that of an HTTP response.
    """

    def __init__(self, message: str, *, is_final: bool = False, after: int = 0, status: int = 0) -> None:
        super().__init__(message)
        self.is_final, self.after, self.status = is_final, after, status


class Transport(Protocol):
    """Delivers to one target of a channel."""

    channel: Channel
    target: str

    def deliver(self, delivery: Delivery, notifications: Sequence[Notification]) -> None:
        """Deliver; `notifications` are the unread ones that the delivery announces, at least one, or none otherwise.

        Takes at most `worker.LEASE`. Raises DeliveryError.
        """

    def close(self) -> None:
        """Close what is kept open for further deliveries, because none is due."""
        return
