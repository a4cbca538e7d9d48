-- Made by the program that had schema 7. Statements end with a semicolon at the end of a line.
-- access cxa_WyJlNmRmYjJkOS04ZTM5LTQyNmMtYjZiYy0zMTM0ZGU1ZmY0ZTAiLDEsMTc5NTQxNzQ5ODg2Nl0.rzL4q5DcHVOK3_98vK1PC9O50AzR3xc6YfZ1-_zDCgU
-- refresh cxr_WyJlNmRmYjJkOS04ZTM5LTQyNmMtYjZiYy0zMTM0ZGU1ZmY0ZTAiLDEsMTc5ODAwNTg5ODg2NV0.q_6jiJWw-uSJ-Hfqp4sm2vAND0xC0qWogZlELKm-XhI
-- cursor WyI1OTgzMDAwMmZjNDQxNGRjIiwyLCIwMUpENFE4TTAxMDAwMDAwMDAwMDAwMDAwMCJd.OPiL1yFuKbH52xbS-HO_Ze7xKCU383bO9s8JRPd0aCs
-- at 2026-11-23T06:04:58.000Z
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE app (
        id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL
    );
CREATE TABLE "user" (
        id TEXT NOT NULL PRIMARY KEY,
        email TEXT NOT NULL,
        first_name TEXT NOT NULL,
        last_name TEXT NOT NULL,
        auth_provider TEXT NOT NULL,
        created_at TEXT NOT NULL,
        last_login_at TEXT,
        is_anonymous BOOLEAN NOT NULL,
        is_verified BOOLEAN NOT NULL,
        location TEXT NOT NULL,
        onboarding_completed BOOLEAN NOT NULL,
        profile_image TEXT NOT NULL,
        role TEXT NOT NULL,
        user_type TEXT NOT NULL,
        app_id TEXT REFERENCES app (id) DEFERRABLE INITIALLY DEFERRED,
        display_name TEXT NOT NULL,
        phone TEXT NOT NULL,
        locale TEXT NOT NULL,
        timezone TEXT NOT NULL,
        settings TEXT NOT NULL,
        is_disabled BOOLEAN NOT NULL,
        password_hash TEXT NOT NULL
    , news_at BIGINT NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX user_email ON "user" (email);
CREATE TABLE bot (
        id TEXT NOT NULL PRIMARY KEY,
        app_id TEXT NOT NULL REFERENCES app (id) DEFERRABLE INITIALLY DEFERRED,
        name TEXT NOT NULL,
        slug TEXT NOT NULL,
        tagline TEXT NOT NULL,
        description TEXT NOT NULL,
        category TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        presence TEXT NOT NULL,
        is_active BOOLEAN NOT NULL,
        is_featured BOOLEAN NOT NULL,
        rating DOUBLE PRECISION NOT NULL,
        country TEXT NOT NULL,
        region TEXT NOT NULL,
        city TEXT NOT NULL,
        accent_color TEXT NOT NULL,
        brand_color TEXT NOT NULL,
        cover_url TEXT NOT NULL,
        icon_url TEXT NOT NULL,
        contact_email TEXT NOT NULL,
        contact_phone TEXT NOT NULL,
        contact_website TEXT NOT NULL,
        social_links TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL
    , search_text TEXT NOT NULL DEFAULT '');
CREATE TABLE chat_session (
        id TEXT NOT NULL PRIMARY KEY,
        app_id TEXT NOT NULL REFERENCES app (id) DEFERRABLE INITIALLY DEFERRED,
        conversation_id TEXT NOT NULL,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        bot_id TEXT REFERENCES bot (id) DEFERRABLE INITIALLY DEFERRED,
        status TEXT NOT NULL,
        created_at TEXT NOT NULL,
        shown_total BIGINT NOT NULL,
        public_total BIGINT NOT NULL
    , active_at TEXT, news_at BIGINT NOT NULL DEFAULT 0, public_news_at BIGINT NOT NULL DEFAULT 0, accept_language TEXT NOT NULL DEFAULT '');
CREATE INDEX chat_session_conversation_id ON chat_session (conversation_id);
CREATE TABLE message (
        id TEXT NOT NULL PRIMARY KEY,
        chat_session_id TEXT NOT NULL REFERENCES chat_session (id) DEFERRABLE INITIALLY DEFERRED,
        conversation_id TEXT,
        identity_id TEXT,
        sender_id TEXT,
        sender_type TEXT NOT NULL,
        channel TEXT NOT NULL,
        status TEXT NOT NULL,
        content_type TEXT NOT NULL,
        content TEXT NOT NULL,
        original_content TEXT NOT NULL,
        translations TEXT NOT NULL,
        reply_to_message_id TEXT,
        reply_snapshot TEXT NOT NULL,
        action_id TEXT,
        action_source_id TEXT,
        action_payload TEXT NOT NULL,
        edited_at TEXT,
        is_private BOOLEAN NOT NULL,
        is_read_once BOOLEAN NOT NULL,
        deleted_at TEXT,
        gdpr_purged_at TEXT,
        gdpr_original_content_type TEXT,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        pinned_at TEXT
    , client_message_id TEXT, plain_text TEXT NOT NULL DEFAULT '', search_text TEXT NOT NULL DEFAULT '', owner_id TEXT, app_id TEXT, hidden_at TEXT);
CREATE INDEX message_shown ON message (chat_session_id, id) WHERE (deleted_at IS NULL);
CREATE INDEX message_public ON message (chat_session_id, id) WHERE (deleted_at IS NULL AND NOT is_private);
CREATE INDEX message_pinned ON message (chat_session_id, pinned_at) WHERE (pinned_at IS NOT NULL);
CREATE INDEX message_reply ON message (reply_to_message_id) WHERE (reply_to_message_id IS NOT NULL);
CREATE TABLE notification (
        id TEXT NOT NULL PRIMARY KEY,
        type TEXT NOT NULL,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        conversation_id TEXT,
        session_id TEXT,
        payload TEXT NOT NULL,
        read_at TEXT,
        created_at TEXT NOT NULL,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        message_id TEXT
    );
CREATE INDEX notification_message_id ON notification (message_id);
CREATE TABLE login_session (
        id TEXT NOT NULL PRIMARY KEY,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        ended_at BIGINT,
        generation BIGINT NOT NULL,
        rotated_at BIGINT NOT NULL,
        is_generation_used BOOLEAN NOT NULL,
        scopes TEXT,
        label TEXT NOT NULL
    , install_id TEXT, kind TEXT NOT NULL DEFAULT 'login');
CREATE INDEX login_session_user_id ON login_session (user_id);
CREATE TABLE login_attempt (
        id TEXT NOT NULL PRIMARY KEY,
        at BIGINT NOT NULL,
        account TEXT NOT NULL,
        network TEXT NOT NULL
    );
CREATE INDEX login_attempt_account_at ON login_attempt (account, at);
CREATE INDEX login_attempt_network_at ON login_attempt (network, at);
CREATE INDEX login_attempt_at ON login_attempt (at);
CREATE TABLE signing_key (
        id TEXT NOT NULL PRIMARY KEY,
        created_at BIGINT NOT NULL,
        secret TEXT NOT NULL
    );
CREATE TABLE kept_answer (
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        operation TEXT NOT NULL,
        key TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        body TEXT NOT NULL,
        kept_until BIGINT NOT NULL, message_id TEXT,
        PRIMARY KEY (user_id, operation, key)
    );
CREATE INDEX kept_answer_kept_until ON kept_answer (kept_until);
CREATE TABLE approval (
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
    );
CREATE INDEX approval_answered_at ON approval (answered_at);
CREATE INDEX bot_feed ON bot (app_id, is_featured DESC, rating DESC, name, id, kind, presence, category, city, country, search_text) WHERE (is_active AND status = 'published');
CREATE INDEX notification_user_id_created_at_id ON notification (user_id, created_at, id);
CREATE INDEX notification_unread ON notification (user_id, created_at, id) WHERE (read_at IS NULL);
CREATE TABLE event (
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
    , reminder_due TEXT);
CREATE INDEX event_user_id_starts_at_id ON event (user_id, starts_at, id);
CREATE UNIQUE INDEX event_source ON event (user_id, source, source_event_id)
        WHERE (source_event_id IS NOT NULL);
CREATE INDEX event_time_sensitive ON event (user_id, starts_at, id) WHERE is_time_sensitive;
CREATE TABLE feedback (
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
    );
CREATE TABLE data_share (
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
    );
CREATE INDEX data_share_user_id_mcp_server_id_conversation_id_granted_at_id
        ON data_share (user_id, mcp_server_id, conversation_id, granted_at, id);
CREATE INDEX data_share_active ON data_share (user_id, coalesce(expires_at, '~'))
        WHERE (revoked_at IS NULL);
CREATE INDEX data_share_active_server ON data_share (user_id, mcp_server_id, coalesce(expires_at, '~'))
        WHERE (revoked_at IS NULL);
CREATE TABLE avatar (
        user_id TEXT NOT NULL PRIMARY KEY REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        name TEXT NOT NULL,
        image TEXT NOT NULL
    );
CREATE UNIQUE INDEX avatar_name ON avatar (name);
CREATE INDEX event_reminder_due ON event (user_id, reminder_due) WHERE (reminder_due IS NOT NULL);
CREATE TABLE calendar_feed (
        user_id TEXT NOT NULL PRIMARY KEY REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        digest TEXT NOT NULL
    );
CREATE UNIQUE INDEX calendar_feed_digest ON calendar_feed (digest);
CREATE INDEX feedback_user_id_created_at_id ON feedback (user_id, created_at, id);
CREATE INDEX feedback_status_created_at_id ON feedback (status, created_at, id);
CREATE INDEX feedback_created_at_id ON feedback (created_at, id);
CREATE INDEX bot_app_id_name_id ON bot (app_id, name, id);
CREATE TABLE bot_answer (
        id TEXT NOT NULL PRIMARY KEY,
        bot_id TEXT NOT NULL REFERENCES bot (id) DEFERRABLE INITIALLY DEFERRED,
        language TEXT NOT NULL,
        question TEXT NOT NULL,
        answer TEXT NOT NULL,
        words TEXT NOT NULL
    );
CREATE INDEX bot_answer_bot_id_id ON bot_answer (bot_id, id);
CREATE INDEX message_sender ON message (chat_session_id, sender_id, id);
CREATE INDEX message_client ON message (chat_session_id, sender_id, client_message_id)
        WHERE (client_message_id IS NOT NULL);
CREATE INDEX message_owner ON message (owner_id, id) WHERE (deleted_at IS NULL AND NOT is_private);
CREATE INDEX message_app ON message (app_id, id) WHERE (deleted_at IS NULL);
CREATE INDEX message_hidden ON message (chat_session_id, id) WHERE (deleted_at IS NOT NULL);
CREATE INDEX chat_session_user_id_active_at_id ON chat_session (user_id, active_at, id);
CREATE INDEX chat_session_app_id_active_at_id ON chat_session (app_id, active_at, id);
CREATE INDEX chat_session_active_at_id ON chat_session (active_at, id);
CREATE TABLE read_marker (
        chat_session_id TEXT NOT NULL REFERENCES chat_session (id) DEFERRABLE INITIALLY DEFERRED,
        user_id TEXT NOT NULL REFERENCES "user" (id) DEFERRABLE INITIALLY DEFERRED,
        message_id TEXT NOT NULL,
        PRIMARY KEY (chat_session_id, user_id)
    );
CREATE TABLE due_answer (
        message_id TEXT NOT NULL PRIMARY KEY,
        chat_session_id TEXT NOT NULL REFERENCES chat_session (id) DEFERRABLE INITIALLY DEFERRED,
        languages TEXT NOT NULL,
        attempts BIGINT NOT NULL,
        due_at BIGINT NOT NULL
    );
CREATE INDEX chat_session_news_at_id ON chat_session (news_at, id);
CREATE INDEX user_news_at ON "user" (news_at);
CREATE UNIQUE INDEX due_answer_chat_session_id ON due_answer (chat_session_id);
CREATE INDEX due_answer_due_at ON due_answer (due_at);
CREATE TABLE ledger (
            position INTEGER NOT NULL PRIMARY KEY,
            created_at TEXT NOT NULL,
            kind TEXT NOT NULL,
            actor_id TEXT NOT NULL,
            subject_id TEXT NOT NULL,
            details TEXT NOT NULL,
            hash TEXT NOT NULL
        );
CREATE TABLE moment (id BIGINT NOT NULL PRIMARY KEY, latest BIGINT NOT NULL);
CREATE INDEX chat_session_user_id_public_news_at_id ON chat_session (user_id, public_news_at, id);
CREATE TABLE bot_number (number INTEGER NOT NULL PRIMARY KEY, bot_id TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE bot_trigrams USING fts5 (
            search_text, content='', detail=none, tokenize='trigram case_sensitive 1'
        );
CREATE TRIGGER bot_inserted AFTER INSERT ON bot BEGIN
        INSERT INTO bot_number (bot_id) VALUES (new.id);
        INSERT INTO bot_trigrams (rowid, search_text)
    SELECT number, new.search_text FROM bot_number WHERE bot_id = new.id;
    END;
CREATE TRIGGER bot_changed AFTER UPDATE OF id, search_text ON bot
        WHEN old.id <> new.id OR old.search_text <> new.search_text BEGIN
        INSERT INTO bot_trigrams (bot_trigrams, rowid, search_text)
    SELECT 'delete', number, old.search_text FROM bot_number WHERE bot_id = old.id;
        UPDATE bot_number SET bot_id = new.id WHERE bot_id = old.id;
        INSERT INTO bot_trigrams (rowid, search_text)
    SELECT number, new.search_text FROM bot_number WHERE bot_id = new.id;
    END;
CREATE TRIGGER bot_deleted AFTER DELETE ON bot BEGIN
        INSERT INTO bot_trigrams (bot_trigrams, rowid, search_text)
    SELECT 'delete', number, old.search_text FROM bot_number WHERE bot_id = old.id;
        DELETE FROM bot_number WHERE bot_id = old.id;
    END;
CREATE INDEX notification_told ON notification (user_id, read_at, session_id, message_id)
        WHERE (read_at IS NULL);
CREATE INDEX login_session_ended ON login_session (ended_at) WHERE (ended_at IS NOT NULL);
CREATE TABLE bot_answer_word (
    bot_id TEXT NOT NULL,
    word TEXT NOT NULL,
    weight BIGINT NOT NULL,
    answer_id TEXT NOT NULL,
    PRIMARY KEY (bot_id, word, weight, answer_id)
) WITHOUT ROWID;
INSERT INTO "schema_version" ("version") VALUES (7);
INSERT INTO "app" ("id", "name") VALUES ('00000000-0000-4000-8000-000000000001', 'Shop');
INSERT INTO "user" ("id", "email", "first_name", "last_name", "auth_provider", "created_at", "last_login_at", "is_anonymous", "is_verified", "location", "onboarding_completed", "profile_image", "role", "user_type", "app_id", "display_name", "phone", "locale", "timezone", "settings", "news_at", "is_disabled", "password_hash") VALUES ('00000000-0000-4000-8000-000000000011', 'alice@example.com', 'Alice', '', 'password', '2026-01-02T03:04:05.678Z', '2026-11-23T06:04:58.865Z', FALSE, FALSE, '[52,13]', FALSE, '/avatars/Qoc3tN2nBUpOeBch5a7Rpw.webp', 'user', 'customer', NULL, '', '', '', '', '{}', 1795413898874, FALSE, '$argon2id$v=19$m=19456,t=2,p=1$ba0VIoQQIsRYSwmBsLbWug$uEzp5OFJIqpjn7OhZkjk9y40GLDJVWcy6ZVFOST4D/8');
INSERT INTO "user" ("id", "email", "first_name", "last_name", "auth_provider", "created_at", "last_login_at", "is_anonymous", "is_verified", "location", "onboarding_completed", "profile_image", "role", "user_type", "app_id", "display_name", "phone", "locale", "timezone", "settings", "news_at", "is_disabled", "password_hash") VALUES ('00000000-0000-4000-8000-000000000013', 'agent@example.com', '', '', 'password', '2026-01-02T03:04:05.678Z', NULL, FALSE, FALSE, '[]', FALSE, '', 'agent', 'customer', '00000000-0000-4000-8000-000000000001', '', '', '', '', '{}', 0, FALSE, '$argon2id$v=19$m=19456,t=2,p=1$TKkV4tw75zznvBdC6B3DeA$H9/4WTj8gyiBcC82nCsluyX8VT3rKFo1nVWOgas7Smg');
INSERT INTO "bot" ("id", "app_id", "name", "slug", "tagline", "description", "category", "kind", "status", "presence", "is_active", "is_featured", "rating", "country", "region", "city", "accent_color", "brand_color", "cover_url", "icon_url", "contact_email", "contact_phone", "contact_website", "social_links", "created_at", "updated_at", "search_text") VALUES ('00000000-0000-4000-8000-000000000021', '00000000-0000-4000-8000-000000000001', 'Hilda', '', 'Straße', '', '', 'bot', 'published', 'offline', TRUE, FALSE, 4.5, '', '', '', '', '', '', '', '', '', '', '[]', '2026-01-02T03:04:05.678Z', '2026-01-02T03:04:05.678Z', 'hilda
A
strasse
A
');
INSERT INTO "chat_session" ("id", "app_id", "conversation_id", "user_id", "bot_id", "status", "created_at", "shown_total", "public_total", "active_at", "news_at", "public_news_at", "accept_language") VALUES ('00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000041', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000021', 'open', '2026-01-02T03:04:05.678Z', 6, 5, '2024-11-20T12:02:59.718Z', 1795413898834, 1795413898834, '');
INSERT INTO "chat_session" ("id", "app_id", "conversation_id", "user_id", "bot_id", "status", "created_at", "shown_total", "public_total", "active_at", "news_at", "public_news_at", "accept_language") VALUES ('00000000-0000-4000-8000-000000000032', '00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000042', '00000000-0000-4000-8000-000000000011', NULL, 'archived', '2026-01-02T03:04:05.678Z', 0, 0, '2026-01-02T03:04:05.678Z', 1795413898834, 1795413898834, '');
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at", "hidden_at", "client_message_id", "plain_text", "search_text", "owner_id", "app_id") VALUES ('01JD4Q8M000000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000011', 'user', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,71,114,195,188,195,159,101,32,240,159,145,139,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.712Z', '2024-11-20T12:02:59.712Z', NULL, NULL, NULL, 'Grüße 👋', 'grüsse 👋', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000001');
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at", "hidden_at", "client_message_id", "plain_text", "search_text", "owner_id", "app_id") VALUES ('01JD4Q8M010000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000021', 'bot', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,72,101,108,108,111,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.713Z', '2024-11-20T12:02:59.713Z', '2024-11-20T12:02:59.713Z', NULL, NULL, 'Hello', 'hello', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000001');
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at", "hidden_at", "client_message_id", "plain_text", "search_text", "owner_id", "app_id") VALUES ('01JD4Q8M020000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, NULL, 'user', 'web', 'sent', 'gdpr_purged', '[]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, '2024-11-20T12:02:59.714Z', 'text', '2024-11-20T12:02:59.714Z', '2024-11-20T12:02:59.714Z', NULL, NULL, NULL, '', '', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000001');
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at", "hidden_at", "client_message_id", "plain_text", "search_text", "owner_id", "app_id") VALUES ('01JD4Q8M030000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000013', 'agent', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,97,32,110,111,116,101,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, TRUE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.715Z', '2024-11-20T12:02:59.715Z', NULL, NULL, NULL, 'a note', 'a note', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000001');
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at", "hidden_at", "client_message_id", "plain_text", "search_text", "owner_id", "app_id") VALUES ('01JD4Q8M040000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000011', 'user', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,65,103,97,105,110,34,125]', '[]', '[]', '01JD4Q8M010000000000000000', '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.716Z', '2024-11-20T12:02:59.716Z', NULL, NULL, NULL, 'Again', 'again', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000001');
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at", "hidden_at", "client_message_id", "plain_text", "search_text", "owner_id", "app_id") VALUES ('01JD4Q8M050000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000011', 'user', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,79,111,112,115,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, '2026-11-21T22:30:21.601Z', NULL, NULL, '2024-11-20T12:02:59.717Z', '2024-11-20T12:02:59.717Z', NULL, NULL, NULL, 'Oops', 'oops', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000001');
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at", "hidden_at", "client_message_id", "plain_text", "search_text", "owner_id", "app_id") VALUES ('01JD4Q8M060000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000011', 'user', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,76,97,115,116,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.718Z', '2024-11-20T12:02:59.718Z', NULL, NULL, NULL, 'Last', 'last', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000001');
INSERT INTO "event" ("id", "user_id", "app_id", "title", "notes", "starts_at", "ends_at", "reminder_at", "is_time_sensitive", "source", "source_event_id", "created_at", "updated_at", "reminder_due") VALUES ('00000000-0000-4000-8000-000000000062', '00000000-0000-4000-8000-000000000011', NULL, 'Call', '', '2030-11-20T09:00:00.000Z', NULL, '2030-11-20T08:50:00.000Z', FALSE, 'manual', NULL, '2026-01-02T03:04:05.678Z', '2026-11-21T22:30:20.283Z', '2030-11-20T08:50:00.000Z');
INSERT INTO "notification" ("id", "type", "title", "body", "conversation_id", "session_id", "payload", "read_at", "created_at", "user_id", "message_id") VALUES ('00000000-0000-4000-8000-000000000061', 'chat_message', 'Hilda', 'Hello', NULL, '00000000-0000-4000-8000-000000000031', '[123,34,109,101,115,115,97,103,101,95,105,100,34,58,34,48,49,74,68,52,81,56,77,48,49,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,34,125]', NULL, '2026-01-02T03:04:05.678Z', '00000000-0000-4000-8000-000000000011', '01JD4Q8M010000000000000000');
INSERT INTO "data_share" ("id", "user_id", "app_id", "conversation_id", "mcp_server_id", "allowed_tools", "scope_meta", "expires_at", "granted_at", "revoked_at") VALUES ('00000000-0000-4000-8000-000000000051', '00000000-0000-4000-8000-000000000011', NULL, NULL, 'files', '["read"]', '[]', NULL, '2026-11-21T22:30:20.284Z', NULL);
INSERT INTO "feedback" ("id", "user_id", "feedback_type", "description", "app_version", "device_info", "screenshot_url", "status", "created_at", "updated_at") VALUES ('00000000-0000-4000-8000-000000000063', '00000000-0000-4000-8000-000000000011', 'general', 'Fine', '', '[]', '', 'new', '2026-11-21T22:30:20.284Z', '2026-11-21T22:30:20.284Z');
INSERT INTO "feedback" ("id", "user_id", "feedback_type", "description", "app_version", "device_info", "screenshot_url", "status", "created_at", "updated_at") VALUES ('7e74fb6e-e4ac-4ce3-a6b7-163bc8ae29bb', '00000000-0000-4000-8000-000000000011', 'general', 'Again', '', '[]', '', 'new', '2026-11-23T06:04:58.872Z', '2026-11-23T06:04:58.872Z');
INSERT INTO "avatar" ("user_id", "name", "image") VALUES ('00000000-0000-4000-8000-000000000011', 'Qoc3tN2nBUpOeBch5a7Rpw.webp', 'UklGRjoAAABXRUJQVlA4IC4AAACwAQCdASoIAAgAAQAcJaACdLoABdQAAP7xlY/uDM+rscP/u83/283/283+/IAA');
INSERT INTO "bot_answer" ("id", "bot_id", "language", "question", "answer", "words") VALUES ('16de131d-5684-42d3-89d2-4b3b812c9c13', '00000000-0000-4000-8000-000000000021', 'en', 'When are you open?', 'Always.', 'are open when you');
INSERT INTO "bot_answer_word" ("bot_id", "word", "weight", "answer_id") VALUES ('00000000-0000-4000-8000-000000000021', 'are', 12, '16de131d-5684-42d3-89d2-4b3b812c9c13');
INSERT INTO "bot_answer_word" ("bot_id", "word", "weight", "answer_id") VALUES ('00000000-0000-4000-8000-000000000021', 'are open when you', 12, '16de131d-5684-42d3-89d2-4b3b812c9c13');
INSERT INTO "bot_answer_word" ("bot_id", "word", "weight", "answer_id") VALUES ('00000000-0000-4000-8000-000000000021', 'open', 12, '16de131d-5684-42d3-89d2-4b3b812c9c13');
INSERT INTO "bot_answer_word" ("bot_id", "word", "weight", "answer_id") VALUES ('00000000-0000-4000-8000-000000000021', 'when', 12, '16de131d-5684-42d3-89d2-4b3b812c9c13');
INSERT INTO "bot_answer_word" ("bot_id", "word", "weight", "answer_id") VALUES ('00000000-0000-4000-8000-000000000021', 'you', 12, '16de131d-5684-42d3-89d2-4b3b812c9c13');
INSERT INTO "login_session" ("id", "user_id", "kind", "created_at", "expires_at", "ended_at", "generation", "rotated_at", "is_generation_used", "scopes", "label", "install_id") VALUES ('e6dfb2d9-8e39-426c-b6bc-3134de5ff4e0', '00000000-0000-4000-8000-000000000011', 'login', 1795413898865, 1798005898865, NULL, 1, 1795413898865, TRUE, NULL, '', NULL);
INSERT INTO "approval" ("id", "user_id", "is_granted", "answered_at", "code_challenge", "redirect_uri", "scopes", "install_id", "install_name", "used_at", "login_session_id") VALUES ('t', '00000000-0000-4000-8000-000000000011', TRUE, 1795413898873, 'c', 'http://127.0.0.1/', '', 'i', 'CLI', NULL, NULL);
INSERT INTO "signing_key" ("id", "created_at", "secret") VALUES ('01M83G3XHMZBTMFVYX1K3VAW05', 1795413898804, 'f5bd10577ba7e74284109b461550142ac7d45a60dd6c511775940dc9ed9df8e5');
INSERT INTO "moment" ("id", "latest") VALUES (1, 1795413898875);
INSERT INTO "kept_answer" ("user_id", "operation", "key", "fingerprint", "body", "kept_until", "message_id") VALUES ('00000000-0000-4000-8000-000000000011', 'submit_feedback', 'first', '93f4cc473b1ac74e17c7ef25286718da0154ce2280f1af065492848175cdaedb', '{"success":true,"data":{"id":"7e74fb6e-e4ac-4ce3-a6b7-163bc8ae29bb","user_id":"00000000-0000-4000-8000-000000000011","feedback_type":"general","description":"Again","app_version":"","device_info":[],"screenshot_url":"","status":"new","created_at":"2026-11-23T06:04:58.872Z","updated_at":"2026-11-23T06:04:58.872Z"}}', 1795500298873, NULL);
INSERT INTO "read_marker" ("chat_session_id", "user_id", "message_id") VALUES ('00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000011', '01JD4Q8M010000000000000000');
INSERT INTO "calendar_feed" ("user_id", "digest") VALUES ('00000000-0000-4000-8000-000000000011', 'd');
INSERT INTO "due_answer" ("message_id", "chat_session_id", "languages", "attempts", "due_at") VALUES ('01JD4Q8M060000000000000000', '00000000-0000-4000-8000-000000000031', 'de en', 0, 1795413898873);
INSERT INTO "ledger" ("position", "created_at", "kind", "actor_id", "subject_id", "details", "hash") VALUES (1, '2026-11-23T06:04:58.839Z', 'imported', 'operator', '', '{"app":1,"avatar":1,"bot":1,"bot_answer":1,"chat_session":2,"data_share":1,"event":1,"feedback":1,"message":7,"notification":1,"user":2}', '65a9cad7c7999cd2b406b162473145a7fcf98aa857b7e37d18c64d06e528e4a2');
INSERT INTO "ledger" ("position", "created_at", "kind", "actor_id", "subject_id", "details", "hash") VALUES (2, '2026-11-23T06:04:58.866Z', 'login', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000011', '{"by":"login","login":"e6dfb2d9-8e39-426c-b6bc-3134de5ff4e0"}', '9479b8f082e68458ad4067e6264ac91bfa6a16859efdeee7fd59dd0bb259db4a');
