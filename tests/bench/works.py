"""The work that all are asked to do, one line of the table each, and what must come of it."""

from tests.bench.contestants import Work
from tests.bench.world import NOTES, RARE, SHOP, TALK, pinnable

API = "/api/v1"
NOTE = {"content": {"text": "Hello"}}
TOLD = {"description": "Fine", "feedback_type": "praise", "app_version": "1.0", "device_info": {"os": "Plan 9"}}
PAGE = f"{API}/chats/{TALK}/messages?limit=25"
PINNING = [
    (method, f"{API}/chats/{chat}/messages/{message}/pin", None)
    for method in ("POST", "DELETE")
    for chat, message in pinnable()
]


def read(path: str) -> list[tuple[str, str, None]]:
    return [("GET", path, None)]


WORKS = (
    Work("page", "page of 25 messages", read(PAGE), 25, share=0.5, peer=8),
    Work("page100", "page of 100 messages", read(f"{API}/chats/{TALK}/messages?limit=100"), 100, share=0.5, peer=8),
    Work("bots", "page of 25 bots", read(f"{API}/bots?app_id={SHOP}"), 25, share=0.4, peer=5),
    Work(
        "search",
        "search in all bots",
        read(f"{API}/bots?app_id={SHOP}&search={RARE}"),
        20,
        peer=5,
        p99=20,
        connections=1,
    ),
    Work("notifications", "notifications and unread count", read(f"{API}/notifications"), 25, share=0.5, peer=5),
    Work("events", "page of 25 events", read(f"{API}/events"), 25, share=0.5, peer=5),
    Work("settings", "settings", read(f"{API}/users/me/settings"), share=0.5, peer=2),
    Work("unchanged", "an unchanged page of messages", read(PAGE), share=0.7, known=True),
    Work("pin", "pin a message", PINNING, share=0.8, peer=2, writes="pin"),
    Work(
        "feedback", "give feedback", [("POST", f"{API}/feedback", TOLD)], 0, 201, share=0.8, peer=2, writes="feedback"
    ),
    Work(
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
