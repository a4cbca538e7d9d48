"""The requests of command-line clients without a browser, which a user approves on another device (RFC 8628)."""

import hashlib
from typing import ClassVar, Self

from service import clock
from service.db import Table
from service.fields import INTERNAL, Boolean, Integer, Text, reference

RETENTION = clock.HOUR  # after the expiry, to detect a code that is used again


class DeviceAuthorization(Table):
    """A request of a client, by the digest of its device code. The codes themselves are not stored."""

    resource: ClassVar[str] = ""  # registered clients have a browser

    id = Text(primary_key=True, visibility=INTERNAL)
    user_code = Text(unique=True, visibility=INTERNAL)  # the digest
    network = Text(visibility=INTERNAL)  # of the client
    created_at = Integer()
    expires_at = Integer(index=True)
    poll_interval = Integer()  # milliseconds that the client must wait between two token requests
    polled_at = Integer()  # of the last token request
    scope = Text(visibility=INTERNAL)  # as requested
    scopes = Text(visibility=INTERNAL)  # those of them that exist
    install_id = Text(visibility=INTERNAL)
    install_name = Text(visibility=INTERNAL)
    user_id = reference("user", null=True)  # who approved or denied it
    is_granted = Boolean(default=False, visibility=INTERNAL)
    approved_by = Text(null=True, default=None, visibility=INTERNAL)  # the login session of that user
    used_at = Integer(null=True)
    login_session_id = Text(null=True, default=None, visibility=INTERNAL)  # the login session that the code started

    @classmethod
    def by_device_code(cls, code: str) -> Self | None:
        """Return the request with a device code, or None."""
        return cls.find(digest(code))

    @classmethod
    def by_user_code(cls, code: str) -> Self | None:
        """Return the request with a user code, or None."""
        found: Self | None = cls.get_or_none(cls.user_code == digest(code))
        return found

    @classmethod
    def delete_expired(cls) -> None:
        """Delete the requests that expired RETENTION ago."""
        cls.delete().where(cls.expires_at <= clock.now() - RETENTION).execute()

    @classmethod
    def count_pending(cls, network: str = "") -> int:
        """Return the number of requests that have not expired, of one network or of all."""
        pending = cls.select().where(cls.expires_at > clock.now())
        return int((pending.where(cls.network == network) if network else pending).count())

    class Meta:
        indexes = ((("network", "expires_at"), False),)


def digest(code: str) -> str:
    """Return the SHA-256 digest of a code, in hexadecimal digits."""
    return hashlib.sha256(code.encode()).hexdigest()
