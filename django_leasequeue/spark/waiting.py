"""Waiting jobs without an event: their queue does not log enqueues, and they were not claimed.

Each run takes them from the queue's own tables as they are at that moment. What becomes of them later is in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

from .layout import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READ = (
    "seq bigint, queue_id bigint, queue string, project string, state string, name string, created_at timestamp,"
    " dead_at timestamp"
)


def snapshot(lake: Lake, source: Mapping[str, str]) -> bool:
    """Write the waiting jobs of which silver knows nothing, in place of those of the last run.

    Returns whether there are any, or there were.
    """
    from pyspark.sql import functions as f

    had = lake.note("waiting").get("jobs", 0)
    live = lake.spark.read.format("leasequeue").options(**source, table="jobs").schema(_READ).load()
    waiting = live.where(f.col("state").isin("ready", "delayed") & f.col("dead_at").isNull())
    known = lake.read_or_none(lake.silver("jobs"))
    if known is not None:
        waiting = waiting.join(known.select("seq"), "seq", "left_anti")
    rows = waiting.select(
        f.coalesce("project", f.lit("")).alias("project"),
        f.coalesce("queue", f.concat(f.lit("#"), "queue_id")).alias("queue"),
        f.col("name").alias("task"),
        "seq",
        f.col("created_at").alias("enqueued_at"),
        f.lit("open").alias("state"),
        f.lit(0).alias("deliveries"),
        f.lit(0).alias("expiries"),
        f.lit(0).alias("releases"),
    )
    path = lake.silver("waiting")
    lake.write(path, rows.coalesce(1))
    written = lake.read_or_none(path)
    count = 0 if written is None else written.count()
    lake.put_note("waiting", {"jobs": count})
    return bool(count or had)


def added(lake: Lake, jobs: DataFrame, since: date | None = None) -> DataFrame:
    """Return the jobs of silver and those that wait unknown to the log, these as of a day (UTC) or later."""
    from pyspark.sql import functions as f

    waiting = lake.read_or_none(lake.silver("waiting"))
    if waiting is None:
        return jobs
    if since is not None:
        waiting = waiting.where(f.col("enqueued_at") >= f.lit(since))
    return jobs.unionByName(waiting, allowMissingColumns=True)
