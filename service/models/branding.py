"""The branding that admins set in the console."""

from service.branding import BrandingValues
from service.db import Table, write
from service.fields import INTERNAL, Integer, Text
from service.models.audit_log import AuditLog
from service.settings import MAX_TEXT


class StoredBranding(Table):
    """A single row, or none: the name, accent colour, contact and logo of this installation. Exports do not have it."""

    id = Integer(primary_key=True)
    name = Text(MAX_TEXT, visibility=INTERNAL)
    accent = Text(7, visibility=INTERNAL)  # such as #0b6e5f
    contact = Text(MAX_TEXT, visibility=INTERNAL)
    logo = Text(visibility=INTERNAL)  # WebP as base64

    @classmethod
    def values(cls) -> BrandingValues:
        """Return what is stored; empty values are unset."""
        row = cls.get_or_none()
        return BrandingValues(row.name, row.accent, row.contact, row.logo) if row else BrandingValues()

    @classmethod
    def edit(cls, actor_id: str, **columns: str) -> None:
        """Set columns. No effect if all values are the same."""
        with write("branding"):
            current = cls.values()._asdict()
            changed = sorted(name for name, value in columns.items() if value != current[name])
            if changed:
                row = cls.insert(id=1, **current | columns)
                row.on_conflict(conflict_target=[cls.id], update=columns).execute()
                AuditLog.record("branding_changed", actor_id, "", columns=changed)
