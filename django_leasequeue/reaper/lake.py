"""The lake, as seen from the database: the holds of retention, and the status for operators.

Retention, a duty of the reaper, waits for unread consumers and unarchived slices. No pyspark or Java is needed here.
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
from ..engine.epoch import above_horizon
from ..engine.pool import connect
from ..engine.runner import ConnectionExecutor
from ..models import LakeConsumer, LakeFigure, LakeSlice
from ..sql.log_notes import waiting_text
from ..words import TXID_BITS

logger = logging.getLogger("django_leasequeue.lake")

_lowest: process.Memory[int, int] = process.Memory()


def register() -> None:
    """Let retention wait for the lake before it drops events."""
    from ..engine import partitions

    partitions.hold_back("lake consumers", needed_by_consumers)
    partitions.hold_back("lake archive", needed_by_archive)


def needed_by_consumers(connection: psycopg.Connection[Any]) -> int | None:
    """Return the lowest transaction id that a registered consumer needs; long absent consumers do not count."""
    days = conf.settings.LAKE.CONSUMER_LIMIT_DAYS
    parameters = {"seconds": days * 86_400 if days > 0 else None}
    txid, lost = ConnectionExecutor(connection).fetch("lake/consumer_need", parameters)[0]
    for name in lost or ():
        what = "Consumer %s of the lease log was not seen for %s days: retention waits for it no longer"
        logger.warning(what, name, days)
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


def _txid_text(txid: int) -> str:
    epoch, number = txid >> TXID_BITS, txid & (1 << TXID_BITS) - 1
    return f"transaction {number}" + (f" of epoch {epoch}" if epoch else "")


def status(using: str = "default") -> Iterator[str]:
    """Yield the status as lines; a slow writer anywhere in the cluster delays every reader by the horizon's age."""
    with connect(using) as connection:
        executor = ConnectionExecutor(connection)
        ((horizon, seconds, application),) = executor.fetch("lake/horizon_age", {})
        above = executor.run(above_horizon())
    if above is not None:
        yield f"WAITING: {waiting_text(above)}"
    yield f"horizon: {_txid_text(horizon)}, {seconds:.1f} s old" + (f" ({application})" if seconds else "")
    now = timezone.now()
    for consumer in LakeConsumer.objects.using(using).order_by("name"):
        state = "GIVEN UP by retention" if consumer.overtaken_at else "at"
        # The count of an earlier epoch is unknown.
        behind = max(0, horizon - 1 - max(consumer.txid, horizon >> TXID_BITS << TXID_BITS))
        seen = f"seen {(now - consumer.seen_at).total_seconds():.0f} s ago"
        yield f"consumer {consumer.name}: {state} {_txid_text(consumer.txid)}, {behind} behind, {seen}"
    slices = LakeSlice.objects.using(using).values("state").annotate(n=Count("pk"), rows=Sum("rows"))
    for row in slices.order_by("state"):
        yield f"archive: {row['n']} slices {row['state']}, {row['rows'] or 0} events"
    newest = LakeFigure.objects.using(using).order_by("-computed_at").first()
    if newest is not None:
        yield f"figures: computed {(now - newest.computed_at).total_seconds():.0f} s ago"
