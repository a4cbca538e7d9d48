"""The resources: documents that a user can give an assistant to read. Each is the response of an operation."""

import re
from typing import NamedTuple

from service.types import JsonObject

TYPE = "application/json"


class Resource(NamedTuple):
    """A resource, or with `{id}` in its address the template of one for each row."""

    uri: str
    name: str
    title: str
    description: str
    operation: str  # the name

    @property
    def is_template(self) -> bool:
        return "{" in self.uri

    def identifiers(self, uri: str) -> dict[str, str] | None:
        """Return the identifiers in an address; None if it is not of this resource."""
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/?#]+)", re.escape(self.uri))
        found = re.fullmatch(pattern, uri)
        return found.groupdict() if found else None

    def described(self) -> JsonObject:
        """Return the resource as clients see it."""
        about = {"name": self.name, "title": self.title, "description": self.description, "mimeType": TYPE}
        return {"uriTemplate" if self.is_template else "uri": self.uri, **about}


PROFILE = Resource("cx://profile", "profile", "Profile", "The profile of the user.", "get_profile")
CHAT = Resource(
    "cx://chats/{id}",
    "chat",
    "Chat",
    "The newest messages of a chat, as an assistant may read them, and the languages to reply in.",
    "get_chat_context",
)
RESOURCES = (PROFILE, CHAT)
CHATS = "list_chat_sessions"  # the operation that lists the chats


def chat(overview: JsonObject) -> JsonObject:
    """Return a chat as clients see it in the list of resources, from its overview."""
    names = [overview[name] for name in ("customer_name", "bot_name", "app_name") if overview[name]]
    title = " – ".join(names) or CHAT.title
    uri = CHAT.uri.replace("{id}", overview["id"])
    annotations = {"lastModified": (overview["last_message"] or overview)["created_at"]}
    return CHAT.described() | {"uri": uri, "name": overview["id"], "title": title, "annotations": annotations}
