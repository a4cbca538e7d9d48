-- Made by the program that had schema 1. Statements end with a semicolon at the end of a line.
-- access cxa_WyIzYzEwYmI2Ny0zOTBjLTQ2ODYtOGE5Mi05NTMxMjI1NmZkZjAiLDEsMTc5NTMwMzgxNjEyOV0.c3ulqAUIgY4Egqyo_B9hWWHqVoc9zwJSuBbbdp6s-cw
-- refresh cxr_WyIzYzEwYmI2Ny0zOTBjLTQ2ODYtOGE5Mi05NTMxMjI1NmZkZjAiLDEsMTc5Nzg5MjIxNjEyOF0.XWvKRUm6yZFxf2VQ2ddxKGLWnEGt8WZEzi5qVokZkFM
-- cursor .eJyLVjK1tDA2MDAwSks2MTE0SUlW0jHSUTIw9HIxCbTwNTA0QANKsQArPAsd.ar6XQ6qKJQBIPPjV9o3w4vobQPKSpHECPyU3RtfaquI
-- at 2026-11-21T22:30:17.000Z
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
    );
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
    );
CREATE INDEX bot_app_id ON bot (app_id);
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
    );
CREATE INDEX chat_session_app_id ON chat_session (app_id);
CREATE INDEX chat_session_conversation_id ON chat_session (conversation_id);
CREATE INDEX chat_session_user_id ON chat_session (user_id);
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
    );
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
CREATE INDEX notification_user_id_created_at ON notification (user_id, created_at);
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
    );
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
        kept_until BIGINT NOT NULL,
        PRIMARY KEY (user_id, operation, key)
    );
