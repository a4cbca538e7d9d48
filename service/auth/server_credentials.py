"""Authentication of MCP servers and gateways by their client credentials (RFC 6749, section 2.3.1)."""

import base64
import threading
from urllib.parse import unquote_plus

from service import clock
from service.errors import InvalidClientSecret, RateLimited
from service.models.server_credentials import QUESTION_INTERVAL, ServerCredential

QUESTIONS_PER_MINUTE = 6_000  # of a client, in each process; in memory, because a question must not wait for a write

_asked: dict[str, tuple[int, int]] = {}  # time of the last question, and number of questions in its minute, by client
_recorded: dict[str, int] = {}  # time of the last question that `record_questions` has stored, by client
_counting = threading.Lock()


def authenticate(authorization: str, client_id: str = "", client_secret: str = "") -> ServerCredential:
    """Return the client of an `Authorization` header (Basic) or of two parameters, and count its question.

    Raises InvalidClientSecret, the same for every cause, or RateLimited.
    """
    try:
        if authorization:
            if client_id or client_secret:
                raise ValueError("two ways of authentication")
            client_id, client_secret = _read_basic(authorization)
        client = ServerCredential.find(clock.read_uuid(client_id))
    except ValueError:
        raise InvalidClientSecret from None
    if client is None or not client.has_secret(client_secret):
        raise InvalidClientSecret
    _count(client.id)
    return client


def record_questions() -> int:
    """Store when clients have asked this process, at most once per client and QUESTION_INTERVAL. Return how many."""
    with _counting:
        asked = [(client_id, at) for client_id, (at, _) in _asked.items()]
    due = [(client_id, at) for client_id, at in asked if at >= _recorded.get(client_id, 0) + QUESTION_INTERVAL]
    for client_id, at in due:
        ServerCredential.record_question(client_id, at)
        _recorded[client_id] = at
    return len(due)


def _read_basic(authorization: str) -> tuple[str, str]:
    """Return identifier and secret, which are form-encoded within the header. Raises ValueError."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise ValueError("expected Basic")
    client_id, _, client_secret = base64.b64decode(credentials.strip(" "), validate=True).decode().partition(":")
    return unquote_plus(client_id), unquote_plus(client_secret)


def _count(client_id: str) -> None:
    """Count a question. Raises RateLimited."""
    now = clock.now()
    with _counting:
        last, number = _asked.get(client_id, (now, 0))
        number = number if last // clock.MINUTE == now // clock.MINUTE else 0
        if number >= QUESTIONS_PER_MINUTE:
            raise RateLimited((clock.MINUTE - now % clock.MINUTE + 999) // 1000)
        _asked[client_id] = now, number + 1
