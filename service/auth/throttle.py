"""What slows guessing down: failed logins, counted in the database for an account, a network, and both together."""

import hashlib
import ipaddress

from service import clock, formats
from service.db import write
from service.errors import RateLimited
from service.models import LoginAttempt
from service.settings import Settings


def begin_attempt(email: str, address: str, settings: Settings) -> str:
    """Count an attempt as failed until `forgive` is told otherwise, so that parallel guesses count too.

    Returns the attempt's identifier. Raises RateLimited, also for what would have been the right password.
    """
    account = hashlib.sha256(formats.fold_email(email).encode()).hexdigest()
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
        for condition, window, most in limits:
            recent = LoginAttempt.select(LoginAttempt.at).where(condition, LoginAttempt.at > now - window)
            # The attempt that has to grow old before there is room for one more.
            blocking = recent.order_by(LoginAttempt.at.desc()).offset(most - 1).first()
            if blocking:
                waits.append((blocking.at + window - now + 999) // 1000)
        if waits:
            raise RateLimited(max(waits))
        return str(LoginAttempt.create(at=now, account=account, network=network).id)


def forgive(attempt: str) -> None:
    """The attempt was right after all; call it inside the write that opens the login session."""
    LoginAttempt.delete().where(LoginAttempt.id == attempt).execute()


def network_of(address: str) -> str:
    """The /24 or /64 that an address belongs to; what is no address stands for itself."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 64), strict=False))
