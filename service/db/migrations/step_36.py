"""Step 36: the last questions of MCP servers and gateways."""

STATEMENTS = ("ALTER TABLE server_credential ADD COLUMN last_asked_at TEXT",)
