"""Apps, the tenants of the service."""

from typing import Self

from msgspec import Raw

from service import clock
from service.db import Order, Page, Position, Table, page, render, write
from service.errors import AppNotFound, Forbidden
from service.fields import Identifier, SqlValue, Text
from service.models.audit_log import AuditLog
from service.models.callers import Caller


class App(Table):
    """A tenant: bots and chat sessions belong to an app."""

    get_for_errors = (AppNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    name = Text(200)

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return the app, for its staff. Raises AppNotFound or Forbidden."""
        app = cls.find(id)
        if app is None:
            raise AppNotFound
        if not caller.is_staff(app.id):
            raise Forbidden(not_found=AppNotFound)
        return app

    @classmethod
    def staffed_by(cls, caller: Caller, after: Position, limit: int) -> "Page[App]":
        """Return a page of the apps whose staff the caller is, by name: all for admins, none for customers."""
        app_id = caller.app_id if caller.role == "agent" else None
        apps = cls.select() if caller.role == "admin" else cls.select().where(cls.id == app_id)
        return page(apps, [Order(cls.name), Order(cls.id)], after, limit)

    @classmethod
    def add(cls, columns: dict[str, SqlValue], actor_id: str) -> Raw:
        """Create an app. Return it, rendered. `actor_id` is the author of the entry in the audit log."""
        app = cls(**columns)
        with write(app.id):
            app.save(force_insert=True)
            AuditLog.record("app_added", actor_id, app.id)
        return render(App, app.id)

    def edit(self, columns: dict[str, SqlValue], actor_id: str) -> Raw:
        """Set columns. Return the app, rendered. No effect if all values are the same."""
        with write(self.id):
            app = App.get_by_id(self.id)  # read again inside the write
            changed = {name: value for name, value in columns.items() if value != getattr(app, name)}
            if changed:
                App.update(changed).where(App.id == self.id).execute()
                AuditLog.record("app_changed", actor_id, self.id, columns=sorted(changed))
        return render(App, self.id)
