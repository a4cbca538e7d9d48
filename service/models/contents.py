"""The contents of a message as stored: JSON arrays of the bytes of a JSON text, `[]` if unset."""

import json

import msgspec

from service.errors import InvalidBody
from service.fields import json_of_bytes
from service.types import JsonObject, JsonValue
from service.validators import fold

TRANSLATIONS = ("translations", "staff_translations")
CONTENTS = ("content", "original_content", *TRANSLATIONS, "reply_snapshot", "action_payload")
EMPTY = "[]"
IMAGE = "image"  # the `content_type` of messages with pictures


def text_in(content: str) -> str:
    """Return the text of a content that is `{"text": "…"}` or a JSON string; empty for any other content."""
    value = value_in(content)
    text = value.get("text") if isinstance(value, dict) else value
    return clean(text) if isinstance(text, str) else ""


def clean(text: str) -> str:
    """Return a text without characters that databases and UTF-8 do not have."""
    return text.encode(errors="replace").decode().replace("\0", "")


def texts_of(content: str) -> dict[str, str]:
    """Return the columns of a message that follow from its content."""
    text = text_in(content)
    return {"plain_text": text, "search_text": search_text_of(text)}


def search_text_of(text: str) -> str:
    """Return the text that is searched, folded; empty if SQL's lower(), which changes only ASCII letters, gives it."""
    folded = fold(text)
    return "" if folded == searched_text(text, "") else folded


def searched_text(text: str, search_text: str) -> str:
    """Return the text that a search compares, from two columns of a message."""
    return search_text or text.encode().lower().decode()  # bytes change their ASCII letters only


def with_images(content: str, images: list[JsonObject]) -> str:
    """Return the content of a message with pictures, from a content that is `{"text": "…"}`. Raises InvalidBody."""
    value = value_in(content)
    if not isinstance(value, dict) or value.keys() != {"text"} or not isinstance(value["text"], str):
        raise InvalidBody('$.content: expected {"text": …} for a message with pictures')
    return json_of_bytes({**value, "images": images})


def images_in(content: str) -> list[JsonObject]:
    """Return the `images` of a content; empty for other contents."""
    value = value_in(content)
    images = value.get("images") if isinstance(value, dict) else None
    return [image for image in images if isinstance(image, dict)] if isinstance(images, list) else []


def without_images(content: str) -> tuple[str, tuple[str, ...]]:
    """Return the content that `with_images` was called with, and the identifiers of the pictures."""
    ids = tuple(str(image.get("url", "")).rpartition("/")[2] for image in images_in(content))
    return json_of_bytes({"text": text_in(content)}), ids


def value_in(content: str) -> JsonValue:
    """Return the JSON value of a content; None if it is no JSON."""
    try:
        return json.loads(bytes(msgspec.json.decode(content)))
    except (ValueError, RecursionError):  # an array of integers may be anything
        return None
