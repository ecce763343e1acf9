"""Duties that maintain the tables: the lease log's partitions, which the lake may hold back, and indexes, and vacuum.

Retention waits for unread consumers and unarchived slices. No pyspark or Java is needed here.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import psycopg

from .. import conf
from ..conf import process
from ..engine import partitions
from ..engine.runner import ConnectionExecutor
from .duty import DutyRun, by_owner

logger = logging.getLogger("django_leasequeue.reaper")
lake_logger = logging.getLogger("django_leasequeue.lake")

#: Milliseconds to wait for a lock: PostgreSQL cancels an autovacuum for us after ``deadlock_timeout`` (1 s).
LOCK_TIMEOUT_MS = 200
#: Milliseconds for one statement on partitions.
PARTITION_MS = 600_000
#: Dead rows from which on to vacuum: some 33,000 jobs. They make a claim of one job a quarter slower.
DEAD = 100_000
#: Rows of a table above which a vacuum takes too long for the reaper: it reads whole indexes.
LARGE = 2_000_000


#: The lowest transaction id of each slice of the log that is not archived, by the number at which it begins.
_lowest: process.Memory[int, int] = process.Memory()


def register_holds() -> None:
    """Let retention wait for the lake before it drops events."""
    partitions.hold_back("lake consumers", needed_by_consumers)
    partitions.hold_back("lake archive", needed_by_archive)


def needed_by_consumers(connection: psycopg.Connection[Any]) -> int | None:
    """Return the lowest transaction id that a registered consumer needs; long absent consumers do not count."""
    days = conf.settings.LAKE.CONSUMER_LIMIT_DAYS
    parameters = {"seconds": days * 86_400 if days > 0 else None}
    txid, lost = ConnectionExecutor(connection).fetch("lake/consumer_need", parameters)[0]
    for name in lost or ():
        what = "Consumer %s of the lease log was not seen for %s days: retention waits for it no longer"
        lake_logger.warning(what, name, days)
    return None if txid is None else int(txid)


def needed_by_archive(connection: psycopg.Connection[Any]) -> int | None:
    """Return the lowest transaction id that is not archived yet; None if this site archives nothing."""
    if not conf.settings.LAKE.ARCHIVE:
        return None
    executor = ConnectionExecutor(connection)
    done = {low for (low,) in executor.fetch("lake/slices_done", {})}
    found: list[int] = []
    for head, _schema, _name, low, high, _bytes, _used in executor.fetch("event_partitions", {}):
        if low is None or low in done:
            continue
        if low not in _lowest or high > head:
            ((lowest, horizon),) = executor.fetch("lake/slice_lowest", {"low": low, "high": high})
            # Still empty: a writer's transaction may be open.
            _lowest[low] = horizon if lowest is None else lowest
        found.append(_lowest[low])
        break  # Partitions are dropped in order, so the first unarchived one holds all later ones.
    default = executor.fetch("lake/default_lowest", {})[0][0]
    return min((value for value in (*found, default) if value is not None), default=None)


def keep_partitions(duty_run: DutyRun) -> None:
    """Make partitions of the lease log ahead, and drop those past their retention."""
    # It may take longer than other writes: it reads the events of a partition.
    with by_owner("makes and drops partitions"):
        done = partitions.maintain(duty_run.connection, partial(duty_run.fence, statement_ms=PARTITION_MS))
    if done.made or done.dropped:
        logger.info("Partitions of the lease log: made %s, dropped %s", done.made or "none", done.dropped or "none")
    if done.default_used:
        logger.warning(
            "Events of the lease log are in its default partition: no other one was made in time. Nothing is lost; they"
            " stay until retention removes them all at once. Make more ahead: LEASEQUEUE['EVENT_PARTITIONS_AHEAD']."
        )
    for name, reader in done.held.items():
        logger.warning("Partition %s of the lease log is past its retention, and kept for %s", name, reader)


def summarize(duty_run: DutyRun) -> None:
    """Summarize new pages in the log's BRIN indexes: autovacuum does it only when a fifth of a partition is new."""
    try:
        with duty_run.transaction():
            duty_run.fetch("event_summarize", {"lock_timeout": LOCK_TIMEOUT_MS})
    except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedObject, psycopg.errors.UndefinedTable) as error:
        # A vacuum runs, or a partition has just gone.
        logger.debug("The lease log's indexes are summarized later: %s", error)


class Vacuum:
    """Vacuums the tables of waiting jobs when jobs under limits or retries have left many dead rows there.

    Such jobs are claimed from old positions, so a search reads the dead index entries before them; no floor
    (``Floors``) can skip these. Autovacuum runs once a minute at most. After a vacuum that an old transaction holds
    back, the next one waits for twice as many dead rows.
    """

    def __init__(self) -> None:
        self._kept = 0

    def __call__(self, duty_run: DutyRun) -> None:
        dead = self._dead(duty_run)
        self._kept = min(self._kept, dead)
        if dead >= max(DEAD, 2 * self._kept):
            duty_run.fetch("vacuum_waiting")
            self._kept = self._dead(duty_run)

    @staticmethod
    def _dead(duty_run: DutyRun) -> int:
        ((dead,),) = duty_run.fetch("dead_waiting", {"large": LARGE})
        return int(dead)
