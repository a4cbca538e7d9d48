"""Step 15: covers and icons of bots."""

STATEMENTS = (
    """CREATE TABLE bot_picture (
        id TEXT NOT NULL PRIMARY KEY,
        bot_id TEXT NOT NULL REFERENCES bot (id) DEFERRABLE INITIALLY DEFERRED,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        image TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX bot_picture_name ON bot_picture (name)",
)
