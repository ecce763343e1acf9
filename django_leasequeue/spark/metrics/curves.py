"""Jobs that were there at the end of each hour: waiting or leased (backlog), and leased (in flight)."""

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


def _level(rows: DataFrame, begin: Column, end: Column) -> DataFrame:
    came = rows.select("project", "queue", begin.alias("at"), f.lit(1).alias("came"), f.lit(0).alias("went"))
    went = rows.where(end.isNotNull()).select(
        "project", "queue", end.alias("at"), f.lit(0).alias("came"), f.lit(1).alias("went")
    )
    hourly = (
        came.unionByName(went)
        .groupBy("project", "queue", f.date_trunc("hour", "at").alias("hour"))
        .agg(f.sum("came").alias("came"), f.sum("went").alias("went"))
    )
    so_far = Window.partitionBy("project", "queue").orderBy("hour").rowsBetween(Window.unboundedPreceding, 0)
    return hourly.withColumn("level", f.sum(f.col("came") - f.col("went")).over(so_far))
