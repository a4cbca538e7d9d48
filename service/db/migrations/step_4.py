"""Step 4: the audit log; change tracking without private notes; the latest time of the clock."""

# On SQLite, an INTEGER primary key is the key of the table itself, so there is no separate index that could differ.
POSITION = {"sqlite": "INTEGER", "postgresql": "BIGINT"}

STATEMENTS: tuple[str | dict[str, str], ...] = (
    {
        kind: f"""CREATE TABLE ledger (
            position {number} NOT NULL PRIMARY KEY,
            created_at TEXT NOT NULL,
            kind TEXT NOT NULL,
            actor_id TEXT NOT NULL,
            subject_id TEXT NOT NULL,
            details TEXT NOT NULL,
            hash TEXT NOT NULL
        )"""
        for kind, number in POSITION.items()
    },
    "CREATE TABLE moment (id BIGINT NOT NULL PRIMARY KEY, latest BIGINT NOT NULL)",
    "ALTER TABLE chat_session ADD COLUMN public_news_at BIGINT NOT NULL DEFAULT 0",
    "UPDATE chat_session SET public_news_at = news_at",
    "CREATE INDEX chat_session_user_id_public_news_at_id ON chat_session (user_id, public_news_at, id)",
    """UPDATE message SET reply_to_message_id = NULL, reply_snapshot = '[]'
        WHERE NOT is_private AND reply_to_message_id IN (SELECT id FROM message WHERE is_private)""",
)
