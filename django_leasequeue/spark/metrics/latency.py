"""How long jobs wait, run and take in all, by hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERCENTILES = (0.5, 0.95, 0.99)


def latency(attempts: DataFrame, jobs: DataFrame, *, by: tuple[str, ...] = ("project", "queue", "task")) -> DataFrame:
    """Return percentiles by hour: of waiting and running by the hour of the claim, end to end by the hour of the end.

    Percentiles are those of the data (a value that occurred, accurate to one in 10,000 by rank), not averages of
    averages.

    Args:
        by: the columns to group by, besides the hour.

    SQL: ``approx_percentile(waited, array(0.5, 0.95, 0.99), 10000)`` grouped by project, queue, task, hour.

    Returns:
        the columns of ``by``, hour, measure (wait, run, total), n, p50, p95, p99, highest (seconds).
    """
    started = attempts.where(~f.col("unstarted")).withColumn("hour", f.date_trunc("hour", "claimed_at"))
    wait = started.withColumnRenamed("waited", "value").withColumn("measure", f.lit("wait"))
    run = started.withColumnRenamed("ran", "value").withColumn("measure", f.lit("run"))
    total = (
        jobs.where(f.col("state") == "completed")
        .withColumn("hour", f.date_trunc("hour", "ended_at"))
        .withColumnRenamed("total", "value")
        .withColumn("measure", f.lit("total"))
    )
    columns = (*by, "hour", "measure", "value")
    every = wait.select(*columns).unionByName(run.select(*columns)).unionByName(total.select(*columns))
    points = f.percentile_approx("value", list(PERCENTILES), 10_000)
    return (
        every.where(f.col("value").isNotNull())
        .groupBy(*by, "hour", "measure")
        .agg(f.count("value").alias("n"), points.alias("points"), f.max("value").alias("highest"))
        .select(
            *by,
            "hour",
            "measure",
            "n",
            f.col("points")[0].alias("p50"),
            f.col("points")[1].alias("p95"),
            f.col("points")[2].alias("p99"),
            "highest",
        )
    )
