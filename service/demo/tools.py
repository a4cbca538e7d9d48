"""The tools of the demo's MCP server: weather and parcels. Their data is made up, and the same at every call."""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from service.types import JsonObject

MAX_ARGUMENT = 60  # characters
SKIES = ("clear", "cloudy", "rain", "fog", "thunderstorms")
PARCELS = {
    "KL-4711-BATH": {"status": "in_transit", "place": "Reading"},
    "K-2187": {"status": "delayed", "place": "Swindon"},
}


class ToolError(Exception):
    """A tool has no result. The text is for the assistant."""


class Tool(NamedTuple):
    """A tool with one argument, which only reads."""

    name: str
    description: str
    argument: str
    about_argument: str
    run: Callable[[str], JsonObject]

    def described(self) -> JsonObject:
        """Return the tool as in `tools/list`."""
        argument = {"type": "string", "description": self.about_argument, "minLength": 1, "maxLength": MAX_ARGUMENT}
        schema = {
            "type": "object",
            "properties": {self.argument: argument},
            "required": [self.argument],
            "additionalProperties": False,
        }
        annotations = {"readOnlyHint": True, "openWorldHint": False}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "annotations": annotations,
        }

    def call(self, arguments: object) -> JsonObject:
        """Return the result of a call. Raises ToolError."""
        if not isinstance(arguments, Mapping) or arguments.keys() != {self.argument}:
            raise ToolError(f"Expected the argument {self.argument}, and no other.")
        value = arguments[self.argument]
        if not isinstance(value, str) or not 1 <= len(value) <= MAX_ARGUMENT:
            raise ToolError(f"Expected {self.argument} to be a text of 1 to {MAX_ARGUMENT} characters.")
        return self.run(value)


def get_forecast(city: str) -> JsonObject:
    """Return a forecast that depends on the name of the city only."""
    digest = hashlib.sha256(" ".join(city.casefold().split()).encode("utf-8", "replace")).digest()
    high = 10 + digest[0] % 20
    return {
        "city": city,
        "sky": SKIES[digest[1] % len(SKIES)],
        "low_celsius": high - 4 - digest[2] % 6,
        "high_celsius": high,
    }


def track_parcel(number: str) -> JsonObject:
    """Return where a parcel is. Raises ToolError for an unknown number."""
    number = number.strip().upper()
    if number not in PARCELS:
        raise ToolError("No parcel has this number.")
    return {"number": number, **PARCELS[number]}


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("get_forecast", "Returns the weather forecast of a city (made up).", "city", "Its name.", get_forecast),
        Tool("track_parcel", "Returns where a parcel is (made up).", "number", "Its tracking number.", track_parcel),
    )
}
