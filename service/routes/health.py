"""Liveness, readiness and metrics, for operators and monitoring systems."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from service import db, metrics
from service.api.operations import Operation, Routes
from service.api.parameter_types import Media, RequestInfo
from service.db import migrations
from service.errors import NotFound, StorageUnavailable
from service.http.client_address import is_among, metrics_networks
from service.metrics import Family, Sample
from service.models import ClockState, Delivery, PendingReply
from service.settings import Settings
from service.version import VERSION

log = logging.getLogger("cx.server")

routes = Routes("Health", prefix="", public=True, extension=True, always_served=True)

DATABASE_TIMEOUT = 2.0  # seconds
READY_SECONDS = 1.0  # how long a successful check is reused: each check writes, and the operation is public
UP = "1 if the database responds, else 0."
MIN_FREE_BYTES = 32 * 1024 * 1024  # on the disk; with less, the journal may not fit

Result = TypeVar("Result")

_ready_at = float("-inf")  # on the monotonic clock


class Health(Struct):
    """The state of the service."""

    status: str


@routes.get("/healthz", statuses=(200,))
def check_health() -> Health:
    """Report that the process is alive; does not use the database."""
    return Health("ok")


@routes.get("/readyz", statuses=(200, 503), runs="slow")
def check_readiness() -> Health:
    """Report whether the database is writable, has the current schema and has free disk space."""
    global _ready_at
    if time.monotonic() - _ready_at > READY_SECONDS:
        _write_probe.run(try_to_write)
        _ready_at = time.monotonic()
    return Health("ready")


@routes.get(
    "/metrics",
    statuses=(200, 304, 404),
    produces="text/plain; version=0.0.4; charset=utf-8",
    runs="slow",
    errors=(NotFound,),
)
def show_metrics(request_info: RequestInfo, settings: Settings, operations: Iterable[Operation]) -> Media:
    """Get Prometheus metrics; only from this host and the networks in `--metrics-network`."""
    if not is_among(metrics_networks(settings.metrics_network), request_info):
        raise NotFound()
    counted = metrics.shared.families((operation.name, operation.all_statuses) for operation in operations)
    return Media(metrics.render([*counted, *_database_metrics()]).encode(), personal=True)


class HealthProbe:
    """Runs database queries in a separate thread, so that a health check returns even if the database hangs."""

    def __init__(self) -> None:
        self._running = threading.Lock()  # one query at a time: it may hang

    def run(self, query: Callable[[], Result]) -> Result:
        """Return the result of a query within DATABASE_TIMEOUT.

        Raises StorageUnavailable, and logs the reason, if the database does not respond or is not usable.
        """
        results: list[Result] = []
        errors: list[Exception] = []
        deadline = time.monotonic() + DATABASE_TIMEOUT

        def run_query() -> None:
            try:
                with db.database.disconnecting():
                    results.append(query())
            except Exception as error:
                errors.append(error)
            finally:
                self._running.release()

        if self._running.acquire(timeout=DATABASE_TIMEOUT):
            thread = threading.Thread(target=run_query, name="health", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no resources for another thread
                self._running.release()
                raise
            thread.join(max(0.0, deadline - time.monotonic()))
        if results:
            return results[0]
        if errors and not (isinstance(errors[0], db.DatabaseUnusable | OSError) or db.is_unavailable(errors[0])):
            raise errors[0]
        log.error("database check failed: %s", errors[0] if errors else "no response")
        raise StorageUnavailable()


_write_probe, _read_probe = HealthProbe(), HealthProbe()


def try_to_write() -> None:
    """Commit a write. Raises DatabaseUnusable for an outdated schema or a nearly full disk."""
    with db.write("readyz"):
        version = migrations.version()
        if version < len(migrations.STEPS):  # a newer schema is valid: another instance was updated first
            raise db.DatabaseUnusable(f"schema version {version} is older than this program requires")
        ClockState.record()
    if db.database.sizes().get("free", MIN_FREE_BYTES) < MIN_FREE_BYTES:
        raise db.DatabaseUnusable("the disk is nearly full")


def _database_metrics() -> Iterator[Family]:
    """Yield the metrics of the database; only `cx_database_up` if it does not respond."""

    def query() -> tuple[int, int, dict[tuple[str, str], int], dict[str, int]]:
        return migrations.version(), PendingReply.select().count(), Delivery.counts(), db.database.sizes()

    yield metrics.build_info(version=VERSION, database=db.database.kind)
    try:
        version, pending, deliveries, sizes = _read_probe.run(query)
    except StorageUnavailable:
        yield Family("cx_database_up", "gauge", UP, [Sample(0)])
        return
    yield Family("cx_database_up", "gauge", UP, [Sample(1)])
    yield Family("cx_schema_version", "gauge", "Version of the database schema.", [Sample(version)])
    yield Family("cx_bot_replies_due", "gauge", "Messages that wait for a reply of the AI.", [Sample(pending)])
    counts = [Sample(count, {"channel": channel, "state": state}) for (channel, state), count in deliveries.items()]
    yield Family("cx_deliveries", "gauge", "Deliveries of the outbox that are pending or have failed.", counts)
    if sizes:
        free = Sample(sizes.pop("free"))
        files = [Sample(size, {"part": part}) for part, size in sizes.items()]
        yield Family("cx_database_bytes", "gauge", "Size of the database files.", files)
        yield Family("cx_disk_free_bytes", "gauge", "Free space on the disk of the database.", [free])
