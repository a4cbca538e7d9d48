"""Requests to the assistant within the limits of an app, counted in its usage, the audit log and the metrics."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence

from service import metrics
from service.assistant.client import Assistant, AssistantError, Completion
from service.db import retry_on_conflict
from service.models import AssistantUsage, ChatSession
from service.models.assistant_months import Outcome
from service.models.assistant_usage import UsageLimits, until_next_minute
from service.settings import Settings


class LimitReached(AssistantError):
    """No request was made, because the app has reached a limit. `is_budget`: it has no tokens left in this month."""

    def __init__(self, *, is_budget: bool) -> None:
        limit, after = ("monthly tokens", 0) if is_budget else ("requests in a minute", until_next_minute())
        super().__init__(f"the app has reached its limit of {limit}", is_final=is_budget, after=after)
        self.is_budget = is_budget


class MeteredAssistant:
    """An assistant, and the limits of each app."""

    def __init__(self, assistant: Assistant, limits: UsageLimits) -> None:
        self._assistant, self._limits = assistant, limits

    def complete(
        self,
        session: ChatSession,
        actor_id: str,
        messages: Sequence[Mapping[str, object]],
        *,
        outcome: Outcome,
        may_call_person: bool = False,
        timeout: float | None = None,
        max_characters: int | None = None,
        functions: Sequence[Mapping[str, object]] = (),
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Return the reply to messages about a chat session. Raises AssistantError.

        Not inside a transaction: it waits for another server. `outcome` is that of a reply with a text. `on_text` is
        called with the text so far, if the server streams. A reply of more than `max_characters` is an error.
        """
        reached = retry_on_conflict(lambda: AssistantUsage.admit(session.app_id, self._limits))
        if reached:
            metrics.shared.add(metrics.ASSISTANT_REFUSED)
            raise LimitReached(is_budget=reached == "budget")
        started, tokens, is_first = time.monotonic(), 0, True

        def receive(text: str) -> None:
            nonlocal is_first
            assert on_text
            if is_first:
                metrics.shared.count_assistant_first(time.monotonic() - started)
            is_first = False
            on_text(text)

        result: Outcome = "error"
        try:
            completion = self._assistant.complete(
                messages,
                may_call_person=may_call_person,
                timeout=timeout,
                functions=functions,
                on_text=on_text and receive,
            )
            if max_characters and len(completion.text) > max_characters:
                raise AssistantError("the reply is too long", tokens=completion.tokens)
            other: Outcome = "tool_call" if completion.call else outcome
            tokens, result = completion.tokens, "handover" if completion.calls_person else other
            return completion
        except AssistantError as error:
            tokens = error.tokens
            raise
        finally:
            metrics.shared.count_assistant(time.monotonic() - started, tokens)
            retry_on_conflict(lambda: AssistantUsage.record(session, actor_id, tokens, result))


@functools.lru_cache(1)  # so that the certificates of the host are read once
def metered_assistant(settings: Settings) -> MeteredAssistant | None:
    """Return the configured assistant, if any. Raises ValueError with a sentence for the operator."""
    if not settings.assistant_url:
        return None
    assistant = Assistant(settings.assistant_url, settings.assistant_model, settings.assistant_key)
    return MeteredAssistant(assistant, UsageLimits(settings.assistant_rate, settings.assistant_tokens))
