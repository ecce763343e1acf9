"""The lake as its database knows it: what retention waits for, and the status that operators see.

Retention, inside the reaper, waits for consumers that have not read and for slices that are not archived. Nothing here
needs pyspark or Java.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import psycopg
from django.db.models import Count, Sum
from django.utils import timezone

from .. import conf
from ..conf import process
from ..engine.pool import connect
from ..engine.runner import ConnectionExecutor
from ..models import LakeConsumer, LakeFigure, LakeSlice

logger = logging.getLogger("django_leasequeue.lake")

_lowest: process.Memory[int, int] = process.Memory()


def register() -> None:
    """Make retention ask the lake before it drops events."""
    from ..engine import partitions

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


def status(using: str = "default") -> Iterator[str]:
    """Yield the status as lines of text.

    The horizon is where reading ends: a slow writer anywhere in the cluster delays every reader by its age.
    """
    with connect(using) as connection:
        ((horizon, seconds, application),) = ConnectionExecutor(connection).fetch("lake/horizon_age", {})
    yield f"horizon: transaction {horizon}, {seconds:.1f} s old" + (f" ({application})" if seconds else "")
    now = timezone.now()
    for consumer in LakeConsumer.objects.using(using).order_by("name"):
        state = "GIVEN UP by retention" if consumer.overtaken_at else "at"
        behind = max(0, horizon - 1 - consumer.txid)
        yield (
            f"consumer {consumer.name}: {state} transaction {consumer.txid}, {behind} behind,"
            f" seen {(now - consumer.seen_at).total_seconds():.0f} s ago"
        )
    for row in (
        LakeSlice.objects.using(using).values("state").annotate(n=Count("pk"), rows=Sum("rows")).order_by("state")
    ):
        yield f"archive: {row['n']} slices {row['state']}, {row['rows'] or 0} events"
    newest = LakeFigure.objects.using(using).order_by("-computed_at").first()
    if newest is not None:
        yield f"figures: computed {(now - newest.computed_at).total_seconds():.0f} s ago"
