"""Drafts of the assistant for the replies of staff. Nothing is sent; a person decides what becomes of a draft."""

import functools
import logging
import threading

from service import clock
from service.assistant.client import AssistantError
from service.assistant.instructions import messages_to_assistant
from service.assistant.metering import LimitReached, metered_assistant
from service.errors import (
    AssistantLimitReached,
    AssistantNotConfigured,
    AssistantUnavailable,
    Busy,
    Forbidden,
    MessageNotFound,
    SessionNotFound,
)
from service.models import ChatSession, bot_replies
from service.models.callers import Caller
from service.settings import Settings

log = logging.getLogger("cx.server")

TIMEOUT = 20.0  # seconds: a person waits for it
ERRORS = (AssistantLimitReached, AssistantNotConfigured, AssistantUnavailable, Busy, MessageNotFound)


def suggest(caller: Caller, session: ChatSession, settings: Settings) -> str:
    """Returns a draft of a reply to the customer of a chat session, for staff. Not inside a transaction.

    A request waits in a thread of the pool, so at most half of the threads do. Raises Forbidden, or one of ERRORS.
    """
    if not caller.is_staff(session.app_id):
        raise Forbidden(not_found=SessionNotFound)
    assistant = metered_assistant(settings) if settings.suggests_replies else None
    if assistant is None:
        raise AssistantNotConfigured
    question = bot_replies.question_to_staff(session)
    if question is None:
        raise MessageNotFound("There is no message of the customer.")
    slots = _slots(max(1, settings.threads // 2))
    if not slots.acquire(blocking=False):
        raise Busy
    try:
        messages = messages_to_assistant(question, for_staff=True)
        return assistant.complete(session, caller.id, messages, outcome="suggestion", timeout=TIMEOUT).text
    except LimitReached as error:
        headers = {} if error.is_budget else {"Retry-After": str(-(-error.after // clock.SECOND))}
        raise AssistantLimitReached(headers=headers) from None
    except AssistantError as error:
        log.warning("no suggestion from the assistant for chat session %s: %s", session.id, error)
        raise AssistantUnavailable from None
    finally:
        slots.release()


@functools.cache
def _slots(number: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(number)
