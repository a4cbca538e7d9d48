"""Step 21: the ntfy topics of users."""

STATEMENTS = (
    """CREATE TABLE push_topic (
        user_id TEXT NOT NULL PRIMARY KEY REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        topic TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX push_topic_topic ON push_topic (topic)",
)
