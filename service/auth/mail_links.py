"""Signed links in e-mails: verification of an address, choice of a password, and unsubscribing.

The tokens are made when a mail is sent, and stored nowhere.
"""

import hashlib
from collections.abc import Callable

from service import clock
from service.errors import InvalidMailLink
from service.models import User
from service.signing import sign, verify

VERIFICATION, PASSWORD, UNSUBSCRIPTION = "/verify", "/reset-password", "/unsubscribe"
VERIFICATION_LIFETIME = clock.DAY
RESET_LIFETIME = 30 * clock.MINUTE
INVITATION_LIFETIME = 7 * clock.DAY


def verification_link(base_url: str, user: User) -> str:
    """Return the address of the page that verifies the e-mail address of a user."""
    return _link(base_url, VERIFICATION, [user.id, user.email, clock.now() + VERIFICATION_LIFETIME])


def password_link(base_url: str, user: User, lifetime: int) -> str:
    """Return the address of the page on which a user chooses a password, once: until the password differs."""
    values = [user.id, user.email, _digest(user), clock.now() + lifetime]
    return _link(base_url, PASSWORD, values)


def unsubscription_link(base_url: str, user: User) -> str:
    """Return the address that turns the e-mails for notifications off. It does not expire (RFC 8058)."""
    return _link(base_url, UNSUBSCRIPTION, [user.id])


def user_to_verify(token: str) -> User:
    """Return the user whose e-mail address a token verifies. Raises InvalidMailLink."""
    return _read(VERIFICATION, token, lambda user, email, expires_at: user.email == email and _is_current(expires_at))


def user_to_reset(token: str) -> User:
    """Return the user who may choose a password with a token. Raises InvalidMailLink."""

    def is_valid(user: User, email: object, digest: object, expires_at: object) -> bool:
        return (user.email, _digest(user)) == (email, digest) and _is_current(expires_at)

    return _read(PASSWORD, token, is_valid)


def user_to_unsubscribe(token: str) -> User:
    """Return the user who unsubscribes with a token. Raises InvalidMailLink."""
    return _read(UNSUBSCRIPTION, token, lambda user: True)


def _link(base_url: str, path: str, values: list[object]) -> str:
    return f"{base_url}{path}?token={sign(path, values)}"


def _read(path: str, token: str, is_valid: Callable[..., bool]) -> User:
    """Return the enabled user of a token, if `is_valid` with the user and the other values of the token."""
    try:
        id, *values = verify(path, token)
    except ValueError:
        raise InvalidMailLink from None
    user = User.find(id)
    if user is None or user.is_disabled or not is_valid(user, *values):
        raise InvalidMailLink
    return user


def _is_current(expires_at: object) -> bool:
    return isinstance(expires_at, int) and expires_at > clock.now()


def _digest(user: User) -> str:
    """Return a digest of the hash of a password, which has a random salt; it changes with the password."""
    return hashlib.sha256(user.password_hash.encode()).hexdigest()[:32]
