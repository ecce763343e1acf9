"""Jobs that come, go, fail and come again, by hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def throughput(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return counts and rates by project, queue, task and hour.

    SQL: counts of jobs by the hour they were enqueued, of attempts by the hour they began, of ended jobs by the hour
    they ended; ``failure_rate = attempts not completed / attempts ended``, ``redelivery_rate = attempts after the first
    /
    attempts``.

    Returns:
        project, queue, task, hour, enqueued, claimed, completed, failed (jobs that ended in any other way),
        redelivered, failure_rate, redelivery_rate.
    """
    keys = ("project", "queue", "task", "hour")
    came = jobs.groupBy("project", "queue", "task", f.date_trunc("hour", "enqueued_at").alias("hour")).agg(
        f.count("seq").alias("enqueued")
    )
    unsuccessful = f.col("outcome").isin("failed", "released", "expired") & ~f.col("unstarted")
    ran = attempts.groupBy("project", "queue", "task", f.date_trunc("hour", "claimed_at").alias("hour")).agg(
        f.count("seq").alias("claimed"),
        f.count(f.when(f.col("attempt") > 1, 1)).alias("redelivered"),
        f.count(f.when(unsuccessful, 1)).alias("unsuccessful"),
        f.count(f.when(f.col("outcome") != "running", 1)).alias("ended"),
    )
    went = (
        jobs.where(f.col("ended_at").isNotNull())
        .groupBy("project", "queue", "task", f.date_trunc("hour", "ended_at").alias("hour"))
        .agg(
            f.count(f.when(f.col("state") == "completed", 1)).alias("completed"),
            f.count(f.when(f.col("state") != "completed", 1)).alias("failed"),
        )
    )
    # A union, not joins: project and task may be null, and nulls join nothing.
    counts = ("enqueued", "claimed", "redelivered", "unsuccessful", "ended", "completed", "failed")
    every = came
    for other in (ran, went):
        every = every.unionByName(other, allowMissingColumns=True)
    summed = every.groupBy(*keys).agg(*[f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in counts])
    return summed.select(
        *keys,
        "enqueued",
        "claimed",
        "completed",
        "failed",
        "redelivered",
        f.when(f.col("ended") > 0, f.col("unsuccessful") / f.col("ended")).alias("failure_rate"),
        f.when(f.col("claimed") > 0, f.col("redelivered") / f.col("claimed")).alias("redelivery_rate"),
    )


def span(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return in one row how far the figures reach.

    Returns:
        first_at, newest_at (the oldest and the newest thing that is known to have happened), jobs, attempts.
    """
    newest = ("enqueued_at", "ended_at")
    came = jobs.agg(
        f.min("enqueued_at").alias("first_at"),
        *[f.max(name).alias(name) for name in newest],
        f.count("seq").alias("jobs"),
    )
    worked = attempts.agg(f.max("claimed_at").alias("claimed_at"), f.count("seq").alias("attempts"))
    return came.crossJoin(worked).select(
        "first_at", f.greatest(*newest, "claimed_at").alias("newest_at"), "jobs", "attempts"
    )
