"""Jobs that were there at the end of each hour: waiting or leased (backlog), leased (in flight); busy workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
