"""Copies the rows of the service into the tables of the other servers."""

import sqlite3
from contextlib import closing
from pathlib import Path

FLAGS = {"is_edited": "edited_at", "is_pinned": "pinned_at", "gdpr_purged": "gdpr_purged_at", "is_read": "read_at"}
TABLES = ("chat_session", "message", "bot", "notification", "event", "feedback")


def copy_rows(folder: Path, path: Path, users: str = "user") -> None:
    """Fill the tables of another server: columns with the same name have the same values.

    The flags in FLAGS are not columns of the service, but derive from times. PocketBase has no nulls.
    """
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ATTACH ? AS source", [str(folder / "service" / "service.db")])
        if users == "users":
            database.execute("UPDATE users SET settings = (SELECT settings FROM source.user WHERE user.id = users.id)")
        else:
            database.execute("INSERT INTO user SELECT id, email, is_disabled, settings FROM source.user")
        for table in TABLES:
            columns = {row[1]: row[3] for row in database.execute(f"PRAGMA main.table_info({table})")}
            values = [
                f"{FLAGS[name]} IS NOT NULL" if name in FLAGS else f"coalesce({name}, '')" if needed else name
                for name, needed in columns.items()
            ]
            if table == "message" and "user_id" in columns:
                values[list(columns).index("user_id")] = "owner_id"
            names = ", ".join(columns)
            database.execute(f"INSERT INTO main.{table} ({names}) SELECT {', '.join(values)} FROM source.{table}")
