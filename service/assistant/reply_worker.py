"""Threads that request pending bot replies from the assistant, beside the threads that serve requests.

Each pending message is tried several times, with growing delays. If all attempts fail, the bot sends its canned
answer or its fallback reply, so that every message gets a reply.
"""

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import peewee

from service import clock, db
from service.assistant.client import TIMEOUT, Assistant, AssistantError, instructions
from service.models import App, PendingReply, bot_replies
from service.models.canned_answers import automatic_reply
from service.models.inbox import ContextMessage
from service.settings import Settings

log = logging.getLogger("cx.server")

THREADS = 2
RETRY_DELAYS = (5 * clock.SECOND, 20 * clock.SECOND, 60 * clock.SECOND)  # after the first, second and third attempt
MAX_RETRY_DELAY = 2 * clock.MINUTE  # also for a Retry-After header
LEASE = int(TIMEOUT * clock.SECOND) + 15 * clock.SECOND  # until another worker may claim the message
MAX_AGE = 4 * clock.MINUTE  # of a message for another attempt
POLL_INTERVAL = 0.5  # seconds
ERROR_DELAY = 5.0  # seconds
SHUTDOWN_TIMEOUT = 1.0  # seconds per thread, for a request in progress


class Worker:
    """Sends pending bot replies. Without an assistant, these are canned answers and fallback replies."""

    def __init__(self, assistant: Assistant | None, stop: threading.Event) -> None:
        self.assistant, self.stop = assistant, stop
        self.claimed: dict[str, PendingReply] = {}  # by message identifier

    def run(self) -> None:
        """Runs until `stop` is set; without an assistant, until no reply is pending."""
        is_done = False
        while not is_done and not self.stop.is_set():
            try:
                delay = 0 if self.run_once() else POLL_INTERVAL
                is_done = self.assistant is None and not PendingReply.select().exists()
            except Exception as error:  # the message stays claimed, and is due again when the lease ends
                delay = ERROR_DELAY
                db.reconnect_after(error)
                if db.is_unavailable(error):
                    log.warning("bots do not reply, because the database is unavailable: %s", error)
                else:
                    log.exception("a bot reply failed")
            self.stop.wait(delay)
        db.close_database()

    def run_once(self) -> bool:
        """Processes one pending message. Returns whether there was one."""
        pending = PendingReply.claim(LEASE)
        if pending is None:
            return False
        self.claimed[pending.message_id] = pending
        try:
            self.process(pending)
        finally:
            del self.claimed[pending.message_id]
        return True

    def process(self, pending: PendingReply) -> None:
        """Replies to a pending message, removes it from the queue, or postpones it for another attempt."""
        question = bot_replies.question(pending)
        if question is None:
            pending.remove()
            return
        try:
            reply = self.request_reply(pending, question)
        except AssistantError as error:
            log.warning(
                "no reply from the assistant to message %s (attempt %s): %s",
                pending.message_id,
                pending.attempts,
                error,
            )
            if not error.is_final and pending.attempts <= len(RETRY_DELAYS):
                pending.postpone(max(RETRY_DELAYS[pending.attempts - 1], min(error.after, MAX_RETRY_DELAY)))
                return
            reply = automatic_reply(question.session, question.text, question.languages) or ""
        db.retry_on_conflict(lambda: bot_replies.store_reply(pending, reply))

    def request_reply(self, pending: PendingReply, question: bot_replies.Question) -> str:
        """Returns the reply of the assistant. Raises AssistantError."""
        age = clock.now() - clock.ulid_time(pending.message_id)
        if self.assistant is None or pending.attempts > len(RETRY_DELAYS) + 1 or age > MAX_AGE:
            raise AssistantError("no further attempt", is_final=True)
        bot, app = question.bot, App.get_by_id(question.session.app_id)
        system = instructions(bot.name, app.name, (bot.tagline, bot.description), question.languages)
        return self.assistant.complete([{"role": "system", "content": system}, *_merged(question.messages)])

    def release(self) -> None:
        """Releases the messages in progress, so that other workers can claim them at once."""
        try:
            for pending in list(self.claimed.values()):
                pending.postpone(0)
        except peewee.DatabaseError as error:  # others can claim them when the lease ends
            log.warning("pending bot replies were not released: %s", error)


def _merged(messages: Iterable[ContextMessage]) -> list[dict[str, str]]:
    """Returns messages in the format of the assistant.

    Consecutive messages with the same role become one, since many models require alternating roles.
    """
    groups = itertools.groupby(messages, key=lambda message: message.role)
    return [{"role": role, "content": "\n\n".join(message.text for message in group)} for role, group in groups]


def assistant_of(settings: Settings) -> Assistant | None:
    """Returns the configured assistant, if any. Raises ValueError with a sentence for the operator."""
    if not settings.assistant_url:
        return None
    return Assistant(settings.assistant_url, settings.assistant_model, settings.assistant_key)


@contextmanager
def reply_threads(settings: Settings, stop: threading.Event) -> Iterator[None]:
    """Runs the worker threads until the end of the block, then waits for them for a short time.

    Without an assistant there is a thread only if replies are pending, from the time of an earlier assistant.
    """
    worker = Worker(assistant_of(settings), stop)
    count = THREADS if worker.assistant else int(PendingReply.select().exists())
    threads = [threading.Thread(target=worker.run, name=f"assistant-{number}", daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(SHUTDOWN_TIMEOUT)
        worker.release()
