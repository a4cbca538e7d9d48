"""Rows that do not exist, and the rules and limits of each kind of row."""

from service.errors.requests import BadRequest, NotFound

# Apps, bots, chat sessions and messages


class AppNotFound(NotFound):
    """There is no such app."""

    code = "app_not_found"


class BotNotFound(NotFound):
    """This app has no such active bot."""

    code = "bot_not_found"


class AnswerNotFound(NotFound):
    """This bot has no such canned answer."""

    code = "answer_not_found"


class SessionNotFound(NotFound):
    """There is no such chat session."""

    code = "session_not_found"


class ConversationNotFound(NotFound):
    """You have no such conversation."""

    code = "conversation_not_found"


class UnknownStatus(BadRequest):
    """A chat session has no such status."""

    code = "unknown_status"


class SessionArchived(BadRequest):
    """This chat session is archived and accepts no new messages."""

    code = "session_archived"


class SessionNotOver(BadRequest):
    """This chat session is not over, so it cannot be rated yet."""

    code = "session_not_over"


class RatingNotFound(NotFound):
    """This chat session has no rating."""

    code = "rating_not_found"


class AssigneeNotFound(NotFound):
    """There is no such user among the staff of this app."""

    code = "assignee_not_found"


class AlreadyAssigned(BadRequest):
    """This chat session is assigned to another user."""

    code = "already_assigned"


class CannedReplyNotFound(NotFound):
    """This app has no such canned reply."""

    code = "canned_reply_not_found"


class CannedReplyExists(BadRequest):
    """This app has another canned reply with this shortcut and language."""

    code = "canned_reply_exists"


class CannedReplyLimitReached(BadRequest):
    """An app can have at most 1,000 canned replies."""

    code = "canned_reply_limit_reached"


class MessageNotFound(NotFound):
    """There is no such message in this chat session."""

    code = "message_not_found"


class ImageNotFound(NotFound):
    """There is no such picture."""

    code = "image_not_found"


class ImageLimitReached(BadRequest):
    """You have sent too many pictures; delete messages with pictures to send more."""

    code = "image_limit_reached"


class MessageGone(BadRequest):
    """This message was deleted or purged."""

    code = "message_gone"


class ClientMessageIdReused(BadRequest):
    """This client_message_id was used with another message of this chat session."""

    code = "client_message_id_reused"


class ActionNotFound(NotFound):
    """This message offers no such action."""

    code = "action_not_found"


class ActionAlreadyChosen(BadRequest):
    """An action of this message was chosen before."""

    code = "action_already_chosen"


class NothingToReveal(BadRequest):
    """This message is not read-once, or it was read before."""

    code = "nothing_to_reveal"


class NothingToTranslate(BadRequest):
    """This message has no text that can be translated."""

    code = "nothing_to_translate"


class MessageChanged(BadRequest):
    """This message was changed meanwhile; try again."""

    code = "message_changed"


class PinLimitReached(BadRequest):
    """A chat session can have at most 100 pinned messages."""

    code = "pin_limit_reached"


# Data shares


class GrantNotFound(NotFound):
    """There is no such data-share grant."""

    code = "grant_not_found"


class GrantLimitReached(BadRequest):
    """A user can have at most 500 active data-share grants."""

    code = "grant_limit_reached"


# Events, notifications and feedback


class EventNotFound(NotFound):
    """There is no such event."""

    code = "event_not_found"


class EventExists(BadRequest):
    """You already have this event from this source."""

    code = "event_exists"


class FeedNotFound(NotFound):
    """There is no calendar feed at this address; it may have been replaced by a new one."""

    code = "feed_not_found"


class AssistantNotConfigured(NotFound):
    """This service has no assistant."""

    code = "assistant_not_configured"


class PushUnavailable(NotFound):
    """This service sends no push notifications."""

    code = "push_unavailable"


class PushTopicNotFound(NotFound):
    """You have no address for push notifications."""

    code = "push_topic_not_found"


class NotificationNotFound(NotFound):
    """There is no such notification."""

    code = "notification_not_found"


class DeliveryNotFound(NotFound):
    """There is no such delivery."""

    code = "delivery_not_found"


class MailNotFound(NotFound):
    """There is no such e-mail."""

    code = "mail_not_found"


class FeedbackNotFound(NotFound):
    """There is no such feedback."""

    code = "feedback_not_found"


class ScreenshotNotFound(NotFound):
    """This feedback has no screenshot."""

    code = "screenshot_not_found"


# MCP servers


class CredentialNotFound(NotFound):
    """There is no such credential of an MCP server, or it is revoked."""

    code = "credential_not_found"


# Backups


class BackupNotFound(NotFound):
    """There is no such backup."""

    code = "backup_not_found"


class NoSpaceForBackup(BadRequest):
    """The disk has not enough free space for a backup."""

    code = "no_space_for_backup"


# Users


class UserNotFound(NotFound):
    """There is no such user."""

    code = "user_not_found"


class UserExists(BadRequest):
    """Another user has this e-mail address."""

    code = "user_exists"


class LastAdmin(BadRequest):
    """This user is the only active admin; make another user an admin first."""

    code = "last_admin"
