"""Retention waits for the lake: consumers that have not read, slices that are not archived.

Runs inside the reaper; needs neither pyspark nor Java.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg

from .. import conf
from ..conf import process
from ..engine.runner import ConnectionExecutor

logger = logging.getLogger("django_leasequeue.lake")

_lowest: process.Memory[int, int] = process.Memory()


def register() -> None:
    """Make retention ask the lake before it drops events."""
    from ..engine.upkeep import partitions

    partitions.hold_back("lake consumers", needed_by_consumers)
    partitions.hold_back("lake archive", needed_by_archive)


def needed_by_consumers(connection: psycopg.Connection[Any]) -> int | None:
    """Return the lowest transaction id whose events a registered consumer needs.

    A consumer that was not seen for longer than the limit is given up: it is marked, named in the log, and its stream
    says so when it comes back.
    """
    days = conf.settings.LAKE.CONSUMER_LIMIT_DAYS
    parameters = {"seconds": days * 86_400 if days > 0 else None}
    txid, lost = ConnectionExecutor(connection).fetch("lake/consumer_need", parameters)[0]
    for name in lost or ():
        logger.warning(
            "Consumer %s of the lease log was not seen for %s days: retention waits for it no longer", name, days
        )
    return None if txid is None else int(txid)


def needed_by_archive(connection: psycopg.Connection[Any]) -> int | None:
    """Return the lowest transaction id that is not in the archive yet; None when this site archives nothing."""
    if not conf.settings.LAKE.ARCHIVE:
        return None
    executor = ConnectionExecutor(connection)
    done = {low for (low,) in executor.fetch("lake/slices_done", {})}
    head = 0
    found: list[int] = []
    for last, _schema, _name, low, high, _bytes, _used in executor.fetch("event_partitions", {}):
        head = last
        if low is not None and low not in done:
            # Partitions are dropped in order, so the first that is missing keeps all behind it.
            found.append(_lowest_txid(executor, low, high, closed=high <= head))
            break
    default = executor.fetch("lake/default_lowest", {})[0][0]
    needs = [value for value in (*found, default) if value is not None]
    return min(needs, default=None)


def _lowest_txid(executor: ConnectionExecutor, low: int, high: int, *, closed: bool) -> int:
    if low not in _lowest or not closed:
        ((lowest, horizon),) = executor.fetch("lake/slice_lowest", {"low": low, "high": high})
        # Nothing there yet: a writer has a transaction id that is not over.
        _lowest[low] = horizon if lowest is None else lowest
    return _lowest[low]
