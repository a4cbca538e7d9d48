"""Step 7: a chat session knows the languages of its customer's browser; login sessions that ended lately are found in
an index; a message may be deleted for the customer alone.
"""

STATEMENTS = (
    "ALTER TABLE chat_session ADD COLUMN accept_language TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE message ADD COLUMN hidden_at TEXT",
    "CREATE INDEX login_session_ended ON login_session (ended_at) WHERE (ended_at IS NOT NULL)",
)
