"""Work that comes in each hour of the week, what to expect, and how many workers would hold a wanted wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Workers that :func:`workers_needed` considers at most.
MOST_WORKERS = 10_000


def hour_of_week(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the usual load by hour of week (0 = Monday 00:00 UTC).

    Hours count from the first of a queue to the newest full one of the lake, also those in which nothing came. The
    newest hour itself is left out (it is not over), unless the queue has no other.

    Args:
        attempts: the table of silver with a row for each attempt.
        jobs: the table of silver with a row for each job.

    Returns:
        project, queue, hour_of_week, weeks (how often the hour was there), arrivals (median an hour), peak (highest),
        run (mean seconds of an attempt, of the whole queue where nothing ran in that hour of the week), per_job
        (attempts a job), load (mean number of busy workers), trend (of the queue: arrivals of the newest 168 full hours
        against the 168 before, held between a half and two; 1 with less than two weeks of history, or where nothing
        came before).
    """
    age, arrivals = f.col("age"), f.col("arrivals")
    weekly = (
        _hours(attempts, jobs)
        .groupBy("project", "queue", (f.weekday("hour") * 24 + f.hour("hour")).cast("int").alias("hour_of_week"))
        .agg(
            f.count("hour").alias("weeks"),
            f.percentile("arrivals", 0.5).alias("usual"),
            f.max("arrivals").alias("peak"),
            *[f.sum(name).alias(name) for name in ("busy", "runs", "worked")],
            f.sum(f.when(age < 168, arrivals).otherwise(0)).alias("this"),
            f.sum(f.when((age >= 168) & (age < 336), arrivals).otherwise(0)).alias("before"),
            f.max(age).alias("oldest"),
        )
    )
    whole = Window.partitionBy("project", "queue")

    def ratio(over: str, under: str) -> Column:
        of_all = f.try_divide(f.sum(over).over(whole), f.sum(under).over(whole))
        return f.coalesce(f.try_divide(over, under), of_all)

    change = f.try_divide(f.sum("this").over(whole), f.sum("before").over(whole))
    known = (f.max("oldest").over(whole) >= 335) & change.isNotNull()
    return weekly.select(
        *("project", "queue", "hour_of_week", "weeks", f.col("usual").alias("arrivals"), "peak"),
        ratio("busy", "runs").alias("run"),
        f.coalesce(ratio("runs", "worked"), f.lit(1.0)).alias("per_job"),
        (f.col("busy") / 3600 / f.col("weeks")).alias("load"),
        f.when(known, f.greatest(f.lit(0.5), f.least(f.lit(2.0), change))).otherwise(1.0).alias("trend"),
    )


def _hours(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the sums of every hour of every queue, zeros where nothing happened, and its age in hours."""
    keys, sums = ("project", "queue", "hour"), ("arrivals", "busy", "runs", "worked")
    come = (
        jobs.withColumn("hour", f.date_trunc("hour", "enqueued_at"))
        .groupBy(*keys)
        .agg(f.count("seq").alias("arrivals"))
    )
    work = (
        attempts.withColumn("hour", f.date_trunc("hour", "claimed_at"))
        .groupBy(*keys)
        .agg(
            f.sum("ran").alias("busy"),
            f.count("ran").alias("runs"),
            f.count(f.when(f.col("attempt") == 1, f.col("ran"))).alias("worked"),
        )
    )
    known = (
        come.unionByName(work, allowMissingColumns=True)
        .groupBy(*keys)
        .agg(*[f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in sums])
        .withColumn("newest", f.max("hour").over(Window.partitionBy(f.lit(1))))
    )
    hour = f.expr("interval 1 hour")
    by_queue = known.groupBy("project", "queue").agg(
        f.min("hour").alias("first"),
        f.max("newest").alias("newest"),
        f.map_from_entries(f.collect_list(f.struct("hour", f.struct(*sums)))).alias("known"),
    )
    last = f.greatest("first", f.col("newest") - hour)
    every = by_queue.select("project", "queue", "known", last.alias("last"), f.explode(f.sequence("first", last, hour)))
    there = f.try_element_at("known", f.col("col"))
    return every.select(
        *("project", "queue", f.col("col").alias("hour")),
        ((f.unix_timestamp("last") - f.unix_timestamp("col")) / 3600).alias("age"),
        *[f.coalesce(there[name], f.lit(0)).alias(name) for name in sums],
    )


def forecast(weekly: DataFrame) -> DataFrame:
    """Return the jobs to expect in each hour of the coming week: the usual load of that hour of week, times the trend.

    Args:
        weekly: from :func:`hour_of_week`.

    Returns:
        project, queue, hour_of_week, expected (jobs an hour), trend, run, per_job.
    """
    return weekly.select(
        *("project", "queue", "hour_of_week"),
        (f.col("arrivals") * f.col("trend")).alias("expected"),
        *("trend", "run", "per_job"),
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
