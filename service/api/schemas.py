"""Tables and annotations as msgspec types: the JSON of a row, and the members of it that a request may write."""

import functools
import re
from collections.abc import Callable, Collection
from typing import Annotated, get_args, get_origin, get_type_hints

import msgspec
import peewee
from msgspec import UNSET, Meta, Struct, UnsetType

from service.db import Page, Table
from service.errors import InvalidBody
from service.fields import Column, Decoded, SqlValue, WireType, members
from service.types import JsonObject

_EXPECTED = re.compile(r"^Expected `(.+?)`, got `(.+?)`$")
_PATH = re.compile(r"^(.*?)(?: - at `([^`]+)`)?$", re.DOTALL)


@functools.cache
def row_schema(model: type[peewee.Model], *, own: bool = False) -> type[Struct]:
    """Return the type of a row in JSON; with `own`, as its owner sees it. All members are required."""
    fields = [(name, column.wire) for name, column in members(model, own=own).items()]
    name = f"Own{model.__name__}" if own else model.__name__
    found = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
    found.__doc__ = model.__doc__
    return found


class BodyColumns:
    """Annotates a body with the columns of a table that it may set; the handler gets them ready to be stored.

        NewFeedback = Annotated[JsonObject, BodyColumns(Feedback, "description", "app_version")]

    Columns without a default are required; with `partial`, none is. `null`, and "" for texts, mean the default.
    `required` texts have no default and cannot be empty. `types` replace what the columns accept.
    """

    def __init__(
        self, table: type[Table], *names: str, partial: bool = False, required: Collection[str] = (), **types: WireType
    ) -> None:
        self.columns = {name: vars(table._meta)["fields"][name] for name in (*names, *types)}
        self.required = required
        fields: list[tuple[str, WireType] | tuple[str, WireType, object]] = []
        for name, column in self.columns.items():
            accepts = types.get(name, column.accepts)
            if name in required:
                accepts = Annotated[accepts, Meta(min_length=1)]
            if not self._needs_value(column):
                accepts = accepts | None
            optional = partial or not self._needs_value(column)
            fields.append((name, accepts | UnsetType, UNSET) if optional else (name, accepts))
        self.type = msgspec.defstruct(
            f"{table.__name__}Changes" if partial else f"New{table.__name__}", fields, kw_only=True
        )

    def _needs_value(self, column: Column) -> bool:
        return column.name in self.required or (column.default is None and not column.null)

    def read(self, value: object) -> dict[str, SqlValue]:
        """Return the columns that a body sets, as stored. Raises InvalidBody with the path of the invalid member."""
        members = msgspec.structs.asdict(convert(value, self.type))
        return {name: self._store(name, member) for name, member in members.items() if member is not UNSET}

    def _store(self, name: str, value: object) -> SqlValue:
        column = self.columns[name]
        if value is None or (value == "" and not self._needs_value(column)):
            return column.default() if callable(column.default) else column.default
        try:
            return column.to_stored(value)
        except ValueError as error:
            raise InvalidBody(f"$.{name}: {error}") from None


def convert(value: object, kind: WireType) -> Decoded:
    """Return a JSON value as a type. Raises InvalidBody, for example `$.location[2]: expected int`."""
    try:
        found = msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        message, path = _PATH.match(str(error)).groups()  # type: ignore[union-attr]
        expected = _EXPECTED.match(message)
        reason = f"expected {expected[1]}" if expected else message.replace("`", "")
        raise InvalidBody(f"{path or '$'}: {reason[0].lower()}{reason[1:]}") from None
    _validate_members(found, "$")
    return found


def _validate_members(value: object, path: str) -> None:
    """Apply the validators of a struct's members, except to empty values."""
    if not isinstance(value, Struct):
        return
    for name, hint in hints_of(type(value)).items():
        member = getattr(value, name)
        _validate_members(member, f"{path}.{name}")
        for validate in validators_of(hint) if member else ():
            try:
                setattr(value, name, validate(member))
            except ValueError as error:
                raise InvalidBody(f"{path}.{name}: {error}") from None


@functools.cache
def validators_of(hint: object) -> list[Callable[[str], str]]:
    """Return the functions in an annotation, such as `Annotated[str, clock.read_uuid]`.

    Each returns the text in its stored form, or raises ValueError with the reason.
    """
    parts = [hint, *get_args(hint)]
    found = [extra for part in parts for extra in getattr(part, "__metadata__", ())]
    return [extra for extra in found if callable(extra) and not isinstance(extra, type)]


def wire_type(kind: WireType) -> WireType:
    """Return the msgspec type of an annotation: the row type of a table, the content type of an `Annotated` body."""
    if isinstance(kind, type) and issubclass(kind, Table):
        return row_schema(kind)
    origin: object = get_origin(kind)
    arguments = get_args(kind)
    if origin is Page:
        return list[wire_type(arguments[0])]  # type: ignore[misc]
    if origin is Annotated and arguments[0] in (msgspec.Raw, JsonObject):
        return arguments[1].type if isinstance(arguments[1], BodyColumns) else wire_type(arguments[1])
    if origin is list:
        return list[wire_type(arguments[0])]  # type: ignore[misc]
    if isinstance(kind, type) and issubclass(kind, Struct):
        named = {name: (hint, wire_type(hint)) for name, hint in get_type_hints(kind, include_extras=True).items()}
        if any(hint != wire for hint, wire in named.values()):
            return msgspec.defstruct(kind.__name__, [(name, wire) for name, (_, wire) in named.items()])
    return kind


@functools.cache
def with_members(kind: type[Struct], *, required: bool) -> type[Struct]:
    """Return a struct, and the structs in it, with all members required, or all optional and nullable."""
    fields: list[tuple[str, WireType] | tuple[str, WireType, object]] = []
    for member in msgspec.structs.fields(kind):
        inside = isinstance(member.type, type) and issubclass(member.type, Struct)
        hint = with_members(member.type, required=required) if inside else hints_of(kind)[member.name]
        fields.append((member.name, hint) if required else (member.name, hint | None | UnsetType, UNSET))
    return msgspec.defstruct(kind.__name__ if required else f"{kind.__name__}Changes", fields)


@functools.cache
def hints_of(kind: WireType) -> dict[str, WireType]:
    """Return the annotations of a query or body by member; empty for None."""
    return get_type_hints(kind, include_extras=True) if kind else {}


def may_be_empty(kind: type[Struct] | None) -> bool:
    """Return whether a query or body may be empty: it is None, or no member is required."""
    return not kind or not any(member.required for member in msgspec.structs.fields(kind))


def may_be_left_out(kind: WireType) -> bool:
    """Return whether a request may omit this body. A patch, which is no struct, is required."""
    return isinstance(kind, type) and may_be_empty(kind)
