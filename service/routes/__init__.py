"""The operations of the service, one module per resource. `PARTS` is the order of all listings."""

from collections.abc import Iterator

from service.api.operations import Operation
from service.routes import (
    account_mail,
    announcements,
    api_reference,
    apps,
    auth,
    bots,
    canned_answers,
    canned_replies,
    chats,
    consent,
    data_shares,
    device,
    events,
    feedback,
    health,
    images,
    mcp,
    messages,
    notifications,
    push_topics,
    setup,
    sign_in,
    updates,
    users,
    web_push,
)
from service.routes.console import account as console_account
from service.routes.console import all_shares as console_all_shares
from service.routes.console import announcements as console_announcements
from service.routes.console import apps as console_apps
from service.routes.console import assistant_usage as console_assistant_usage
from service.routes.console import audit_log as console_audit_log
from service.routes.console import backups as console_backups
from service.routes.console import bot_pictures as console_bot_pictures
from service.routes.console import bot_profiles as console_bot_profiles
from service.routes.console import bots as console_bots
from service.routes.console import branding as console_branding
from service.routes.console import canned_answers as console_canned_answers
from service.routes.console import canned_replies as console_canned_replies
from service.routes.console import chats as console_chats
from service.routes.console import data_shares as console_data_shares
from service.routes.console import deliveries as console_deliveries
from service.routes.console import events as console_events
from service.routes.console import feedback as console_feedback
from service.routes.console import health as console_health
from service.routes.console import mails as console_mails
from service.routes.console import notifications as console_notifications
from service.routes.console import push as console_push
from service.routes.console import server_credentials as console_server_credentials
from service.routes.console import updates as console_updates
from service.routes.console import users as console_users

PARTS = (
    auth.routes,
    auth.account,
    consent.routes,
    consent.clients,
    device.clients,
    device.pages,
    chats.routes,
    messages.routes,
    images.routes,
    bots.routes,
    apps.routes,
    canned_answers.routes,
    canned_replies.routes,
    announcements.routes,
    users.routes,
    users.admin,
    account_mail.account,
    data_shares.routes,
    feedback.routes,
    events.routes,
    notifications.routes,
    push_topics.routes,
    web_push.routes,
    updates.routes,
    mcp.routes,
    users.images,
    bots.images,
    health.routes,
    sign_in.routes,
    setup.routes,
    account_mail.routes,
    console_chats.routes,
    images.console,
    console_updates.routes,
    console_notifications.routes,
    console_events.routes,
    console_feedback.routes,
    feedback.console,
    console_bots.routes,
    console_data_shares.routes,
    console_account.routes,
    console_push.routes,
    console_users.routes,
    console_apps.routes,
    console_bot_profiles.routes,
    console_bot_pictures.routes,
    console_canned_answers.routes,
    console_canned_replies.routes,
    console_announcements.routes,
    console_assistant_usage.routes,
    console_deliveries.routes,
    console_mails.routes,
    console_audit_log.routes,
    console_all_shares.routes,
    console_server_credentials.routes,
    console_branding.routes,
    console_backups.routes,
    console_health.routes,
    api_reference.routes,
)


def operations(documented_only: bool = False) -> Iterator[Operation]:
    """Yield all operations, or the documented ones and those that operators need (health, metrics, avatars)."""
    for routes in PARTS:
        for operation in routes:
            if operation.always_served or not (documented_only and operation.extension):
                yield operation
