"""Step 24: the use of the assistant by apps."""

STATEMENTS = (
    """CREATE TABLE assistant_usage (
        app_id TEXT NOT NULL PRIMARY KEY REFERENCES app (id) DEFERRABLE INITIALLY DEFERRED,
        month TEXT NOT NULL,
        tokens BIGINT NOT NULL,
        minute BIGINT NOT NULL,
        requests BIGINT NOT NULL
    )""",
)
