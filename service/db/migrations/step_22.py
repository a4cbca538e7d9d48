"""Step 22: the e-mails of a demo."""

STATEMENTS = (
    """CREATE TABLE stored_mail (
        id TEXT NOT NULL PRIMARY KEY,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        address TEXT NOT NULL,
        subject TEXT NOT NULL,
        content TEXT NOT NULL
    )""",
    "CREATE INDEX stored_mail_user_id ON stored_mail (user_id)",
)
