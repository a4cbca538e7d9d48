"""Deletion of a user, with all rows that belong to the user.

Declared references determine what is deleted. Rows that refer to the user are deleted, and so are the rows that refer
to them, such as the messages of a chat session and notifications about it. In rows that belong to another user, such as
a chat session of which the user is the assignee, the reference is cleared. Messages that staff wrote in the chat
sessions of other users remain, with a `sender_id` that belongs to no user; their pictures then belong to the customer.
Entries of the audit log remain.
"""

import functools
import operator
from collections.abc import Iterator

import peewee

from service.db import Query, Row, Table, write
from service.errors import UserNotFound
from service.fields import Column, primary_key
from service.models import TABLES, ChatSession, MessageImage
from service.models.audit_log import AuditLog
from service.models.logins import LoginSession
from service.models.users import ADMINS, User
from service.models.webhooks import emit

BATCH_SIZE = 100  # rows deleted in a transaction


def delete_user(user: User, actor_id: str) -> None:
    """Delete a user and the user's data. Raises LastAdmin or UserNotFound.

    The user is disabled first. Then rows are deleted in short transactions, so that other writers need not wait. After
    an interruption, a repetition deletes the rest.
    """
    with write(user.id, ADMINS):
        if not User.select().where(User.id == user.id).exists():
            raise UserNotFound
        User.get_by_id(user.id).require_other_admin()
        User.update(is_disabled=True).where(User.id == user.id).execute()
        LoginSession.end_all(user.id)
        User.staff_changed(user.id)
    _hand_over_pictures(user.id)
    for table, column in references_to(User):
        if _has_other_owner(table, column):
            _clear(table, column, user.id)
        else:
            _delete(table, column == user.id)
    with write(user.id):
        if User.delete().where(User.id == user.id).execute():
            emit("user.deleted", user.id, user_id=user.id, role=user.role, app_id=user.app_id)
            AuditLog.record("user_deleted", actor_id, user.id, role=user.role, app=user.app_id)


def _hand_over_pictures(user_id: str) -> None:
    """Set the customer as the owner of the pictures in messages that the user wrote in the chat sessions of others."""
    customer = ChatSession.select(ChatSession.user_id).where(ChatSession.id == MessageImage.chat_session_id)
    sent = (MessageImage.user_id == user_id) & MessageImage.message_id.is_null(False)
    with write(user_id):
        MessageImage.update(user_id=customer).where(sent).execute()


def references_to(table: type[Table]) -> Iterator[tuple[type[Table], Column]]:
    """Yield the columns of other tables that refer to a table."""
    for other in TABLES:
        for column in other._meta.sorted_fields:
            if column.refers_to == table._meta.table_name and other is not table:
                yield other, column


def _has_other_owner(table: type[Table], column: Column) -> bool:
    """Return whether the rows in which an optional column refers to a user belong to another user."""
    return column.null and any(other.refers_to == "user" and not other.null for other in table._meta.sorted_fields)


def _delete(table: type[Table], condition: peewee.Expression) -> None:
    """Delete rows, and the rows that refer to them, newest first where keys are ordered by time."""
    while keys := _keys(table, condition):
        for other, column in references_to(table):
            _delete(other, column.in_([id for (id,) in keys]))
        with write(*sorted({str(key[0]) for key in keys})):  # a message may have been added in the meantime
            for other, column in references_to(table):
                if column.constraints:
                    other.delete().where(column.in_([id for (id,) in keys])).execute()
            for key in keys:
                table.delete().where(_has_key(table, key)).execute()


def _clear(table: type[Table], column: Column, id: str) -> None:
    """Set a column to NULL in the rows where it has a value."""
    while keys := _keys(table, column == id):
        with write(*sorted({str(key[0]) for key in keys})):
            for key in keys:
                table.update({column: None}).where(_has_key(table, key), column == id).execute()


def _key_columns(table: type[Table]) -> list[Column]:
    key = primary_key(table)
    names = key.field_names if isinstance(key, peewee.CompositeKey) else (key.name,)
    return [column for column in table._meta.sorted_fields if column.name in names]


def _keys(table: type[Table], condition: peewee.Expression) -> list[Row]:
    """Return the primary keys of at most BATCH_SIZE rows."""
    columns = _key_columns(table)
    rows: Query = table.select(*columns).where(condition).order_by(columns[0].desc()).limit(BATCH_SIZE).tuples()
    return list(rows)


def _has_key(table: type[Table], key: Row) -> peewee.Expression:
    """Return the condition that a row has a primary key."""
    pairs = zip(_key_columns(table), key, strict=True)
    condition: peewee.Expression = functools.reduce(operator.and_, (column == value for column, value in pairs))
    return condition
