"""The tools. A tool calls an operation, from whose declaration its schemas, its scope and most hints are derived."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec

from service.api.json_schemas import Schema, content_of, object_of, parameters_of, refined, schemas_of
from service.api.operations import Operation
from service.api.schemas import wire_type
from service.fields import JsonBytes
from service.translation import gettext_noop
from service.types import JsonObject, JsonValue


class Tool(NamedTuple):
    """A tool, as declared."""

    name: str
    title: str  # the consent page shows it translated
    operation: str  # the name
    note: str = ""  # follows the summary of the operation
    reaches_others: bool = False  # what it reads is from others, or others get what it writes


TOOLS = (
    Tool(name="list_chats", title=gettext_noop("List chats"), operation="list_chat_sessions", reaches_others=True),
    Tool(
        name="read_messages",
        title=gettext_noop("Read messages"),
        operation="list_messages",
        note="With `direction` `backward`, the newest messages are first.",
        reaches_others=True,
    ),
    Tool(
        name="send_message",
        title=gettext_noop("Send a message"),
        operation="send_message",
        note="It is sent as the user, to the bot and the people of the chat. `content` of a text is an object with"
        " the member `text`.",
        reaches_others=True,
    ),
    Tool(
        name="search_messages", title=gettext_noop("Search messages"), operation="search_messages", reaches_others=True
    ),
    Tool(name="list_events", title=gettext_noop("List events"), operation="list_events"),
    Tool(name="add_event", title=gettext_noop("Add an event"), operation="create_event"),
    Tool(
        name="list_notifications",
        title=gettext_noop("List notifications"),
        operation="list_notifications",
        reaches_others=True,
    ),
    Tool(name="give_feedback", title=gettext_noop("Give feedback"), operation="submit_feedback", reaches_others=True),
    Tool(
        name="find_bots",
        title=gettext_noop("Find bots"),
        operation="list_bots",
        note="The identifiers of apps are members of chats.",
        reaches_others=True,
    ),
)


_IN_BYTES = refined(msgspec.json.schema(JsonBytes))


class InvalidArguments(Exception):
    """The arguments of a tool are not those of its schema."""


class Call(NamedTuple):
    """What an operation is called with."""

    identifiers: dict[str, str] = {}  # of the path
    query: dict[str, str] = {}
    body: JsonObject = {}
    key: str = ""  # the Idempotency-Key


class Argument(NamedTuple):
    """An argument of a tool: where it goes in the request, and under which name."""

    place: str  # path, query, header or body
    name: str
    schema: Schema
    is_required: bool


class BoundTool:
    """A tool, and the operation that it calls. Its schemas are derived at the first use."""

    def __init__(self, tool: Tool, operation: Operation) -> None:
        self.tool, self.operation = tool, operation
        self.definitions: dict[str, Schema] = {}  # that the schemas of the arguments refer to

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        """The arguments by name. The identifiers of the path are named after the parameters of the handler."""
        rows: dict[str, str] = {identifier: f"{parameter}_id" for identifier, parameter, _ in self.operation.path_rows}
        found = {}
        for parameter in parameters_of(self.operation):
            place, name = str(parameter["in"]), str(parameter["name"])
            about = {"description": parameter["description"]} if "description" in parameter else {}
            own_name = rows.get(name, name) if place == "path" else name.lower().replace("-", "_")
            found[own_name] = Argument(place, name, parameter["schema"] | about, parameter["required"])
        for name, schema, is_required in self._members():
            found[name] = Argument("body", name, schema, is_required)
        return found

    def _members(self) -> Iterator[tuple[str, Schema, bool]]:
        """Return the members of the body: name, schema, and whether it is required."""
        if self.operation.body:
            (schema,), components = schemas_of([wire_type(self.operation.body)], "#/$defs/{name}")
            body = components.pop(schema["$ref"].rpartition("/")[2])
            self.definitions.update(components)
            for name, member in body["properties"].items():
                yield name, member, name in body.get("required", [])

    @cached_property
    def described(self) -> JsonObject:
        """The tool as clients see it."""
        about = " ".join(filter(None, (self.operation.summary, self.tool.note)))
        reads = self.operation.method == "GET"
        hints = {
            "readOnlyHint": reads,
            "destructiveHint": self.operation.method in ("PUT", "PATCH", "DELETE"),
            "idempotentHint": reads or self.operation.method in ("PUT", "DELETE"),
            "openWorldHint": self.tool.reaches_others,
        }
        return {
            "name": self.tool.name,
            "title": self.tool.title,
            "description": about,
            "inputSchema": self._input_schema(),
            "outputSchema": self._output_schema(),
            "annotations": {"title": self.tool.title, **hints},
        }

    def _input_schema(self) -> Schema:
        schema = object_of(**{name: argument.schema for name, argument in self.arguments.items()})
        schema["required"] = [name for name, argument in self.arguments.items() if argument.is_required]
        return schema | ({"$defs": self.definitions} if self.definitions else {})

    def _output_schema(self) -> Schema:
        data, components = self._data
        return object_of(**content_of(self.operation, data)) | {"$defs": _readable_schema(components)}

    @cached_property
    def _data(self) -> tuple[Schema, dict[str, Schema]]:
        """The schema of the operation's data, and the components that it references."""
        (data,), components = schemas_of([self.operation.data], "#/$defs/{name}")
        return data, components

    @cached_property
    def _members_in_bytes(self) -> list[str]:
        """The members of a row that the API has as the bytes of JSON, which models cannot read."""
        data, components = self._data
        reference = data.get("items", data).get("$ref", "")
        row = components.get(reference.rpartition("/")[2], {})
        return [name for name, schema in row.get("properties", {}).items() if schema == _IN_BYTES]

    def readable(self, data: JsonValue) -> JsonValue:
        """Return the data of a response, with JSON in place of its bytes."""
        for row in data if isinstance(data, list) else [data]:
            for name in self._members_in_bytes:
                row[name] = _decoded(row[name])
        return data

    def call(self, arguments: JsonObject) -> Call:
        """Return what the operation is called with. Raises InvalidArguments; the operation checks the values."""
        call = Call({}, {}, {})
        for name, value in arguments.items():
            if name not in self.arguments:
                raise InvalidArguments(f"{name[:100]}: there is no such argument")
            argument = self.arguments[name]
            if argument.place == "body":
                call.body[name] = value
            elif value is not None:
                text = _text(name, value)
                if argument.place == "header":
                    call = call._replace(key=text)
                else:
                    (call.identifiers if argument.place == "path" else call.query)[argument.name] = text
        missing = [name for name, one in self.arguments.items() if one.place == "path" and not arguments.get(name)]
        if missing:
            raise InvalidArguments(f"{missing[0]}: required")
        return call


def _readable_schema(schema: JsonValue) -> JsonValue:
    """Return a schema, and the schemas in it, with any JSON in place of its bytes."""
    if schema == _IN_BYTES:
        return {"description": "A JSON value; null when unset."}
    if isinstance(schema, dict):
        return {name: _readable_schema(part) for name, part in schema.items()}
    return schema


def _decoded(value: list[int]) -> JsonValue:
    """Return the JSON value in some bytes; null if there are none, and the numbers themselves if they are no JSON."""
    try:
        return msgspec.json.decode(bytes(value)) if value else None
    except ValueError:
        return value


def _text(name: str, value: JsonValue) -> str:
    """Return the text of an argument that is a parameter. Raises InvalidArguments."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidArguments(f"{name}: expected a text, an integer or a boolean")
