"""Signals about a chat session, for the event streams of those who see it. They are in memory only."""

from msgspec import Struct

from service.models.callers import Caller


class ChatSignal(Struct, array_like=True, frozen=True):
    """A signal about a chat session."""

    chat_session_id: str
    customer_id: str
    app_id: str

    @property
    def topics(self) -> set[str]:
        return {f"signals user {self.customer_id}", f"signals app {self.app_id}", "signals admin"}

    def is_shown_to(self, caller: Caller) -> bool:
        """Return whether a caller sees the signal: the customer and the staff."""
        return caller.id == self.customer_id or caller.is_staff(self.app_id)


def topics(caller: Caller) -> set[str]:
    """Return the topics of the signals that a caller may see."""
    staff = {"admin": {"signals admin"}, "agent": {f"signals app {caller.app_id}"}}.get(caller.role, set())
    return {f"signals user {caller.id}"} | staff
