"""Login with an e-mail address and a password; change of the password."""

from collections.abc import Iterator
from contextlib import contextmanager

from service import clock, validators
from service.auth import login_throttle, passwords, tokens
from service.db import write
from service.errors import InvalidBody, InvalidCredentials, InvalidToken, WrongPassword
from service.models import AuditLog, LoginSession, User
from service.models.callers import Caller
from service.settings import Settings


@contextmanager
def logging_in(email: str, password: str, address: str, settings: Settings) -> Iterator[str]:
    """Verify credentials, then enter the write in which the login session begins; yields the user's identifier.

    Raises RateLimited, or InvalidCredentials after the same amount of work for every cause.
    """
    attempt = login_throttle.record_attempt(email, address, settings)
    user = User.by_email(email)
    usable = user is not None and not user.is_disabled
    if not passwords.is_correct(password, user.password_hash if user and usable else None) or not user:
        raise InvalidCredentials
    same = (User.id == user.id) & (User.password_hash == user.password_hash) & ~User.is_disabled
    with write(user.id):
        if not User.update(last_login_at=clock.timestamp()).where(same).execute():
            raise InvalidCredentials  # disabled or password changed during the verification
        login_throttle.clear_attempt(attempt)
        yield user.id


def change_password(caller: Caller, current: str, new: str, address: str, settings: Settings) -> None:
    """Change the caller's password and end all other login sessions.

    A wrong `current` password counts as a failed login, so that the holder of a stolen token cannot guess it. Raises
    WrongPassword, RateLimited, or InvalidToken if the login session ended in the meantime.
    """
    user = User.get_by_id(caller.id)
    attempt = login_throttle.record_attempt(user.email, address, settings)
    if not passwords.is_correct(current, user.password_hash):
        raise WrongPassword
    password_hash = passwords.hash_password(new)
    same = (User.id == user.id) & (User.password_hash == user.password_hash)
    with write(user.id):
        if not tokens.is_open(caller.session_id):
            raise InvalidToken
        if not User.update(password_hash=password_hash).where(same).execute():
            raise WrongPassword  # changed during the verification
        LoginSession.end_all(user.id, except_id=caller.session_id)
        login_throttle.clear_attempt(attempt)
        AuditLog.record("password_changed", user.id, user.id)


def read_email(text: str) -> str:
    """Return the e-mail address of a form. Raises InvalidBody."""
    try:
        return validators.email_address(text.strip())
    except ValueError as error:
        raise InvalidBody(f"$.email: {error}") from None


def hash_new_password(text: str) -> str:
    """Return the hash of the new password of a form. Raises InvalidBody."""
    if not passwords.MIN_LENGTH <= len(text) <= passwords.MAX_LENGTH:
        raise InvalidBody(f"The password needs at least {passwords.MIN_LENGTH} characters.")
    return passwords.hash_password(text)
