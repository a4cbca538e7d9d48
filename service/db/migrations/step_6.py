"""Step 6: an index that alone suffices to count unread notifications, and to find those of a chat session."""

STATEMENTS = (
    """CREATE INDEX notification_told ON notification (user_id, read_at, session_id, message_id)
        WHERE (read_at IS NULL)""",
)
