"""Step 31: the credentials of MCP servers and gateways."""

STATEMENTS = (
    """CREATE TABLE server_credential (
        id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL,
        mcp_server_id TEXT NOT NULL,
        secret_digest TEXT NOT NULL,
        previous_digest TEXT NOT NULL,
        previous_expires_at TEXT,
        created_at TEXT NOT NULL,
        revoked_at TEXT
    )""",
)
