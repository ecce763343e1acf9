"""Times that jobs wait, run and take in all, by hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PERCENTILES = (0.5, 0.95, 0.99)


def latency(attempts: DataFrame, jobs: DataFrame, *, by: tuple[str, ...] = ("project", "queue", "task")) -> DataFrame:
    """Return percentiles by hour: of waiting and running by the hour of the claim, end to end by the hour of the end.

    Percentiles are those of the data (a value that occurred, accurate to one in 10,000 by rank), not averages of
    averages.

    Args:
        attempts: the table of silver with a row for each attempt.
        jobs: the table of silver with a row for each job.
        by: the columns to group by, besides the hour.

    SQL: ``approx_percentile(waited, array(0.5, 0.95, 0.99), 10000)`` grouped by project, queue, task, hour.

    Returns:
        the columns of ``by``, hour, measure (wait, run, total), n, p50, p95, p99, highest (seconds).
    """
    grouped = _values(attempts, jobs, by).groupBy(*by, "hour", "measure").agg(*_aggregates())
    return grouped.select(*by, *_figures())


def latencies(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return :func:`latency` by task and by queue in one pass.

    SQL: as there, with ``grouping sets ((project, queue, task, hour, measure), (project, queue, hour, measure))``.

    Returns:
        of (``task`` or ``queue``), project, queue, task (null for a queue), and the figures.
    """
    by = ("project", "queue", "task")
    keys = (*by, "hour", "measure")
    sets = [[f.col(name) for name in names] for names in (keys, ("project", "queue", "hour", "measure"))]
    grouped = _values(attempts, jobs, by).groupingSets(sets, *keys)
    found = grouped.agg(f.when(f.grouping("task") == 1, "queue").otherwise("task").alias("of"), *_aggregates())
    return found.select("of", *by, *_figures())


def _values(attempts: DataFrame, jobs: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """One row a figure: the columns of ``by``, hour, measure, value."""
    started = attempts.where(~f.col("unstarted")).withColumn("hour", f.date_trunc("hour", "claimed_at"))
    ended = jobs.where(f.col("state") == "completed").withColumn("hour", f.date_trunc("hour", "ended_at"))

    def measured(rows: DataFrame, measure: str, column: str) -> DataFrame:
        return rows.select(*by, "hour", f.lit(measure).alias("measure"), f.col(column).alias("value"))

    every = measured(started, "wait", "waited").unionByName(measured(started, "run", "ran"))
    return every.unionByName(measured(ended, "total", "total")).where(f.col("value").isNotNull())


def _aggregates() -> list[Column]:
    points = f.percentile_approx("value", list(PERCENTILES), 10_000)
    return [f.count("value").alias("n"), points.alias("points"), f.max("value").alias("highest")]


def _figures() -> list[str | Column]:
    points = [f.col("points")[place].alias(name) for place, name in enumerate(("p50", "p95", "p99"))]
    return ["hour", "measure", "n", *points, "highest"]
