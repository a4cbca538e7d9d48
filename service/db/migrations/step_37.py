"""Step 37: smaller messages.

One index has the messages of a session, texts that SQL's lower() gives are not stored again for the search, and SQLite
stores the owner and the app as 16 bytes. PostgreSQL keeps the rows that instances of the previous version read.
"""

NULLS_FIRST = {"sqlite": "", "postgresql": " NULLS FIRST"}  # see step 1

_SHORTEN = """UPDATE message SET owner_id = unhex(owner_id, '-'), app_id = unhex(app_id, '-'),
    search_text = CASE WHEN search_text = lower(plain_text) THEN '' ELSE search_text END"""

STATEMENTS: tuple[str | dict[str, str], ...] = (
    "DROP INDEX message_public",
    "DROP INDEX message_shown",
    {
        kind: f"""CREATE INDEX message_shown ON message (chat_session_id, id{nulls}, is_private)
            WHERE (deleted_at IS NULL)"""
        for kind, nulls in NULLS_FIRST.items()
    },
    {"sqlite": "DROP INDEX message_owner"},
    {"sqlite": "DROP INDEX message_app"},
    {"sqlite": _SHORTEN},
    {"sqlite": "CREATE INDEX message_owner ON message (owner_id, id) WHERE (deleted_at IS NULL AND NOT is_private)"},
    {"sqlite": "CREATE INDEX message_app ON message (app_id, id) WHERE (deleted_at IS NULL)"},
)
