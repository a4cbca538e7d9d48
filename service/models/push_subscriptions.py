"""Web Push: the browsers that push notifications are sent to, and the key that identifies this installation."""

import base64
import secrets

from service import clock
from service.db import Query, Table, compiled, literal, write
from service.fields import INTERNAL, Identifier, Integer, Text, reference
from service.models.audit_log import AuditLog
from service.models.callers import Caller
from service.models.deliveries import Delivery
from service.models.logins import LoginSession
from service.models.push_topics import PUSH

TARGET = "browsers"  # of deliveries
MAX_BROWSERS = 10  # of a user; a further one replaces the oldest
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # SEC 2, section 2.4.2


class PushKey(Table):
    """A single row, or none: the private key on the curve P-256 that signs requests to push services (RFC 8292).

    Browsers bind their subscriptions to it, so it never changes.
    """

    id = Integer(primary_key=True)
    private_key = Text(visibility=INTERNAL)  # the number as base64url

    @classmethod
    def ensure(cls) -> None:
        """Create the key, unless there is one."""
        if cls.get_or_none() is None:
            number = secrets.randbelow(P256_ORDER - 1) + 1
            key = base64.urlsafe_b64encode(number.to_bytes(32)).decode().rstrip("=")
            with write():
                cls.insert(id=1, private_key=key).on_conflict_ignore().execute()

    @classmethod
    def number(cls) -> int:
        """Return the private key."""
        return int.from_bytes(base64.urlsafe_b64decode(cls.get().private_key + "="))


class PushSubscription(Table):
    """The subscription of the browser of a login session, with which it ends."""

    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user", index=True, visibility=INTERNAL)
    login_session_id = Text(visibility=INTERNAL)
    endpoint = Text(unique=True, default=None, visibility=INTERNAL)  # the secret URL at the push service
    p256dh = Text(visibility=INTERNAL)  # the public key of the browser, as base64url
    auth = Text(visibility=INTERNAL)  # a secret that the browser shares with this service, as base64url
    created_at = Integer(default=clock.now)

    @classmethod
    def add(cls, caller: Caller, endpoint: str, p256dh: str, auth: str) -> None:
        """Subscribe the browser of the caller's login session, in place of earlier subscriptions of it."""
        columns = {"user_id": caller.id, "login_session_id": caller.session_id, "p256dh": p256dh, "auth": auth}
        with write(caller.id):
            cls.delete().where((cls.endpoint == endpoint) | (cls.login_session_id == caller.session_id)).execute()
            cls.create(endpoint=endpoint, **columns)
            own = cls.user_id == caller.id
            newest = cls.select(cls.id).where(own).order_by(cls.created_at.desc(), cls.id).limit(MAX_BROWSERS)
            cls.delete().where(own, cls.id.not_in(newest)).execute()
            AuditLog.record("push_browser_added", caller.id, caller.id)

    @classmethod
    def end(cls, caller: Caller, *, everywhere: bool = False) -> None:
        """End the subscription of the caller's login session, or all of the caller."""
        own = cls.user_id == caller.id
        with write(caller.id):
            ended = cls.delete().where(own if everywhere else own & (cls.login_session_id == caller.session_id))
            if ended.execute():
                AuditLog.record("push_browser_removed", caller.id, caller.id)

    def remove(self) -> None:
        """Delete the subscription, which its push service does not know any more."""
        PushSubscription.delete().where(PushSubscription.id == self.id).execute()

    @classmethod
    def open_of(cls, user_id: str) -> "list[PushSubscription]":
        """Return the subscriptions of a user whose login sessions are open."""
        login = cls.login_session_id == LoginSession.id
        found = cls.select().join(LoginSession, on=login).where(cls.user_id == user_id, LoginSession.is_open())
        return list(found.order_by(cls.created_at, cls.id))

    @classmethod
    def is_used_by(cls, user_id: str) -> bool:
        """Return whether a user has a subscription."""
        return bool(_first_of(user_id).value())


@compiled
def _first_of(user_id: str) -> Query:
    return PushSubscription.select(literal(1)).where(PushSubscription.user_id == user_id).limit(literal(1))


Delivery.reaches[PUSH, TARGET] = PushSubscription.is_used_by