CREATE INDEX kept_answer_kept_until ON kept_answer (kept_until);
INSERT INTO "schema_version" ("version") VALUES (1);
INSERT INTO "app" ("id", "name") VALUES ('00000000-0000-4000-8000-000000000001', 'Shop');
INSERT INTO "user" ("id", "email", "first_name", "last_name", "auth_provider", "created_at", "last_login_at", "is_anonymous", "is_verified", "location", "onboarding_completed", "profile_image", "role", "user_type", "app_id", "display_name", "phone", "locale", "timezone", "settings", "is_disabled", "password_hash") VALUES ('00000000-0000-4000-8000-000000000011', 'alice@example.com', 'Alice', '', 'password', '2026-01-02T03:04:05.678Z', '2026-11-21T22:30:16.128Z', FALSE, FALSE, '[52,13]', FALSE, '', 'user', 'customer', NULL, '', '', '', '', '{}', FALSE, '$argon2id$v=19$m=19456,t=2,p=1$tHZOyVlrDeFc6x3jHIPQug$gmf9eYmB+rkIKvppE4EraPLteeZ5tQB4A3MdZfP2t3k');
INSERT INTO "user" ("id", "email", "first_name", "last_name", "auth_provider", "created_at", "last_login_at", "is_anonymous", "is_verified", "location", "onboarding_completed", "profile_image", "role", "user_type", "app_id", "display_name", "phone", "locale", "timezone", "settings", "is_disabled", "password_hash") VALUES ('00000000-0000-4000-8000-000000000013', 'agent@example.com', '', '', 'password', '2026-01-02T03:04:05.678Z', NULL, FALSE, FALSE, '[]', FALSE, '', 'agent', 'customer', '00000000-0000-4000-8000-000000000001', '', '', '', '', '{}', FALSE, '$argon2id$v=19$m=19456,t=2,p=1$lHIuRaj1HmNMydk7R2htbQ$y500FYROClwXnm2k6dr7pggjT1a+ZKkBfhRKXEXvHhg');
INSERT INTO "bot" ("id", "app_id", "name", "slug", "tagline", "description", "category", "kind", "status", "presence", "is_active", "is_featured", "rating", "country", "region", "city", "accent_color", "brand_color", "cover_url", "icon_url", "contact_email", "contact_phone", "contact_website", "social_links", "created_at", "updated_at") VALUES ('00000000-0000-4000-8000-000000000021', '00000000-0000-4000-8000-000000000001', 'Hilda', '', 'Straße', '', '', 'bot', 'published', 'offline', TRUE, FALSE, 4.5, '', '', '', '', '', '', '', '', '', '', '[]', '2026-01-02T03:04:05.678Z', '2026-01-02T03:04:05.678Z');
INSERT INTO "chat_session" ("id", "app_id", "conversation_id", "user_id", "bot_id", "status", "created_at", "shown_total", "public_total") VALUES ('00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000041', '00000000-0000-4000-8000-000000000011', '00000000-0000-4000-8000-000000000021', 'open', '2026-01-02T03:04:05.678Z', 6, 5);
INSERT INTO "chat_session" ("id", "app_id", "conversation_id", "user_id", "bot_id", "status", "created_at", "shown_total", "public_total") VALUES ('00000000-0000-4000-8000-000000000032', '00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000042', '00000000-0000-4000-8000-000000000011', NULL, 'archived', '2026-01-02T03:04:05.678Z', 0, 0);
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at") VALUES ('01JD4Q8M000000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000011', 'user', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,71,114,195,188,195,159,101,32,240,159,145,139,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.712Z', '2024-11-20T12:02:59.712Z', NULL);
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at") VALUES ('01JD4Q8M010000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000021', 'bot', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,72,101,108,108,111,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.713Z', '2024-11-20T12:02:59.713Z', '2024-11-20T12:02:59.713Z');
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at") VALUES ('01JD4Q8M020000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, NULL, 'user', 'web', 'sent', 'gdpr_purged', '[]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, '2024-11-20T12:02:59.714Z', 'text', '2024-11-20T12:02:59.714Z', '2024-11-20T12:02:59.714Z', NULL);
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at") VALUES ('01JD4Q8M030000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000013', 'agent', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,97,32,110,111,116,101,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, TRUE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.715Z', '2024-11-20T12:02:59.715Z', NULL);
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at") VALUES ('01JD4Q8M040000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000011', 'user', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,65,103,97,105,110,34,125]', '[]', '[]', '01JD4Q8M010000000000000000', '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.716Z', '2024-11-20T12:02:59.716Z', NULL);
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at") VALUES ('01JD4Q8M050000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000011', 'user', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,79,111,112,115,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, '2026-11-21T22:30:16.141Z', NULL, NULL, '2024-11-20T12:02:59.717Z', '2024-11-20T12:02:59.717Z', NULL);
INSERT INTO "message" ("id", "chat_session_id", "conversation_id", "identity_id", "sender_id", "sender_type", "channel", "status", "content_type", "content", "original_content", "translations", "reply_to_message_id", "reply_snapshot", "action_id", "action_source_id", "action_payload", "edited_at", "is_private", "is_read_once", "deleted_at", "gdpr_purged_at", "gdpr_original_content_type", "created_at", "updated_at", "pinned_at") VALUES ('01JD4Q8M060000000000000000', '00000000-0000-4000-8000-000000000031', '00000000-0000-4000-8000-000000000041', NULL, '00000000-0000-4000-8000-000000000011', 'user', 'web', 'sent', 'text', '[123,34,116,101,120,116,34,58,34,76,97,115,116,34,125]', '[]', '[]', NULL, '[]', NULL, NULL, '[]', NULL, FALSE, FALSE, NULL, NULL, NULL, '2024-11-20T12:02:59.718Z', '2024-11-20T12:02:59.718Z', NULL);
INSERT INTO "notification" ("id", "type", "title", "body", "conversation_id", "session_id", "payload", "read_at", "created_at", "user_id", "message_id") VALUES ('00000000-0000-4000-8000-000000000061', 'chat_message', 'Hilda', 'Hello', NULL, '00000000-0000-4000-8000-000000000031', '[123,34,109,101,115,115,97,103,101,95,105,100,34,58,34,48,49,74,68,52,81,56,77,48,49,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,34,125]', NULL, '2026-01-02T03:04:05.678Z', '00000000-0000-4000-8000-000000000011', '01JD4Q8M010000000000000000');
INSERT INTO "login_session" ("id", "user_id", "created_at", "expires_at", "ended_at", "generation", "rotated_at", "is_generation_used", "scopes", "label") VALUES ('3c10bb67-390c-4686-8a92-95312256fdf0', '00000000-0000-4000-8000-000000000011', 1795300216128, 1797892216128, NULL, 1, 1795300216128, TRUE, NULL, '');
INSERT INTO "signing_key" ("id", "created_at", "secret") VALUES ('01M803PJC558J7QKE5PA41C5MV', 1795300215173, 'adaa5cab9e60e35c6a7d5a95670bb935666cf72c9d1f1c7641c8a82af66d331d');
