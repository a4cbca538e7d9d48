"""Tickets of the consent form, and the codes that an approval gives out (RFC 6749, RFC 7636, RFC 9207).

Both are signed texts around one number; what must hold across processes, that each counts once, is in the database.
"""

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import urlencode

import msgspec

from service import clock
from service.auth import consent, tokens
from service.auth.consent import ConsentRequest
from service.auth.signing import sign, verify
from service.auth.tokens import Tokens
from service.db import write
from service.errors import InstallLimitReached, InvalidGrant, InvalidToken, StaleForm
from service.models import Approval, Ledger, LoginSession
from service.models.ledger import Kind
from service.models.people import Caller
from service.settings import Settings

PREFIX = "cxc_"
TICKET_LIFE = 10 * clock.MINUTE
CODE_LIFE = 60 * clock.SECOND

_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)


def make_ticket(caller: Caller, request: ConsentRequest) -> str:
    """A ticket for the consent form: good once, for ten minutes, for this login and these parameters."""
    values = msgspec.to_builtins(request)
    return sign("ticket", [secrets.token_urlsafe(16), clock.now() + TICKET_LIFE, caller.session_id, values])


def answer(caller: Caller, ticket: str, granted: bool, site: str) -> str:
    """Take a person's answer; the address to which the browser takes it.

    The same answer again, of a double click, leads to the same address as long as its code is good. Raises StaleForm
    for a ticket that is not the caller's, too old, or answered otherwise, and InstallLimitReached.
    """
    try:
        number, expires_at, session_id, values = verify("ticket", ticket)
    except ValueError:
        raise StaleForm from None
    request = msgspec.convert(values, ConsentRequest)
    if session_id != caller.session_id or expires_at <= clock.now():
        raise StaleForm
    if granted and not LoginSession.has_room_for(caller.id, request.install_id):
        raise InstallLimitReached
    with write(number):
        Approval.delete().where(Approval.answered_at <= clock.now() - clock.DAY).execute()
        known = Approval.get_or_none(Approval.id == number)
        if known is None:
            known = Approval.create(
                id=number,
                user_id=caller.id,
                is_granted=granted,
                answered_at=clock.now(),
                code_challenge=request.code_challenge,
                redirect_uri=request.redirect_uri,
                scopes=" ".join(consent.understand(request.scope).scopes),
                install_id=request.install_id,
                install_name=request.install_name,
            )
            kind: Kind = "consent_approved" if granted else "consent_denied"
            about = {"client": request.client_id, "install": request.install_id, "scopes": known.scopes.split()}
            Ledger.record(kind, caller.id, caller.id, **about)
        if known.is_granted != granted or known.used_at or known.answered_at + CODE_LIFE <= clock.now():
            raise StaleForm("This was answered already.")
    told = {"code": PREFIX + sign("code", [number, session_id])} if granted else {"error": "access_denied"}
    address, _, query = request.redirect_uri.partition("?")
    return f"{address}?{query}{'&' if query else ''}{urlencode({**told, 'state': request.state, 'iss': site})}"


def exchange(code: str, verifier: str, redirect_uri: str, settings: Settings) -> tuple[Tokens, str]:
    """The tokens for a code, and their scopes; a login of the same install by the same user ends.

    A code works once, whether or not the rest is right, and as long as the login lasts in which it was approved; a
    second use ends what the first gave. Raises InvalidGrant.
    """
    try:
        number, approved_by = verify("code", code.removeprefix(PREFIX) if code.startswith(PREFIX) else "")
    except ValueError:
        raise InvalidGrant from None
    approval = Approval.get_or_none(Approval.id == number)
    if approval is None:
        raise InvalidGrant
    with write(number, approval.user_id):  # the user too, whose other logins may be ending right now
        approval = Approval.get_or_none(Approval.id == number)
        pair = _use(approval, tokens.is_open(approved_by), verifier, redirect_uri, settings)
    if pair is None:  # after the write, which must be kept
        raise InvalidGrant
    return pair


def refresh(refresh_token: str, settings: Settings) -> tuple[Tokens, str]:
    """The next tokens for a refresh token, and their scopes. Raises InvalidGrant."""
    try:
        session = tokens.rotate_session(refresh_token, settings)
    except InvalidToken:
        raise InvalidGrant from None
    return tokens.pair_of(session, settings), session.scopes or ""


def _use(approval: Any, lasts: bool, verifier: str, redirect_uri: str, settings: Settings) -> tuple[Tokens, str] | None:
    if approval is None or not approval.is_granted:
        return None
    if approval.used_at:
        LoginSession(id=approval.login_session_id, user_id=approval.user_id).end("code_reused")
        return None
    digest = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    proven = _VERIFIER.fullmatch(verifier) and hmac.compare_digest(digest, approval.code_challenge)
    in_time = clock.now() < approval.answered_at + CODE_LIFE
    approval.used_at = clock.now()
    pair = None
    has_room = LoginSession.has_room_for(approval.user_id, approval.install_id)
    if proven and in_time and redirect_uri == approval.redirect_uri and lasts and has_room:
        replaced = LoginSession.end_install(approval.user_id, approval.install_id)
        session = tokens.open_session(
            approval.user_id,
            settings,
            kind="client",
            label=approval.install_name,
            scopes=approval.scopes,
            install_id=approval.install_id,
        )
        for login in replaced:
            about = {"login": login, "replaced_by": session.id}
            Ledger.record("install_replaced", approval.user_id, approval.user_id, **about)
        approval.login_session_id = session.id
        pair = tokens.pair_of(session, settings), approval.scopes
    approval.save()
    return pair
