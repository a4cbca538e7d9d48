"""Step 25: Web Push."""

STATEMENTS = (
    "CREATE TABLE push_key (id BIGINT NOT NULL PRIMARY KEY, private_key TEXT NOT NULL)",
    """CREATE TABLE push_subscription (
        id TEXT NOT NULL PRIMARY KEY,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        login_session_id TEXT NOT NULL,
        endpoint TEXT NOT NULL,
        p256dh TEXT NOT NULL,
        auth TEXT NOT NULL,
        created_at BIGINT NOT NULL
    )""",
    "CREATE INDEX push_subscription_user_id ON push_subscription (user_id)",
    "CREATE UNIQUE INDEX push_subscription_endpoint ON push_subscription (endpoint)",
)
