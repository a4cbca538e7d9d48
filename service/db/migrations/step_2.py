"""Step 2: events, feedback, data shares, avatars; indexes for the search of bots and for lists of notifications."""

import logging
import math

import peewee

from service import db, validators

log = logging.getLogger("cx.server")


def complete_bots() -> None:
    """Fill in the search texts, and round ratings to the 15 digits that all versions of SQLite render."""
    rows = db.database.execute_sql("SELECT id, rating, name, tagline, description FROM bot").fetchall()
    for id, rating, *texts in rows:
        rounded = float(f"{rating:.15g}")
        rounded = rounded if math.isfinite(rounded) else math.copysign(1.79769313486231e308, rating)
        values = (rounded, "\nA\n".join(map(validators.fold, texts)), id)
        param = db.database.param
        db.database.execute_sql(f"UPDATE bot SET rating = {param}, search_text = {param} WHERE id = {param}", values)


def index_search() -> None:
    """Create a trigram index for searches on PostgreSQL, if the role may do so. A B-tree cannot contain long texts."""
    try:
        with db.database.atomic():
            db.database.execute_sql("CREATE EXTENSION IF NOT EXISTS pg_trgm")
            db.database.execute_sql("CREATE INDEX bot_search ON bot USING gin (search_text gin_trgm_ops)")
    except peewee.DatabaseError as error:
        log.warning("searches of bots use no index: %s", error)


FEED = "app_id, is_featured DESC, rating DESC, name, id"
FILTERED = "kind, presence, category, city, country, search_text"
SHOWN = "(is_active AND status = 'published')"
OWN = {  # see step 1
    "sqlite": "(user_id, created_at, id)",
    "postgresql": "(user_id, created_at NULLS FIRST, id NULLS FIRST)",
}

STATEMENTS = (
    "ALTER TABLE login_session ADD COLUMN install_id TEXT",
    """CREATE TABLE approval (
        id TEXT NOT NULL PRIMARY KEY,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        is_granted BOOLEAN NOT NULL,
        answered_at BIGINT NOT NULL,
        code_challenge TEXT NOT NULL,
        redirect_uri TEXT NOT NULL,
        scopes TEXT NOT NULL,
        install_id TEXT NOT NULL,
        install_name TEXT NOT NULL,
        used_at BIGINT,
        login_session_id TEXT
    )""",
    "CREATE INDEX approval_answered_at ON approval (answered_at)",
    "ALTER TABLE bot ADD COLUMN search_text TEXT NOT NULL DEFAULT ''",
    complete_bots,
    {
        "sqlite": f"CREATE INDEX bot_feed ON bot ({FEED}, {FILTERED}) WHERE {SHOWN}",
        "postgresql": f"CREATE INDEX bot_feed ON bot ({FEED}) WHERE {SHOWN}",
    },
    {"postgresql": index_search},
    "DROP INDEX chat_session_user_id",
    "DROP INDEX chat_session_app_id",
    {kind: f"CREATE INDEX chat_session_user_id_created_at_id ON chat_session {own}" for kind, own in OWN.items()},
    "CREATE INDEX chat_session_app_id_created_at_id ON chat_session (app_id, created_at, id)",
    "CREATE INDEX chat_session_created_at_id ON chat_session (created_at, id)",
    "DROP INDEX notification_user_id_created_at",
    "CREATE INDEX notification_user_id_created_at_id ON notification (user_id, created_at, id)",
    "CREATE INDEX notification_unread ON notification (user_id, created_at, id) WHERE (read_at IS NULL)",
    """CREATE TABLE event (
        id TEXT NOT NULL PRIMARY KEY,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        app_id TEXT REFERENCES app (id) DEFERRABLE INITIALLY DEFERRED,
        title TEXT NOT NULL,
        notes TEXT NOT NULL,
        starts_at TEXT NOT NULL,
        ends_at TEXT,
        reminder_at TEXT,
        is_time_sensitive BOOLEAN NOT NULL,
        source TEXT NOT NULL,
        source_event_id TEXT,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL
    )""",
    "CREATE INDEX event_user_id_starts_at_id ON event (user_id, starts_at, id)",
    """CREATE UNIQUE INDEX event_source ON event (user_id, source, source_event_id)
        WHERE (source_event_id IS NOT NULL)""",
    "CREATE INDEX event_time_sensitive ON event (user_id, starts_at, id) WHERE is_time_sensitive",
    """CREATE TABLE feedback (
        id TEXT NOT NULL PRIMARY KEY,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        feedback_type TEXT NOT NULL,
        description TEXT NOT NULL,
        app_version TEXT NOT NULL,
        device_info TEXT NOT NULL,
        screenshot_url TEXT NOT NULL,
        status TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL
    )""",
    "CREATE INDEX feedback_user_id ON feedback (user_id)",
    """CREATE TABLE data_share (
        id TEXT NOT NULL PRIMARY KEY,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        app_id TEXT,
        conversation_id TEXT,
        mcp_server_id TEXT NOT NULL,
        allowed_tools TEXT NOT NULL,
        scope_meta TEXT NOT NULL,
        expires_at TEXT,
        granted_at TEXT NOT NULL,
        revoked_at TEXT
    )""",
    """CREATE INDEX data_share_user_id_mcp_server_id_conversation_id_granted_at_id
        ON data_share (user_id, mcp_server_id, conversation_id, granted_at, id)""",
    """CREATE INDEX data_share_active ON data_share (user_id, coalesce(expires_at, '~'))
        WHERE (revoked_at IS NULL)""",
    """CREATE INDEX data_share_active_server ON data_share (user_id, mcp_server_id, coalesce(expires_at, '~'))
        WHERE (revoked_at IS NULL)""",
    """CREATE TABLE avatar (
        user_id TEXT NOT NULL PRIMARY KEY REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        name TEXT NOT NULL,
        image TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX avatar_name ON avatar (name)",
)
