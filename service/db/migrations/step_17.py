"""Step 17: screenshots of feedback."""

STATEMENTS = (
    """CREATE TABLE feedback_screenshot (
        feedback_id TEXT NOT NULL PRIMARY KEY REFERENCES feedback (id) DEFERRABLE INITIALLY DEFERRED,
        width BIGINT NOT NULL,
        height BIGINT NOT NULL,
        thumbnail TEXT NOT NULL,
        image TEXT NOT NULL
    )""",
)
