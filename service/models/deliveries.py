"""The outbox: e-mails, push notifications and webhooks that wait for their delivery."""

import json
from collections.abc import Callable, Collection, Iterable
from typing import ClassVar, Literal, get_args

import msgspec
import peewee
from msgspec import Struct

from service import clock
from service.db import Page, Position, Query, Table, compiled, literal, write
from service.errors import DeliveryNotFound, Forbidden
from service.fields import (
    INTERNAL,
    Boolean,
    Choice,
    DateTime,
    Document,
    Integer,
    SqlValue,
    Text,
    Ulid,
    UlidIdentifier,
    Uuid,
    compact_json,
    reference,
)
from service.models.audit_log import AuditLog
from service.models.callers import Caller
from service.models.leases import Leased
from service.types import JsonObject

Channel = Literal["email", "push", "webhook"]
State = Literal["pending", "failed"]
# The channels by which users learn of their notifications, with the setting that turns each on or off.
SWITCHES: dict[Channel, str] = {"email": "email_enabled", "push": "push_enabled"}
SENT_TO = "sent_to"  # a member of the payload: identifiers of addresses that were reached
NOTIFICATIONS = "notifications"  # the kind of a delivery that announces unread notifications
# How long a notification may wait to be read in the console or an app before it is delivered.
DELAYS: dict[Channel, int] = {"email": 5 * clock.MINUTE, "push": 10 * clock.SECOND}
LIFETIME = 3 * clock.DAY  # from its creation until a delivery is given up
FAILED_LIFETIME = 30 * clock.DAY  # from its failure until a delivery is deleted
BATCH_SIZE = 100  # rows deleted in a transaction
MAX_ERROR = 500  # characters


class DeliveryInfo(Struct):
    """A delivery as shown to admins. It holds identifiers only, no text of messages."""

    id: Ulid
    channel: Channel
    kind: str
    target: str
    user_id: Uuid | None
    state: State
    attempts: int
    created_at: DateTime
    due_at: DateTime
    error: str


