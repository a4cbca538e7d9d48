"""Tables and declarations as msgspec types: the shape of a row on the wire, and what a request may write of it."""

import functools
import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import peewee
from msgspec import UNSET, Meta, Struct, UnsetType

from service.db import Page, Table
from service.errors import InvalidBody
from service.fields import Column, members

_EXPECTED = re.compile(r"^Expected `(.+?)`, got `(.+?)`$")
_PLACE = re.compile(r"^(.*?)(?: - at `([^`]+)`)?$", re.DOTALL)


@functools.cache
def shape(model: type[peewee.Model], *, own: bool = False) -> type[Struct]:
    """The type of a row on the wire, also as its owner sees it: every member present, no other."""
    fields = [(name, column.wire) for name, column in members(model, own=own).items()]
    name = f"Own{model.__name__}" if own else model.__name__
    found = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
    found.__doc__ = model.__doc__
    return found


class Writes:
    """The members of a table that a body may have, which a handler gets as columns ready to be stored.

        NewFeedback = Annotated[dict[str, Any], Writes(Feedback, "description", "app_version")]

    Where nothing is stored yet, columns without a default are required; with `partial` nothing is. `null` and, for
    texts, "" stand for the default; `needed` texts are as if they had none, and are never empty. `narrower` types take
    the place of what the columns themselves would accept.
    """

    def __init__(
        self, table: type[Table], *names: str, partial: bool = False, needed: Collection[str] = (), **narrower: Any
    ) -> None:
        self.columns = {name: vars(table._meta)["fields"][name] for name in (*names, *narrower)}
        self.needed = needed
        fields: list[Any] = []
        for name, column in self.columns.items():
            accepts = narrower.get(name, column.accepts)
            if name in needed:
                accepts = Annotated[accepts, Meta(min_length=1)]
            if not self._needs_value(column):
                accepts = accepts | None
            optional = partial or not self._needs_value(column)
            fields.append((name, accepts | UnsetType, UNSET) if optional else (name, accepts))
        self.type = msgspec.defstruct(
            f"{table.__name__}Changes" if partial else f"New{table.__name__}", fields, kw_only=True
        )

    def _needs_value(self, column: Column) -> bool:
        return column.name in self.needed or (column.default is None and not column.null)

    def read(self, value: Any) -> dict[str, Any]:
        """The columns that a body sets, as stored. Raises InvalidBody with the place of the fault."""
        given = msgspec.structs.asdict(convert(value, self.type))
        return {name: self._store(name, value) for name, value in given.items() if value is not UNSET}

    def _store(self, name: str, value: Any) -> Any:
        column = self.columns[name]
        if value is None or (value == "" and not self._needs_value(column)):
            return column.default() if callable(column.default) else column.default
        try:
            return column.store(value)
        except ValueError as error:
            raise InvalidBody(f"$.{name}: {error}") from None


def convert(value: Any, kind: Any) -> Any:
    """A JSON value as a declared type. Raises InvalidBody: `$.location[2]: expected int`."""
    try:
        found = msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        complaint, place = _PLACE.match(str(error)).groups()  # type: ignore[union-attr]
        expected = _EXPECTED.match(complaint)
        reason = f"expected {expected[1]}" if expected else complaint.replace("`", "")
        raise InvalidBody(f"{place or '$'}: {reason[0].lower()}{reason[1:]}") from None
    _read_members(found, "$")
    return found


def _read_members(value: Any, place: str) -> None:
    """Let the readers of a struct's members read them; what is empty has nothing to read."""
    if not isinstance(value, Struct):
        return
    for name, hint in hints_of(type(value)).items():
        member = getattr(value, name)
        _read_members(member, f"{place}.{name}")
        for reader in readers(hint) if member else ():
            try:
                setattr(value, name, reader(member))
            except ValueError as error:
                raise InvalidBody(f"{place}.{name}: {error}") from None


@functools.cache
def readers(hint: Any) -> list[Callable[[str], str]]:
    """The functions in an annotation, such as `Annotated[str, clock.read_uuid]`, that read what a client sent.

    Each gives the text as it is stored, or raises ValueError with the reason.
    """
    parts = [hint, *get_args(hint)]
    found = [extra for part in parts for extra in getattr(part, "__metadata__", ())]
    return [extra for extra in found if callable(extra) and not isinstance(extra, type)]


def resolve(kind: Any) -> Any:
    """The wire type behind an annotation.

    Tables become their shapes; `Annotated` rows, objects and columns become what the annotation says of them.
    """
    if isinstance(kind, type) and issubclass(kind, Table):
        return shape(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Page:
        return list[resolve(arguments[0])]  # type: ignore[misc]
    if origin is Annotated and arguments[0] in (msgspec.Raw, dict[str, Any]):
        return arguments[1].type if isinstance(arguments[1], Writes) else resolve(arguments[1])
    if origin is list:
        return list[resolve(arguments[0])]  # type: ignore[misc]
    if isinstance(kind, type) and issubclass(kind, Struct):
        named = {name: (hint, resolve(hint)) for name, hint in get_type_hints(kind, include_extras=True).items()}
        if any(given != wire for given, wire in named.values()):
            return msgspec.defstruct(kind.__name__, [(name, wire) for name, (_, wire) in named.items()])
    return kind


@functools.cache
def variant(kind: type[Struct], *, required: bool) -> type[Struct]:
    """A struct and those inside it with every member required, or with every member optional and nullable."""
    fields: list[Any] = []
    for member in msgspec.structs.fields(kind):
        inside = isinstance(member.type, type) and issubclass(member.type, Struct)
        hint = variant(member.type, required=required) if inside else hints_of(kind)[member.name]
        fields.append((member.name, hint) if required else (member.name, hint | None | UnsetType, UNSET))
    return msgspec.defstruct(kind.__name__ if required else f"{kind.__name__}Changes", fields)


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of a query or body, by name; of none where there is none."""
    return get_type_hints(kind, include_extras=True) if kind else {}


def may_be_empty(kind: Any) -> bool:
    """Whether a query or body may be left out: there is none, or none of its members is required."""
    return not kind or not any(member.required for member in msgspec.structs.fields(kind))


def may_be_left_out(kind: Any) -> bool:
    """Whether a request may come without this body. A patch, which is no struct, has to be there."""
    return isinstance(kind, type) and may_be_empty(kind)
