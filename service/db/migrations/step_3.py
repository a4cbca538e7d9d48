"""Step 3: calendar feeds, canned answers, search of messages, read markers, the reply queue, change tracking."""

import json
from collections.abc import Callable

from service import clock, db, validators

# Events: due reminders, and calendar feeds.


def schedule_reminders() -> None:
    """Schedule the reminders whose time is in the future."""
    param = db.database.param
    update = f"UPDATE event SET reminder_due = reminder_at WHERE reminder_at > {param}"
    db.database.execute_sql(update, (clock.timestamp(),))


# Chats: search texts, and the order of inboxes.

BATCH = 1000  # messages


def text_in(content: str) -> str:
    """Return the text of a message content: `{"text": "…"}`, or a JSON string."""
    try:
        value = json.loads(bytes(json.loads(content)))
    except (ValueError, RecursionError):
        return ""
    text = value.get("text") if isinstance(value, dict) else value
    return text.encode(errors="replace").decode().replace("\0", "") if isinstance(text, str) else ""


def complete_messages() -> None:
    """Fill in the search texts."""
    param = db.database.param
    select = f"SELECT id, content FROM message WHERE id > {param} AND gdpr_purged_at IS NULL ORDER BY id LIMIT {BATCH}"
    update = f"UPDATE message SET plain_text = {param}, search_text = {param} WHERE id = {param}"
    last = ""
    while rows := db.database.execute_sql(select, (last,)).fetchall():
        for last, content in rows:
            text = text_in(content)
            if text:
                db.database.execute_sql(update, (text, validators.fold(text), last))


NULLS_FIRST = {"sqlite": "", "postgresql": " NULLS FIRST"}  # see step 1

STATEMENTS: tuple[str | Callable[[], None] | dict[str, str], ...] = (
    "ALTER TABLE event ADD COLUMN reminder_due TEXT",
    schedule_reminders,
    "CREATE INDEX event_reminder_due ON event (user_id, reminder_due) WHERE (reminder_due IS NOT NULL)",
    """CREATE TABLE calendar_feed (
        user_id TEXT NOT NULL PRIMARY KEY REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        digest TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX calendar_feed_digest ON calendar_feed (digest)",
    # Login sessions: the kind of login.
    "ALTER TABLE login_session ADD COLUMN kind TEXT NOT NULL DEFAULT 'login'",
    "UPDATE login_session SET kind = 'client' WHERE install_id IS NOT NULL",
    """UPDATE login_session SET kind = 'browser'
        WHERE install_id IS NULL AND generation = 1 AND NOT is_generation_used""",
    # Lists of feedback and of all bots, and the canned answers of bots.
    "DROP INDEX feedback_user_id",
    *(
        {
            kind: f"CREATE INDEX feedback_{which}_created_at_id ON feedback ({which}, created_at{nulls}, id{nulls})"
            for kind, nulls in NULLS_FIRST.items()
        }
        for which in ("user_id", "status")
    ),
    "CREATE INDEX feedback_created_at_id ON feedback (created_at, id)",
    "DROP INDEX bot_app_id",
    "CREATE INDEX bot_app_id_name_id ON bot (app_id, name, id)",
    """CREATE TABLE bot_answer (
        id TEXT NOT NULL PRIMARY KEY,
        bot_id TEXT NOT NULL REFERENCES bot (id) DEFERRABLE INITIALLY DEFERRED,
        language TEXT NOT NULL,
        question TEXT NOT NULL,
        answer TEXT NOT NULL,
        words TEXT NOT NULL
    )""",
    "CREATE INDEX bot_answer_bot_id_id ON bot_answer (bot_id, id)",
    "ALTER TABLE message ADD COLUMN client_message_id TEXT",
    "ALTER TABLE message ADD COLUMN plain_text TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE message ADD COLUMN search_text TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE message ADD COLUMN owner_id TEXT",
    "ALTER TABLE message ADD COLUMN app_id TEXT",
    complete_messages,
    """UPDATE message SET
        owner_id = (SELECT user_id FROM chat_session WHERE chat_session.id = chat_session_id),
        app_id = (SELECT app_id FROM chat_session WHERE chat_session.id = chat_session_id)""",
    # Checks the foreign keys of rows that were changed twice: with pending checks, PostgreSQL creates no index.
    {"postgresql": "SET CONSTRAINTS ALL IMMEDIATE"},
    "CREATE INDEX message_sender ON message (chat_session_id, sender_id, id)",
    """CREATE INDEX message_client ON message (chat_session_id, sender_id, client_message_id)
        WHERE (client_message_id IS NOT NULL)""",
    *(
        {
            kind: f"CREATE INDEX {name} ON message ({who}_id, id{nulls}) WHERE ({which})"
            for kind, nulls in NULLS_FIRST.items()
        }
        for name, who, which in (
            ("message_owner", "owner", "deleted_at IS NULL AND NOT is_private"),
            ("message_app", "app", "deleted_at IS NULL"),
        )
    ),
    {
        kind: f"CREATE INDEX message_hidden ON message (chat_session_id, id{nulls}) WHERE (deleted_at IS NOT NULL)"
        for kind, nulls in NULLS_FIRST.items()
    },
    "ALTER TABLE chat_session ADD COLUMN active_at TEXT",
    """UPDATE chat_session SET active_at = coalesce(
        (SELECT created_at FROM message WHERE chat_session_id = chat_session.id
            AND deleted_at IS NULL AND NOT is_private ORDER BY id DESC LIMIT 1),
        created_at)""",
    "DROP INDEX chat_session_user_id_created_at_id",
    "DROP INDEX chat_session_app_id_created_at_id",
    "DROP INDEX chat_session_created_at_id",
    *(
        {
            kind: f"CREATE INDEX chat_session_{who}_active_at_id ON chat_session ({who}, active_at{nulls}, id{nulls})"
            for kind, nulls in NULLS_FIRST.items()
        }
        for who in ("user_id", "app_id")
    ),
    "CREATE INDEX chat_session_active_at_id ON chat_session (active_at, id)",
    """CREATE TABLE read_marker (
        chat_session_id TEXT NOT NULL REFERENCES chat_session (id) DEFERRABLE INITIALLY DEFERRED,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        message_id TEXT NOT NULL,
        PRIMARY KEY (chat_session_id, user_id)
    )""",
    "ALTER TABLE kept_answer ADD COLUMN message_id TEXT",
    # The queue of messages that the assistant replies to.
    """CREATE TABLE due_answer (
        message_id TEXT NOT NULL PRIMARY KEY,
        chat_session_id TEXT NOT NULL REFERENCES chat_session (id) DEFERRABLE INITIALLY DEFERRED,
        languages TEXT NOT NULL,
        attempts BIGINT NOT NULL,
        due_at BIGINT NOT NULL
    )""",
    # Change tracking, for long polls.
    "ALTER TABLE chat_session ADD COLUMN news_at BIGINT NOT NULL DEFAULT 0",
    "CREATE INDEX chat_session_news_at_id ON chat_session (news_at, id)",
    'ALTER TABLE "user" ADD COLUMN news_at BIGINT NOT NULL DEFAULT 0',
    'CREATE INDEX user_news_at ON "user" (news_at)',
    "CREATE UNIQUE INDEX due_answer_chat_session_id ON due_answer (chat_session_id)",
    "CREATE INDEX due_answer_due_at ON due_answer (due_at)",
)
