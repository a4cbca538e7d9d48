"""The table of who may call which operation, and the data that the calls are about."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from service import clock, db
from service.auth import csrf, tokens
from service.fields import as_bytes, compact_json
from service.models import (
    TABLES,
    App,
    AuditLog,
    Avatar,
    Bot,
    BotPicture,
    CalendarFeed,
    CannedAnswer,
    CannedReply,
    ChatSession,
    ClockState,
    DataShare,
    Delivery,
    Event,
    Feedback,
    FeedbackScreenshot,
    LoginAttempt,
    LoginSession,
    Message,
    MessageImage,
    Notification,
    PushTopic,
    ServerCredential,
    StoredBranding,
    StoredMail,
    User,
)
from service.models.audit_log import OPERATOR
from service.models.bot_pictures import KINDS
from service.models.encoded_pictures import EncodedPicture
from service.pictures import make_avatar, make_picture
from service.settings import Settings
from service.signing import sign
from tests.support.client import Client, Reply
from tests.support.consent import VALID_PARAMETERS
from tests.support.operations import ALL, address
from tests.support.passwords import PASSWORD
from tests.support.sample_data import picture

OWN_CONNECTION = {"check_readiness", "show_metrics"}  # use another connection, which does not see the transaction

USERS = ("alice", "bob", "agent", "other_agent", "admin")  # agents of Alice's app and of another

ROLES = (*USERS, "anyone")  # "anyone" has no credentials

Expected = int | tuple[int, str]

FORBIDDEN, UNKNOWN = (403, "forbidden"), (401, "missing_credentials")

NO_RATING = (404, "rating_not_found")
NO_SESSION, NO_MESSAGE = (400, "session_not_found"), (400, "message_not_found")


class Row(NamedTuple):
    """What each of the people is expected; whose things change then; the scope that a narrow token needs."""

    expected: dict[str, Expected]
    scope: str | None = ""  # "": any token is sufficient; None: no credentials are needed
    # "own", the name of a user, "shop", "shop and own", "alice and other staff", "new", "deleted"; "": nothing changes
    changes: str = ""
    body: Any = None
    query: str = ""
    message: str = "pinned"  # the one in the path


def roles(expected: Expected, **others: Expected) -> dict[str, Expected]:
    """The same for all users, except the named ones; without credentials, 401."""
    return {**dict.fromkeys(USERS, expected), "anyone": UNKNOWN, **others}


def every_role(expected: Expected) -> dict[str, Expected]:
    return dict.fromkeys(ROLES, expected)


def staff(error: Expected) -> dict[str, Expected]:
    """200 for Alice, the agents of her app and admins; an error for other users."""
    return roles(200, bob=error, other_agent=error)


STAFF_OR_403, STAFF_OR_400 = staff(FORBIDDEN), staff(NO_SESSION)  # the operations that list 403, and those that do not

STAFF_201_OR_403 = {name: 201 if expected == 200 else expected for name, expected in STAFF_OR_403.items()}

APP_STAFF = roles(FORBIDDEN, agent=200, admin=200)  # operations on the bots of Alice's app

AVATAR = {"avatar": picture()}
IMAGE = {"image": picture()}
SCREENSHOT = {"screenshot": picture()}
BOT_PICTURE = {"picture": picture()}

SUBSCRIPTION = {"endpoint": "https://push.example", "keys": {"p256dh": "x", "auth": "x"}}

BOT_PROFILE = {"name": "New", "kind": "bot", "status": "published", "presence": "online"}

# `{name}` is replaced by a value of `World.names`. Bodies and queries claim to be Alice's where they can.
HERS = {"id": "{alice}", "user_id": "{alice}", "owner": "{alice}"}

AS_ALICE = urlencode(HERS, safe="{}")


class Rows(dict[str, Row]):
    """The rows by operation. A missing one fails with the place to add it."""

    def __missing__(self, operation: str) -> Row:
        raise KeyError(f"add a row for {operation}, who may call it, to ROWS in tests/support/access.py")


ROWS = Rows(
    {
        "log_in": Row(every_role(200), None, "alice", {"email": "{email}", "password": PASSWORD}),
        "refresh_tokens": Row(every_role(200), None, "alice", {"refresh_token": "{refresh_token}"}),
        "log_out": Row(roles(200), "", "own", HERS),
        "list_logins": Row(roles(200), "account:read", query=AS_ALICE),
        "end_login": Row(roles((404, "not_found"), alice=200), "account", "alice"),
        "change_password": Row(
            roles(200),
            "account",
            "own",
            {"current_password": PASSWORD, "new_password": "another one", **HERS},
            AS_ALICE,
        ),
        "show_consent": Row(roles(200), "consent:read", query="{consent}"),
        "answer_consent": Row(roles(400), "consent", body={"csrf_token": "{csrf_token}", "answer": "approve"}),
        "exchange_code": Row(
            every_role(400), None, body={"grant_type": "refresh_token", "refresh_token": "{csrf_token}"}
        ),
        "authorize_device": Row(every_role(200), None, "shop", {"client_id": "service-cli", "install_id": "laptop-1"}),
        "show_device": Row(roles(200), "consent:read"),
        "answer_device": Row(
            roles(400), "consent", body={"csrf_token": "{csrf_token}", "user_code": "BCDF-GHJK", "answer": "continue"}
        ),
        "register_client": Row(every_role(201), None, body={"redirect_uris": ["http://127.0.0.1/"]}),
        "describe_authorization": Row(every_role(200), None),
        "answer_mcp": Row(roles((401, "invalid_token")), body={"jsonrpc": "2.0", "id": 1, "method": "ping"}),
        "describe_mcp_server": Row(every_role(200), None),
        "describe_mcp_path": Row(every_role(200), None),
        "list_installs": Row(roles(200), "account:read", query=AS_ALICE),
        "revoke_install": Row(roles((404, "not_found"), alice=200), "account", "alice"),
        "create_chat_session": Row(
            roles((404, "conversation_not_found"), alice=201),
            "chats",
            "own",
            {"app_id": "{app}", "bot_id": "{bot}", "conversation_id": "{conversation}", **HERS},
        ),
        "list_chat_sessions": Row(roles(200), "chats:read", query=AS_ALICE),
        "search_messages": Row(roles(200), "chats:read", query=f"q=e&{AS_ALICE}"),
        "get_chat_session": Row(STAFF_OR_403, "chats:read"),
        "send_message": Row(STAFF_201_OR_403, "chats", "alice", {"content": {"text": "Bye"}, **HERS}),
        "rate_chat_session": Row(roles(FORBIDDEN, alice=(400, "session_not_over")), "chats", body={"score": 5, **HERS}),
        "get_rating": Row(roles(FORBIDDEN, alice=NO_RATING, agent=NO_RATING, admin=NO_RATING), "chats:read"),
        "edit_message": Row(roles(FORBIDDEN, alice=200), "chats", "alice", {"content": "New", **HERS}, message="plain"),
        "mark_chat_session_read": Row(STAFF_OR_403, "chats", "alice", HERS),
        "get_chat_context": Row(STAFF_OR_403, "chats:read", query=AS_ALICE),
        "reveal_message": Row({**STAFF_OR_403, "alice": FORBIDDEN}, "chats", "alice", HERS, message="sealed"),
        "store_translation": Row(
            roles(FORBIDDEN, agent=(404, "assistant_not_configured"), admin=(404, "assistant_not_configured")),
            "chats",
            body={},
            message="plain",
        ),
        "upload_image": Row(STAFF_201_OR_403, "chats", "alice", IMAGE, AS_ALICE),
        "get_image": Row(STAFF_OR_403, "chats:read"),
        "list_messages": Row(STAFF_OR_400, "chats:read"),
        "delete_message": Row(STAFF_OR_403, "chats", "alice"),
        "pin_message": Row(STAFF_OR_400, "chats", "alice", message="plain"),
        "unpin_message": Row(STAFF_OR_400, "chats", "alice"),
        "list_pinned_messages": Row(STAFF_OR_400, "chats:read"),
        "suggest_reply": Row(
            roles(FORBIDDEN, agent=(404, "assistant_not_configured"), admin=(404, "assistant_not_configured")), "chats"
        ),
        "show_typing": Row(STAFF_OR_403, "chats"),
        "hand_over_chat_session": Row(STAFF_OR_403, "chats", "alice and other staff"),
        "snooze_chat_session": Row(APP_STAFF, "chats", "alice", {"until": "2099-01-01T09:00:00Z"}),
        "assign_chat_session": Row(APP_STAFF, "chats", "alice", {"user_id": "{caller}"}),
        "archive_chat_session": Row(STAFF_OR_403, "chats", "alice"),
        "delete_chat_session": Row(STAFF_OR_403, "chats", "alice"),
        "end_chat_session": Row(STAFF_OR_403, "chats", "alice"),
        "change_chat_session_status": Row(STAFF_OR_403, "chats", "alice", {"status": "closed"}),
        "list_bots": Row(roles(200), "bots:read", query="app_id={app}"),
        "get_bot": Row(roles(200), "bots:read", query="app_id={app}"),
        "list_apps": Row(roles(200), "bots:read"),
        "create_app": Row(roles(FORBIDDEN, admin=201), "bots", "shop", {"name": "Another shop"}),
        "get_app": Row(APP_STAFF, "bots:read"),
        "update_app": Row(roles(FORBIDDEN, admin=200), "bots", "shop", {"name": "Renamed"}),
        "create_bot": Row(roles(FORBIDDEN, agent=201, admin=201), "bots", "shop", {"name": "Another bot"}),
        "get_app_bot": Row(APP_STAFF, "bots:read"),
        "update_bot": Row(APP_STAFF, "bots", "shop", {"tagline": "New"}),
        "list_answers": Row(APP_STAFF, "bots:read"),
        "create_answer": Row(
            roles(FORBIDDEN, agent=201, admin=201), "bots", "shop", {"question": "When?", "answer": "Now."}
        ),
        "update_answer": Row(APP_STAFF, "bots", "shop", {"answer": "New"}),
        "delete_answer": Row(APP_STAFF, "bots", "shop"),
        "get_satisfaction": Row(APP_STAFF, "bots:read"),
        "get_assistant_usage": Row(APP_STAFF, "bots:read"),
        "list_app_staff": Row(APP_STAFF, "bots:read"),
        "list_canned_replies": Row(APP_STAFF, "chats:read"),
        "create_canned_reply": Row(
            roles(FORBIDDEN, agent=201, admin=201), "chats", "shop", {"shortcut": "bye", "text": "Bye."}
        ),
        "update_canned_reply": Row(APP_STAFF, "chats", "shop", {"text": "New"}),
        "delete_canned_reply": Row(APP_STAFF, "chats", "shop"),
        "list_announcements": Row(APP_STAFF, "bots:read"),
        "create_announcement": Row(roles(FORBIDDEN, agent=201, admin=201), "bots", "shop", {"title": "Open again"}),
        "upload_bot_cover": Row(APP_STAFF, "bots", "shop", BOT_PICTURE),
        "remove_bot_cover": Row(APP_STAFF, "bots", "shop"),
        "upload_bot_icon": Row(APP_STAFF, "bots", "shop", BOT_PICTURE),
        "remove_bot_icon": Row(APP_STAFF, "bots", "shop"),
        "get_bot_picture": Row(every_role(200), None),
        "list_app_bots": Row(APP_STAFF, "bots:read"),
        "publish_bot": Row(APP_STAFF, "bots", "shop", {"status": "draft"}),
        "change_bot_presence": Row(APP_STAFF, "bots", "shop", {"presence": "away"}),
        "get_profile": Row(roles(200), "profile:read", query=AS_ALICE),
        "update_profile": Row(roles(200), "profile", "own", {"last_name": "New", "role": "admin", **HERS}, AS_ALICE),
        "get_settings": Row(roles(200), "profile:read", query=AS_ALICE),
        "update_settings": Row(roles(200), "profile", "own", {"chat_language": "de", **HERS}, AS_ALICE),
        "request_email_verification": Row(roles((404, "mail_not_configured")), "account", query=AS_ALICE),
        "list_users": Row(roles(FORBIDDEN, admin=200), "account:read", query=AS_ALICE),
        "create_user": Row(
            roles(FORBIDDEN, admin=201),
            "account",
            "new",
            {"email": "new@example.com", "password": PASSWORD, "role": "admin", **HERS},
        ),
        "get_user": Row(roles(FORBIDDEN, admin=200), "account:read"),
        "change_user": Row(roles(FORBIDDEN, admin=200), "account", "alice", {"last_name": "New", **HERS}),
        "delete_user_data": Row(roles(FORBIDDEN, admin=200), "account", "deleted"),
        "upload_avatar": Row(roles(200), "profile", "own", AVATAR, AS_ALICE),
        "remove_avatar": Row(roles(200), "profile", "own", query=AS_ALICE),
        "create_data_share": Row(
            roles((404, "conversation_not_found"), alice=201),
            "data-shares",
            "own",
            {"mcp_server_id": "mail", "allowed_tools": ["read"], "conversation_id": "{conversation}", **HERS},
        ),
        "list_data_shares": Row(roles(200), "data-shares:read", query=AS_ALICE),
        "get_data_share": Row(roles(FORBIDDEN, alice=200), "data-shares:read"),
        "revoke_data_share": Row(roles(FORBIDDEN, alice=200, admin=200), "data-shares", "alice"),
        "check_data_share": Row(
            roles(200), "data-shares:read", body={"mcp_server_id": "files of Alice", "tool": "read", **HERS}
        ),
        "introspect_data_share": Row(every_role(401), None, body={"token": "{grant}"}),
        "submit_feedback": Row(roles(201), "feedback", "own", {"description": "Fine", **HERS}, AS_ALICE),
        "list_feedback": Row(roles(200), "feedback:read", query=AS_ALICE),
        "upload_screenshot": Row(roles(FORBIDDEN, alice=200), "feedback", "alice", SCREENSHOT, AS_ALICE),
        "remove_screenshot": Row(roles(FORBIDDEN, alice=200), "feedback", "alice", query=AS_ALICE),
        "get_screenshot": Row(roles(FORBIDDEN, alice=200, admin=200), "feedback:read"),
        "change_feedback_status": Row(roles(FORBIDDEN, admin=200), "feedback", "alice", {"status": "done", **HERS}),
        "list_events": Row(roles(200), "events:read", query=AS_ALICE),
        "create_event": Row(roles(201), "events", "own", {"title": "Tea", "starts_at": "2026-11-20T16:00:00Z", **HERS}),
        "get_event": Row(roles(FORBIDDEN, alice=200), "events:read"),
        "update_event": Row(roles(FORBIDDEN, alice=200), "events", "alice", {"title": "Dinner", **HERS}),
        "delete_event": Row(roles(FORBIDDEN, alice=200), "events", "alice"),
        "renew_calendar_feed": Row(roles(200), "account", "own", query=AS_ALICE),
        "revoke_calendar_feed": Row(roles(200), "account", "own", query=AS_ALICE),
        "get_push_key": Row(roles((404, "push_unavailable")), "account:read", query=AS_ALICE),
        "subscribe_browser": Row(roles((404, "push_unavailable")), "account", body={**SUBSCRIPTION, **HERS}),
        "unsubscribe_browser": Row(roles(200), "account", query=AS_ALICE),
        "get_push_topic": Row(roles((404, "push_topic_not_found")), "account:read", query=AS_ALICE),
        "renew_push_topic": Row(roles((404, "push_unavailable")), "account", query=AS_ALICE),
        "end_push_topic": Row(roles(200), "account", "own", query=AS_ALICE),
        "get_calendar": Row(every_role(200), None, query="token={feed}"),
        "list_notifications": Row(roles(200), "notifications:read", query=AS_ALICE),
        "mark_notifications_read": Row(roles(200), "notifications", "own", HERS, AS_ALICE),
        "count_unread_notifications": Row(roles(200), "notifications:read", query=AS_ALICE),
        "mark_notification_read": Row(roles(FORBIDDEN, alice=200), "notifications", "alice"),
        "mark_notification_unread": Row(roles(FORBIDDEN, alice=200), "notifications", ""),
        "delete_notification": Row(roles(FORBIDDEN, alice=200), "notifications", "alice"),
        "await_updates": Row(roles(200), "chats:read", query=f"wait=0&{AS_ALICE}"),
        "stream_updates": Row(roles(200), "chats:read", query=AS_ALICE),
        "get_avatar": Row(every_role(200), None),
        "check_health": Row(every_role(200), None),
        "check_readiness": Row(every_role(200), None),
        "show_metrics": Row(every_role(200), None),  # all test clients are local; see test_metrics.py
        "show_sign_in": Row(every_role(200), None),
        "show_setup": Row(every_role(400), None),  # there is an admin
        "create_first_admin": Row(every_role(400), None, body={"csrf_token": "{csrf_token}"}),
        **dict.fromkeys(
            ("show_verification", "verify_email", "show_unsubscription", "unsubscribe_user", "show_new_password"),
            Row(every_role(400), None, query="token={csrf_token}"),
        ),
        "show_forgotten_password": Row(every_role(404), None),  # without e-mail; see test_account_mail.py
        "request_new_password": Row(every_role(400), None, body={"email": "{email}", "csrf_token": "{csrf_token}"}),
        "set_new_password": Row(
            every_role(400),
            None,
            body={"token": "{csrf_token}", "new_password": PASSWORD, "csrf_token": "{csrf_token}"},
        ),
        "sign_in_browser": Row(
            every_role(400), None, body={"email": "{email}", "password": PASSWORD, "csrf_token": "{csrf_token}"}
        ),
        "sign_out_browser": Row(roles(303), "", "own", {"next": "/"}),
        "show_inbox": Row(roles(200), "console:read", query=AS_ALICE),
        "show_search": Row(roles(200), "console:read", query=f"q=e&{AS_ALICE}"),
        "show_chat": Row(STAFF_OR_403, "console:read"),
        "change_chat": Row(
            {name: 303 if expected == 200 else expected for name, expected in STAFF_OR_403.items()},
            "console",
            "alice",
            {"act": "send", "text": "Bye", "csrf_token": "{console}"},
        ),
        "show_news": Row(roles(200), "console:read", query=AS_ALICE),
        "stream_news": Row(roles(200), "console:read", query=AS_ALICE),
        "show_notifications": Row(roles(200), "console:read", query=AS_ALICE),
        "change_notifications": Row(
            roles(303), "console", "own", {"act": "read_all", "csrf_token": "{console}", **HERS}
        ),
        "show_events": Row(roles(200), "console:read", query=f"past=true&{AS_ALICE}"),
        "change_events": Row(
            roles(303),
            "console",
            "own",
            {"act": "add", "title": "Tea", "starts_at": "2026-11-20T16:00", "csrf_token": "{console}", **HERS},
        ),
        "create_calendar_address": Row(roles(200), "console", "own", {"csrf_token": "{console}", **HERS}),
        "revoke_calendar_address": Row(roles(303), "console", "own", {"csrf_token": "{console}", **HERS}),
        "show_event": Row(roles(FORBIDDEN, alice=200), "console:read"),
        "edit_event": Row(
            roles(FORBIDDEN, alice=303),
            "console",
            "alice",
            {"title": "Dinner", "starts_at": "2026-11-20T16:00", "csrf_token": "{console}", **HERS},
        ),
        "show_feedback": Row(roles(200), "console:read", query=AS_ALICE),
        "change_feedback": Row(
            roles(303), "console", "own", {"act": "give", "description": "Fine", "csrf_token": "{console}", **HERS}
        ),
        "give_feedback": Row(
            roles(303),
            "console",
            "own",
            {**SCREENSHOT, "description": "Fine", "csrf_token": "{console}", **HERS},
        ),
        "show_screenshot": Row(roles(FORBIDDEN, alice=200, admin=200), "console:read"),
        "show_bots": Row(roles(200), "console:read", query="app_id={app}"),
        "begin_chat": Row(
            roles(303), "console", "own", {"app_id": "{app}", "bot_id": "{bot}", "csrf_token": "{console}"}
        ),
        "show_catalogue": Row(APP_STAFF, "console:read", query="app_id={app}"),
        "change_bot": Row(
            roles(FORBIDDEN, agent=303, admin=303),
            "console",
            "shop",
            {"app_id": "{app}", "bot_id": "{bot}", "presence": "away", "csrf_token": "{console}"},
        ),
        "show_shares": Row(roles(200), "console:read", query=AS_ALICE),
        "change_shares": Row(
            roles(303),
            "console",
            "own",
            {"act": "grant", "mcp_server_id": "mail", "allowed_tools": "read", "csrf_token": "{console}", **HERS},
        ),
        "show_settings": Row(roles(200), "console:read", query=AS_ALICE),
        "change_person": Row(
            roles(303), "console", "own", {"act": "profile", "last_name": "New", "csrf_token": "{console}", **HERS}
        ),
        "show_picture": Row(roles(200), "console:read", query=AS_ALICE),
        "attach_image": Row(
            STAFF_OR_403, "console", "alice", {**IMAGE, "act": "send", "csrf_token": "{console}", **HERS}, AS_ALICE
        ),
        "suggest_text": Row(
            {**STAFF_OR_403, "alice": 403, "agent": 404, "admin": 404},  # without an assistant
            "console",
            body={"act": "send", "csrf_token": "{console}"},
        ),
        "show_read_once": Row(
            {**STAFF_OR_403, "alice": 403},  # as a page
            "console",
            "alice",
            {"message": "{sealed}", "csrf_token": "{console}", **HERS},
        ),
        "show_image": Row(STAFF_OR_403, "console:read"),
        "change_push_browser": Row(
            roles(404), "console", "", {"act": "unsubscribe", "csrf_token": "{console}", **HERS}
        ),
        "show_push_address": Row(roles(404), "console:read", query=AS_ALICE),
        "change_push_address": Row(roles(404), "console", "", {"act": "renew", "csrf_token": "{console}", **HERS}),
        "change_picture": Row(roles(303), "console", "own", AVATAR, "csrf_token={console}"),
        "show_account": Row(roles(200), "console:read", query=AS_ALICE),
        "change_account": Row(
            roles(303),
            "console",
            "own",
            {
                "act": "password",
                "current_password": PASSWORD,
                "new_password": "another one",
                "csrf_token": "{console}",
                **HERS,
            },
        ),
        "show_users": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "add_user": Row(
            roles(FORBIDDEN, admin=303),
            "console",
            "new and own",
            {"email": "grace@example.com", "password": PASSWORD, "csrf_token": "{console}"},
        ),
        "show_user": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "edit_user": Row(
            roles(FORBIDDEN, admin=303),
            "console",
            "alice",
            {"act": "save", "display_name": "New", "csrf_token": "{console}"},
        ),
        "end_user_logins": Row(roles(FORBIDDEN, admin=303), "console", "alice", {"csrf_token": "{console}"}),
        "delete_user_account": Row(
            roles(FORBIDDEN, admin=303), "console", "deleted", {"email": "{user_email}", "csrf_token": "{console}"}
        ),
        "show_apps": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "change_apps": Row(
            roles(FORBIDDEN, admin=303),
            "console",
            "shop and own",
            {"act": "add", "name": "New", "csrf_token": "{console}"},
        ),
        "show_new_bot": Row(APP_STAFF, "console:read"),
        "add_bot": Row(
            roles(FORBIDDEN, agent=303, admin=303),
            "console",
            "shop and own",
            {**BOT_PROFILE, "csrf_token": "{console}"},
        ),
        "show_bot": Row(APP_STAFF, "console:read"),
        "edit_bot": Row(
            roles(FORBIDDEN, agent=303, admin=303), "console", "shop", {**BOT_PROFILE, "csrf_token": "{console}"}
        ),
        "show_bot_pictures": Row(APP_STAFF, "console:read"),
        "change_bot_picture": Row(
            roles(FORBIDDEN, agent=303, admin=303), "console", "shop", BOT_PICTURE, "kind=icon&csrf_token={console}"
        ),
        "remove_bot_picture": Row(
            roles(FORBIDDEN, agent=303, admin=303), "console", "shop", {"kind": "icon", "csrf_token": "{console}"}
        ),
        "show_answers": Row(APP_STAFF, "console:read"),
        "add_answer": Row(
            roles(FORBIDDEN, agent=303, admin=303),
            "console",
            "shop and own",
            {"question": "When?", "answer": "At nine.", "csrf_token": "{console}"},
        ),
        "show_answer": Row(APP_STAFF, "console:read"),
        "edit_answer": Row(
            roles(FORBIDDEN, agent=303, admin=303),
            "console",
            "shop",
            {"act": "save", "question": "When?", "answer": "At nine.", "csrf_token": "{console}"},
        ),
        "show_canned_replies": Row(APP_STAFF, "console:read"),
        "add_canned_reply": Row(
            roles(FORBIDDEN, agent=303, admin=303),
            "console",
            "shop and own",
            {"shortcut": "welcome", "text": "Welcome!", "csrf_token": "{console}"},
        ),
        "show_canned_reply": Row(APP_STAFF, "console:read"),
        "edit_canned_reply": Row(
            roles(FORBIDDEN, agent=303, admin=303),
            "console",
            "shop",
            {"act": "save", "shortcut": "hi", "text": "Hello.", "csrf_token": "{console}"},
        ),
        "show_audit_log": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "verify_audit_log": Row(roles(FORBIDDEN, admin=200), "console", body={"csrf_token": "{console}"}),
        "show_branding": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "change_branding": Row(
            roles(FORBIDDEN, admin=303), "console", "shop", {"name": "New", "csrf_token": "{console}"}
        ),
        "change_logo": Row(
            roles(FORBIDDEN, admin=303), "console", "shop", {"picture": picture()}, "csrf_token={console}"
        ),
        "remove_logo": Row(roles(FORBIDDEN, admin=303), "console", "shop", {"csrf_token": "{console}"}),
        "show_backups": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "change_backups": Row(
            roles(FORBIDDEN, admin=404), "console", body={"act": "delete", "name": "x", "csrf_token": "{console}"}
        ),
        "download_backup": Row(roles(FORBIDDEN, admin=404), "console", body={"name": "x", "csrf_token": "{console}"}),
        "show_health": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "show_announcements": Row(APP_STAFF, "console:read"),
        "show_assistant_usage": Row(APP_STAFF, "console:read"),
        "send_announcement": Row(
            roles(FORBIDDEN, agent=303, admin=303),
            "console",
            "shop and own",
            {"title": "News", "csrf_token": "{console}"},
        ),
        "show_deliveries": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "retry_delivery": Row(
            roles(FORBIDDEN, admin=303), "console", "shop", {"id": "{delivery}", "csrf_token": "{console}"}
        ),
        "show_mails": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "show_mail": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "get_mail_html": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "show_all_shares": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "revoke_any_share": Row(
            roles(FORBIDDEN, admin=303), "console", "alice", {"id": "{grant}", "csrf_token": "{console}"}
        ),
        "show_server_credentials": Row(roles(FORBIDDEN, admin=200), "console:read"),
        "issue_server_secret": Row(
            roles(FORBIDDEN, admin=200),
            "console",
            "shop and own",
            {"act": "add", "name": "Gateway", "mcp_server_id": "files", "csrf_token": "{console}"},
        ),
        "revoke_server_credential": Row(
            roles(FORBIDDEN, admin=303), "console", "shop", {"id": "{credential}", "csrf_token": "{console}"}
        ),
        "show_reference": Row(every_role(200), None),
        "get_openapi_document": Row(every_role(200), None),
    }
)

# Alice is a customer, from whom notes are hidden.
HIDDEN = {"alice": (404, "message_not_found")}

NOTES: dict[str, Row] = {
    "delete_message": Row({**STAFF_OR_403, **HIDDEN}, "chats", "alice", message="pinned note"),
    "pin_message": Row({**STAFF_OR_400, "alice": NO_MESSAGE}, "chats", "alice", message="plain note"),
    "unpin_message": Row({**STAFF_OR_400, "alice": NO_MESSAGE}, "chats", "alice", message="pinned note"),
    "edit_message": Row({**roles(FORBIDDEN), **HIDDEN}, "chats", body={"content": "New"}, message="plain note"),
    "send_message": Row(
        {**STAFF_201_OR_403, "alice": FORBIDDEN}, "chats", "alice", {"content": "Ssh", "is_private": True, **HERS}
    ),
}

CASES = {
    **ROWS,
    **{f"{name}, of a note": row for name, row in NOTES.items()},
    "log_out, of everything": Row(roles(200), "account", "own", {"scope": "global", **HERS}),
    "list_feedback, of all users": Row(roles(FORBIDDEN, admin=200), "feedback:read", query="everybody=true"),
}

NOTE = "note between staff"

PICTURE = make_avatar(picture())
ENCODED = EncodedPicture.of(make_picture(picture()))


class World:
    """Rows of every kind that belong to Alice; and of every other user, the rows that each user has."""

    def __init__(self, clients: dict[str, Client], session: ChatSession, say: Any, settings: Any) -> None:
        self.clients = clients
        alice = clients["alice"].user
        with db.write():
            for client in clients.values():
                if client.user:
                    create_rows(client.user)
            pin, note = {"pinned_at": clock.timestamp()}, {"is_private": True, "sender_type": "agent"}
            self.messages = {
                "plain": say("Hello", sender_id=alice.id).id,
                "pinned": say("Hello", **pin).id,
                "plain note": say(NOTE, **note).id,
                "pinned note": say(NOTE, **note, **pin).id,
                "sealed": say("", sender_id=alice.id, is_read_once=True, sealed_content="[34,33,34]").id,
            }
            ids = {"chat_session_id": session.id, "user_id": alice.id, "message_id": self.messages["pinned"]}
            image = MessageImage.create(**ids, **ENCODED._asdict())
            feedback = Feedback.get(Feedback.user_id == alice.id)
            FeedbackScreenshot.create(feedback_id=feedback.id, **ENCODED._asdict())
            for kind in KINDS:
                Bot.get_by_id(session.bot_id).set_picture(kind, PICTURE, "", alice.id)
            StoredBranding.create(id=1, name="Shop", logo="AAAA")
            install = tokens.create_token_session(alice.id, settings, install_id="of Alice", scopes="chats")
            refresh_token = tokens.log_in(alice.id, settings).refresh_token
        self.ids: dict[type, str] = {
            App: session.app_id,
            ChatSession: session.id,
            Bot: session.bot_id,
            CannedAnswer: CannedAnswer.create(bot_id=session.bot_id, question="Where?", answer="Here.").id,
            CannedReply: CannedReply.create(app_id=session.app_id, shortcut="hi", text="Hi.").id,
            Feedback: feedback.id,
            FeedbackScreenshot: feedback.id,
            DataShare: DataShare.get(DataShare.user_id == alice.id).id,
            Avatar: Avatar.get(Avatar.user_id == alice.id).name,
            MessageImage: image.id,
            BotPicture: BotPicture.get(BotPicture.bot_id == session.bot_id).name,
            LoginSession: install.id,
            Event: Event.get(Event.user_id == alice.id).id,
            Notification: Notification.get(Notification.user_id == alice.id).id,
            User: alice.id,
            StoredMail: StoredMail.create(user_id=alice.id, subject="Hello", content="Subject: Hello\n\nHello").id,
        }
        self.names = {
            "alice": alice.id,
            "email": alice.email,
            "user_email": alice.email,
            "refresh_token": refresh_token,
            "app": session.app_id,
            "bot": session.bot_id,
            "conversation": session.conversation_id,
            "consent": urlencode(VALID_PARAMETERS),
            "csrf_token": sign("form", ["of Alice's browser"]),
            "feed": CalendarFeed.renew(alice.id),
            "grant": self.ids[DataShare],
            "sealed": self.messages["sealed"],
            "delivery": Delivery.create(channel="webhook", kind="chat.created", due_at=clock.MAX_TIME).id,
            "credential": ServerCredential.add({"name": "Gateway", "mcp_server_id": "files"}, OPERATOR).client_id,
        }

    def fill_in(self, text: str) -> str:
        """Replace the names in a text by their values."""
        for name, value in self.names.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def ask(self, case: str, client: Client) -> Reply:
        """Send the request of a case as a client."""
        operation, row = ALL[case.partition(",")[0]], CASES[case]
        caller = client.token and tokens.authenticate(f"Bearer {client.token}")
        self.names["caller"] = client.user.id if client.user else ""
        self.names["console"] = csrf.make_token(caller) if caller else ""
        identifiers = {**self.ids, Message: self.messages[row.message]}
        place = address(operation, *(identifiers[table] for *_, table in operation.path_rows))
        path = f"{place}?{self.fill_in(row.query)}"
        if operation.accepts.startswith("multipart/"):
            texts = {name: self.fill_in(value) for name, value in row.body.items() if isinstance(value, str)}
            return client.call(operation.method, path, **as_form(row.body | texts))
        body = row.body and json.loads(self.fill_in(json.dumps(row.body)))
        if body and operation.accepts != "application/json":
            return client.call(operation.method, path, raw=urlencode(body).encode(), content_type=operation.accepts)
        return client.call(operation.method, path, body)


def as_form(members: dict[str, bytes | str]) -> dict[str, Any]:
    """A body of multipart/form-data with files and texts."""
    head = '--x\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
    parts = (
        head.format(name, '; filename="me.png"').encode() + value + b"\r\n"
        if isinstance(value, bytes)
        else f"{head.format(name, '')}{value}\r\n".encode()
        for name, value in members.items()
    )
    return {"raw": b"".join(parts) + b"--x--\r\n", "content_type": "multipart/form-data; boundary=x"}


def create_rows(user: User) -> None:
    """Create one row of each kind for a user, with the user's name in it."""
    named = f"of {user.first_name}"
    DataShare.grant(user.id, mcp_server_id=f"files {named}", allowed_tools='["read"]')
    Event.create(user_id=user.id, title=f"lunch {named}", starts_at="2026-11-20T10:00:00.000Z")
    Notification.create(user_id=user.id, title=f"news {named}", payload=compact_json(as_bytes({"text": named})))
    Feedback.create(user_id=user.id, description=f"opinion {named}")
    Avatar.set_for(user.id, PICTURE, "")
    CalendarFeed.renew(user.id)
    PushTopic.renew(user.id)
    User.update(settings=compact_json({"remark": f"remark {named}"})).where(User.id == user.id).execute()


