"""A streaming replica of PostgreSQL. It is used if it has replayed all writes, and suspended after an error."""

import logging
import time

import peewee

from service.db.engine import Engine

log = logging.getLogger("cx.server")

SUSPENSION = 30.0  # seconds in which a replica is not used after an error
DELAYS = (0.0, 0.002, 0.004)  # seconds before each check whether the replica has caught up

# The log position of the last write that the primary acknowledged, with its cluster and timeline.
WRITTEN = """SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint,
    CASE current_setting('synchronous_commit') WHEN 'off' THEN pg_current_wal_insert_lsn()
    ELSE pg_current_wal_flush_lsn() END FROM pg_control_system()"""

# A replica that was ahead when another was promoted stays on the old timeline, beyond the start of the new one. A
# replica that follows the new timeline reports it after its next restartpoint, or at once to roles that may read all
# statistics.
REPLAYED = """SELECT pg_is_in_recovery() AND system_identifier = %s
    AND greatest(timeline_id, min_recovery_end_timeline, (SELECT received_tli FROM pg_stat_wal_receiver)) = %s
    AND pg_last_wal_replay_lsn() >= %s::pg_lsn
    FROM pg_control_system(), pg_control_checkpoint(), pg_control_recovery()"""


class ReplicaFailed(peewee.OperationalError):
    """The replica failed during a read. When the read is retried, the primary executes it."""


class Replica:
    """A PostgreSQL replica for reads. It is suspended for a while after a failure."""

    def __init__(self, database: Engine) -> None:
        self.database = database
        self.suspended_until = 0.0

    def has_caught_up(self, primary: peewee.Database) -> bool:
        """Return whether the replica has replayed all acknowledged writes, so that clients read their own writes.

        Comparing log positions needs no record of writers, which several instances would have to share.
        """
        if time.monotonic() < self.suspended_until:
            return False
        written = primary.execute_sql(WRITTEN).fetchone()
        try:
            for delay in DELAYS:
                time.sleep(delay)
                if self.database.execute_sql(REPLAYED, written).fetchone()[0]:
                    return True
        except peewee.DatabaseError as error:
            self.suspend(error)
        return False

    def suspend(self, error: BaseException) -> None:
        """Suspend the replica after an error."""
        log.warning("the replica is not used for %s seconds: %s", SUSPENSION, error)
        self.suspended_until = time.monotonic() + SUSPENSION
