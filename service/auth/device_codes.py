"""Device authorization: the login of clients without a browser (RFC 8628).

The client shows a short user code. On any other device, a signed-in user enters it, and approves or denies the request.
Meanwhile the client polls the token endpoint with its device code. All state is in the database.
"""

import re
import secrets
from typing import Literal, NamedTuple

from service import clock
from service.auth import client_sessions, consent, login_throttle, tokens
from service.auth.tokens import Tokens
from service.db import write
from service.errors import (
    AccessDenied,
    ApiError,
    AuthorizationPending,
    ExpiredToken,
    InstallLimitReached,
    InvalidGrant,
    InvalidUserCode,
    RateLimited,
    SlowDown,
)
from service.models import AuditLog, DeviceAuthorization, LoginSession
from service.models.audit_log import Kind
from service.models.callers import Caller
from service.models.device_authorizations import digest
from service.settings import Settings

GRANT_TYPE: Literal["urn:ietf:params:oauth:grant-type:device_code"] = "urn:ietf:params:oauth:grant-type:device_code"
ENDPOINT = "/auth/cli/device-authorization"  # below the prefix of the API
PREFIX = "cxd_"
LIFETIME = 15 * clock.MINUTE
INTERVAL = 5 * clock.SECOND  # between two polls; RFC 8628, section 3.5, adds as much after each poll that is too early
PENDING_LIMIT, NETWORK_LIMIT = 10_000, 50  # requests that have not expired, in total and of one network
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels, so that no words appear (RFC 8628, section 6.1); 34 bits in 8 letters


class Codes(NamedTuple):
    """The codes of a request: the secret of the client, and the short one for the user."""

    device_code: str
    user_code: str


def begin(scope: str, install_id: str, install_name: str, address: str) -> Codes:
    """Store a request of a client; return its codes. Raises RateLimited."""
    codes = Codes(PREFIX + secrets.token_urlsafe(32), "".join(secrets.choice(LETTERS) for _ in range(8)))
    network, now = login_throttle.network_of(address), clock.now()
    with write("device authorization"):
        DeviceAuthorization.delete_expired()
        pending = (DeviceAuthorization.count_pending(network), DeviceAuthorization.count_pending())
        is_taken = DeviceAuthorization.by_user_code(codes.user_code) is not None
        if pending[0] >= NETWORK_LIMIT or pending[1] >= PENDING_LIMIT or is_taken:
            raise RateLimited(LIFETIME // clock.SECOND)
        DeviceAuthorization.create(
            id=digest(codes.device_code),
            user_code=digest(codes.user_code),
            network=network,
            created_at=now,
            expires_at=now + LIFETIME,
            poll_interval=INTERVAL,
            polled_at=0,
            scope=scope,
            scopes=" ".join(consent.requested_access(scope).scopes),
            install_id=install_id,
            install_name=install_name,
        )
    return codes._replace(user_code=shown(codes.user_code))


def shown(user_code: str) -> str:
    """Return a user code in two groups, for people."""
    return f"{user_code[:4]}-{user_code[4:]}"


def normalized(user_code: str) -> str:
    """Return the letters of a user code as they were entered, in upper case."""
    return re.sub("[^A-Z]", "", user_code.upper())


def find(caller: Caller, user_code: str, address: str, settings: Settings) -> DeviceAuthorization:
    """Return the request with a user code that the caller may decide. Upper and lower case are equal.

    A wrong code counts as a failed login of the caller, so that codes cannot be guessed. Raises InvalidUserCode for a
    code that is wrong, expired or decided by another user, and RateLimited.
    """
    attempt = login_throttle.record_attempt(f"device code of {caller.id}", address, settings)
    found = DeviceAuthorization.by_user_code(normalized(user_code))
    if found is None or found.expires_at <= clock.now() or found.user_id not in (None, caller.id):
        raise InvalidUserCode
    login_throttle.clear_attempt(attempt)
    return found


def record_decision(caller: Caller, authorization: DeviceAuthorization, granted: bool) -> None:
    """Record the decision of a user. The same decision can be repeated, such as by a double click.

    Raises InvalidUserCode if there is another decision, and InstallLimitReached.
    """
    if granted and not LoginSession.may_add_install(caller.id, authorization.install_id):
        raise InstallLimitReached
    with write(authorization.id):
        current = DeviceAuthorization.get_by_id(authorization.id)
        if current.user_id:
            if (current.user_id, current.is_granted) != (caller.id, granted) or current.used_at:
                raise InvalidUserCode
            return
        current.user_id, current.is_granted, current.approved_by = caller.id, granted, caller.session_id
        current.save()
        kind: Kind = "consent_approved" if granted else "consent_denied"
        details = {"client": consent.CLIENT_ID, "install": current.install_id, "scopes": current.scopes.split()}
        AuditLog.record(kind, caller.id, caller.id, **details)


def exchange(device_code: str, settings: Settings) -> tuple[Tokens, str]:
    """Exchange an approved device code for tokens and their scopes. A second use ends the login session of the first.

    Raises AuthorizationPending, SlowDown, AccessDenied, ExpiredToken or InvalidGrant.
    """
    found = DeviceAuthorization.by_device_code(device_code)
    if found is None:
        raise InvalidGrant
    with write(found.id, *([found.user_id] if found.user_id else [])):
        result = _use(DeviceAuthorization.get_by_id(found.id), found.user_id, settings)
    if isinstance(result, ApiError):  # after the write: the poll, or the use of the code, must be committed
        raise result
    return result


def _use(
    authorization: DeviceAuthorization, locked_user_id: str | None, settings: Settings
) -> tuple[Tokens, str] | ApiError:
    now = clock.now()
    if authorization.used_at:
        LoginSession(id=authorization.login_session_id, user_id=authorization.user_id).end("code_reused")
        return InvalidGrant()
    if authorization.expires_at <= now:
        return ExpiredToken()
    is_early = now < authorization.polled_at + authorization.poll_interval
    authorization.polled_at = now
    if is_early:
        authorization.poll_interval += INTERVAL
    authorization.save()
    if is_early:
        return SlowDown()
    if authorization.user_id != locked_user_id or authorization.user_id is None:
        return AuthorizationPending()
    if not authorization.is_granted:
        return AccessDenied()
    if not tokens.is_open(authorization.approved_by):
        return InvalidGrant()
    session = client_sessions.begin(authorization, settings)
    if session is None:
        return InvalidGrant()
    authorization.used_at, authorization.login_session_id = now, session.id
    authorization.save()
    return tokens.pair_of(session, settings), authorization.scopes
