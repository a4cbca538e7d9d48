"""The decisions of users on authorization requests of command-line clients."""

from service.db import Table
from service.fields import INTERNAL, Boolean, Integer, Text, reference


class Approval(Table):
    """A user's decision on one authorization request, by the number of its ticket.

    The authorization code is signed and not stored. Rows are stored for a day, to detect a code that is used again.
    """

    id = Text(primary_key=True, visibility=INTERNAL)
    user_id = reference("user")
    is_granted = Boolean(visibility=INTERNAL)
    decided_at = Integer(index=True)
    code_challenge = Text(visibility=INTERNAL)
    redirect_uri = Text(visibility=INTERNAL)
    scopes = Text(visibility=INTERNAL)
    install_id = Text(visibility=INTERNAL)
    install_name = Text(visibility=INTERNAL)
    resource = Text(default="", visibility=INTERNAL)  # that the tokens are for; empty: the API
    used_at = Integer(null=True)
    login_session_id = Text(null=True, default=None, visibility=INTERNAL)  # the login session that the code started

    @property
    def registered_client(self) -> str:
        """The registered client that asked; empty for the command-line client."""
        return str(self.install_id) if self.resource else ""
