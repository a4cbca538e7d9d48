"""Step 23: when chat sessions were handed over to people."""

STATEMENTS = ("ALTER TABLE chat_session ADD COLUMN handed_over_at TEXT",)
