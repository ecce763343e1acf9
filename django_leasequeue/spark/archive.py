"""The archive: closed partitions of the lease log as compacted Parquet, verified before they may be dropped.

Each slice (the rows of one partition) is *planned* (a row in the manifest table names the attempt's directory), its
files are written, read back and compared with the database by rows and sums: *verified*. Then the manifest in the lake
lists its files, so readers see no orphan, and retention drops the partition: *pruned*.

A crash leaves a planned slice, which the next run writes anew under another attempt. A verified slice is never written
again: the database may have dropped it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from django.utils import timezone

from ..engine.pool import connect
from ..engine.runner import ConnectionExecutor
from ..exceptions import LeaseQueueError
from ..models import LakeSlice
from . import slices
from .bronze import with_days
from .layout import Lake
from .tables import EVENTS

if TYPE_CHECKING:
    from django.db.models import QuerySet

#: Events of one file.
ROWS_PER_FILE = 1_000_000
#: Seconds to wait for transactions that may still write into a partition that is full.
PATIENCE = 10.0
_SUMMED = ("id", "txid", "seq", "kind")


class ArchiveDiffers(LeaseQueueError):
    """The archive differs from what the database holds; the slice stays unverified and is written anew."""


def archive(
    lake: Lake,
    source: Mapping[str, str],
    *,
    using: str = "default",
    tell: Callable[[str], None] = lambda line: None,
) -> list[LakeSlice]:
    """Archive the closed partitions that are not archived yet, return their slices."""
    made = []
    with connect(using) as connection:
        for low, high in _closed(connection, using):
            made.append(_one(lake, source, connection, using, low, high))
            tell(f"events {low} to {high}: {made[-1].rows} rows archived")
        publish(lake, using)
        note_pruned(connection, using)
    return made


def _done(using: str) -> QuerySet[LakeSlice]:
    """Return the slices that are verified, or pruned since."""
    return LakeSlice.objects.using(using).exclude(state="planned").order_by("low")


def _closed(connection: psycopg.Connection[Any], using: str) -> list[tuple[int, int]]:
    """Return the partitions that can get no more rows and that are not verified yet."""
    executor = ConnectionExecutor(connection)
    rows = executor.fetch("event_partitions", {})
    done = set(_done(using).values_list("low", flat=True))
    named = [(head, low, high) for head, _, _, low, high, *_ in rows if low is not None]
    full = [(low, high) for head, low, high in named if high <= head + 1 and low not in done]
    if not full:
        return []
    mark = executor.fetch("notify_mark", {})[0][1]
    end = time.monotonic() + PATIENCE
    # Each of these numbers was drawn before now: when every transaction of now has ended, no row can come.
    while executor.fetch("notify_oldest", {})[0][0] < mark + 1:
        if time.monotonic() > end:
            return []
        time.sleep(0.1)
    slices.horizon(connection)  # and that is on disk
    return full


def _one(
    lake: Lake, source: Mapping[str, str], connection: psycopg.Connection[Any], using: str, low: int, high: int
) -> LakeSlice:
    from pyspark.sql import functions as f

    manifest = LakeSlice.objects.using(using)
    attempt = secrets.token_hex(8)
    path = f"archive/events/slice={low:020}/attempt={attempt}"
    plan = {"high": high, "attempt": attempt, "path": path, "planned_at": timezone.now(), "state": "planned"}
    found, _ = manifest.update_or_create(low=low, defaults=plan)
    options = {**source, "fromId": str(low), "toId": str(high)}
    events = lake.spark.read.format("leasequeue").options(**options).schema(EVENTS.ddl()).load()
    writer = with_days(events).sortWithinPartitions("id").coalesce(1).write.option("maxRecordsPerFile", ROWS_PER_FILE)
    writer.mode("overwrite").parquet(lake.path(path))
    written = lake.spark.read.parquet(lake.path(path))
    totals = [f.sum(f.col(name).cast("decimal(38,0)")) for name in _SUMMED]
    here = [int(value or 0) for value in written.agg(f.count("id"), *totals).collect()[0]]
    (found_there,) = ConnectionExecutor(connection).fetch("lake/slice_sums", {"low": low, "high": high})
    there = [int(value or 0) for value in found_there[:5]]
    if here != there:
        raise ArchiveDiffers(
            f"Events {low} to {high}: the files hold {here[0]} rows with sums {here[1:]}, the database {there[0]} with"
            f" {there[1:]}. Nothing was marked as archived; run the command again."
        )
    values = {
        "state": "verified",
        "rows": here[0],
        "sums": dict(zip(_SUMMED, map(str, here[1:]), strict=True)),
        **dict(zip(("min_txid", "max_txid", "first_at", "last_at"), found_there[5:9], strict=True)),
        "files": sorted(name[name.index(path) :] if path in name else name for name in written.inputFiles()),
        "verified_at": timezone.now(),
    }
    # Only this attempt: a second archiver that planned meanwhile wins, and verifies its own.
    if not manifest.filter(low=low, attempt=attempt, state="planned").update(**values):
        raise ArchiveDiffers(f"Events {low} to {high} are being archived by another process.")
    found.refresh_from_db()
    return found


def publish(lake: Lake, using: str = "default") -> int:
    """Write the manifest, from which readers without Spark take their list of files. Returns how many there are."""
    lines = [
        (found.low, found.high, name, found.rows, found.first_at, found.last_at)
        for found in _done(using)
        for name in found.files
    ]
    schema = "low bigint, high bigint, file string, slice_rows bigint, first_at timestamp, last_at timestamp"
    lake.spark.createDataFrame(lines, schema).coalesce(1).write.mode("overwrite").json(lake.path("archive", "manifest"))
    return len(lines)


def note_pruned(connection: psycopg.Connection[Any], using: str = "default") -> int:
    """Mark verified slices whose partition is gone. Returns how many."""
    rows = ConnectionExecutor(connection).fetch("event_partitions", {})
    lows = {low for _, _, _, low, *_ in rows if low is not None}
    verified = LakeSlice.objects.using(using).filter(state="verified").exclude(low__in=lows)
    return verified.update(state="pruned", pruned_at=timezone.now())
