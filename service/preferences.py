"""The settings document of a user: what it may hold, its defaults, and how patches change it."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from service import clock, formats
from service.errors import InvalidBody
from service.fields import DATE_TIME, compact_json
from service.remembering import remembered
from service.shapes import convert

LARGEST = 64 * 1024  # bytes of the document
DEEPEST = 8  # levels

LanguageTag = Annotated[str, Meta(min_length=1, max_length=64, description="A BCP 47 tag."), formats.language_tag]
ReplyLanguage = Annotated[str, Meta(max_length=64, description="A BCP 47 tag, or empty."), formats.language_tag]
Moment = Annotated[str, Meta(description="An RFC 3339 timestamp.", extra_json_schema=DATE_TIME), clock.read_timestamp]


class Appearance(Struct):
    """How the app looks."""

    language: LanguageTag = "en"
    theme: Literal["system", "light", "dark"] = "system"


class Deliveries(Struct):
    """What is delivered beside the inbox, and when."""

    email_enabled: bool = True
    marketing_enabled: bool = False
    muted_until: Moment | None = None
    push_enabled: bool = True

    def __post_init__(self) -> None:
        self.muted_until = self.muted_until or None


class Privacy(Struct):
    """What others learn of the user."""

    share_analytics: bool = False
    share_crash_reports: bool = False
    show_read_receipts: bool = True
    show_typing_indicator: bool = True


class Settings(Struct):
    """The settings of a user (section 2.5 of the document); members beside these are kept as they are."""

    appearance: Appearance = msgspec.field(default_factory=Appearance)
    chat_language: ReplyLanguage = ""
    notifications: Deliveries = msgspec.field(default_factory=Deliveries)
    privacy: Privacy = msgspec.field(default_factory=Privacy)
    updated_at: Moment | None = None

    def __post_init__(self) -> None:
        self.updated_at = self.updated_at or None


def merge(document: Any, patch: Any) -> Any:
    """A JSON document after a merge patch (RFC 7396, section 2): `null` removes a member, objects merge."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def check(document: dict[str, Any]) -> dict[str, Any]:
    """A settings document as it is stored, if it can be. Raises InvalidBody with the place of the fault."""
    if _depth(document) > DEEPEST:
        raise InvalidBody(f"$: expected at most {DEEPEST} levels")
    stored = _stored(document, convert(document, Settings))
    own = {name: value for name, value in stored.items() if name != "updated_at"}  # which comes and goes by itself
    if len(compact_json(own).encode()) > LARGEST:
        raise InvalidBody(f"$: expected at most {LARGEST} bytes, together with the settings that are there already")
    return stored


@remembered(1024)
def read(stored: str) -> dict[str, Any]:
    """A stored text as a document with all defaults, which nobody may change: most users have the same."""
    return complete(msgspec.json.decode(stored))


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """A stored document, with the defaults of the members that it lacks."""
    return _completed(document, msgspec.convert(document, Settings))


def _stored(document: dict[str, Any], known: Struct) -> dict[str, Any]:
    """The members of a document, the known ones as they were read, unless they are empty: nothing is their default."""
    found = {}
    for name, value in document.items():
        read = getattr(known, name) if name in known.__struct_fields__ else value
        stored = _stored(value, read) if isinstance(read, Struct) else read
        if name not in known.__struct_fields__ or stored not in (None, {}):
            found[name] = stored
    return found


def _completed(document: dict[str, Any], known: Struct) -> dict[str, Any]:
    """The members of a document, behind all known ones with their defaults."""
    found: dict[str, Any] = {name: getattr(known, name) for name in known.__struct_fields__}
    for name, value in found.items():
        if isinstance(value, Struct):
            found[name] = _completed(document.get(name, {}), value)
    return found | {name: value for name, value in document.items() if name not in found}


def _depth(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0
