"""Step 20: webhooks that have ended."""

STATEMENTS = ("CREATE TABLE ended_webhook (url TEXT NOT NULL PRIMARY KEY, ended_at TEXT NOT NULL)",)
