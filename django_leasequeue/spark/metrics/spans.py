"""Silver: one row per attempt (a claim of a job), one row per job.

The events of a job are put in order of ``(txid, id)`` within their time, and an attempt is a claim event together with
everything up to the next claim of the same job. Repeated events (the same ``id``) count once, in whatever order they
came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Kind of event -> what became of the attempt that it ends.
OUTCOMES = {
    "acked": "completed",
    "failed": "failed",
    "released": "released",
    "expired": "expired",
    "cancelled": "cancelled",
}
#: Events after which a job is not waiting for a worker any more.
TERMINAL = ("acked", "failed", "dead_lettered", "cancelled")
_ENDS = (*OUTCOMES, "dead_lettered")


def seconds(later: Column, earlier: Column) -> Column:
    """Return the seconds between two timestamps, exact to the microsecond."""
    return (f.unix_micros(later) - f.unix_micros(earlier)) / f.lit(1e6)


def attempts(events: DataFrame) -> DataFrame:
    """Return one row per attempt.

    Args:
        events: id, txid, occurred_at, queue, project, seq, enqueued_at, deadline, deliveries, event, node, name,
        detail.

    Returns:
        project, queue, task, seq, attempt (1, 2, ...), node, enqueued_at, ready_at (when it could be claimed),
        claimed_at, deadline (the last one granted), ended_at, outcome (completed, failed, released, expired, cancelled,
        running),
        dead (whether the job was dead-lettered by it), error_type, fingerprint, waited, ran (seconds), extensions,
        unstarted.
    """
    by_job = Window.partitionBy("seq").orderBy("occurred_at", "txid", "id")
    so_far = by_job.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    numbered = (
        events.dropDuplicates(["id"])
        .withColumn("attempt", f.sum(f.when(f.col("event") == "claimed", 1).otherwise(0)).over(so_far))
        .withColumn("ready_at", _ready_at())
    )
    # Of the event before the claim: enqueued, released, expired, redriven.
    numbered = numbered.withColumn("was_ready_at", f.lag("ready_at").over(by_job))
    claim = f.col("event") == "claimed"
    end = f.col("event").isin(*OUTCOMES)
    first_end = f.min(f.when(end, f.struct("occurred_at", "event", "detail")))
    grouped = (
        numbered.where(f.col("attempt") > 0)
        .groupBy("seq", "attempt")
        .agg(
            f.max("project").alias("project"),
            f.max("queue").alias("queue"),
            f.max("name").alias("task"),
            f.max(f.when(claim, f.col("node"))).alias("node"),
            f.max("enqueued_at").alias("enqueued_at"),
            f.max(f.when(claim, f.coalesce("was_ready_at", "enqueued_at"))).alias("ready_at"),
            f.max(f.when(claim, f.col("occurred_at"))).alias("claimed_at"),
            f.max(f.when(f.col("event").isin("claimed", "extended"), f.col("deadline"))).alias("deadline"),
            first_end.alias("end"),
            f.max(f.when(f.col("event") == "dead_lettered", f.col("detail"))).alias("dead_detail"),
            f.max(f.col("event") == "dead_lettered").alias("dead"),
            f.count(f.when(f.col("event") == "extended", 1)).alias("extensions"),
        )
    )
    detail = f.coalesce("end.detail", "dead_detail")
    outcome = f.create_map(*[f.lit(word) for pair in OUTCOMES.items() for word in pair])
    return grouped.select(
        "project",
        "queue",
        "task",
        "seq",
        f.col("attempt").cast("int").alias("attempt"),
        "node",
        "enqueued_at",
        "ready_at",
        "claimed_at",
        "deadline",
        f.col("end.occurred_at").alias("ended_at"),
        f.coalesce(outcome[f.col("end.event")], f.lit("running")).alias("outcome"),
        "dead",
        f.get_json_object(detail, "$.error_type").alias("error_type"),
        f.get_json_object(detail, "$.fingerprint").alias("fingerprint"),
        f.greatest(f.lit(0.0), seconds(f.col("claimed_at"), f.col("ready_at"))).alias("waited"),
        seconds(f.col("end.occurred_at"), f.col("claimed_at")).alias("ran"),
        f.col("extensions").cast("int").alias("extensions"),
        f.coalesce(f.get_json_object(detail, "$.unstarted") == "true", f.lit(False)).alias("unstarted"),
    )


def _ready_at() -> Column:
    """When the job could be claimed after this event: later than the event when a delay was asked for."""
    available = f.to_timestamp(f.get_json_object("detail", "$.available_at"))
    waits = f.col("event").isin("enqueued", "released", "expired", "redriven")
    return f.when(waits, f.coalesce(available, f.col("occurred_at")))


def jobs(events: DataFrame) -> DataFrame:
    """Return one row per job.

    Args:
        events: as for :func:`attempts`.

    Returns:
        project, queue, task, seq, enqueued_at, first_claimed_at, ended_at (null while it lives), state (completed,
        failed, dead, cancelled, open), deliveries, expiries, releases, error_type, fingerprint, total (seconds from
        enqueue to
        end), job_day (the day it was enqueued, UTC).
    """
    ordered = f.struct("occurred_at", "txid", "id", "event", "detail")
    # A redriven job lives again: the last of these events says where it stands.
    last = f.max(f.when(f.col("event").isin(*TERMINAL, "redriven", "claimed", "enqueued"), ordered))
    grouped = (
        events.dropDuplicates(["id"])
        .groupBy("seq")
        .agg(
            f.max("project").alias("project"),
            f.max("queue").alias("queue"),
            f.max("name").alias("task"),
            f.min(f.coalesce("enqueued_at", "occurred_at")).alias("enqueued_at"),
            f.min(f.when(f.col("event") == "claimed", f.col("occurred_at"))).alias("first_claimed_at"),
            f.count(f.when(f.col("event") == "claimed", 1)).cast("int").alias("deliveries"),
            f.count(f.when(f.col("event") == "expired", 1)).cast("int").alias("expiries"),
            f.count(f.when(f.col("event") == "released", 1)).cast("int").alias("releases"),
            last.alias("last"),
        )
    )
    words = {"acked": "completed", "failed": "failed", "dead_lettered": "dead", "cancelled": "cancelled"}
    state = f.create_map(*[f.lit(word) for pair in words.items() for word in pair])
    over = f.col("last.event").isin(*TERMINAL)
    ended = f.when(over, f.col("last.occurred_at"))
    return grouped.select(
        "project",
        "queue",
        "task",
        "seq",
        "enqueued_at",
        "first_claimed_at",
        ended.alias("ended_at"),
        f.coalesce(state[f.col("last.event")], f.lit("open")).alias("state"),
        "deliveries",
        "expiries",
        "releases",
        f.when(over, f.get_json_object("last.detail", "$.error_type")).alias("error_type"),
        f.when(over, f.get_json_object("last.detail", "$.fingerprint")).alias("fingerprint"),
        seconds(ended, f.col("enqueued_at")).alias("total"),
        f.date_format("enqueued_at", "yyyy-MM-dd").alias("job_day"),
    )
