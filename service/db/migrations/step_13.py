"""Step 13: canned replies of apps."""

STATEMENTS = (
    """CREATE TABLE canned_reply (
        id TEXT NOT NULL PRIMARY KEY,
        app_id TEXT NOT NULL REFERENCES app (id) DEFERRABLE INITIALLY DEFERRED,
        shortcut TEXT NOT NULL,
        language TEXT NOT NULL,
        text TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL
    )""",
    "CREATE INDEX canned_reply_app_id_shortcut_id ON canned_reply (app_id, shortcut, id)",
)
