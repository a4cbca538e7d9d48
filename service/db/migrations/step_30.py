"""Step 30: the resource that the tokens of a login session are for (RFC 8707)."""

STATEMENTS = (
    "ALTER TABLE login_session ADD COLUMN resource TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE approval ADD COLUMN resource TEXT NOT NULL DEFAULT ''",
)
