"""Step 11: assignees of chat sessions, snoozing until a time, and the indexes of the filters of the inbox."""

ACTIVITY = {"sqlite": "active_at, id", "postgresql": "active_at NULLS FIRST, id NULLS FIRST"}  # see step 1
INDEXES = {
    "chat_session_status": "status, {}, assignee_id, bot_id)",
    "chat_session_app_status": "app_id, status, {}, assignee_id, bot_id)",
    "chat_session_assignee": "assignee_id, status, {}, app_id, bot_id) WHERE (assignee_id IS NOT NULL)",
}

STATEMENTS: tuple[str | dict[str, str], ...] = (
    'ALTER TABLE chat_session ADD COLUMN assignee_id TEXT REFERENCES "user" ("id") DEFERRABLE INITIALLY DEFERRED',
    "ALTER TABLE chat_session ADD COLUMN given_back_at TEXT",
    "ALTER TABLE chat_session ADD COLUMN snoozed_until TEXT",
    *(
        {kind: f"CREATE INDEX {name} ON chat_session ({columns.format(order)}" for kind, order in ACTIVITY.items()}
        for name, columns in INDEXES.items()
    ),
    "CREATE INDEX chat_session_snoozed ON chat_session (snoozed_until) WHERE (snoozed_until IS NOT NULL)",
)
