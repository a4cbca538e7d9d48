"""Conversations in which the assistant requests calls of tools, and the customer decides."""

import json
import threading
from typing import Any

from service.assistant.metering import metered_assistant
from service.assistant.tool_worker import ToolWorker
from service.assistant.toolbox import REASON, Toolbox
from service.mcp_client.servers import servers_of
from service.models import AuditLog, ChatSession
from service.settings import Settings
from tests.support.client import Client, Reply, walk
from tests.support.fake_ai import Behaviour, completion, sends

FUNCTION = "weather__forecast"
BERN = {"place": "Bern"}


def requests(
    arguments: Any = BERN, function: str = FUNCTION, text: str | None = None, reason: str = "To answer you."
) -> Behaviour:
    """Send a response that calls a function."""
    found = completion(text)
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments | ({REASON: reason} if reason else {}))
    called = {"id": "1", "type": "function", "function": {"name": function, "arguments": arguments}}
    found["choices"][0]["message"]["tool_calls"] = [called]
    return sends(found)


def then(*behaviours: Behaviour) -> Behaviour:
    """Send one response after the other; the last one again and again."""
    remaining = list(behaviours)
    return lambda handler: (remaining.pop(0) if len(remaining) > 1 else remaining[0])(handler)


def worker_of(settings: Settings) -> ToolWorker:
    return ToolWorker(Toolbox(servers_of(settings)), metered_assistant(settings), threading.Event())


def run(worker: ToolWorker) -> None:
    """Let a worker do what is due."""
    while worker.run_once():
        pass


def newest(client: Client, session: ChatSession) -> Any:
    """Return the newest message of a chat."""
    return walk(client, f"/chats/{session.id}/messages")[-1]


def press(client: Client, session: ChatSession, offer: Any, decision: str) -> Reply:
    """Decide on a call."""
    return client.post(f"/chats/{session.id}/messages", {"action_source_id": offer["id"], "action_id": decision})


def entries() -> list[tuple[str, str, Any]]:
    """Return the entries of the audit log about tools."""
    kinds = ("tool_permitted", "tool_refused", "tool_called")
    found = AuditLog.select().where(AuditLog.kind.in_(kinds)).order_by(AuditLog.position)
    return [(entry.kind, entry.actor_id, json.loads(entry.details)) for entry in found]
