"""The chats that a caller may access, as conditions of one index range each. Joined by OR, they would use no index."""

from typing import Literal

import peewee

from service.fields import Identifier, SqlValue
from service.models.callers import Caller
from service.models.chats import ChatSession

Scope = Literal["all", "app", "own", "own in other apps"]
STAFF_SCOPES = ("all", "app")  # of which the caller is staff


def scopes_of(caller: Caller) -> tuple[Scope, ...]:
    """Return the disjoint scopes that a caller may access: all, those of the caller's app, the caller's own."""
    if caller.role == "admin":
        return ("all",)
    if caller.role == "agent" and caller.app_id:
        return "app", "own in other apps"
    return ("own",)


def scope_condition(
    scope: Scope, own: peewee.Expression, app_id: Identifier, caller_app_id: SqlValue, staff: peewee.Expression
) -> peewee.Expression:
    """Return the condition of a scope, from the condition of `own` rows and that of rows visible to `staff`."""
    conditions: dict[Scope, peewee.Expression] = {
        "all": staff,
        "app": (app_id == caller_app_id) & staff,
        "own": own,
        "own in other apps": own & (app_id != caller_app_id),
    }
    return conditions[scope]


def session_condition(scope: Scope, user_id: SqlValue, caller_app_id: SqlValue) -> peewee.Expression:
    """Return the condition of the chat sessions in a scope."""
    own, every = ChatSession.user_id == user_id, ChatSession.id.is_null(False)
    return scope_condition(scope, own, ChatSession.app_id, caller_app_id, every)
