"""Delivers e-mails to users: notifications, verification, invitation, password reset, and notice of a new login.

Links have their tokens from here: the outbox stores none.
"""

import json
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from service import clock, db, translation
from service.auth import mail_links
from service.branding import UNSET, branding_of
from service.console.display_names import client_name
from service.console.labels import notification_body, notification_title
from service.console.messages import json_value
from service.console.times import Times
from service.models import Delivery, LoginSession, Notification, StoredBranding, User
from service.models.deliveries import Channel
from service.outbox.mail_store import MailStore
from service.outbox.mails import Content, Item, build
from service.outbox.smtp import MailServer
from service.outbox.transport import Transport
from service.settings import Settings
from service.translation import gettext, ngettext

MAX_PREVIEW = 300  # characters of the body of a notification


class EmailTransport(Transport):
    """Sends e-mails to a server, or stores those of a demo."""

    channel: Channel = "email"

    def __init__(self, settings: Settings, server: MailServer | MailStore) -> None:
        self._settings, self._server = settings, server
        self._base_url = settings.public_url or settings.store_mails
        self.target = server.target

    def deliver(self, delivery: Delivery, notifications: Sequence[Notification]) -> None:
        """Send an e-mail to the user of a delivery, unless it has become needless. Raises DeliveryError."""
        user = User.find(delivery.user_id)
        if user is None or user.is_disabled:
            return
        with translation.use(language_of(user)):
            name = branding_of(self._settings, db.read_or(UNSET, StoredBranding.values)).name
            content = self._content(delivery, notifications, user, name or urlsplit(self._base_url).netloc)
            if content is None:
                return
            mail = build(content, delivery.id, user.email, self._settings, name)
        self._server.send(mail, user.email)

    def _content(
        self, delivery: Delivery, notifications: Sequence[Notification], user: User, name: str
    ) -> Content | None:
        base_url = self._base_url
        if delivery.kind == "notifications":
            return announcement(user, notifications, base_url)
        if delivery.kind == "login":
            return login_notice(user, json.loads(delivery.payload)["login_session_id"], name, base_url)
        return LINKS[delivery.kind](user, name, base_url)


def language_of(user: User) -> str:
    """Return the language of e-mails to a user: the one chosen for the pages, else that of the profile."""
    return translation.choose([User.chosen_language(user.id), user.locale])


def announcement(user: User, notifications: Sequence[Notification], base_url: str) -> Content:
    """Return an e-mail about unread notifications, all of one chat session or of none."""
    times = Times(user.timezone)
    items, session_id = [_item(row, times) for row in notifications], notifications[-1].session_id
    path = f"/console/chats/{session_id}#end" if session_id else "/console/notifications"
    count = len(items)
    return Content(
        subject=", ".join(dict.fromkeys(item.title for item in items)),
        paragraphs=(
            ngettext("You have {count} unread notification.", "You have {count} unread notifications.", count),
        ),
        items=tuple(items),
        label=gettext("Open the chat") if session_id else gettext("Open notifications"),
        link=f"{base_url}{path}",
        notes=(gettext("You get this e-mail because e-mails for notifications are on in your settings."),),
        thread=f"chat-{session_id}" if session_id else "",
        unsubscribe_link=mail_links.unsubscription_link(base_url, user),
    )


def _item(row: Notification, times: Times) -> Item:
    title = notification_title(row.type, row.title, json_value(json.loads(row.payload)))
    body = notification_body(row.body)
    text = body if len(body) <= MAX_PREVIEW else f"{body[:MAX_PREVIEW]}…"
    return Item(title or gettext("Notification"), text, times.full(row.created_at))


def verification(user: User, name: str, base_url: str) -> Content | None:
    """Return an e-mail that verifies the address of a user; None if it is verified."""
    if user.is_verified:
        return None
    return Content(
        subject=gettext("Verify your e-mail address"),
        paragraphs=(gettext("To receive e-mails from {name}, verify that this is your address.", name=name),),
        label=gettext("Verify e-mail address"),
        link=mail_links.verification_link(base_url, user),
        notes=(
            _expiry(user, mail_links.VERIFICATION_LIFETIME),
            gettext("If you did not ask for it, ignore this e-mail."),
        ),
    )


def invitation(user: User, name: str, base_url: str) -> Content | None:
    """Return an e-mail with which a new user chooses a password; None for a user who has one."""
    if user.password_hash:
        return None
    return Content(
        subject=gettext("Invitation to {name}", name=name),
        paragraphs=(gettext("An account was created for you at {name}. Choose a password to sign in.", name=name),),
        label=gettext("Choose a password"),
        link=mail_links.password_link(base_url, user, mail_links.INVITATION_LIFETIME),
        notes=(_expiry(user, mail_links.INVITATION_LIFETIME),),
    )


def password_reset(user: User, name: str, base_url: str) -> Content:
    """Return an e-mail with which a user chooses a new password."""
    return Content(
        subject=gettext("Choose a new password"),
        paragraphs=(gettext("A new password was requested for your account at {name}.", name=name),),
        label=gettext("Choose a new password"),
        link=mail_links.password_link(base_url, user, mail_links.RESET_LIFETIME),
        notes=(
            _expiry(user, mail_links.RESET_LIFETIME),
            gettext("If you did not ask for it, ignore this e-mail; your password stays as it is."),
        ),
    )


LINKS: dict[str, Callable[[User, str, str], Content | None]] = {
    "verification": verification,
    "invitation": invitation,
    "password_reset": password_reset,
}
"""The contents of e-mails with a link, by kind of delivery."""


def login_notice(user: User, login_session_id: str, name: str, base_url: str) -> Content | None:
    """Return an e-mail about a login session; None if it is gone, or the address of the user is not verified."""
    login = LoginSession.find(login_session_id)
    if login is None or not user.is_verified:
        return None
    return Content(
        subject=gettext("New sign-in to your account"),
        paragraphs=(gettext("Your account at {name} was used from a program that was not used before.", name=name),),
        items=(Item(client_name(login.label), Times(user.timezone).full(clock.timestamp(login.created_at))),),
        label=gettext("Show login sessions"),
        link=f"{base_url}/console/account",
        notes=(gettext("If this was not you, sign out that session and change your password."),),
    )


def _expiry(user: User, lifetime: int) -> str:
    time = Times(user.timezone).full(clock.timestamp(clock.now() + lifetime))
    return gettext("The link is valid until {time}.", time=time)
