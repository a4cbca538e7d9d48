"""Step 34: the actions of canned answers."""

STATEMENTS = ("ALTER TABLE bot_answer ADD COLUMN actions TEXT NOT NULL DEFAULT '[]'",)
