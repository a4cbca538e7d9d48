"""Threads beside the server that get the answers which bots owe from the assistant, and leave requests alone.

Each customer's message that waits is asked about a few times, with growing pauses. When that does not help, the bot
gives the answer that it has itself, so nobody is left without one.
"""

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import peewee

from service import clock, db
from service.assistant import PATIENCE, Assistant, NoAnswer, instructions
from service.models import App, DueAnswer, speaking
from service.models.answering import prepared_answer
from service.models.reading import ContextMessage
from service.settings import Settings

log = logging.getLogger("cx.server")

THREADS = 2
PAUSES = (5 * clock.SECOND, 20 * clock.SECOND, 60 * clock.SECOND)  # after the first, second and third attempt
LONGEST_PAUSE = 2 * clock.MINUTE  # whatever the assistant asks for
LEASE = int(PATIENCE * clock.SECOND) + 15 * clock.SECOND  # until somebody else may take over from who was killed
GIVE_UP = 4 * clock.MINUTE  # after which nobody is kept waiting for another attempt
POLL = 0.5  # seconds between looks at what is due
REST = 5.0  # seconds after something went wrong
LAST_WORD = 1.0  # seconds at the end for an answer under way


class Asker:
    """Asks the assistant for what is due; without one, bots give their own answers."""

    def __init__(self, assistant: Assistant | None, stop: threading.Event) -> None:
        self.assistant, self.stop = assistant, stop
        self.claimed: dict[str, DueAnswer] = {}

    def run(self) -> None:
        """Answer what is due, until told to stop; without an assistant, until nothing is."""
        is_over = False
        while not is_over and not self.stop.is_set():
            try:
                pause = 0 if self.turn() else POLL
                is_over = self.assistant is None and not DueAnswer.select().exists()
            except Exception as error:  # the message stays claimed, and its turn comes again
                pause = REST
                db.after_failure(error)
                if db.is_unavailable(error):
                    log.warning("bots do not answer, since the database is unavailable: %s", error)
                else:
                    log.exception("an answer failed")
            self.stop.wait(pause)
        db.close_database()

    def turn(self) -> bool:
        """Deal with one message that waits; whether there was one."""
        due = DueAnswer.claim(LEASE)
        if due is None:
            return False
        self.claimed[due.message_id] = due
        try:
            self.deal_with(due)
        finally:
            del self.claimed[due.message_id]
        return True

    def deal_with(self, due: DueAnswer) -> None:
        """Answer a message that waits, take it off the list, or let it wait for another attempt."""
        question = speaking.question(due)
        if question is None:
            due.settle()
            return
        try:
            answer = self.ask(due, question)
        except NoAnswer as failure:
            log.warning(
                "the assistant did not answer message %s (attempt %s): %s", due.message_id, due.attempts, failure
            )
            if not failure.is_final and due.attempts <= len(PAUSES):
                due.postpone(max(PAUSES[due.attempts - 1], min(failure.after, LONGEST_PAUSE)))
                return
            answer = prepared_answer(question.session, question.asked, question.languages) or ""
        db.settled(lambda: speaking.deliver(due, answer))

    def ask(self, due: DueAnswer, question: speaking.Question) -> str:
        """What the assistant answers. Raises NoAnswer."""
        waiting = clock.now() - clock.ulid_time(due.message_id)
        if self.assistant is None or due.attempts > len(PAUSES) + 1 or waiting > GIVE_UP:
            raise NoAnswer("it is not asked again", is_final=True)
        bot, app = question.bot, App.get_by_id(question.session.app_id)
        told = instructions(bot.name, app.name, (bot.tagline, bot.description), question.languages)
        return self.assistant.answer([{"role": "system", "content": told}, *_turns(question.messages)])

    def hand_over(self) -> None:
        """Let others answer at once what is still under way here."""
        try:
            for due in list(self.claimed.values()):
                due.postpone(0)
        except peewee.DatabaseError as error:  # then they do as soon as the lease ends
            log.warning("answers under way were not handed over: %s", error)


def _turns(messages: Iterable[ContextMessage]) -> list[dict[str, str]]:
    """Messages as an assistant takes them; those of one side in a row become one, since many models want turns."""
    sides = itertools.groupby(messages, key=lambda message: message.role)
    return [{"role": role, "content": "\n\n".join(message.text for message in some)} for role, some in sides]


def assistant_of(settings: Settings) -> Assistant | None:
    """The assistant that the settings name. Raises ValueError with a sentence for the operator."""
    if not settings.assistant_url:
        return None
    return Assistant(settings.assistant_url, settings.assistant_model, settings.assistant_key)


@contextmanager
def asking(settings: Settings, stop: threading.Event) -> Iterator[None]:
    """Threads that answer what is due, from now on until `stop`; at the end of the block they are given a moment.

    Without an assistant there are none, unless something waits from the times of an earlier one.
    """
    asker = Asker(assistant_of(settings), stop)
    count = THREADS if asker.assistant else int(DueAnswer.select().exists())
    threads = [threading.Thread(target=asker.run, name=f"asking-{number}", daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(LAST_WORD)
        asker.hand_over()
