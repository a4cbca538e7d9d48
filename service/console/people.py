"""Users as admins see them: by e-mail address."""

from collections.abc import Iterable

from service import clock, validators
from service.errors import InvalidBody
from service.models import User
from service.models.audit_log import OPERATOR, SERVICE
from service.translation import gettext


def find_person(text: str) -> str:
    """Return the identifier of a user by e-mail address, or a given identifier; actors of the audit log have names.

    Raises InvalidBody if no user has the e-mail address. An identifier is not looked up: the user may be deleted.
    """
    text = text.strip()
    if text in (OPERATOR, SERVICE):
        return text
    try:
        return clock.read_uuid(text)
    except ValueError:
        user = User.by_email(text)
    if user is None:
        raise InvalidBody(gettext("No user has the e-mail address {email}.", email=text[: validators.MAX_EMAIL_LENGTH]))
    return str(user.id)


def emails_of(ids: Iterable[str]) -> dict[str, str]:
    """Return the e-mail addresses of users by identifier."""
    users = User.select(User.id, User.email).where(User.id.in_(sorted(set(ids))))
    return {user.id: user.email for user in users}
