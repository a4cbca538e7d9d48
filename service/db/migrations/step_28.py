"""Step 28: ratings of chat sessions."""

STATEMENTS = (
    """CREATE TABLE chat_rating (
        chat_session_id TEXT NOT NULL PRIMARY KEY REFERENCES chat_session (id) DEFERRABLE INITIALLY DEFERRED,
        score BIGINT NOT NULL,
        comment TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        app_id TEXT,
        bot_id TEXT
    )""",
    "CREATE INDEX chat_rating_app_id_updated_at_score ON chat_rating (app_id, updated_at, score)",
    "CREATE INDEX chat_rating_bot_id_updated_at_score ON chat_rating (bot_id, updated_at, score)",
)
