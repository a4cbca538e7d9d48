"""The door: `build` makes the WSGI application, `main` is the command line.

Modules are imported where they are used, so that `main` has the process in hand before most of the program loads.
"""

from __future__ import annotations

import sys

from service import interrupts

TYPE_CHECKING = False  # as `typing` has it, which takes long to import
if TYPE_CHECKING:
    from service.edge import Edge
    from service.settings import Settings


def build(settings: Settings) -> Edge:
    """The WSGI application on an up-to-date database in the settings' data folder. Raises db.Unusable."""
    from service.routes import operations
    from service.web import build_app

    prepare(settings, create=True)
    return build_app(operations(settings.documented_only), settings)


def prepare(settings: Settings, *, create: bool = False) -> None:
    """Open the database, bring its schema up to date, and see that there is a key and the clock is not behind it.

    Only with `create` is a database made where there is none: commands that read must not make one. Raises db.Unusable.
    """
    from service import db, migrations
    from service.auth import signing
    from service.models import SigningKey
    from service.models.keeping import hold_clock

    db.open_database(settings.data, settings.database, settings.replica, create=create)
    migrations.migrate()
    SigningKey.ensure()
    hold_clock()
    signing.forget_keys()


def main() -> None:
    """Run a command."""
    interrupts.exit_at_once()
    from service import process
    from service.commands import run

    sys.exit(process.run(run))


if __name__ == "__main__":
    main()
