"""The settings document of a user: its members, their defaults, and merge patches."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from service import clock, validators
from service.api.schemas import convert
from service.errors import InvalidBody
from service.fields import DATE_TIME, compact_json
from service.memoize import memoized
from service.types import JsonObject, JsonValue

MAX_BYTES = 64 * 1024
MAX_DEPTH = 8  # levels of nesting

LanguageTag = Annotated[str, Meta(min_length=1, max_length=64, description="A BCP 47 tag."), validators.language_tag]
ReplyLanguage = Annotated[str, Meta(max_length=64, description="A BCP 47 tag, or empty."), validators.language_tag]
Time = Annotated[str, Meta(description="An RFC 3339 timestamp.", extra_json_schema=DATE_TIME), clock.read_timestamp]


class Appearance(Struct):
    """Appearance of the app."""

    language: LanguageTag = "en"
    theme: Literal["system", "light", "dark"] = "system"


class Deliveries(Struct):
    """Delivery of notifications outside of the app."""

    email_enabled: bool = True
    marketing_enabled: bool = False
    muted_until: Time | None = None
    push_enabled: bool = True

    def __post_init__(self) -> None:
        self.muted_until = self.muted_until or None


class Privacy(Struct):
    """Data that others receive about the user."""

    share_analytics: bool = False
    share_crash_reports: bool = False
    show_read_receipts: bool = True
    show_typing_indicator: bool = True


class Settings(Struct):
    """The settings of a user. Other members of the document are kept unchanged."""

    appearance: Appearance = msgspec.field(default_factory=Appearance)
    chat_language: ReplyLanguage = ""
    notifications: Deliveries = msgspec.field(default_factory=Deliveries)
    privacy: Privacy = msgspec.field(default_factory=Privacy)
    updated_at: Time | None = None

    def __post_init__(self) -> None:
        self.updated_at = self.updated_at or None


def merge(document: object, patch: object) -> JsonValue:
    """Return a JSON document after a merge patch (RFC 7396, section 2): `null` removes a member, objects merge."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def check(document: JsonObject) -> JsonObject:
    """Return the stored form of a settings document. Raises InvalidBody with the path of the invalid member."""
    if _depth(document) > MAX_DEPTH:
        raise InvalidBody(f"$: expected at most {MAX_DEPTH} levels")
    stored = _stored(document, convert(document, Settings))
    own = {name: value for name, value in stored.items() if name != "updated_at"}  # set by the service
    if len(compact_json(own).encode()) > MAX_BYTES:
        raise InvalidBody(f"$: expected at most {MAX_BYTES} bytes, including the existing settings")
    return stored


@memoized(1024)
def read(stored: str) -> JsonObject:
    """Return a stored text as a document with all defaults. The document is cached and shared: do not modify it."""
    return complete(msgspec.json.decode(stored))


@memoized(1024)
def chosen_language(stored: str) -> str:
    """Return the language that the user has chosen for the pages; empty if there is none."""
    return str(msgspec.json.decode(stored).get("appearance", {}).get("language", ""))


def complete(document: JsonObject) -> JsonObject:
    """Return a stored document with the defaults of missing members."""
    return _completed(document, msgspec.convert(document, Settings))


def _stored(document: JsonObject, known: Struct) -> JsonObject:
    """Return the members to store: known ones as converted, without those that are empty; empty means the default."""
    found = {}
    for name, value in document.items():
        read = getattr(known, name) if name in known.__struct_fields__ else value
        stored = _stored(value, read) if isinstance(read, Struct) else read
        if name not in known.__struct_fields__ or stored not in (None, {}):
            found[name] = stored
    return found


def _completed(document: JsonObject, known: Struct) -> JsonObject:
    """Return all known members, with defaults, followed by the other members of a document."""
    found: JsonObject = {name: getattr(known, name) for name in known.__struct_fields__}
    for name, value in found.items():
        if isinstance(value, Struct):
            found[name] = _completed(document.get(name, {}), value)
    return found | {name: value for name, value in document.items() if name not in found}


def _depth(value: object) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0
