"""Jobs by hour that come, go, fail and come again, and that were there; how far the figures reach, and if they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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


def backlog(jobs: DataFrame) -> DataFrame:
    """Return the jobs that were enqueued and not yet over, at the end of each hour.

    SQL: ``sum(came - went) over (partition by project, queue order by hour)``.

    Returns:
        project, queue, hour, came, went, level.
    """
    return _level(jobs, f.col("enqueued_at"), f.col("ended_at"))


def in_flight(attempts: DataFrame) -> DataFrame:
    """Return the attempts that had begun and not yet ended, at the end of each hour.

    Returns:
        project, queue, hour, came, went, level.
    """
    return _level(attempts, f.col("claimed_at"), f.col("ended_at"))


def use(attempts: DataFrame) -> DataFrame:
    """Return how busy the workers were that were there, by queue and hour.

    SQL: ``sum(came - went) over (...)`` by minute, and its maximum by hour; attempts by the hour of their claim.

    Returns:
        project, queue, hour, nodes (that claimed in the hour), busy (seconds held a second: the mean number of busy
        slots), most (attempts under way at the end of the minute that had the most: so many slots were there at least).
    """
    keys = ("project", "queue", "hour")
    most = (
        _level(attempts, f.col("claimed_at"), f.col("ended_at"), "minute")
        .groupBy("project", "queue", f.date_trunc("hour", "minute").alias("hour"))
        .agg(f.max("level").alias("most"))
    )
    worked = attempts.groupBy("project", "queue", f.date_trunc("hour", "claimed_at").alias("hour")).agg(
        f.count_distinct("node").alias("nodes"), (f.sum("held") / 3600).alias("busy")
    )
    every = worked.unionByName(most, allowMissingColumns=True).groupBy(*keys)
    return every.agg(*[f.coalesce(f.max(name), f.lit(0)).alias(name) for name in ("nodes", "busy", "most")])


def _level(rows: DataFrame, begin: Column, end: Column, unit: str = "hour") -> DataFrame:
    came = rows.select("project", "queue", begin.alias("at"), f.lit(1).alias("came"), f.lit(0).alias("went"))
    went = rows.where(end.isNotNull()).select(
        "project", "queue", end.alias("at"), f.lit(0).alias("came"), f.lit(1).alias("went")
    )
    hourly = (
        came.unionByName(went)
        .groupBy("project", "queue", f.date_trunc(unit, "at").alias(unit))
        .agg(f.sum("came").alias("came"), f.sum("went").alias("went"))
    )
    so_far = Window.partitionBy("project", "queue").orderBy(unit).rowsBetween(Window.unboundedPreceding, 0)
    return hourly.withColumn("level", f.sum(f.col("came") - f.col("went")).over(so_far))


def quality(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return one row per check.

    Args:
        attempts: the table of silver with a row for each attempt.
        jobs: the table of silver with a row for each job.

    Returns:
        check, rows (that were looked at), violations.
    """
    ended = f.col("ended_at")
    found = [
        _counted(
            jobs,
            {
                "a job has one row": f.count("seq") - f.count_distinct("seq"),
                "a job ends after it was enqueued": _count(ended < f.col("enqueued_at")),
                "a job that is over has an end": _count((f.col("state") == "open") != ended.isNull()),
                "a completed job was claimed": _count((f.col("state") == "completed") & (f.col("deliveries") == 0)),
            },
        ),
        _counted(
            attempts,
            {
                "an attempt has one row": f.count("seq") - f.count_distinct("seq", "attempt"),
                "an attempt ends after its claim": _count(ended < f.col("claimed_at")),
                "an attempt is claimed after its job was enqueued": _count(f.col("claimed_at") < f.col("enqueued_at")),
                "an attempt has a node": _count(f.col("node").isNull()),
                "a handler runs no longer than its lease is held": _count(f.col("ran") > f.col("held") + 1),
            },
        ),
    ]
    return found[0].unionByName(found[1])


def _count(violation: Column) -> Column:
    return f.count(f.when(violation, 1))


def _counted(rows: DataFrame, checks: dict[str, Column]) -> DataFrame:
    """Return a row for each check, of one pass over the rows."""
    counts = rows.agg(f.count("seq").alias("rows"), *[count.alias(name) for name, count in checks.items()])
    each = f.explode(
        f.array(*[f.struct(f.lit(name).alias("check"), f.col(name).alias("violations")) for name in checks])
    )
    return counts.select("rows", each.alias("each")).select("each.check", "rows", "each.violations")
