"""The apps that a user of the console can choose from."""

from service.models import App, ChatSession
from service.models.callers import Caller

MAX_APPS = 100  # to choose from


def apps_of(caller: Caller, current_id: str | None = None) -> list[App]:
    """Return the first apps to choose from: all apps for admins, else the apps of the caller, or the only app.

    The current app is among them, if it exists.
    """
    if caller.role == "admin":
        apps = list(App.select().order_by(App.name, App.id).limit(MAX_APPS))
    else:
        chats = ChatSession.select(ChatSession.app_id).where(ChatSession.user_id == caller.id)
        own = App.select().where((App.id == caller.app_id) | App.id.in_(chats))
        apps = list(own.order_by(App.name, App.id).limit(MAX_APPS)) or only_app()
    current = App.find(current_id) if current_id else None
    return apps if current is None or current in apps else [*apps, current]


def only_app() -> list[App]:
    """Return the app of an installation with one app; an empty list if there are several."""
    apps = list(App.select().limit(2))
    return apps if len(apps) == 1 else []