class Delivery(Leased, Table):
    """An e-mail, a push notification or a webhook to deliver, written in the transaction that causes it.

    Deliveries of one channel, target and topic are made in the order of their identifiers. A row is deleted when it is
    delivered; if all attempts fail, it stays with `failed_at`.
    """

    get_for_errors = (DeliveryNotFound, Forbidden)
    # The channels and targets of this installation, from its settings. Nothing is queued for others.
    configured: ClassVar[tuple[tuple[Channel, str], ...]] = ()
    # Of channels and targets that not all users can be reached through: whether a user can.
    reaches: ClassVar[dict[tuple[Channel, str], Callable[[str], bool]]] = {}
    id = UlidIdentifier(primary_key=True, default=clock.ulid)
    channel = Choice(*get_args(Channel), visibility=INTERNAL)
    target = Text(visibility=INTERNAL)  # the URL of a webhook
    topic = Text(visibility=INTERNAL)  # such as the identifier of a chat session
    kind = Text(64, visibility=INTERNAL)  # of an e-mail or push notification; of a webhook the type of the event
    user_id = reference("user", null=True, visibility=INTERNAL, index=True)
    payload = Document(visibility=INTERNAL)
    is_urgent = Boolean(default=False, visibility=INTERNAL)  # not postponed while the user is muted
    is_open = Boolean(default=False, visibility=INTERNAL)  # further notifications of the topic belong to it, too
    created_at = Integer(default=clock.now)
    expires_at = Integer(default=lambda: clock.now() + LIFETIME)  # when it is given up
    closed_at = Integer(null=True)  # the time of the first attempt, since which it is not open
    due_at = Integer()
    attempts = Integer(default=0)
    failed_at = Integer(null=True)
    error = Text(MAX_ERROR, visibility=INTERNAL)

    @classmethod
    def configure(cls, targets: Iterable[tuple[Channel, str]]) -> None:
        """Set the channels and targets for which this process queues deliveries."""
        cls.configured = tuple(dict.fromkeys(targets))

    @classmethod
    def is_configured(cls, channel: Channel) -> bool:
        """Return whether deliveries through a channel are queued."""
        return any(found == channel for found, _ in cls.configured)

    @classmethod
    def add(
        cls,
        channel: Channel,
        kind: str,
        *,
        user_id: str | None = None,
        topic: str = "",
        payload: JsonObject | None = None,
        delay: int = 0,
        except_for: Collection[str] = (),
    ) -> None:
        """Queue a delivery to every target of a channel, inside the write that causes it.

        `payload` holds identifiers only. It is due after `delay` ms. Targets in `except_for` get none.
        """
        for found, target in cls.configured:
            if found == channel and target not in except_for:
                cls.create(
                    id=_next_id(channel, target, topic),
                    channel=channel,
                    target=target,
                    topic=topic,
                    kind=kind,
                    user_id=user_id,
                    payload=compact_json(payload or {}),
                    due_at=clock.now() + delay,
                )

    @classmethod
    def announce(
        cls, user_id: str, payload: JsonObject, *, since: int, is_urgent: bool = False, delay: int | None = None
    ) -> None:
        """Queue the announcement of a notification, or add it to one about the same that is not sent yet.

        There is none through channels that do not reach the user.

        `payload` has the identifier of the chat session, or else of the notification, which was created at `since`.
        """
        topic = f"{user_id}:{next(iter(payload.values()))}"
        about = compact_json(payload)
        for channel, target in cls.configured:
            reaches = cls.reaches.get((channel, target))
            if channel in SWITCHES and (reaches is None or reaches(user_id)):
                due_at = since + (DELAYS[channel] if delay is None else delay)
                row = clock.ulid(), channel, target, topic, user_id, about, is_urgent, since, since + LIFETIME, due_at
                _announcing(*row).run()

    def reopen(self, due_at: int) -> None:
        """Postpone a claimed announcement: later notifications of the topic belong to it, until it is due again."""
        with write(self.topic):
            same = (Delivery.channel == self.channel) & (Delivery.target == self.target) & Delivery.is_open
            Delivery.delete().where(same, Delivery.topic == self.topic).execute()
            about = compact_json({name: value for name, value in json.loads(self.payload).items() if name != SENT_TO})
            self.set_due_at(due_at, is_open=True, closed_at=None, attempts=self.attempts - 1, payload=about)

    def was_sent_to(self, address: str) -> bool:
        """Return whether an earlier attempt has reached one of several addresses of the user."""
        return address in json.loads(self.payload).get(SENT_TO, ())

    def record_sent_to(self, address: str) -> None:
        """Note that an address was reached, so that further attempts leave it out."""
        about = json.loads(self.payload)
        self.payload = compact_json(about | {SENT_TO: [*about.get(SENT_TO, ()), address]})
        Delivery.update(payload=self.payload).where(Delivery.id == self.id).execute()

    @classmethod
    def claim(cls, channel: Channel, target: str, lease: int, done: "Delivery | None" = None) -> "Delivery | None":
        """Claim the delivery of a target that has been due for the longest time, for `lease` ms; and remove `done`.

        Deliveries that wait for an earlier one of their topic are left out. A claimed delivery is not open any more,
        and has no error until its attempt has failed.
        """
        if done is None and not _due(channel, target, clock.now()).row():
            return None
        with write(f"{channel} {target}"):
            if done is not None:
                _removed(done.id).run()
            now = clock.now()
            row = _claimed(channel, target, now, now + lease).row()
        return row and cls.from_row(row)

    def retry_later(self, milliseconds: int, error: str) -> None:
        """Release a claimed delivery after a failed attempt."""
        self.postpone(milliseconds, error=_shown(error))

    def fail(self, error: str) -> None:
        """Give a delivery up. It stays in the list of failed deliveries, and others of its topic continue."""
        columns = {"failed_at": clock.now(), "error": _shown(error)}
        Delivery.update(columns).where(Delivery.id == self.id, Delivery.failed_at.is_null()).execute()

    @property
    def is_expired(self) -> bool:
        """Whether no further attempt is made."""
        return bool(clock.now() >= self.expires_at)

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> "Delivery":
        """Return the delivery, for admins. Raises DeliveryNotFound or Forbidden."""
        delivery = cls.find(id)
        if delivery is None or caller.role != "admin":
            raise DeliveryNotFound if delivery is None else Forbidden(not_found=DeliveryNotFound)
        return delivery

    @classmethod
    def list_page(
        cls, after: Position, limit: int, *, channel: Channel | None = None, state: State | None = None
    ) -> Page[DeliveryInfo]:
        """Return a page of the deliveries, newest first."""
        found = cls.select().order_by(cls.id.desc())
        if channel:
            found = found.where(cls.channel == channel)
        if state:
            found = found.where(cls.failed_at.is_null(state == "pending"))
        if after.key:
            found = found.where(cls.id < after.key[0])
        rows = list(found.limit(limit + 1))
        shown = [delivery.info for delivery in rows[:limit]]
        return Page(msgspec.json.encode(shown), (shown[-1].id,) if len(rows) > limit else ())

    @property
    def info(self) -> DeliveryInfo:
        """The delivery as shown to admins."""
        return DeliveryInfo(
            id=self.id,
            channel=self.channel,
            kind=self.kind,
            target=self.target,
            user_id=self.user_id,
            state="pending" if self.failed_at is None else "failed",
            attempts=self.attempts,
            created_at=clock.timestamp(self.created_at),
            due_at=clock.timestamp(self.due_at),
            error=self.error,
        )

    def try_again(self, actor_id: str) -> "Delivery":
        """Make the delivery due now, for another three days if it had failed. Raises DeliveryNotFound.

        No effect during an attempt, because another worker would make a second one.
        """
        now = clock.now()
        columns = {"failed_at": None, "due_at": now, "expires_at": now + LIFETIME}
        with write(self.id):
            failed = Delivery.failed_at.is_null(False)
            changed = Delivery.update(columns).where(Delivery.id == self.id, failed).execute()
            waits = Delivery.closed_at.is_null() | (Delivery.error != "")  # not claimed by a worker
            later = Delivery.update(due_at=now).where(Delivery.id == self.id, Delivery.due_at > now, waits)
            changed += later.execute()
            found = Delivery.find(self.id)
            if found is None:
                raise DeliveryNotFound
            if changed:
                AuditLog.record("delivery_retried", actor_id, self.id, channel=self.channel)
        return found

    @classmethod
    def delete_old(cls) -> int:
        """Delete deliveries that failed long ago, at most BATCH_SIZE. Return their number."""
        old = [id for (id,) in _failed_before(clock.now() - FAILED_LIFETIME).rows()]
        return int(cls.delete().where(cls.id.in_(old)).execute()) if old else 0

    @classmethod
    def counts(cls) -> dict[tuple[str, str], int]:
        """Return the number of deliveries by channel and state."""
        failed = cls.failed_at.is_null(False)
        rows: Query = cls.select(cls.channel, failed, peewee.fn.count(cls.id)).group_by(cls.channel, failed).tuples()
        found: dict[tuple[str, str], int] = {
            (channel, state): 0 for channel in get_args(Channel) for state in get_args(State)
        }
        return found | {
            (channel, "failed" if is_failed else "pending"): count for channel, is_failed, count in list(rows)
        }

    @classmethod
    def counts_by_target(cls, channel: Channel) -> dict[str, tuple[int, int]]:
        """Return the numbers of pending and failed deliveries of a channel, by target."""
        number, failed = peewee.fn.count(cls.id), cls.failed_at.is_null(False)
        columns = cls.target, number.filter(~failed), number.filter(failed)
        rows: Query = cls.select(*columns).where(cls.channel == channel).group_by(cls.target).tuples()
        return {target: (pending, failed) for target, pending, failed in rows}


