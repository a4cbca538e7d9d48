"""The door: `build` makes the WSGI application, `main` is the command line."""

import sys

from service import db, migrations
from service.auth import signing
from service.edge import Edge
from service.models import SigningKey
from service.models.keeping import hold_clock
from service.routes import operations
from service.settings import Settings
from service.web import build_app


def build(settings: Settings) -> Edge:
    """The WSGI application on an up-to-date database in the settings' data folder. Raises db.Unusable."""
    prepare(settings, create=True)
    return build_app(operations(settings.documented_only), settings)


def prepare(settings: Settings, *, create: bool = False) -> None:
    """Open the database, bring its schema up to date, and see that there is a key and the clock is not behind it.

    Only with `create` is a database made where there is none: commands that read must not make one. Raises db.Unusable.
    """
    db.open_database(settings.data, settings.database, settings.replica, create=create)
    migrations.migrate()
    SigningKey.ensure()
    hold_clock()
    signing.forget_keys()


def main() -> None:
    """Run a command."""
    from service.commands import run

    sys.exit(run())


if __name__ == "__main__":
    main()
