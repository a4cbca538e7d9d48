"""Step 33: the translations of messages that only staff sees."""

STATEMENTS = ("ALTER TABLE message ADD COLUMN staff_translations TEXT NOT NULL DEFAULT '[]'",)