_is_pending = Delivery.failed_at.is_null()
Delivery.add_index(Delivery.channel, Delivery.target, Delivery.due_at, name="delivery_due", where=_is_pending)
Delivery.add_index(
    Delivery.channel, Delivery.target, Delivery.topic, Delivery.id, name="delivery_topic", where=_is_pending
)
Delivery.add_index(Delivery.failed_at, name="delivery_failed", where=Delivery.failed_at.is_null(False))
Delivery.add_index(
    Delivery.channel, Delivery.target, Delivery.topic, name="delivery_open", unique=True, where=Delivery.is_open
)


@compiled
def _failed_before(moment: int) -> Query:
    old = Delivery.select(Delivery.id).where(Delivery.failed_at < moment)
    return old.order_by(Delivery.failed_at).limit(literal(BATCH_SIZE))


def _shown(error: str) -> str:
    """Return an error as it is stored, which is not empty."""
    return error[:MAX_ERROR] or "unknown error"


def _next_id(channel: SqlValue, target: str, topic: str) -> str:
    """Return an identifier greater than those of all pending deliveries of a topic."""
    return clock.ulid(after=(_newest_id(channel, target, topic).value() or "") if topic else "")


@compiled
def _newest_id(channel: str, target: str, topic: str) -> Query:
    same = (Delivery.channel == channel) & (Delivery.target == target) & (Delivery.topic == topic)
    return Delivery.select(peewee.fn.max(Delivery.id)).where(same, _is_pending)


