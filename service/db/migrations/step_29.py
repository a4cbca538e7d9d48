"""Step 29: receipts of messages."""

STATEMENTS = (
    "ALTER TABLE chat_session ADD COLUMN delivered_to_customer TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE chat_session ADD COLUMN read_by_customer TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE chat_session ADD COLUMN delivered_to_staff TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE chat_session ADD COLUMN read_by_staff TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE chat_session ADD COLUMN receipt_revision BIGINT NOT NULL DEFAULT 0",
)
