"""Step 19: the outbox, announcements, and an index for reminders of all users."""

STATEMENTS = (
    """CREATE TABLE delivery (
        id TEXT NOT NULL PRIMARY KEY,
        channel TEXT NOT NULL,
        target TEXT NOT NULL,
        topic TEXT NOT NULL,
        kind TEXT NOT NULL,
        user_id TEXT REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        payload TEXT NOT NULL,
        is_urgent BOOL NOT NULL,
        is_open BOOL NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        closed_at BIGINT,
        due_at BIGINT NOT NULL,
        attempts BIGINT NOT NULL,
        failed_at BIGINT,
        error TEXT NOT NULL
    )""",
    "CREATE INDEX delivery_user_id ON delivery (user_id)",
    "CREATE INDEX delivery_due ON delivery (channel, target, due_at) WHERE (failed_at IS NULL)",
    "CREATE INDEX delivery_topic ON delivery (channel, target, topic, id) WHERE (failed_at IS NULL)",
    "CREATE INDEX delivery_failed ON delivery (failed_at) WHERE (failed_at IS NOT NULL)",
    "CREATE UNIQUE INDEX delivery_open ON delivery (channel, target, topic) WHERE is_open",
    """CREATE TABLE announcement (
        id TEXT NOT NULL PRIMARY KEY,
        app_id TEXT NOT NULL REFERENCES app (id) DEFERRABLE INITIALLY DEFERRED,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        recipients BIGINT NOT NULL,
        created_at TEXT NOT NULL,
        finished_at TEXT,
        last_user_id TEXT NOT NULL
    )""",
    "CREATE INDEX announcement_app_id_created_at_id ON announcement (app_id, created_at, id)",
    "CREATE INDEX announcement_unfinished ON announcement (created_at) WHERE (finished_at IS NULL)",
    "CREATE INDEX event_reminders_due ON event (reminder_due, user_id) WHERE (reminder_due IS NOT NULL)",
)