@compiled
def _announcing(
    id: str,
    channel: str,
    target: str,
    topic: str,
    user_id: str,
    payload: str,
    is_urgent: bool,
    created_at: int,
    expires_at: int,
    due_at: int,
) -> Query:
    columns = {
        "id": id,
        "channel": channel,
        "target": target,
        "topic": topic,
        "kind": NOTIFICATIONS,
        "user_id": user_id,
        "payload": payload,
        "is_urgent": is_urgent,
        "is_open": True,
        "created_at": created_at,
        "expires_at": expires_at,
        "due_at": due_at,
        "attempts": 0,
        "error": "",
    }
    earliest = peewee.Case(None, [(peewee.EXCLUDED.due_at < Delivery.due_at, peewee.EXCLUDED.due_at)], Delivery.due_at)
    update = {Delivery.is_urgent: Delivery.is_urgent | peewee.EXCLUDED.is_urgent, Delivery.due_at: earliest}
    return Delivery.insert(columns).on_conflict(
        conflict_target=[Delivery.channel, Delivery.target, Delivery.topic],
        conflict_where=Delivery.is_open,
        update=update,
    )


def _first_due(channel: SqlValue, target: SqlValue, now: SqlValue) -> Query:
    """Select the identifier of the next delivery: it is due, and first of the pending ones of its topic."""
    due, earlier = Delivery.alias("due"), Delivery.alias("earlier")
    waits_for = earlier.select(peewee.SQL("1")).where(
        earlier.channel == due.channel,
        earlier.target == due.target,
        earlier.topic == due.topic,
        earlier.id < due.id,
        earlier.failed_at.is_null(),
    )
    own = (due.channel == channel) & (due.target == target) & (due.due_at <= now) & due.failed_at.is_null()
    ordered = (due.topic == "") | ~peewee.fn.EXISTS(waits_for)
    return due.select(due.id).where(own, ordered).order_by(due.due_at, due.id).limit(literal(1))


@compiled
def _due(channel: str, target: str, now: int) -> Query:
    return _first_due(channel, target, now)


@compiled
def _claimed(channel: str, target: str, now: int, due_at: int) -> Query:
    columns = {
        "due_at": due_at,
        "attempts": Delivery.attempts + 1,
        "is_open": False,
        "closed_at": peewee.fn.coalesce(Delivery.closed_at, now),
        "error": "",
    }
    claimed = Delivery.update(columns).where(Delivery.id == _first_due(channel, target, now))
    return claimed.returning(*Delivery._meta.sorted_fields)


@compiled
def _removed(id: str) -> Query:
    return Delivery.delete().where(Delivery.id == id)
