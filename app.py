"""The entry points: `build` makes the WSGI application, `main` runs the command line.

Modules are imported where they are used, so that `main` handles signals before most of the program is loaded.
"""

from __future__ import annotations

import gc
import sys

from service import interrupts

TYPE_CHECKING = False  # as in `typing`, whose import is slow
if TYPE_CHECKING:
    from service.http.middleware import Middleware
    from service.settings import Settings


def build(settings: Settings) -> Middleware:
    """Return the WSGI application, with an up-to-date database in the data folder. Raises db.DatabaseUnusable."""
    from service.http.application import build_app
    from service.routes import operations

    prepare(settings, create=True)
    return build_app(operations(settings.documented_only), settings)


def prepare(settings: Settings, *, create: bool = False) -> None:
    """Open the database, migrate its schema, ensure a signing key, and move the clock to the latest stored time.

    A missing database is created only with `create`, because commands that only read must not create one.
    Raises db.DatabaseUnusable.
    """
    from service import db, outbox, signing
    from service.db import migrations
    from service.models import SigningKey
    from service.models.clock_state import restore_clock

    db.open_database(settings.data, settings.database, settings.replica, create=create)
    migrations.rewrite_after(migrations.migrate())
    SigningKey.ensure()
    restore_clock()
    signing.forget_keys()
    outbox.configure(settings)


def main() -> None:
    """Run a command."""
    interrupts.exit_at_once()
    gc.disable()  # while modules are loaded, which leave almost no garbage; `run` enables it again
    from service import process
    from service.commands import run

    sys.exit(process.run(run))


if __name__ == "__main__":
    main()
