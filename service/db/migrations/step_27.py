"""Step 27: the contents of read-once messages, apart from those that are listed."""

from service import db

_SEAL = """UPDATE message SET sealed_content = content, content = '[]', original_content = '[]', translations = '[]',
    plain_text = '', search_text = ''
    WHERE is_read_once AND NOT is_private AND content_type <> 'image' AND content <> '[]'
    AND deleted_at IS NULL AND gdpr_purged_at IS NULL"""
_SEALED = "(SELECT id FROM message WHERE sealed_content <> '[]')"


def remove_previews() -> None:
    """Remove the texts of the messages from notifications."""
    db.database.execute_sql(f"UPDATE notification SET body = '' WHERE message_id IN {_SEALED}")
    if db.database.kind == "postgresql":
        # Checks the foreign keys of messages that were changed twice: with pending checks, tables cannot be altered.
        db.database.execute_sql("SET CONSTRAINTS ALL IMMEDIATE")


STATEMENTS = (
    "ALTER TABLE message ADD COLUMN sealed_content TEXT NOT NULL DEFAULT '[]'",
    _SEAL,
    f"UPDATE message SET reply_snapshot = '[]' WHERE reply_to_message_id IN {_SEALED}",
    remove_previews,
)
