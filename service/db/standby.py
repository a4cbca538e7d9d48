"""A streaming replica of a PostgreSQL, which answers what it has replayed, and is left alone when it fails."""

import logging
import time
from typing import Any

import peewee

log = logging.getLogger("cx.server")

REST = 30.0  # seconds in which a replica that failed is not asked
PATIENCE = (0.0, 0.002, 0.004)  # seconds between the times that a replica is asked whether it has caught up

# How far the primary has written what it acknowledged: its cluster, its timeline, the position in its log.
WRITTEN = """SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint,
    CASE current_setting('synchronous_commit') WHEN 'off' THEN pg_current_wal_insert_lsn()
    ELSE pg_current_wal_flush_lsn() END FROM pg_control_system()"""

# A standby that was ahead when another took over stays on the old timeline, beyond where the new one began. One that
# goes on with the new one says so at its next restartpoint, or to roles that may read all statistics at once.
REPLAYED = """SELECT pg_is_in_recovery() AND system_identifier = %s
    AND greatest(timeline_id, min_recovery_end_timeline, (SELECT received_tli FROM pg_stat_wal_receiver)) = %s
    AND pg_last_wal_replay_lsn() >= %s::pg_lsn
    FROM pg_control_system(), pg_control_checkpoint(), pg_control_recovery()"""


class Unanswered(peewee.OperationalError):
    """The replica could not finish; whoever asks again is answered by the primary."""


class Standby:
    """A replica, and whether it may be asked."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.rests_until = 0.0

    def is_as_new_as(self, primary: Any) -> bool:
        """Whether the replica has replayed all that was written until now: so everybody reads what they wrote.

        Comparing positions needs no memory of who wrote what, which several instances would have to share.
        """
        if time.monotonic() < self.rests_until:
            return False
        written = primary.execute_sql(WRITTEN).fetchone()
        try:
            for pause in PATIENCE:
                time.sleep(pause)
                if self.database.execute_sql(REPLAYED, written).fetchone()[0]:
                    return True
        except peewee.DatabaseError as error:
            self.rest(error)
        return False

    def rest(self, error: BaseException) -> None:
        """Leave the replica alone for a while."""
        log.warning("the replica is left alone for %s seconds: %s", REST, error)
        self.rests_until = time.monotonic() + REST
