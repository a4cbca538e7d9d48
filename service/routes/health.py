"""Whether the service lives and is ready, for operators and their machines."""

from msgspec import Struct

from service import db
from service.operations import Routes

routes = Routes("Health", prefix="", public=True, extension=True, vital=True)


class Health(Struct):
    """The service answers."""

    status: str


@routes.get("/healthz", answers=(200,))
def check_health() -> Health:
    """Say that the process lives; touches nothing."""
    return Health("ok")


@routes.get("/readyz", answers=(200, 503))
def check_readiness() -> Health:
    """Say that the database can be written."""
    with db.write("readyz"):
        return Health("ready")
