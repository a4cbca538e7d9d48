"""Step 7: login sessions that ended lately are found in an index."""

STATEMENTS = ("CREATE INDEX login_session_ended ON login_session (ended_at) WHERE (ended_at IS NOT NULL)",)
