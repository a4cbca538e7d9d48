"""The keys that sign tokens and cursors."""

import secrets

from service import clock
from service.db import Table, write
from service.fields import INTERNAL, Integer, Text, UlidIdentifier


class SigningKey(Table):
    """A signing key. The newest key signs, every key verifies."""

    id = UlidIdentifier(primary_key=True, default=clock.ulid)
    created_at = Integer(default=clock.now)
    secret = Text(visibility=INTERNAL)

    @classmethod
    def ensure(cls) -> None:
        """Create the first key of a new database."""
        with write():
            if not cls.select().exists():
                cls.create(secret=secrets.token_hex(32))

    @classmethod
    def secrets(cls) -> list[str]:
        """Return all keys, oldest first."""
        return [key.secret for key in cls.select().order_by(cls.id)]
