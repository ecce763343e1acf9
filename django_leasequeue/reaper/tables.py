"""Duties that keep the tables themselves in order: the lease log's partitions and indexes, and vacuum."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import psycopg

from ..engine import partitions

if TYPE_CHECKING:
    from .reaper import Turn

logger = logging.getLogger("django_leasequeue.reaper")

#: Milliseconds to wait for a lock: less than PostgreSQL's ``deadlock_timeout`` (1 s): after it a vacuum is cancelled.
LOCK_TIMEOUT_MS = 200
#: Dead rows that are vacuumed: some 33,000 jobs. A claim of one job takes a quarter longer behind them.
DEAD = 100_000
#: Rows of the tables beyond which a vacuum takes too long for the reaper: it reads their indexes whole.
LARGE = 2_000_000


def keep_partitions(turn: Turn) -> None:
    """Make partitions of the lease log ahead, and drop those that retention does not keep."""
    done = partitions.maintain(turn.connection)
    if done.made or done.dropped:
        logger.info("Partitions of the lease log: made %s, dropped %s", done.made or "none", done.dropped or "none")
    if done.default_used:
        logger.warning(
            "Events of the lease log are in its default partition: no other was there in time. Nothing is lost; they"
            " stay until retention removes them all at once. Make more ahead: LEASEQUEUE['EVENT_PARTITIONS_AHEAD']."
        )
    for name, reader in done.held.items():
        logger.warning("Partition %s of the lease log is past its retention, and kept for %s", name, reader)


def summarize(turn: Turn) -> None:
    """Sum up what the log's BRIN indexes do not know yet: vacuum comes when a fifth of a partition is new."""
    try:
        with turn.transaction():
            turn.fetch("event_summarize", {"lock_timeout": LOCK_TIMEOUT_MS})
    except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedObject, psycopg.errors.UndefinedTable) as error:
        # A vacuum is there, or a partition has just gone.
        logger.debug("The lease log's indexes are summed up later: %s", error)


class Vacuum:
    """Vacuums the tables of jobs that wait, when jobs under limits or on retry have left many dead rows there.

    Such jobs are claimed from old places, where a search meets the dead entries of all that went before; no floor
    (``Floors``) lies above those. Autovacuum looks once a minute at most. Dead rows that an old transaction still keeps
    do not count: the next vacuum comes when twice as many are dead.
    """

    def __init__(self) -> None:
        self._kept = 0

    def __call__(self, turn: Turn) -> None:
        dead = self._dead(turn)
        self._kept = min(self._kept, dead)
        if dead >= max(DEAD, 2 * self._kept):
            turn.fetch("vacuum_waiting")
            self._kept = self._dead(turn)

    @staticmethod
    def _dead(turn: Turn) -> int:
        ((dead,),) = turn.fetch("dead_waiting", {"large": LARGE})
        return int(dead)
