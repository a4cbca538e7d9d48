"""Step 8: names of tables, columns and indexes in standard terms.

On PostgreSQL, instances of the previous version continue to use the database until each of them is replaced. For them,
the former names remain: a table has a view with its former name, and a column of any other table has a copy with its
former name, which triggers keep equal. A database that no instance has used yet has only the new names. A step of a
later version removes the former names.
"""

from collections.abc import Callable, Mapping

from service import db

TABLES = {
    "ledger": "audit_log",
    "kept_answer": "idempotency_key",
    "due_answer": "pending_reply",
    "moment": "clock_state",
}
COLUMNS = {  # by the new name of the table
    "idempotency_key": {"kept_until": "expires_at"},
    "chat_session": {"news_at": "revision", "public_news_at": "public_revision"},
    "user": {"news_at": "revision"},
    "approval": {"answered_at": "decided_at"},
}
UNREAD = "(user_id, read_at, session_id, message_id) WHERE (read_at IS NULL)"
INDEXES = {  # the former name, the new name, and the rest of the statement that creates it on SQLite
    "kept_answer_kept_until": ("idempotency_key_expires_at", "ON idempotency_key (expires_at)"),
    "due_answer_chat_session_id": ("pending_reply_chat_session_id", "ON pending_reply (chat_session_id)"),
    "due_answer_due_at": ("pending_reply_due_at", "ON pending_reply (due_at)"),
    "chat_session_news_at_id": ("chat_session_revision_id", "ON chat_session (revision, id)"),
    "chat_session_user_id_public_news_at_id": (
        "chat_session_user_id_public_revision_id",
        "ON chat_session (user_id, public_revision, id)",
    ),
    "user_news_at": ("user_revision", 'ON "user" (revision)'),
    "approval_answered_at": ("approval_decided_at", "ON approval (decided_at)"),
    "notification_told": ("notification_unread_session", f"ON notification {UNREAD}"),
    "message_hidden": ("message_deleted", "ON message (chat_session_id, id) WHERE (deleted_at IS NOT NULL)"),
}
UNIQUE = ("due_answer_chat_session_id",)
FORMER_INDEXES = (  # of the copies
    "chat_session_news_at_id ON chat_session (news_at, id)",
    "chat_session_user_id_public_news_at_id ON chat_session (user_id, public_news_at, id)",
    'user_news_at ON "user" (news_at)',
    "approval_answered_at ON approval (answered_at)",
)


def complete() -> None:
    """Rename the constraints, and keep the former names for other instances, if any instance has used the database."""
    rename_constraints()
    if db.database.execute_sql("SELECT 1 FROM signing_key LIMIT 1").fetchone():
        keep_former_names()


def rename_constraints() -> None:
    """Rename the constraints, which PostgreSQL has named after tables and columns."""
    former_tables = {new: former for former, new in TABLES.items()}
    select = "SELECT conname FROM pg_constraint WHERE conrelid = '\"{}\"'::regclass"
    for table in former_tables | COLUMNS:
        for (name,) in db.database.execute_sql(select.format(table)).fetchall():
            renamed = name
            if table in former_tables:
                renamed = renamed.replace(f"{former_tables[table]}_", f"{table}_", 1)
            for former, new in COLUMNS.get(table, {}).items():
                renamed = renamed.replace(f"{table}_{former}_", f"{table}_{new}_")
            if renamed != name:
                db.database.execute_sql(f'ALTER TABLE "{table}" RENAME CONSTRAINT "{name}" TO "{renamed}"')


def keep_former_names() -> None:
    """Let instances of the previous version continue to use the database."""
    # Checks the foreign keys of rows that were changed twice: with pending checks, PostgreSQL creates no index.
    db.database.execute_sql("SET CONSTRAINTS ALL IMMEDIATE")
    for former, table in TABLES.items():
        former_columns = {new: old for old, new in COLUMNS.get(table, {}).items()}
        names = (column.name for column in db.database.get_columns(table))
        columns = ", ".join(f"{name} AS {former_columns.get(name, name)}" for name in names)
        db.database.execute_sql(f"CREATE VIEW {former} AS SELECT {columns} FROM {table}")
    for table in COLUMNS.keys() - TABLES.values():
        _copy_columns(table, COLUMNS[table])
    for index in FORMER_INDEXES:
        db.database.execute_sql(f"CREATE INDEX {index}")


def _copy_columns(table: str, columns: Mapping[str, str]) -> None:
    """Add copies with the former names. These times only increase, so the later of both is the current one."""
    added = ", ".join(f"ADD COLUMN {former} BIGINT NOT NULL DEFAULT 0" for former in columns)
    equal = ", ".join(f"{former} = {new}" for former, new in columns.items())
    changes = " ".join(
        f"NEW.{new} := greatest(NEW.{new}, NEW.{former}); NEW.{former} := NEW.{new};" for former, new in columns.items()
    )
    function = f"copy_former_columns_of_{table}"
    for statement in (
        f'ALTER TABLE "{table}" {added}',
        f'UPDATE "{table}" SET {equal}',
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {changes} RETURN NEW; END $$",
        f'CREATE TRIGGER {function} BEFORE INSERT OR UPDATE ON "{table}" FOR EACH ROW EXECUTE FUNCTION {function}()',
    ):
        db.database.execute_sql(statement)


STATEMENTS: tuple[str | dict[str, str] | dict[str, Callable[[], None]], ...] = (
    *(f"ALTER TABLE {former} RENAME TO {new}" for former, new in TABLES.items()),
    *(
        f'ALTER TABLE "{table}" RENAME COLUMN {former} TO {new}'
        for table, columns in COLUMNS.items()
        for former, new in columns.items()
    ),
    *(
        {"sqlite": f"DROP INDEX {former}", "postgresql": f"ALTER INDEX {former} RENAME TO {new}"}
        for former, (new, _) in INDEXES.items()
    ),
    *({"sqlite": f"CREATE {'UNIQUE ' * (former in UNIQUE)}INDEX {new} {on}"} for former, (new, on) in INDEXES.items()),
    {"postgresql": complete},
)
