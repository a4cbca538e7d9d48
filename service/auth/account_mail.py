"""E-mails about an account, and what their links do: verify the address, choose a password, unsubscribe."""

from service.auth import credentials, login_throttle, mail_links
from service.db import write
from service.errors import InvalidBody, InvalidMailLink, MailNotConfigured
from service.fields import SqlValue
from service.models import AuditLog, Delivery, LoginSession, User
from service.models.callers import Caller
from service.translation import gettext_noop


def require_configured() -> None:
    """Raise MailNotConfigured if the service sends no e-mails."""
    if not Delivery.is_configured("email"):
        raise MailNotConfigured


def request_verification(caller: Caller, address: str) -> bool:
    """Queue an e-mail that verifies the address of the caller, who sends the request from a network address.

    Returns False if the address is verified. Raises MailNotConfigured or RateLimited.
    """
    require_configured()
    user = User.get_by_id(caller.id)
    if user.is_verified:
        return False
    with write(user.id):
        login_throttle.record_mail(user.email, address)
        Delivery.add("email", "verification", user_id=user.id)
    return True


def request_password(email: str, address: str) -> None:
    """Queue an e-mail with which a user chooses a new password, if there is an enabled user with the address `email`.

    Takes the same time, one commit, if there is none. Raises MailNotConfigured or RateLimited.
    """
    require_configured()
    with write():
        login_throttle.record_mail(email, address)
        user = User.by_email(email)
        if user and not user.is_disabled:
            Delivery.add("email", "password_reset", user_id=user.id)


def invite(actor_id: str, email: str, **columns: SqlValue) -> User:
    """Create a user without a password, and queue an e-mail with which the user chooses one.

    Raises MailNotConfigured, or the errors of `User.add`.
    """
    require_configured()
    with write(email):
        user = User.add(actor_id, email=email, password_hash="", **columns)
        Delivery.add("email", "invitation", user_id=user.id)
    return user


def invite_again(user: User) -> None:
    """Queue the invitation of a user who has not chosen a password yet. Raises MailNotConfigured or InvalidBody."""
    require_configured()
    if user.password_hash or user.is_disabled:
        raise InvalidBody(gettext_noop("Only an enabled user without a password can be invited again."))
    with write(user.id):
        Delivery.add("email", "invitation", user_id=user.id)


def verify_address(token: str) -> None:
    """Mark the address of the user of a token as verified. Raises InvalidMailLink."""
    user = mail_links.user_to_verify(token)
    with write(user.id):
        same = (User.id == user.id) & (User.email == user.email)
        if User.update(is_verified=True).where(same, ~User.is_verified).execute():
            AuditLog.record("email_verified", user.id, user.id)


def set_password(token: str, password: str) -> None:
    """Set the password of the user of a token, who has read the e-mail, and end the user's login sessions.

    Raises InvalidMailLink or InvalidBody.
    """
    user = mail_links.user_to_reset(token)  # before the slow hash
    password_hash = credentials.hash_new_password(password)
    same = (User.id == user.id) & (User.password_hash == user.password_hash) & (User.email == user.email)
    with write(user.id):
        if not User.update(password_hash=password_hash, is_verified=True).where(same, ~User.is_disabled).execute():
            raise InvalidMailLink  # used during the computation
        LoginSession.end_all(user.id)
        AuditLog.record("password_reset", user.id, user.id)


def unsubscribe(token: str) -> None:
    """Turn the e-mails for notifications off for the user of a token. Raises InvalidMailLink."""
    user = mail_links.user_to_unsubscribe(token)
    User.patch_preferences(user.id, {"notifications": {"email_enabled": False}})
