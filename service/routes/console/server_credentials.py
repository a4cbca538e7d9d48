"""The page of the credentials of MCP servers and gateways, for admins."""

from typing import Literal

from msgspec import Struct

from service import clock
from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.errors import CredentialNotFound
from service.models import ServerCredential
from service.models.callers import Caller
from service.models.server_credentials import NEW_CLIENT, IssuedSecret, new_secret
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)


class CredentialsQuery(Struct):
    """Filter and position of the list."""

    revoked: bool = False
    cursor: Cursor = Cursor()
    done: str = ""


class SecretForm(ConsoleForm, kw_only=True):
    """A credential to add, or one whose secret is replaced."""

    act: Literal["add", "rotate"]
    name: str = ""
    mcp_server_id: str = ""
    id: OptionalUuid = ""
    at_once: bool = False


class RevocationForm(ConsoleForm, kw_only=True):
    """A credential to revoke."""

    id: OptionalUuid = ""


@routes.get("/console/server-credentials", statuses=(200, 400, 401, 403))
def show_server_credentials(caller: Caller, query: CredentialsQuery) -> HtmlPage:
    """Show the page of the credentials of MCP servers and gateways (admins only)."""
    return credentials_page(caller, query)


def credentials_page(
    caller: Caller, query: CredentialsQuery, failure: FormFailure = NO_FAILURE, *, issued: IssuedSecret | None = None
) -> HtmlPage:
    """Return the page of credentials; `issued` has the secret that was just created."""
    return layout.show(
        caller,
        "server-credentials",
        gettext("Credentials of MCP servers"),
        page=ServerCredential.list_page(query.cursor, layout.PAGE_ROWS, revoked=query.revoked),
        query=query,
        done=query.done,
        failure=failure,
        issued=issued,
        now=clock.timestamp(),
    )


@routes.post(
    "/console/server-credentials",
    statuses=(200, 400, 401, 403, 404),
    max_body=MAX_FORM,
    errors=(CredentialNotFound,),
)
@layout.form_handler(credentials_page, CredentialsQuery)
def issue_server_secret(caller: Caller, body: SecretForm) -> HtmlPage:
    """Add a credential, or replace the secret of one, and show the secret (admins only)."""
    secret = new_secret(layout.derived_secret(caller, "server credential", body))
    client_id = layout.run_once(caller, "server credential", body, lambda: issue(caller, body, secret).client_id)
    is_valid = ServerCredential.get_by_id(client_id).has_secret(secret)  # not if it was replaced since
    done = "credential_added" if body.act == "add" else "secret_replaced"
    issued = IssuedSecret(client_id, secret) if is_valid else None
    return credentials_page(caller, CredentialsQuery(done=done), issued=issued)


@routes.post(
    "/console/server-credentials/revocation",
    statuses=(303, 400, 401, 403, 404),
    max_body=MAX_FORM,
    errors=(CredentialNotFound,),
)
@layout.form_handler(credentials_page, CredentialsQuery)
def revoke_server_credential(caller: Caller, body: RevocationForm) -> Redirect:
    """Revoke a credential (admins only)."""
    ServerCredential.get_for(caller, body.id).revoke(caller.id)
    return Redirect("/console/server-credentials?done=credential_revoked")


def issue(caller: Caller, body: SecretForm, secret: str) -> IssuedSecret:
    """Add the credential of a form, or replace its secret."""
    if body.act == "rotate":
        return ServerCredential.get_for(caller, body.id).rotate(caller.id, secret, at_once=body.at_once)
    names = {name: layout.clean_text(getattr(body, name)) for name in NEW_CLIENT.columns}
    return ServerCredential.add(NEW_CLIENT.read(names), caller.id, secret)
