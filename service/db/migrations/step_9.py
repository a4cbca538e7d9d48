"""Step 9: pictures of messages."""

STATEMENTS = (
    """CREATE TABLE message_image (
        id TEXT NOT NULL PRIMARY KEY,
        chat_session_id TEXT NOT NULL REFERENCES chat_session (id) DEFERRABLE INITIALLY DEFERRED,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        message_id TEXT REFERENCES message (id) DEFERRABLE INITIALLY DEFERRED,
        position BIGINT NOT NULL,
        created_at TEXT NOT NULL,
        width BIGINT NOT NULL,
        height BIGINT NOT NULL,
        thumbnail TEXT NOT NULL,
        image TEXT NOT NULL
    )""",
    "CREATE INDEX message_image_sent ON message_image (message_id, position) WHERE (message_id IS NOT NULL)",
    "CREATE INDEX message_image_unsent ON message_image (created_at) WHERE (message_id IS NULL)",
    "CREATE INDEX message_image_user ON message_image (user_id, message_id)",
)
