"""Step 37: smaller messages: one index of the messages of a session, and no search texts that SQL's lower() gives."""

NULLS_FIRST = {"sqlite": "", "postgresql": " NULLS FIRST"}  # see step 1

STATEMENTS: tuple[str | dict[str, str], ...] = (
    "DROP INDEX message_public",
    "DROP INDEX message_shown",
    # SQLite's lower() changes only ASCII letters. On PostgreSQL, instances of the previous version search this column.
    {"sqlite": "UPDATE message SET search_text = '' WHERE search_text = lower(plain_text)"},
    {
        kind: f"""CREATE INDEX message_shown ON message (chat_session_id, id{nulls}, is_private)
            WHERE (deleted_at IS NULL)"""
        for kind, nulls in NULLS_FIRST.items()
    },
)
