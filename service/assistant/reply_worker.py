"""Threads that request pending bot replies from the assistant, beside the threads that serve requests.

Each pending message is tried several times, with growing delays. If all attempts fail, the bot sends its canned
answer or its fallback reply, so that every message gets a reply.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from service import clock, db, typing_indicators
from service.assistant.client import TIMEOUT, AssistantError, Completion
from service.assistant.instructions import messages_to_assistant
from service.assistant.metering import LimitReached, MeteredAssistant, metered_assistant
from service.drafts import DraftSender
from service.models import PendingReply, bot_replies
from service.models.audit_log import SERVICE
from service.models.canned_answers import BotReply, automatic_reply
from service.queue_worker import QueueWorker, running
from service.settings import Settings

log = logging.getLogger("cx.server")

THREADS = 2
RETRY_DELAYS = (5 * clock.SECOND, 20 * clock.SECOND, 60 * clock.SECOND)  # after the first, second and third attempt
MAX_RETRY_DELAY = 2 * clock.MINUTE  # also for a Retry-After header
LEASE = int(TIMEOUT * clock.SECOND) + 15 * clock.SECOND  # until another worker may claim the message
MAX_AGE = 4 * clock.MINUTE  # of a message for another attempt


class Worker(QueueWorker[PendingReply]):
    """Sends pending bot replies. Without an assistant, these are canned answers and fallback replies."""

    name, subject = "assistant", "bot replies"

    def __init__(self, assistant: MeteredAssistant | None, stop: threading.Event) -> None:
        super().__init__(stop)
        self.assistant = assistant

    def claim(self) -> PendingReply | None:
        return PendingReply.claim(LEASE)

    def is_done(self) -> bool:
        """Return whether there is no assistant, and no reply is pending from the time of an earlier one."""
        return self.assistant is None and not PendingReply.select().exists()

    def process(self, pending: PendingReply) -> None:
        """Reply to a pending message, remove it from the queue, or postpone it for another attempt."""
        question = bot_replies.question(pending)
        if question is None:
            pending.remove()
            return
        draft, is_stored = DraftSender(question.session, pending.message_id), False
        try:
            is_stored = self._reply(pending, question, draft)
        finally:
            draft.end(is_stored=is_stored)

    def _reply(self, pending: PendingReply, question: bot_replies.Question, draft: DraftSender) -> bool:
        """Reply to a question, or postpone the reply. Returns whether it is stored."""
        try:
            written = self.request_reply(pending, question, draft)
            reply, calls_person = BotReply(written.text), written.calls_person
        except AssistantError as error:
            log.warning(
                "no reply from the assistant to message %s (attempt %s): %s",
                pending.message_id,
                pending.attempts,
                error,
            )
            if not error.is_final and pending.attempts <= len(RETRY_DELAYS):
                pending.postpone(max(RETRY_DELAYS[pending.attempts - 1], min(error.after, MAX_RETRY_DELAY)))
                return False
            is_spent = isinstance(error, LimitReached) and error.is_budget
            found = automatic_reply(question.session, question.text, question.languages, only_answers=is_spent)
            reply, calls_person = found or BotReply(""), is_spent and not found
        return db.retry_on_conflict(lambda: bot_replies.store_reply(pending, reply, calls_person=calls_person))

    def request_reply(self, pending: PendingReply, question: bot_replies.Question, draft: DraftSender) -> Completion:
        """Return the reply of the assistant, whose text is shown while it is written. Raises AssistantError."""
        age = clock.now() - clock.ulid_time(pending.message_id)
        if self.assistant is None or pending.attempts > len(RETRY_DELAYS) + 1 or age > MAX_AGE:
            raise AssistantError("no further attempt", is_final=True)
        return ask(self.assistant, question, messages_to_assistant(question), draft)


def ask(
    assistant: MeteredAssistant,
    question: bot_replies.Question,
    messages: Sequence[Mapping[str, object]],
    draft: DraftSender,
    functions: Sequence[Mapping[str, object]] = (),
) -> Completion:
    """Return the reply of the assistant, while its bot is shown as typing. Raises AssistantError."""
    with typing_indicators.of_bot(question.session):
        return assistant.complete(
            question.session,
            SERVICE,
            messages,
            outcome="reply",
            may_call_person=True,
            functions=functions,
            on_text=draft.show,
        )


def reply_threads(
    settings: Settings, stop: threading.Event, make_worker: Callable[..., Worker] = Worker
) -> AbstractContextManager[None]:
    """Run the worker threads during the block.

    Without an assistant there is a thread only if replies are pending, from the time of an earlier assistant.
    """
    worker = make_worker(metered_assistant(settings), stop)
    return running([worker] * (THREADS if worker.assistant else int(not worker.is_done())), stop)
