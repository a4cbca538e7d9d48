"""Checking an e-mail address and a password, wherever a person logs in; giving oneself another password."""

from collections.abc import Iterator
from contextlib import contextmanager

from service import clock
from service.auth import passwords, throttle, tokens
from service.db import write
from service.errors import InvalidCredentials, InvalidToken, WrongPassword
from service.models import Ledger, LoginSession, User
from service.models.people import Caller
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


def change_password(caller: Caller, current: str, new: str, address: str, settings: Settings) -> None:
    """Give the caller another password, which ends every login but the present one.

    A wrong `current` one counts as a failed login, so that whoever has stolen a token cannot guess. Raises
    WrongPassword, RateLimited, or InvalidToken if the login has ended in the meantime.
    """
    user = User.get_by_id(caller.id)
    attempt = throttle.begin_attempt(user.email, address, settings)
    if not passwords.is_right(current, user.password_hash):
        raise WrongPassword
    password_hash = passwords.hash_password(new)
    same = (User.id == user.id) & (User.password_hash == user.password_hash)
    with write(user.id):
        if not tokens.is_open(caller.session_id):
            raise InvalidToken
        if not User.update(password_hash=password_hash).where(same).execute():
            raise WrongPassword  # it has become another one while this one was checked
        LoginSession.end_all(user.id, but=caller.session_id)
        throttle.forgive(attempt)
        Ledger.record("password_changed", user.id, user.id)
