"""The first admin, created in a browser with a link that `serve` prints. The link works until there is an admin."""

from service import clock
from service.db import write
from service.errors import InvalidSetupLink
from service.fields import SqlValue
from service.models import User
from service.models.audit_log import OPERATOR
from service.models.users import ADMINS
from service.signing import sign, verify

PATH = "/setup"
LIFETIME = clock.DAY  # of a link


def is_missing() -> bool:
    """Return whether the service has no admin."""
    return not User.select().where(User.role == "admin").exists()


def make_link(base_url: str) -> str:
    """Return the address of the page that creates the first admin."""
    return f"{base_url.rstrip('/')}{PATH}?token={sign('setup', [clock.now() + LIFETIME])}"


def expect_token(token: str) -> None:
    """Raise InvalidSetupLink if the token of a link is not valid or has expired, or if there is an admin."""
    try:
        (expires_at,) = verify("setup", token)
    except ValueError:
        raise InvalidSetupLink from None
    if not isinstance(expires_at, int) or expires_at <= clock.now() or not is_missing():
        raise InvalidSetupLink


def create(token: str, **columns: SqlValue) -> User:
    """Create the first admin, inside a write. Raises InvalidSetupLink or UserExists."""
    with write(ADMINS):
        expect_token(token)  # another request may have created an admin
        return User.add(OPERATOR, role="admin", **columns)
