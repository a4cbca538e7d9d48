"""Pictures of messages: uploads, messages with pictures, downloads."""

import json
from typing import Any

from service.models import ChatSession, MessageImage
from tests.support.access import as_form
from tests.support.client import Client, Reply
from tests.support.sample_data import picture

PICTURE = picture()


def upload_image(client: Client, session: ChatSession, content: bytes = PICTURE, **headers: str) -> Reply:
    """Upload a picture for a session."""
    return client.post(f"/chats/{session.id}/images", **as_form({"image": content}), **headers)


def send_images(
    client: Client, session: ChatSession, number: int = 1, *, text: str = "", content: bytes = PICTURE, **members: Any
) -> Reply:
    """Upload pictures, and send them with a text."""
    ids = [upload_image(client, session, content).data["id"] for _ in range(number)]
    return client.post(f"/chats/{session.id}/messages", {"content": {"text": text}, "images": ids, **members})


def images_of(reply: Reply) -> list[dict[str, Any]]:
    """Return the `images` in the content of a message."""
    images: list[dict[str, Any]] = json.loads(bytes(reply.data["content"]))["images"]
    return images


def get_image(client: Client, image: dict[str, Any], size: str = "full", **headers: str) -> Reply:
    """Download a picture from the URL in a message."""
    reply = client.get(f"/{image['url']}?size={size}", **headers)
    reply.headers = {name.lower(): value for name, value in reply.headers.items()}
    return reply


def stored_images() -> set[str]:
    """Return the identifiers of all stored pictures."""
    return {image.id for image in MessageImage.select()}
