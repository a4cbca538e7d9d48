"""Requests of staff to the assistant, for which a person waits."""

import functools
import logging
import threading
from collections.abc import Mapping, Sequence

from service import clock
from service.assistant.client import AssistantError
from service.assistant.metering import LimitReached, metered_assistant
from service.errors import AssistantLimitReached, AssistantNotConfigured, AssistantUnavailable, Busy
from service.models import ChatSession
from service.models.assistant_months import Outcome
from service.models.callers import Caller
from service.settings import Settings

log = logging.getLogger("cx.server")

TIMEOUT = 20.0  # seconds
ERRORS = (AssistantLimitReached, AssistantNotConfigured, AssistantUnavailable, Busy)


def ask(
    caller: Caller,
    session: ChatSession,
    messages: Sequence[Mapping[str, object]],
    settings: Settings,
    *,
    outcome: Outcome,
    max_characters: int | None = None,
) -> str:
    """Return the reply of the assistant to messages about a chat session. Not inside a transaction.

    A request waits in a thread of the pool, so at most half of the threads do. Raises one of ERRORS.
    """
    assistant = metered_assistant(settings) if settings.assistant_helps_staff else None
    if assistant is None:
        raise AssistantNotConfigured
    slots = _slots(max(1, settings.threads // 2))
    if not slots.acquire(blocking=False):
        raise Busy
    try:
        completion = assistant.complete(
            session, caller.id, messages, outcome=outcome, timeout=TIMEOUT, max_characters=max_characters
        )
        return completion.text
    except LimitReached as error:
        headers = {} if error.is_budget else {"Retry-After": str(-(-error.after // clock.SECOND))}
        raise AssistantLimitReached(headers=headers) from None
    except AssistantError as error:
        log.warning("no %s from the assistant for chat session %s: %s", outcome, session.id, error)
        raise AssistantUnavailable from None
    finally:
        slots.release()


@functools.cache
def _slots(number: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(number)
