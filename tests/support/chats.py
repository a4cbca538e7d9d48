"""Chat sessions and messages: calls and rows."""

import json
from typing import Any, NamedTuple

from service import clock, db
from service.fields import as_bytes, compact_json
from service.models import ChatSession, Message
from service.models.recompute import recompute
from tests.support.client import Client, Reply, text_of, walk

NO_SESSION = "00000000-0000-4000-8000-000000000000"

NO_MESSAGE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


class Operation(NamedTuple):
    """One of the nine, as the specification has it."""

    method: str
    path: str
    statuses: frozenset[int]
    body: Any = None

    @property
    def conceals(self) -> bool:
        """It lists neither 403 nor 404."""
        return 403 not in self.statuses

    @property
    def names_message(self) -> bool:
        return "{message}" in self.path

    def ask(self, client: Client, session: str, message: str = NO_MESSAGE, **more: Any) -> Reply:
        path = self.path.format(session=session, message=message)
        return client.call(self.method, path, **{"body": self.body, **more})

    def refusal(self, code: str) -> tuple[int, str]:
        """How it tells that something is not there, or not open to the caller."""
        if not self.conceals:
            return (403 if code == "forbidden" else 404), code
        return 400, "session_not_found" if code == "forbidden" else code


CONCEALING, TELLING = frozenset({200, 400, 401}), frozenset({200, 400, 401, 403, 404})

OPERATIONS = {
    "list messages": Operation("GET", "/chats/{session}/messages", CONCEALING),
    "delete message": Operation("DELETE", "/chats/{session}/messages/{message}", TELLING),
    "pin": Operation("POST", "/chats/{session}/messages/{message}/pin", CONCEALING),
    "unpin": Operation("DELETE", "/chats/{session}/messages/{message}/pin", CONCEALING),
    "pinned messages": Operation("GET", "/chats/{session}/pinned-messages", CONCEALING),
    "archive": Operation("POST", "/chats/{session}/archive", TELLING),
    "delete chat": Operation("DELETE", "/chats/{session}", TELLING),
    "end": Operation("POST", "/chats/{session}/end", TELLING),
    "set status": Operation("PUT", "/chats/{session}/status", TELLING, {"status": "closed"}),
}


def texts(client: Client, session: ChatSession, **query: Any) -> list[str]:
    """The texts that a client meets on a walk through a session."""
    return [text_of(message) for message in walk(client, f"/chats/{session.id}/messages", **query)]


def pinned(client: Client, session: ChatSession) -> list[str]:
    """The texts of the pinned messages, in their order."""
    return [text_of(message) for message in client.get(f"/chats/{session.id}/pinned-messages").data]


def total(client: Client, session: ChatSession) -> int:
    return int(client.get(f"/chats/{session.id}/messages?limit=1").meta["total"])


def pin(client: Client, message: Message) -> Reply:
    return OPERATIONS["pin"].ask(client, message.chat_session_id, message.id)


def delete(client: Client, message: Message) -> Reply:
    return OPERATIONS["delete message"].ask(client, message.chat_session_id, message.id)


def now(message: Message) -> Message:
    """The message as it is stored by now."""
    return Message.get_by_id(message.id)


def as_stored(value: Any) -> str:
    return compact_json(as_bytes(value))


def quote(message: Message) -> dict[str, Any]:
    """The columns of a message that answers another one."""
    snapshot = {"text": json.loads(bytes(json.loads(message.content)))["text"]}
    return {"reply_to_message_id": message.id, "reply_snapshot": as_stored(snapshot)}


def fill(session: ChatSession, number: int, **columns: Any) -> list[str]:
    """Many messages at once; their identifiers."""
    rows = [
        {"id": clock.ulid(), "chat_session_id": session.id, "content": as_stored({"text": str(index)}), **columns}
        for index in range(number)
    ]
    with db.write():
        Message.insert_many(rows).execute()
        recompute([session.id])
    return [row["id"] for row in rows]
