"""Errors of authentication, authorization and OAuth."""

from collections.abc import Collection
from typing import ClassVar

from service.errors.base import ApiError, ErrorInfo
from service.errors.requests import BadRequest, NotFound


class Unauthenticated(ApiError):
    """Missing credentials: send `Authorization: Bearer` with an access token."""

    status = 401
    code = "missing_credentials"
    challenge: ClassVar[str] = "Bearer"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail, headers={"WWW-Authenticate": self.challenge})


class InvalidToken(Unauthenticated):
    """The token is invalid, expired or revoked."""

    code = "invalid_token"
    challenge = 'Bearer error="invalid_token"'


class InvalidCredentials(Unauthenticated):
    """The e-mail address or the password is wrong."""

    code = "invalid_credentials"


class Forbidden(ApiError):
    """You may not do this."""

    status = 403
    code = "forbidden"

    def __init__(self, not_found: type[NotFound]) -> None:
        """`not_found` replaces this error where an operation does not declare 403.

        Rows of other users then look like rows that do not exist.
        """
        super().__init__()
        self.not_found = not_found

    @classmethod
    def status_for(cls, statuses: Collection[int]) -> int | None:
        return 403 if 403 in statuses else None

    def info(self, statuses: Collection[int]) -> ErrorInfo:
        return super().info(statuses) if 403 in statuses else self.not_found().info(statuses)


class InsufficientScope(ApiError):
    """The token lacks the scope of this operation."""

    status = 403
    code = "insufficient_scope"

    def __init__(self, scope: str) -> None:
        challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
        super().__init__(f"The token lacks the scope {scope}.", headers={"WWW-Authenticate": challenge})


class WrongPassword(BadRequest):
    """The current password is wrong."""

    code = "wrong_password"


class InvalidSetupLink(BadRequest):
    """This link is not valid: it was used, or it has expired. Restart the service to get a new one."""

    code = "invalid_setup_link"


class InvalidMailLink(BadRequest):
    """This link is not valid: it was used, or it has expired. Request a new e-mail."""

    code = "invalid_mail_link"


class MailNotConfigured(NotFound):
    """This service does not send e-mails."""

    code = "mail_not_configured"


class StaleForm(BadRequest):
    """This page was open for too long, or the form was sent from another site; go back and try again."""

    code = "stale_form"


class InstallLimitReached(BadRequest):
    """A user can authorize at most 100 command-line clients; revoke one first."""

    code = "install_limit_reached"


class InvalidUserCode(BadRequest):
    """This code is wrong, expired or already used; check it, or start again in the program."""

    code = "invalid_user_code"


# OAuth (RFC 6749, section 5.2)


class InvalidGrant(BadRequest):
    """The code or token is invalid, expired, used, or belongs to another request."""

    code = "invalid_grant"


class UnsupportedGrantType(BadRequest):
    """Expected a grant_type of authorization_code, refresh_token or device_code (RFC 8628)."""

    code = "unsupported_grant_type"


class InvalidClient(BadRequest):
    """There is no such client; expected service-cli or a registered client."""

    code = "invalid_client"


class InvalidClientSecret(Unauthenticated):
    """The client identifier or the secret is wrong, or the client is revoked."""

    code = "invalid_client"
    challenge = 'Basic realm="data-shares"'


# Device authorization (RFC 8628, section 3.5)


class AuthorizationPending(BadRequest):
    """The user has not approved or denied the request yet."""

    code = "authorization_pending"


class SlowDown(BadRequest):
    """The request came too early; wait five seconds longer between two requests from now on."""

    code = "slow_down"


class AccessDenied(BadRequest):
    """The user has denied the request."""

    code = "access_denied"


class ExpiredToken(BadRequest):
    """The device code has expired; start again."""

    code = "expired_token"
