"""The credentials with which MCP servers and gateways ask about data shares. Only digests of the secrets are stored."""

import hashlib
import hmac
import secrets
from typing import NamedTuple, Self

from service import clock
from service.api.schemas import BodyColumns
from service.db import Order, Page, Position, Table, page, snapshot, write
from service.errors import CredentialNotFound
from service.fields import INTERNAL, Identifier, SqlValue, Text, Timestamp
from service.models.audit_log import AuditLog, Kind
from service.models.callers import Caller
from service.models.data_shares import DataShare, Verdict

PREFIX = "cxm_"
OVERLAP = 24 * clock.HOUR  # for which the previous secret remains valid after a rotation
QUESTION_INTERVAL = clock.HOUR  # between the questions of a client whose times are stored


class IssuedSecret(NamedTuple):
    """A new secret, which is shown once."""

    client_id: str
    secret: str


class ServerCredential(Table):
    """The credential of an MCP server, or of a gateway in front of it."""

    id = Identifier(primary_key=True, default=clock.uuid)
    name = Text(200, min_length=1, default=None)
    mcp_server_id = Text(255, min_length=1, default=None)
    secret_digest = Text(visibility=INTERNAL)
    previous_digest = Text(visibility=INTERNAL)  # of the secret before the last rotation
    previous_expires_at = Timestamp(null=True)  # until then, the secret before the last rotation is valid
    created_at = Timestamp(default=clock.timestamp)
    revoked_at = Timestamp(null=True)
    last_asked_at = Timestamp(null=True)  # see `record_question`

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return a credential, for admins. Raises CredentialNotFound."""
        credential = cls.find(id) if caller.role == "admin" else None
        if credential is None:
            raise CredentialNotFound
        return credential

    @classmethod
    def list_page(cls, after: Position, limit: int, *, revoked: bool) -> "Page[ServerCredential]":
        """Return a page of the active or `revoked` credentials, newest first."""
        found = cls.select().where(cls.revoked_at.is_null(not revoked))
        return page(found, [Order(cls.created_at, True), Order(cls.id, True)], after, limit)

    @classmethod
    def add(cls, columns: dict[str, SqlValue], actor_id: str, secret: str = "") -> IssuedSecret:
        """Create a credential with a new secret, or with one of `new_secret`. Return its secret."""
        secret = secret or new_secret()
        client = cls(secret_digest=_digest(secret), **columns)
        with write(client.id):
            client.save(force_insert=True)
            client._record("server_credential_added", actor_id)
        return IssuedSecret(client.id, secret)

    def rotate(self, actor_id: str, secret: str = "", *, at_once: bool = False) -> IssuedSecret:
        """Replace the secret by a new one, or by one of `new_secret`. Return it. Raises CredentialNotFound if revoked.

        The previous secret remains valid for OVERLAP, unless `at_once`.
        """
        secret = secret or new_secret()
        with write(self.id):
            client = ServerCredential.get_by_id(self.id)
            if client.revoked_at:
                raise CredentialNotFound
            client.previous_digest = "" if at_once else client.secret_digest
            client.previous_expires_at = None if at_once else clock.timestamp(clock.now() + OVERLAP)
            client.secret_digest = _digest(secret)
            client.save()
            client._record("server_credential_rotated", actor_id)
        return IssuedSecret(self.id, secret)

    def revoke(self, actor_id: str) -> None:
        """Revoke the credential, for ever. Has no effect if it is revoked already."""
        with write(self.id):
            unrevoked = (ServerCredential.id == self.id) & ServerCredential.revoked_at.is_null()
            if ServerCredential.update(revoked_at=clock.timestamp()).where(unrevoked).execute():
                self._record("server_credential_revoked", actor_id)

    @classmethod
    def record_question(cls, id: str, at: int) -> None:
        """Store that a client asked at a time, unless the stored question is less than QUESTION_INTERVAL older."""
        earliest = clock.timestamp(at - QUESTION_INTERVAL)
        is_due = cls.last_asked_at.is_null() | (cls.last_asked_at <= earliest)
        with write(id):
            cls.update(last_asked_at=clock.timestamp(at)).where(cls.id == id, is_due).execute()

    @property
    def has_previous_secret(self) -> bool:
        """Whether the secret before the last rotation is valid too."""
        return not self.revoked_at and bool(self.previous_expires_at and self.previous_expires_at > clock.timestamp())

    def has_secret(self, secret: str) -> bool:
        """Return whether a secret is valid: the current one, or the previous one during OVERLAP."""
        digest = _digest(secret)
        is_current = hmac.compare_digest(digest, self.secret_digest)
        is_previous = self.has_previous_secret and hmac.compare_digest(digest, self.previous_digest)
        return not self.revoked_at and (is_current or is_previous)

    def check_access(self, grant_id: str, mcp_server_id: str, tool: str, conversation_id: str | None) -> Verdict:
        """Return what `DataShare.check_access` does for the user of an active grant to the client's server.

        Every other grant, server or conversation is `not_granted`, which does not say why.
        """
        with snapshot():
            grant = DataShare.find_active(grant_id, self.mcp_server_id) if mcp_server_id == self.mcp_server_id else None
            if grant:
                verdict = DataShare.check_access(grant.user_id, mcp_server_id, tool, conversation_id)
                if verdict.reason in ("granted", "tool_not_allowed"):
                    return verdict
        return Verdict(False, None, "not_granted")

    def rendered(self) -> dict[str, str | None]:
        """Return the members that operators see."""
        names = ("id", "name", "mcp_server_id", "created_at", "revoked_at", "last_asked_at", "previous_expires_at")
        return {name: getattr(self, name) for name in names}

    def _record(self, kind: Kind, actor_id: str) -> None:
        AuditLog.record(kind, actor_id, self.id, server=self.mcp_server_id)


NEW_CLIENT = BodyColumns(ServerCredential, "name", "mcp_server_id")
"""The columns that the operator sets."""


def new_secret(random: str = "") -> str:
    """Return a secret of 256 bits, by default of new random ones."""
    return PREFIX + (random or secrets.token_urlsafe(32))


def _digest(secret: str) -> str:
    """Return the SHA-256 digest of a secret of 256 random bits, which needs no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()
