"""Step 6: unread notifications are counted in an index alone, and those of a chat session are found in it."""

STATEMENTS = (
    """CREATE INDEX notification_told ON notification (user_id, read_at, session_id, message_id)
        WHERE (read_at IS NULL)""",
)
