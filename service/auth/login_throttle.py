"""Throttling: limits failed logins per account, per network, and per account and network together; and e-mails that
users request, per address and per network.

Attempts are counted in the database, so that the limits hold across processes and instances.
"""

import hashlib
import ipaddress
from collections.abc import Sequence

import peewee

from service import clock, validators
from service.db import write
from service.errors import RateLimited
from service.models import LoginAttempt
from service.settings import Settings
from service.translation import gettext_noop

MAIL_WINDOW = 15 * clock.MINUTE
MAILS_PER_ADDRESS, MAILS_PER_NETWORK = 3, 20  # e-mails that users request, in MAIL_WINDOW

TOO_MANY_MAILS = gettext_noop("Too many e-mails were requested; try again later.")


def record_attempt(email: str, address: str, settings: Settings) -> str:
    """Record a failed attempt, before the password is verified so that parallel guesses count; return its identifier.

    `clear_attempt` removes it after a successful login. Raises RateLimited, even if the password would be correct.
    """
    account, network = _hash(validators.fold_email(email)), network_of(address)
    same_account, same_network = LoginAttempt.account == account, LoginAttempt.network == network
    limits = (
        (same_account & same_network, 15 * clock.MINUTE, settings.login_failures),
        (same_account, clock.HOUR, settings.login_failures_account),
        (same_network, 15 * clock.MINUTE, settings.login_failures_network),
    )
    return _record(account, network, limits)


def record_mail(email: str, address: str) -> None:
    """Record the request of an e-mail to an address, known or not. Raises RateLimited; then none is sent.

    These requests are counted apart from login attempts, so that they do not prevent a login.
    """
    account, network = _hash(f"mail {validators.fold_email(email)}"), f"mail {network_of(address)}"
    limits = (
        (LoginAttempt.account == account, MAIL_WINDOW, MAILS_PER_ADDRESS),
        (LoginAttempt.network == network, MAIL_WINDOW, MAILS_PER_NETWORK),
    )
    _record(account, network, limits, TOO_MANY_MAILS)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _record(account: str, network: str, limits: Sequence[tuple[peewee.Expression, int, int]], error: str = "") -> str:
    """Record an attempt and return its identifier. `limits` are conditions, windows in ms and numbers of attempts."""
    now = clock.now()
    with write(account, network):
        LoginAttempt.delete().where(LoginAttempt.at <= now - clock.HOUR).execute()
        waits = []
        for condition, window, limit in limits:
            recent = LoginAttempt.select(LoginAttempt.at).where(condition, LoginAttempt.at > now - window)
            # The next attempt is allowed when this one leaves the window.
            oldest_counted = recent.order_by(LoginAttempt.at.desc()).offset(limit - 1).first()
            if oldest_counted:
                waits.append((oldest_counted.at + window - now + 999) // 1000)
        if waits:
            raise RateLimited(max(waits), error)
        return str(LoginAttempt.create(at=now, account=account, network=network).id)


def clear_attempt(attempt: str) -> None:
    """Remove a successful attempt from the count; call it inside the write that begins the login session."""
    LoginAttempt.delete().where(LoginAttempt.id == attempt).execute()


def network_of(address: str) -> str:
    """Return the network of an IP address, /24 for IPv4 and /64 for IPv6; any other text unchanged."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 64), strict=False))
