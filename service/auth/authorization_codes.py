"""The decision on the consent page, and authorization codes (RFC 6749, RFC 7636, RFC 9207).

The CSRF token of the consent form and the code are signed and contain the same random identifier. The database records
its use, so that each works once across processes.
"""

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from urllib.parse import urlencode

import msgspec

from service import clock
from service.auth import client_sessions, consent, tokens
from service.auth.consent import ConsentRequest
from service.auth.tokens import Tokens
from service.db import write
from service.errors import InstallLimitReached, InvalidGrant, InvalidToken, StaleForm
from service.models import Approval, AuditLog, LoginSession
from service.models.audit_log import Kind
from service.models.callers import Caller
from service.settings import Settings
from service.signing import sign, verify

PREFIX = "cxc_"
CSRF_TOKEN_LIFETIME = 10 * clock.MINUTE
CODE_LIFETIME = 60 * clock.SECOND

_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)


def make_csrf_token(caller: Caller, request: ConsentRequest) -> str:
    """Return the CSRF token of the consent form: valid once, for ten minutes, for this login session and request."""
    values = msgspec.to_builtins(request)
    return sign("ticket", [secrets.token_urlsafe(16), clock.now() + CSRF_TOKEN_LIFETIME, caller.session_id, values])


def request_of(csrf_token: str) -> ConsentRequest:
    """Return the request of a consent form. Raises StaleForm."""
    try:
        *_, values = verify("ticket", csrf_token)
    except ValueError:
        raise StaleForm from None
    return msgspec.convert(values, ConsentRequest)


def record_decision(caller: Caller, csrf_token: str, granted: bool, site: str) -> str:
    """Record the decision of a user; return the redirect address of the client.

    A repeated decision, such as a double click, returns the same address as long as its code is valid. Raises StaleForm
    for a token that is expired, of another login session, or used for another decision, and InstallLimitReached.
    """
    request = request_of(csrf_token)
    number, expires_at, session_id, _ = verify("ticket", csrf_token)
    if session_id != caller.session_id or expires_at <= clock.now():
        raise StaleForm
    if granted and not LoginSession.may_add_install(caller.id, request.install_id):
        raise InstallLimitReached
    with write(number):
        Approval.delete().where(Approval.decided_at <= clock.now() - clock.DAY).execute()
        approval = Approval.get_or_none(Approval.id == number)
        if approval is None:
            approval = Approval.create(
                id=number,
                user_id=caller.id,
                is_granted=granted,
                decided_at=clock.now(),
                code_challenge=request.code_challenge,
                redirect_uri=request.redirect_uri,
                scopes=" ".join(consent.requested_access(request.scope).scopes),
                install_id=request.install_id,
                install_name=request.install_name,
                resource=request.resource,
            )
            kind: Kind = "consent_approved" if granted else "consent_denied"
            client = "registered" if request.resource else request.client_id
            details = {"client": client, "install": request.install_id, "scopes": approval.scopes.split()}
            AuditLog.record(kind, caller.id, caller.id, **details)
        if approval.is_granted != granted or approval.used_at or approval.decided_at + CODE_LIFETIME <= clock.now():
            raise StaleForm("This request was already approved or denied.")
    result = {"code": PREFIX + sign("code", [number, session_id])} if granted else {"error": "access_denied"}
    address, _, query = request.redirect_uri.partition("?")
    return f"{address}?{query}{'&' if query else ''}{urlencode({**result, 'state': request.state, 'iss': site})}"


def exchange(code: str, verifier: str, redirect_uri: str, settings: Settings, client: str = "") -> tuple[Tokens, str]:
    """Exchange a code for tokens and their scopes. An earlier login session of the same user and install ends.

    `client` is the registered client, if it is one.

    A code works once, even if the other parameters are wrong, and only while the login session that approved it is
    open. A second use ends the login session of the first. Raises InvalidGrant.
    """
    try:
        number, approved_by = verify("code", code.removeprefix(PREFIX) if code.startswith(PREFIX) else "")
    except ValueError:
        raise InvalidGrant from None
    approval = Approval.get_or_none(Approval.id == number)
    if approval is None:
        raise InvalidGrant
    is_own = approval.registered_client == client
    with write(number, approval.user_id):  # also locks the user, whose other login sessions may end concurrently
        approval = Approval.get_or_none(Approval.id == number)
        pair = _use(approval, is_own and tokens.is_open(approved_by), verifier, redirect_uri, settings)
    if pair is None:  # after the write: the use of the code must be committed
        raise InvalidGrant
    return pair


def refresh(refresh_token: str, settings: Settings, client: str = "") -> tuple[Tokens, str]:
    """Exchange a refresh token of a client for new tokens and their scopes. Raises InvalidGrant."""
    try:
        session = tokens.rotate_session(refresh_token, settings, client)
    except InvalidToken:
        raise InvalidGrant from None
    return tokens.pair_of(session, settings), session.scopes or ""


def _use(
    approval: Approval | None, is_usable: bool, verifier: str, redirect_uri: str, settings: Settings
) -> tuple[Tokens, str] | None:
    if approval is None or not approval.is_granted:
        return None
    if approval.used_at:
        LoginSession(id=approval.login_session_id, user_id=approval.user_id).end("code_reused")
        return None
    digest = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    verified = _VERIFIER.fullmatch(verifier) and hmac.compare_digest(digest, approval.code_challenge)
    in_time = clock.now() < approval.decided_at + CODE_LIFETIME
    approval.used_at = clock.now()
    pair = None
    if verified and in_time and redirect_uri == approval.redirect_uri and is_usable:
        session = client_sessions.begin(approval, settings)
        if session:
            approval.login_session_id = session.id
            pair = tokens.pair_of(session, settings), approval.scopes
    approval.save()
    return pair
