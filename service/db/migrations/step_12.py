"""Step 12: the requests of command-line clients without a browser."""

STATEMENTS = (
    """CREATE TABLE device_authorization (
        id TEXT NOT NULL PRIMARY KEY,
        user_code TEXT NOT NULL,
        network TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        poll_interval BIGINT NOT NULL,
        polled_at BIGINT NOT NULL,
        scope TEXT NOT NULL,
        scopes TEXT NOT NULL,
        install_id TEXT NOT NULL,
        install_name TEXT NOT NULL,
        user_id TEXT REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        is_granted BOOLEAN NOT NULL,
        approved_by TEXT,
        used_at BIGINT,
        login_session_id TEXT
    )""",
    "CREATE UNIQUE INDEX device_authorization_user_code ON device_authorization (user_code)",
    "CREATE INDEX device_authorization_expires_at ON device_authorization (expires_at)",
    "CREATE INDEX device_authorization_network_expires_at ON device_authorization (network, expires_at)",
)
