"""What people answered command-line clients."""

from service.db import Table
from service.fields import NEVER, Boolean, Integer, Text, reference


class Approval(Table):
    """A person's answer to one request of a command-line client, under the number of its ticket.

    The code that an approval gives out is signed and not stored. Rows stay for a day, so that a code that comes again
    is known to be used.
    """

    id = Text(primary_key=True, leaves=NEVER)
    user_id = reference("user")
    is_granted = Boolean(leaves=NEVER)
    answered_at = Integer(index=True)
    code_challenge = Text(leaves=NEVER)
    redirect_uri = Text(leaves=NEVER)
    scopes = Text(leaves=NEVER)
    install_id = Text(leaves=NEVER)
    install_name = Text(leaves=NEVER)
    used_at = Integer(null=True)
    login_session_id = Text(null=True, default=None, leaves=NEVER)  # what the code was exchanged for
