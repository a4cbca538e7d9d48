"""The threads that deliver what is in the outbox: one for each transport in each worker process."""

import logging
import random
import threading
import time
from collections.abc import Sequence

import peewee

from service import clock, db, metrics
from service.models import Delivery, Notification, User
from service.models.deliveries import NOTIFICATIONS, SWITCHES
from service.outbox.transport import DeliveryError, Transport
from service.queue_worker import QueueWorker

log = logging.getLogger("cx.server")

LEASE = 2 * clock.MINUTE  # until another worker may claim the delivery; no attempt takes longer
FIRST_RETRY_DELAY = 30 * clock.SECOND  # doubled after each further attempt
MAX_RETRY_DELAY = clock.HOUR  # also for a Retry-After header
JITTER = 0.2  # the part of a delay that is random, so that not all deliveries are retried at the same time
GIVE_WAY_TIMEOUT = 0.01  # seconds that a delivery waits for requests in progress
GIVE_WAY_INTERVAL = 0.002  # seconds
SHUTDOWN_TIMEOUT = 5.0  # seconds for an attempt in progress, so that it is not repeated


class DeliveryWorker(QueueWorker[Delivery]):
    """Delivers through one transport."""

    name, subject = "outbox", "deliveries"
    shutdown_timeout = SHUTDOWN_TIMEOUT

    def __init__(self, transport: Transport, stop: threading.Event, *, is_prompt: bool = False) -> None:
        super().__init__(stop, is_prompt=is_prompt)
        self.transport = transport
        self._done: Delivery | None = None  # not removed yet: the transaction that claims the next one does that

    def claim(self) -> Delivery | None:
        self.give_way()
        channel, target = self.transport.channel, self.transport.target
        try:
            claimed = db.retry_on_conflict(lambda: Delivery.claim(channel, target, LEASE, self._done))
        except peewee.DatabaseError:
            self.finish()  # does not wait for a lock on PostgreSQL, which an import may hold for longer than the lease
            raise
        self._done = None
        if claimed is None:
            self.transport.close()
        return claimed

    def give_way(self) -> None:
        """Wait while requests are in progress, which need the same processors and the same database."""
        until = time.monotonic() + GIVE_WAY_TIMEOUT
        while metrics.shared.total(metrics.IN_FLIGHT) > 0 and time.monotonic() < until:
            time.sleep(GIVE_WAY_INTERVAL)

    def finish(self) -> None:
        self.transport.close()
        if self._done is not None:
            db.retry_on_conflict(self._done.remove)
            self._done = None

    def process(self, delivery: Delivery) -> None:
        """Make an attempt. Afterwards the delivery is removed, postponed, or given up."""
        notifications: Sequence[Notification] = ()
        if delivery.kind == NOTIFICATIONS:
            muted_until = self.muted_until(delivery)
            if muted_until:
                delivery.reopen(muted_until)
                return
            notifications = Notification.announced_by(delivery) if self.is_wanted(delivery) else ()
            if not notifications:
                self._done = delivery
                return
        try:
            self.transport.deliver(delivery, notifications)
        except DeliveryError as error:
            self.retry_or_fail(delivery, error)
        else:
            self._done = delivery

    def retry_or_fail(self, delivery: Delivery, error: DeliveryError) -> None:
        """Postpone a delivery after an attempt, or give it up after three days or a final error."""
        log.warning("%s delivery %s failed (attempt %s): %s", delivery.channel, delivery.id, delivery.attempts, error)
        if error.is_final or delivery.is_expired:
            delivery.fail(str(error))
            return
        delay = min(FIRST_RETRY_DELAY << min(delivery.attempts - 1, 16), MAX_RETRY_DELAY)
        delay = max(int(delay * random.uniform(1 - JITTER, 1)), min(error.after, MAX_RETRY_DELAY))
        delivery.retry_later(delay, str(error))

    def is_wanted(self, delivery: Delivery) -> bool:
        """Return whether the user gets notifications through this channel."""
        user = User.find(delivery.user_id)
        if user is None or user.is_disabled or (delivery.channel == "email" and not user.is_verified):
            return False
        settings = User.preferences_of(user.id)["notifications"]
        return bool(settings[SWITCHES[delivery.channel]])

    def muted_until(self, delivery: Delivery) -> int:
        """Return the end of the user's mute in ms; 0 if the user is not muted, or the delivery is urgent."""
        until = User.preferences_of(delivery.user_id)["notifications"]["muted_until"]
        muted_until = clock.milliseconds(until) if until and not delivery.is_urgent else 0
        return muted_until if muted_until > clock.now() else 0
