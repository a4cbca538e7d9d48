"""Step 16: the search text of users; indexes for lists of users by role and by app."""

from collections.abc import Callable

from service import db, validators

BATCH = 1000  # users


def complete_users() -> None:
    """Fill in the search texts."""
    param = db.database.param
    columns = "id, email, first_name, last_name, display_name"
    select = f'SELECT {columns} FROM "user" WHERE id > {param} ORDER BY id LIMIT {BATCH}'
    update = f'UPDATE "user" SET search_text = {param} WHERE id = {param}'
    last = ""
    while rows := db.database.execute_sql(select, (last,)).fetchall():
        for last, *texts in rows:
            db.database.execute_sql(update, ("\nA\n".join(map(validators.fold, texts)), last))
    if db.database.kind == "postgresql":
        # Checks the foreign keys of rows that were changed twice: with pending checks, PostgreSQL creates no index.
        db.database.execute_sql("SET CONSTRAINTS ALL IMMEDIATE")


STATEMENTS: tuple[str | Callable[[], None], ...] = (
    """ALTER TABLE "user" ADD COLUMN search_text TEXT NOT NULL DEFAULT ''""",
    complete_users,
    'CREATE INDEX user_role_email ON "user" (role, email)',
    'CREATE INDEX user_app_id_email ON "user" (app_id, email)',
)
