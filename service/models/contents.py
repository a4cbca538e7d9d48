"""What a message holds, as it is stored: each a JSON array of the bytes of a JSON text, `[]` where there is none."""

import json

import msgspec

CONTENTS = ("content", "original_content", "translations", "reply_snapshot", "action_payload")
EMPTY = "[]"


def text_in(content: str) -> str:
    """The text in a content: of `{"text": "…"}`, or of a JSON string; of anything else, none."""
    try:
        found = json.loads(bytes(msgspec.json.decode(content)))
    except (ValueError, RecursionError):  # an array of integers may be anything
        return ""
    text = found.get("text") if isinstance(found, dict) else found
    return text.encode(errors="replace").decode().replace("\0", "") if isinstance(text, str) else ""
