"""The caller of a request, and who counts as the staff of an app."""

from typing import NamedTuple

from service import preferences


def is_staff(role: str, own_app_id: str | None, app_id: str) -> bool:
    """Return whether a user is staff of an app: its agents are, and admins are staff of every app."""
    return role == "admin" or (role == "agent" and own_app_id == app_id)


class Caller(NamedTuple):
    """The user who sends a request, and the login session that the request belongs to."""

    id: str
    role: str
    app_id: str | None
    session_id: str
    scopes: frozenset[str] | None  # None: no restriction
    expires_at: int = 0  # the end of the token or cookie, in ms
    timezone: str = ""  # of the browser, on pages
    language: str = ""  # of the pages
    settings: str = "{}"  # the stored settings document

    def may(self, scope: str) -> bool:
        """Return whether the token has a scope; a scope includes its own `:read`."""
        return self.scopes is None or bool(self.scopes & {scope, scope.removesuffix(":read")})

    @property
    def shows_receipts(self) -> bool:
        """Return whether others see what the user has read; a user who hides it does not see it of others either."""
        return bool(preferences.read(self.settings)["privacy"]["show_read_receipts"])

    @property
    def shows_typing(self) -> bool:
        """Return whether others see that the user is writing."""
        return bool(preferences.read(self.settings)["privacy"]["show_typing_indicator"])

    def is_staff(self, app_id: str) -> bool:
        """Return whether the caller is staff of an app."""
        return is_staff(self.role, self.app_id, app_id)
