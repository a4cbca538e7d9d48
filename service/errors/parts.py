"""The refusals that belong to one part of the service."""

from service.errors.general import BadRequest, BodyTooLarge, NotFound, Refusal

# Chat sessions and messages.


class SessionNotFound(NotFound):
    """There is no such chat session."""

    code = "session_not_found"


class MessageNotFound(NotFound):
    """There is no such message in this chat session."""

    code = "message_not_found"


class UnknownStatus(BadRequest):
    """A chat session has no such status."""

    code = "unknown_status"


class PinLimitReached(BadRequest):
    """A chat session holds at most 100 pinned messages."""

    code = "pin_limit_reached"


class SessionArchived(BadRequest):
    """This chat session was put away and takes no more messages."""

    code = "session_archived"


class MessageGone(BadRequest):
    """This message was deleted or purged."""

    code = "message_gone"


class ClientMessageIdReused(BadRequest):
    """This client_message_id was used with another message of this chat session."""

    code = "client_message_id_reused"


class AppNotFound(NotFound):
    """There is no such app."""

    code = "app_not_found"


# Bots and data shares.


class BotNotFound(NotFound):
    """This app has no such active bot."""

    code = "bot_not_found"


class ConversationNotFound(NotFound):
    """You have no such conversation."""

    code = "conversation_not_found"


class GrantNotFound(NotFound):
    """There is no such data-share grant."""

    code = "grant_not_found"


class GrantLimitReached(BadRequest):
    """A user holds at most 500 active data-share grants."""

    code = "grant_limit_reached"


# Passwords and feedback.


class WrongPassword(BadRequest):
    """The current password is wrong."""

    code = "wrong_password"


class FeedbackNotFound(NotFound):
    """There is no such feedback."""

    code = "feedback_not_found"


# Events and notifications.


class EventNotFound(NotFound):
    """There is no such event."""

    code = "event_not_found"


class EventExists(BadRequest):
    """You have this event of that source already."""

    code = "event_exists"


class FeedNotFound(NotFound):
    """No calendar has this address, or no longer."""

    code = "feed_not_found"


class NotificationNotFound(NotFound):
    """There is no such notification."""

    code = "notification_not_found"


# Files and pictures.


class FileMissing(BadRequest):
    """The form holds no such file, or an empty one."""

    code = "file_missing"


class FileTooLarge(BodyTooLarge):
    """The file is larger than this operation takes."""

    code = "file_too_large"


class UnsupportedMediaType(Refusal):
    """The file is not of a type that this operation takes."""

    status = 415
    code = "unsupported_media_type"


class ImageUnreadable(BadRequest):
    """The picture is damaged or incomplete."""

    code = "image_unreadable"


class ImageTooLarge(BadRequest):
    """The picture has too many pixels."""

    code = "image_too_large"


# Signing in, and command-line clients (RFC 6749, section 5.2).


class StaleForm(BadRequest):
    """This page was open for too long, or was sent from elsewhere; go back and try again."""

    code = "stale_form"


class InstallLimitReached(BadRequest):
    """A user lets at most 100 command-line clients act for them; revoke one first."""

    code = "install_limit_reached"


class InvalidGrant(BadRequest):
    """The code or token is not valid, has expired, was used, or belongs to another request."""

    code = "invalid_grant"


class UnsupportedGrantType(BadRequest):
    """Expected a grant_type of authorization_code or refresh_token."""

    code = "unsupported_grant_type"


class InvalidClient(BadRequest):
    """There is no such client; expected service-cli."""

    code = "invalid_client"
