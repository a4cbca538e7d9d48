"""`client add|list|rotate|revoke`: the credentials with which MCP servers and gateways ask about data shares."""

import argparse
import sys

from service.commands import Stop
from service.commands.rows import existing, open_database, print_row, read_columns
from service.errors import CredentialNotFound
from service.escape import clean
from service.models import ServerCredential
from service.models.audit_log import OPERATOR
from service.models.server_credentials import NEW_CLIENT, IssuedSecret
from service.settings import Settings


def add(flags: argparse.Namespace, settings: Settings) -> None:
    """Add a credential, and print its identifier and secret."""
    columns = read_columns(flags, NEW_CLIENT)
    open_database(settings)
    _print_secret(ServerCredential.add(columns, OPERATOR))


def show(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per credential."""
    open_database(settings)
    for client in ServerCredential.select().order_by(ServerCredential.created_at, ServerCredential.id):
        state = f"revoked {client.revoked_at}" if client.revoked_at else "active"
        asked = f"asked {client.last_asked_at}" if client.last_asked_at else "never asked"
        if client.has_previous_secret:
            asked += f"  previous secret valid until {client.previous_expires_at}"
        print_row(flags, client.rendered(), f"{state}  {asked}  {client.mcp_server_id}  {client.name}")


def rotate(flags: argparse.Namespace, settings: Settings) -> None:
    """Replace the secret of a credential, and print the new one."""
    open_database(settings)
    try:
        _print_secret(existing(ServerCredential, flags.id).rotate(OPERATOR, at_once=flags.at_once))
    except CredentialNotFound:
        raise Stop(f"this client is revoked: {clean(flags.id)}") from None


def revoke(flags: argparse.Namespace, settings: Settings) -> None:
    """Revoke a credential."""
    open_database(settings)
    existing(ServerCredential, flags.id).revoke(OPERATOR)


ACTIONS = {"add": add, "list": show, "rotate": rotate, "revoke": revoke}


def _print_secret(issued: IssuedSecret) -> None:
    print(f"client_id      {issued.client_id}\nclient_secret  {issued.secret}")
    print("The secret is not stored, and is shown only now.", file=sys.stderr)
