"""Step 35: the requests to the assistant by app and month. The tokens of the current months were counted before."""

STATEMENTS = (
    """CREATE TABLE assistant_month (
        app_id TEXT NOT NULL REFERENCES app (id) DEFERRABLE INITIALLY DEFERRED,
        month TEXT NOT NULL,
        tokens BIGINT NOT NULL,
        replies BIGINT NOT NULL,
        handovers BIGINT NOT NULL,
        tool_calls BIGINT NOT NULL,
        suggestions BIGINT NOT NULL,
        translations BIGINT NOT NULL,
        errors BIGINT NOT NULL,
        PRIMARY KEY (app_id, month)
    )""",
    """INSERT INTO assistant_month
            (app_id, month, tokens, replies, handovers, tool_calls, suggestions, translations, errors)
        SELECT app_id, month, tokens, 0, 0, 0, 0, 0, 0 FROM assistant_usage WHERE tokens > 0""",
)