@pytest.fixture(name="world")
def world_fixture(
    alice: Client,
    bob: Client,
    agent: Client,
    other_agent: Client,
    admin: Client,
    anyone: Client,
    session: ChatSession,
    say: Any,
    settings: Settings,
) -> "World":
    """All clients, and their rows."""
    clients = (alice, bob, agent, other_agent, admin, anyone)
    return World(dict(zip(ROLES, clients, strict=True)), session, say, settings)


@contextmanager
def rolled_back(case: str = "") -> Iterator[None]:
    """Roll the block back, so that each role finds the same rows."""
    if case in OWN_CONNECTION:
        yield
        return
    with db.database.atomic() as transaction:
        yield
        transaction.rollback()


def rows_by_owner() -> dict[str, list[Any]]:
    """All rows by their owner: the identifier of a user, or "" without one."""
    found: dict[str, list[Any]] = {}
    sessions = {session.id: session.user_id for session in ChatSession.select()}
    authors = {feedback.id: feedback.user_id for feedback in Feedback.select()}
    users = {user.id for user in User.select()}
    for table in TABLES:
        if table in (LoginAttempt, ClockState):  # failed logins and /readyz write them
            continue
        names = [column.column_name for column in table._meta.sorted_fields]
        columns = ", ".join(f'"{name}"' for name in names)
        for values in db.database.execute_sql(f'SELECT {columns} FROM "{table._meta.table_name}" ORDER BY 1'):
            row = dict(zip(names, values, strict=True))
            owner: Any = (
                row["id"] if table is User else sessions.get(row.get("chat_session_id"), row.get("user_id", ""))
            )
            owner = row["subject_id"] if table is AuditLog else owner
            owner = authors.get(row["feedback_id"], "") if table is FeedbackScreenshot else owner
            found.setdefault(owner if owner in users else "", []).append((table.__name__, row))
    return found
