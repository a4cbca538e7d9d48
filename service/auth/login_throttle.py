"""Login throttling: limits failed logins per account, per network, and per account and network together.

Attempts are counted in the database, so that the limits hold across processes and instances.
"""

import hashlib
import ipaddress

from service import clock, validators
from service.db import write
from service.errors import RateLimited
from service.models import LoginAttempt
from service.settings import Settings


def record_attempt(email: str, address: str, settings: Settings) -> str:
    """Record a failed attempt, before the password is verified so that parallel guesses count; return its identifier.

    `clear_attempt` removes it after a successful login. Raises RateLimited, even if the password would be correct.
    """
    account = hashlib.sha256(validators.fold_email(email).encode()).hexdigest()
    network = network_of(address)
    same_account, same_network = LoginAttempt.account == account, LoginAttempt.network == network
    limits = (
        (same_account & same_network, 15 * clock.MINUTE, settings.login_failures),
        (same_account, clock.HOUR, settings.login_failures_account),
        (same_network, 15 * clock.MINUTE, settings.login_failures_network),
    )
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
            raise RateLimited(max(waits))
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
