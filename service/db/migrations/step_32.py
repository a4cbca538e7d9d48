"""Step 32: the calls of tools in a pending reply."""

STATEMENTS = ("ALTER TABLE pending_reply ADD COLUMN turn TEXT NOT NULL DEFAULT ''",)
