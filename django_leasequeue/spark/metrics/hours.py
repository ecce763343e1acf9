"""Aggregates by hour and minute that most figures are computed from.

To compute several figures, ``persist`` these first: each figure builds the same plan, which Spark's cache knows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

#: Outcomes of attempts that did not bring the job forward.
UNSUCCESSFUL = ("failed", "released", "expired")


def hour_of(time: str | Column) -> Column:
    """Return the hour of a time, as the column ``hour``."""
    return f.date_trunc("hour", time).alias("hour")


def attempts_by_hour(attempts: DataFrame) -> DataFrame:
    """Return the sums of attempts by the hour of their claim and what became of them.

    Returns:
        project, queue, task, node, hour, outcome, unstarted, first (whether the job's first), n, held, ran (sums of
        seconds), timed (attempts with ``ran``), logs (sum of its logarithms), first_at, last_at (claims).
    """
    place = ("project", "queue", "task", "node", hour_of("claimed_at"), "outcome", "unstarted")
    # Workers report milliseconds: the logarithm of 0 is that of one.
    least = f.when(f.col("ran") < 1e-3, 1e-3).otherwise(f.col("ran"))
    return attempts.groupBy(*place, (f.col("attempt") == 1).alias("first")).agg(
        f.count("seq").alias("n"),
        *(f.sum("held").alias("held"), f.sum("ran").alias("ran"), f.count("ran").alias("timed")),
        f.sum(f.ln(least)).alias("logs"),
        *(f.min("claimed_at").alias("first_at"), f.max("claimed_at").alias("last_at")),
    )


def jobs_by_hour(jobs: DataFrame) -> DataFrame:
    """Return how many jobs came and ended by hour.

    Returns:
        project, queue, task, hour, enqueued, completed, failed (jobs that ended in any other way), first_at (the first
        enqueue of the hour), last_at (the last enqueue or end).
    """
    came, completed = f.col("went") == 0, f.col("completed")
    ends = _ends(jobs, "enqueued_at", f.col("task"), (f.col("state") == "completed").alias("completed"))
    return ends.groupBy("project", "queue", "task", hour_of("at")).agg(
        *(f.count_if(came).alias("enqueued"), f.count_if(~came & completed).alias("completed")),
        f.count_if(~came & ~completed).alias("failed"),
        *(f.min(f.when(came, f.col("at"))).alias("first_at"), f.max("at").alias("last_at")),
    )


def attempts_by_minute(attempts: DataFrame) -> DataFrame:
    """Return how many attempts began (``came``) and ended (``went``) by project, queue and minute."""
    minutes = _ends(attempts, "claimed_at").groupBy("project", "queue", f.date_trunc("minute", "at").alias("minute"))
    return minutes.agg(f.sum(f.lit(1) - f.col("went")).alias("came"), f.sum("went").alias("went"))


def _ends(rows: DataFrame, begin: str, *columns: Column) -> DataFrame:
    """Return two rows for each: its begin (``went`` 0) and its end (``went`` 1), with the time (``at``)."""
    ends = [f.struct(f.col(name).alias("at"), f.lit(n).alias("went")) for n, name in enumerate((begin, "ended_at"))]
    return rows.select("project", "queue", *columns, f.inline(f.array(*ends))).where("at is not null")
