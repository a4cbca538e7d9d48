"""Whether the service lives and is ready, and how it does, for operators and their machines."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from service import db, metrics, migrations
from service.errors import NotFound, StorageUnavailable
from service.metrics import Family, Sample
from service.models import DueAnswer, Moment
from service.operations import Operation, Routes
from service.origins import is_among, metrics_networks
from service.settings import Settings
from service.signature import Media, Origin
from service.version import VERSION

log = logging.getLogger("cx.server")

routes = Routes("Health", prefix="", public=True, extension=True, vital=True)

PATIENCE = 2.0  # seconds in which the database has to answer
LASTING = 1.0  # seconds for which what was found out counts, since finding it out writes, and anybody may ask
UP = "Whether the database answers."
LEAST_FREE = 32 * 1024 * 1024  # bytes of a disk; with less, its journal may find no room

Result = TypeVar("Result")

_ready_at = float("-inf")  # on the monotonic clock


class Health(Struct):
    """The service answers."""

    status: str


@routes.get("/healthz", answers=(200,))
def check_health() -> Health:
    """Say that the process lives; touches nothing."""
    return Health("ok")


@routes.get("/readyz", answers=(200, 503), runs="slow")
def check_readiness() -> Health:
    """Say that the database can be written, has today's schema and room left on its disk."""
    global _ready_at
    if time.monotonic() - _ready_at > LASTING:
        _writing.ask(try_to_write)
        _ready_at = time.monotonic()
    return Health("ready")


@routes.get(
    "/metrics",
    answers=(200, 304, 404),
    produces="text/plain; version=0.0.4; charset=utf-8",
    runs="slow",
    raises=(NotFound,),
)
def show_metrics(origin: Origin, settings: Settings, operations: Iterable[Operation]) -> Media:
    """How the service does, as Prometheus reads it; for this host, or whom `--metrics-network` names."""
    if not is_among(metrics_networks(settings.metrics_network), origin):
        raise NotFound()
    counted = metrics.board.families((operation.name, operation.statuses) for operation in operations)
    return Media(metrics.render([*counted, *_of_database()]).encode(), personal=True)


class Aside:
    """Asks the database in a thread of its own, so that nobody has to wait for it who only wants to know how it is."""

    def __init__(self) -> None:
        self._asking = threading.Lock()  # one at a time: it may hang for long

    def ask(self, question: Callable[[], Result]) -> Result:
        """What it answers within PATIENCE. Raises StorageUnavailable; the log has the reason."""
        answers: list[Result] = []
        faults: list[Exception] = []
        until = time.monotonic() + PATIENCE

        def go() -> None:
            try:
                with db.database.until_closed():
                    answers.append(question())
            except Exception as error:
                faults.append(error)
            finally:
                self._asking.release()

        if self._asking.acquire(timeout=PATIENCE):
            thread = threading.Thread(target=go, name="aside", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # there is no room for another one
                self._asking.release()
                raise
            thread.join(max(0.0, until - time.monotonic()))
        if answers:
            return answers[0]
        if faults and not (isinstance(faults[0], db.Unusable | OSError) or db.is_unavailable(faults[0])):
            raise faults[0]
        log.error("the database is not as it should be: %s", faults[0] if faults else "it does not answer")
        raise StorageUnavailable()


_writing, _reading = Aside(), Aside()


def try_to_write() -> None:
    """Write something, all the way to the disk. Raises Unusable."""
    with db.write("readyz"):
        version = migrations.version()
        if version < len(migrations.STEPS):  # a newer one is that of an instance which was updated before this one
            raise db.Unusable(f"its schema is {version}, older than this program's")
        Moment.note()
    if db.database.sizes().get("free", LEAST_FREE) < LEAST_FREE:
        raise db.Unusable("its disk is nearly full")


def _of_database() -> Iterator[Family]:
    """What is known of the database, which may not answer."""

    def look() -> tuple[int, int, dict[str, int]]:
        return migrations.version(), DueAnswer.select().count(), db.database.sizes()

    yield metrics.build_info(version=VERSION, database=db.database.kind)
    try:
        version, due, sizes = _reading.ask(look)
    except StorageUnavailable:
        yield Family("cx_database_up", "gauge", UP, [Sample(0)])
        return
    yield Family("cx_database_up", "gauge", UP, [Sample(1)])
    yield Family("cx_schema_version", "gauge", "Steps that the schema of the database has taken.", [Sample(version)])
    yield Family("cx_bot_answers_due", "gauge", "Messages that an assistant has yet to answer.", [Sample(due)])
    if sizes:
        free = Sample(sizes.pop("free"))
        files = [Sample(size, {"part": part}) for part, size in sizes.items()]
        yield Family("cx_database_bytes", "gauge", "Size of the database's files.", files)
        yield Family("cx_disk_free_bytes", "gauge", "What is left on their disk.", [free])
