"""Step 18: the branding that admins set in the console."""

STATEMENTS = (
    """CREATE TABLE stored_branding (
        id BIGINT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL,
        accent TEXT NOT NULL,
        contact TEXT NOT NULL,
        logo TEXT NOT NULL
    )""",
)
