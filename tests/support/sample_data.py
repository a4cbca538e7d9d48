"""Sample data: records of every kind to import, and their identifiers."""

import base64
import io
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

import app
from service import db
from service.models import LoginSession
from service.operate import import_export
from service.settings import Settings
from tests.support.passwords import PASSWORD_HASH
from tests.support.server_process import Record, json_lines


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


SHOP, OTHER_SHOP = uuid(1), uuid(2)
ALICE, BOB, AGENT = uuid(11), uuid(12), uuid(13)
HILDA, DRAFT, FOREIGN = uuid(21), uuid(22), uuid(23)  # bots: published, not published, of the other shop
SESSION, BUSY, QUIET, BOBS_SESSION = uuid(31), uuid(32), uuid(33), uuid(34)
CONVERSATION, BOBS_CONVERSATION = uuid(41), uuid(42)
GRANT, OTHER_GRANT, REVOKED, BOBS_GRANT = uuid(51), uuid(52), uuid(53), uuid(54)
BOBS_PICTURE, ICON = "bob.webp", "icon.webp"
EVENT, NOTIFICATION, FEEDBACK, ANSWER = uuid(61), uuid(62), uuid(63), uuid(64)
CANNED_REPLY = uuid(65)
HELLO, PINNED, PURGED, EDITED, REPLY = (f"01JD4Q8M0{number}0000000000000000" for number in range(5))
IMAGE = uuid(71)
UNKNOWN_ID, UNKNOWN_MESSAGE_ID = uuid(0), "0" * 26  # identifiers of no row

EMAILS = {"alice": "alice@example.com", "bob": "bob@example.com", "agent": "agent@example.com"}


def picture(kind: str = "PNG", side: int = 8) -> bytes:
    """Return a small picture."""
    stream = io.BytesIO()
    Image.new("RGB", (side, side), "teal").save(stream, kind)
    return stream.getvalue()


def records(**alice: str) -> list[Record]:
    """Return all records, at least one of each kind; `alice` sets further columns of Alice."""
    users: list[dict[str, Any]] = [
        {"id": ALICE, "email": EMAILS["alice"], "first_name": "Alice", "location": [52, 13], **alice},
        {"id": BOB, "email": EMAILS["bob"]},
        {"id": AGENT, "email": EMAILS["agent"], "role": "agent", "app_id": SHOP},
    ]
    bots: list[dict[str, Any]] = [
        {"id": HILDA, "app_id": SHOP, "name": "Hilda", "kind": "bot", "status": "published", "rating": 4.5},
        {"id": DRAFT, "app_id": SHOP, "name": "Draft", "status": "draft"},
        {"id": FOREIGN, "app_id": OTHER_SHOP, "name": "Foreign", "status": "published"},
    ]
    chats: list[dict[str, Any]] = [
        {"id": SESSION, "app_id": SHOP, "user_id": ALICE, "bot_id": HILDA, "conversation_id": CONVERSATION},
        {"id": BUSY, "app_id": SHOP, "user_id": ALICE},
        {"id": QUIET, "app_id": SHOP, "user_id": ALICE},
        {"id": BOBS_SESSION, "app_id": SHOP, "user_id": BOB, "conversation_id": BOBS_CONVERSATION},
    ]
    messages: list[dict[str, Any]] = [
        {"id": HELLO, "text": "Grüße 👋", "sender_id": ALICE},
        {"id": PINNED, "text": "Hello", "is_pinned": True, "sender_id": HILDA, "sender_type": "bot"},
        {"id": PURGED, "content_type": "gdpr_purged", "gdpr_purged": True, "gdpr_original_content_type": "text"},
        {"id": EDITED, "text": "Oh", "edited_at": "2026-11-20T10:00:00Z", "chat_session_id": BUSY},
        {"id": REPLY, "text": "Ah", "reply_to_message_id": EDITED, "chat_session_id": BUSY},
    ]
    grants: list[dict[str, Any]] = [
        {"id": GRANT, "user_id": ALICE, "mcp_server_id": "files", "allowed_tools": ["*"], "app_id": SHOP},
        {"id": OTHER_GRANT, "user_id": ALICE, "mcp_server_id": "mail", "allowed_tools": ["read", "send"]},
        {"id": REVOKED, "user_id": ALICE, "mcp_server_id": "files", "allowed_tools": ["read"], "is_active": False},
        {"id": BOBS_GRANT, "user_id": BOB, "mcp_server_id": "files", "allowed_tools": ["read"]},
    ]
    notification = {"user_id": ALICE, "title": "Hilda", "body": "Hello", "payload": {"message_id": PINNED}}
    answer = {"id": ANSWER, "bot_id": HILDA, "language": "en", "question": "When are you open?", "answer": "Always."}
    offered = {"actions": [{"id": "1", "label": "Do you sell shoes?", "payload": {"page": 2}}]}
    feedback = {"id": FEEDBACK, "user_id": ALICE, "description": "Fine", "device_info": {"os": "Plan 9"}}
    image = {"chat_session_id": SESSION, "user_id": ALICE, "message_id": HELLO}
    return [
        {"app": {"id": SHOP, "name": "Shop"}},
        {"app": {"id": OTHER_SHOP, "name": "Other shop"}},
        *({"user": {**user, "password_hash": PASSWORD_HASH}} for user in users),
        *({"bot": bot} for bot in bots),
        *({"chat_session": chat} for chat in chats),
        {"chat_rating": {"chat_session_id": QUIET, "score": 4, "comment": "Fine"}},
        *(
            {"message": {"chat_session_id": SESSION, "conversation_id": CONVERSATION, **message}}
            for message in messages
        ),
        *({"data_share": grant} for grant in grants),
        {"event": {"id": EVENT, "user_id": ALICE, "title": "Call", "starts_at": "2026-11-20T10:00:00+01:00"}},
        {"notification": {**notification, "id": NOTIFICATION, "session_id": SESSION, "conversation_id": CONVERSATION}},
        {"feedback": feedback},
        {"feedback_screenshot": {"feedback_id": FEEDBACK, "image": base64.b64encode(picture()).decode()}},
        {"bot_answer": {**answer, **offered}},
        {"message_image": {"id": IMAGE, **image, "image": base64.b64encode(picture()).decode()}},
        {
            "canned_reply": {
                "id": CANNED_REPLY,
                "app_id": SHOP,
                "shortcut": "thanks",
                "language": "en",
                "text": "Thank you.",
            }
        },
        {"avatar": {"user_id": ALICE, "image": base64.b64encode(picture()).decode()}},
        {"avatar": {"user_id": BOB, "image": base64.b64encode(picture()).decode(), "name": BOBS_PICTURE}},
        {"bot_picture": {"bot_id": HILDA, "kind": "icon", "image": base64.b64encode(picture()).decode(), "name": ICON}},
    ]


def create_installation(settings: Settings) -> None:
    """Create an installation with all records and a login session of Alice."""
    app.prepare(settings, create=True)
    with tempfile.NamedTemporaryFile() as file:
        file.write(json_lines(records()))
        file.flush()
        assert import_export.import_files([Path(file.name)]) == []
    LoginSession.create(user_id=ALICE, expires_at=2**53)
    db.close_database()
