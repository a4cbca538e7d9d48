"""Drafts of the assistant for the replies of staff. Nothing is sent; a person decides what becomes of a draft."""

from service.assistant import staff_requests
from service.assistant.instructions import messages_to_assistant
from service.errors import AssistantNotConfigured, Forbidden, MessageNotFound, SessionNotFound
from service.models import ChatSession, bot_replies
from service.models.callers import Caller
from service.settings import Settings

ERRORS = (*staff_requests.ERRORS, MessageNotFound)


def suggest(caller: Caller, session: ChatSession, settings: Settings) -> str:
    """Return a draft of a reply to the customer of a chat session, for staff. Not inside a transaction.

    Raises Forbidden, or one of ERRORS.
    """
    if not caller.is_staff(session.app_id):
        raise Forbidden(not_found=SessionNotFound)
    if not settings.assistant_helps_staff:
        raise AssistantNotConfigured
    question = bot_replies.question_to_staff(session)
    if question is None:
        raise MessageNotFound("There is no message of the customer.")
    messages = messages_to_assistant(question, for_staff=True)
    return staff_requests.ask(caller, session, messages, settings, outcome="suggestion")
