"""Work that comes in each hour of the week, what to expect, and how many workers would hold a wanted wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Workers that :func:`workers_needed` considers at most.
MOST_WORKERS = 10_000


def hour_of_week(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the usual load by hour of week (0 = Monday 00:00 UTC).

    Returns:
        project, queue, hour_of_week, weeks (in which the hour was seen), arrivals (median an hour), peak (highest), run
        (mean seconds of an attempt), per_job (attempts a job), load (mean number of busy workers).
    """
    come = (
        jobs.withColumn("hour", f.date_trunc("hour", "enqueued_at"))
        .groupBy("project", "queue", "hour")
        .agg(f.count("seq").alias("arrivals"))
    )
    work = (
        attempts.withColumn("hour", f.date_trunc("hour", "claimed_at"))
        .groupBy("project", "queue", "hour")
        .agg(
            f.sum("ran").alias("busy"),
            f.count("ran").alias("runs"),
            f.count(f.when(f.col("attempt") == 1, f.col("ran"))).alias("worked"),
        )
    )
    every = come.unionByName(work, allowMissingColumns=True).groupBy("project", "queue", "hour").agg(
        *[f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("arrivals", "busy", "runs", "worked")]
    )  # fmt: skip
    place = f.weekday("hour") * 24 + f.hour("hour")
    return (
        every.withColumn("hour_of_week", place.cast("int"))
        .groupBy("project", "queue", "hour_of_week")
        .agg(
            f.count("hour").alias("weeks"),
            f.percentile("arrivals", 0.5).alias("arrivals"),
            f.max("arrivals").alias("peak"),
            (f.sum("busy") / f.greatest(f.sum("runs"), f.lit(1))).alias("run"),
            (f.sum("runs") / f.greatest(f.sum("worked"), f.lit(1))).alias("per_job"),
            (f.sum("busy") / 3600 / f.count("hour")).alias("load"),
        )
    )


def forecast(weekly: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the jobs to expect in each hour of the coming week.

    The usual load of that hour of week, times the trend: the last seven days against the seven before, held between a
    half and two (with less than two weeks of history the trend is 1).

    Returns:
        project, queue, hour_of_week, expected (jobs an hour), trend, run, per_job.
    """
    # First by day: everything after this line is small.
    daily = jobs.groupBy("project", "queue", f.to_date("enqueued_at").alias("day")).agg(f.count("seq").alias("n"))
    ends = daily.agg(f.max("day").alias("newest"), f.min("day").alias("oldest"))
    age = f.datediff("newest", "day")
    weeks = (
        daily.crossJoin(f.broadcast(ends))
        .groupBy("project", "queue")
        .agg(
            f.sum(f.when(age < 7, f.col("n")).otherwise(0)).alias("this"),
            f.sum(f.when((age >= 7) & (age < 14), f.col("n")).otherwise(0)).alias("before"),
            f.max(f.datediff("newest", "oldest")).alias("days"),
        )
        .select(
            "project",
            "queue",
            f.when(
                (f.col("days") >= 14) & (f.col("before") > 0),
                f.greatest(f.lit(0.5), f.least(f.lit(2.0), f.col("this") / f.col("before"))),
            )
            .otherwise(1.0)
            .alias("trend"),
        )
    )
    joined = weekly.alias("w").join(
        weeks.alias("t"),
        f.col("w.queue").eqNullSafe(f.col("t.queue")) & f.col("w.project").eqNullSafe(f.col("t.project")),
        "left",
    )
    return joined.select(
        "w.project",
        "w.queue",
        "hour_of_week",
        (f.col("arrivals") * f.coalesce("trend", f.lit(1.0))).alias("expected"),
        f.coalesce("trend", f.lit(1.0)).alias("trend"),
        "run",
        "per_job",
    )


def erlang_c(load: float, workers: int) -> float:
    """Return the probability that a job has to wait, for a load in erlangs (Erlang's C formula, by its recursion)."""
    if load <= 0:
        return 0.0
    if workers <= load:
        return 1.0
    blocked = 1.0
    for number in range(1, workers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / workers * (1 - blocked))


def workers(rate: float | None, run: float | None, wait: float) -> int | None:
    """Return the fewest workers (concurrent jobs) with which 99 % of jobs wait no longer than ``wait`` seconds.

    Jobs come at random (Poisson) with ``rate`` a second and run ``run`` seconds on average (exponential): M/M/c, where
    P(wait > t) = C * exp(-(c - a) * t / run). Real arrivals come in bursts: take it as the least.
    """
    from math import exp

    if rate is None or run is None:
        return None
    load = rate * run
    if load <= 0:
        return 1
    count = int(load) + 1
    while count < MOST_WORKERS:
        if erlang_c(load, count) * exp(-(count - load) * wait / run) <= 0.01:
            return count
        count += 1
    return MOST_WORKERS


def workers_needed(expected: DataFrame, wait: float = 5.0) -> DataFrame:
    """Return a forecast with the workers that would hold the wanted p99 of waiting.

    Args:
        expected: from :func:`forecast`.
        wait: wanted 99th percentile of waiting, seconds.

    Returns:
        its columns, and workers, wanted_wait.
    """
    needed = f.udf(lambda rate, run: workers(rate, run, wait), IntegerType())
    rate = f.col("expected") * f.greatest(f.col("per_job"), f.lit(1.0)) / 3600
    return expected.withColumn("workers", needed(rate, f.col("run"))).withColumn("wanted_wait", f.lit(float(wait)))
