"""The login sessions of command-line clients that a user has approved."""

from service.auth import tokens
from service.models import Approval, AuditLog, DeviceAuthorization, LoginSession
from service.settings import Settings


def begin(approval: Approval | DeviceAuthorization, settings: Settings) -> LoginSession | None:
    """Create the login session of an approved client, inside a write that locks the user.

    An earlier login session of the same user and install ends. Returns None if the user has too many clients.
    """
    if not LoginSession.may_add_install(approval.user_id, approval.install_id):
        return None
    replaced = LoginSession.end_install(approval.user_id, approval.install_id, approval.resource)
    session = tokens.create_token_session(
        approval.user_id,
        settings,
        kind="client",
        label=approval.install_name,
        scopes=approval.scopes,
        install_id=approval.install_id,
        resource=approval.resource,
    )
    for login in replaced:
        details = {"login": login, "replaced_by": session.id}
        AuditLog.record("install_replaced", approval.user_id, approval.user_id, **details)
    return session
