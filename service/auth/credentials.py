"""Checking an e-mail address and a password, wherever a person logs in."""

from collections.abc import Iterator
from contextlib import contextmanager

from service import clock
from service.auth import passwords, throttle
from service.db import write
from service.errors import InvalidCredentials
from service.models import User
from service.settings import Settings


@contextmanager
def logging_in(email: str, password: str, address: str, settings: Settings) -> Iterator[str]:
    """The write in which a login begins, with the identifier of the user whose it is.

    Raises InvalidCredentials, after the same work whatever is wrong, or RateLimited.
    """
    attempt = throttle.begin_attempt(email, address, settings)
    user = User.by_email(email)
    usable = user is not None and not user.is_disabled
    if not passwords.is_right(password, user.password_hash if user and usable else None) or not user:
        raise InvalidCredentials
    same = (User.id == user.id) & (User.password_hash == user.password_hash) & ~User.is_disabled
    with write(user.id):
        if not User.update(last_login_at=clock.timestamp()).where(same).execute():
            raise InvalidCredentials  # disabled, or another password, while this one was checked
        throttle.forgive(attempt)
        yield user.id
