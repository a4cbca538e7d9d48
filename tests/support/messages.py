"""Messages: sending, editing, reading."""

from typing import Any

from service.models import ChatSession, Message
from tests.support.client import Client, Reply, walk


def send(client: Client, session: ChatSession, text: str = "Hello", *, key: str = "", **members: Any) -> Reply:
    headers = {"idempotency_key": key} if key else {}
    return client.post(f"/chats/{session.id}/messages", {"content": {"text": text}, **members}, **headers)


def sent(client: Client, session: ChatSession, text: str = "Hello", **members: Any) -> Message:
    """Send a message; return its row."""
    reply = send(client, session, text, **members)
    assert reply.status == 201, reply.raw
    message: Message = Message.get_by_id(reply.data["id"])
    return message


def edit(client: Client, message: Message, text: str, **options: Any) -> Reply:
    path = f"/chats/{message.chat_session_id}/messages/{message.id}"
    return client.patch(path, {"content": {"text": text}}, **options)


def read(client: Client, session: ChatSession, message: Message | None = None) -> Reply:
    return client.put(f"/chats/{session.id}/read", {"message_id": message.id} if message else {})


def unread(client: Client, session: ChatSession) -> int:
    """Return the number of unread messages; fails if the list and the session disagree."""
    (listed,) = [row["unread_count"] for row in walk(client, "/chats") if row["id"] == session.id]
    assert client.get(f"/chats/{session.id}").data["unread_count"] == listed
    return int(listed)


def last(client: Client, session: ChatSession) -> Any:
    found = client.get(f"/chats/{session.id}").data["last_message"]
    return found and found["text"]


def chat_notifications(client: Client) -> list[tuple[str, str]]:
    """Return the title (the sender) and the body of each notification of a message, newest first."""
    return [(row["title"], row["body"]) for row in walk(client, "/notifications") if row["type"] == "chat_message"]
