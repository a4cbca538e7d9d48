"""The staff of an app: its agents, and admins."""

from typing import Literal

import msgspec
from msgspec import Struct

from service.db import Page, Position, Query, compiled, snapshot
from service.fields import SqlValue, Uuid
from service.models.users import User


class StaffMember(Struct):
    """A member of the staff of an app; `name` is empty if it is not set."""

    id: Uuid
    name: str
    role: Literal["agent", "admin"]


def list_staff(app_id: str, after: Position, limit: int) -> Page[StaffMember]:
    """Return a page of the enabled staff of an app, by identifier."""
    with snapshot():
        agents = _members("agent", limit + 1, app_id, *after.key, of_app=True).rows()
        admins = _members("admin", limit + 1, *after.key, of_app=False).rows()
    rows = sorted([*agents, *admins])[: limit + 1]
    found = [
        StaffMember(id, display_name or f"{first_name} {last_name}".strip(), role)
        for id, role, display_name, first_name, last_name in rows[:limit]
    ]
    return Page(msgspec.json.encode(found), (found[-1].id,) if len(rows) > limit else ())


def staff_ids(app_id: str, limit: int) -> list[str]:
    """Return the identifiers of enabled staff of an app, at most `limit`: its agents first, then admins."""
    agents = [id for id, *_ in _members("agent", limit, app_id, of_app=True).rows()]
    admins = [id for id, *_ in _members("admin", limit, of_app=False).rows()] if len(agents) < limit else []
    return [*agents, *admins][:limit]


@compiled
def _members(role: str, limit: int, *bounds: SqlValue, of_app: bool) -> Query:
    """Select the members with a role; `bounds` are the app, if `of_app`, and the previous identifier, if given."""
    found = User.select(User.id, User.role, User.display_name, User.first_name, User.last_name)
    found = found.where(User.role == role, ~User.is_disabled)
    if of_app:
        found = found.where(User.app_id == bounds[0])
    if len(bounds) > of_app:
        found = found.where(User.id > bounds[-1])
    return found.order_by(User.id).limit(limit)


User.add_index(User.role, User.id, name="user_of_role")
User.add_index(User.app_id, User.role, User.id, name="user_of_app")
