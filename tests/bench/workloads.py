"""The operations that are measured on all servers, one row of the table each, and their goals."""

from tests.bench.dataset import NOTES, RARE, SHOP, TALK, pinnable
from tests.bench.servers import Workload

API = "/api/v1"
NOTE = {"content": {"text": "Hello"}}
FEEDBACK = {"description": "Fine", "feedback_type": "praise", "app_version": "1.0", "device_info": {"os": "Plan 9"}}
FEEDBACK_REQUESTS = [("POST", f"{API}/feedback", FEEDBACK)]
PAGE = f"{API}/chats/{TALK}/messages?limit=25"
PIN_REQUESTS = [
    (method, f"{API}/chats/{chat}/messages/{message}/pin", None)
    for method in ("POST", "DELETE")
    for chat, message in pinnable()
]


def read(path: str) -> list[tuple[str, str, None]]:
    return [("GET", path, None)]


WORKLOADS = (
    Workload("page", "page of 25 messages", read(PAGE), 25, share=0.5, peer=8),
    Workload("page100", "page of 100 messages", read(f"{API}/chats/{TALK}/messages?limit=100"), 100, share=0.5, peer=8),
    Workload("bots", "page of 25 bots", read(f"{API}/bots?app_id={SHOP}"), 25, share=0.4, peer=5),
    Workload(
        "search",
        "search in all bots",
        read(f"{API}/bots?app_id={SHOP}&search={RARE}"),
        20,
        peer=5,
        p99=20,
        connections=1,
    ),
    Workload("notifications", "notifications and unread count", read(f"{API}/notifications"), 25, share=0.5, peer=5),
    Workload("events", "page of 25 events", read(f"{API}/events"), 25, share=0.5, peer=5),
    Workload("settings", "settings", read(f"{API}/users/me/settings"), share=0.5, peer=2),
    Workload("unchanged", "an unchanged page of messages", read(PAGE), share=0.7, known=True),
    Workload("pin", "pin a message", PIN_REQUESTS, share=0.8, peer=2, writes="pin"),
    Workload(
        "feedback",
        "give feedback",
        [("POST", f"{API}/feedback", FEEDBACK)],
        0,
        201,
        share=0.8,
        peer=2,
        writes="feedback",
    ),
    Workload(
        "send",
        "send a message",
        [("POST", f"{API}/chats/{NOTES}/messages", NOTE)],
        0,
        201,
        share=0.8,
        peer=2,
        writes="message",
    ),
)
