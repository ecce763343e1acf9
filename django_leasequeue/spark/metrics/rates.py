"""Jobs and attempts by hour, how far the figures reach and if they hold; what to expect, and the workers for it."""

from __future__ import annotations

from math import exp

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType

from .spans import hour_of

#: Workers that :func:`workers_needed` considers at most.
MOST_WORKERS = 10_000


def throughput(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return counts and rates by project, queue, task and hour.

    SQL: counts of jobs by the hour they were enqueued, of attempts by the hour they began, of ended jobs by the hour
    they ended; ``failure_rate = attempts not completed / attempts ended``,
    ``redelivery_rate = attempts after the first / attempts``.

    Returns:
        project, queue, task, hour, enqueued, claimed, completed, failed (jobs that ended in any other way),
        redelivered, failure_rate, redelivery_rate.
    """
    keys = ("project", "queue", "task", "hour")

    def happened(rows: DataFrame, at: str, **counts: Column) -> DataFrame:
        return rows.select(*keys[:3], hour_of(at), *[column.alias(name) for name, column in counts.items()])

    completed, ended = f.col("state") == "completed", f.col("outcome") != "running"
    unsuccessful = f.col("outcome").isin("failed", "released", "expired") & ~f.col("unstarted")
    tried = {"redelivered": f.col("attempt") > 1, "unsuccessful": unsuccessful, "ended": ended}
    came = happened(jobs, "enqueued_at", enqueued=f.lit(True))
    ran = happened(attempts, "claimed_at", claimed=f.lit(True), **tried)
    went = happened(jobs.where(f.col("ended_at").isNotNull()), "ended_at", completed=completed, failed=~completed)
    # A union, not joins: project and task may be null, and nulls join nothing.
    every = came.unionByName(ran, allowMissingColumns=True).unionByName(went, allowMissingColumns=True)
    told = ("enqueued", "claimed", "completed", "failed", "redelivered")
    summed = every.groupBy(*keys).agg(*[f.count_if(name).alias(name) for name in (*told, "unsuccessful", "ended")])
    rates = (("failure_rate", "unsuccessful", "ended"), ("redelivery_rate", "redelivered", "claimed"))
    return summed.select(*keys, *told, *[f.try_divide(part, whole).alias(name) for name, part, whole in rates])


def span(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return in one row how far the figures reach.

    Returns:
        first_at, newest_at (the oldest and the newest thing that is known to have happened), jobs, attempts.
    """
    times = ("enqueued_at", "ended_at")
    newest = [f.max(name).alias(name) for name in times]
    came = jobs.agg(f.min("enqueued_at").alias("first_at"), *newest, f.count("seq").alias("jobs"))
    worked = attempts.agg(f.max("claimed_at").alias("claimed_at"), f.count("seq").alias("attempts"))
    newest_at = f.greatest(*times, "claimed_at").alias("newest_at")
    return came.crossJoin(worked).select("first_at", newest_at, "jobs", "attempts")


def backlog(jobs: DataFrame) -> DataFrame:
    """Return the jobs that were enqueued and not yet over, at the end of each hour.

    SQL: ``sum(came - went) over (partition by project, queue order by hour)``.

    Returns:
        project, queue, hour, came, went, level.
    """
    return _level(jobs, "enqueued_at")


def in_flight(attempts: DataFrame) -> DataFrame:
    """Return the attempts that had begun and not yet ended, at the end of each hour.

    Returns:
        project, queue, hour, came, went, level.
    """
    return _level(attempts, "claimed_at")


def use(attempts: DataFrame) -> DataFrame:
    """Return how busy the workers were that were there, by queue and hour.

    SQL: ``sum(came - went) over (...)`` by minute, and its maximum by hour; attempts by the hour of their claim.

    Returns:
        project, queue, hour, nodes (that claimed in the hour), busy (seconds held a second: the mean number of busy
        slots), most (attempts under way at the end of the minute that had the most: so many slots were there at least).
    """
    keys = ("project", "queue", "hour")
    minutes = _level(attempts, "claimed_at", "minute")
    most = minutes.groupBy(*keys[:2], hour_of("minute")).agg(f.max("level").alias("most"))
    # Nodes are few: a set of them takes one shuffle, where a distinct count takes two.
    nodes = f.size(f.collect_set("node")).cast("bigint").alias("nodes")
    worked = attempts.groupBy(*keys[:2], hour_of("claimed_at")).agg(nodes, (f.sum("held") / 3600).alias("busy"))
    every = worked.unionByName(most, allowMissingColumns=True).groupBy(*keys)
    return every.agg(*[f.coalesce(f.max(name), f.lit(0)).alias(name) for name in ("nodes", "busy", "most")])


def _level(rows: DataFrame, begin: str, unit: str = "hour") -> DataFrame:
    # One pass over the rows gives both ends of each.
    pairs = [f.struct(f.col(name).alias("at"), f.lit(n).alias("went")) for n, name in enumerate((begin, "ended_at"))]
    ends = f.inline(f.array(*pairs))
    hourly = (
        rows.select("project", "queue", ends)
        .where("at is not null")
        .groupBy("project", "queue", f.date_trunc(unit, "at").alias(unit))
        .agg(f.sum(f.lit(1) - f.col("went")).alias("came"), f.sum("went").alias("went"))
    )
    so_far = Window.partitionBy("project", "queue").orderBy(unit).rowsBetween(Window.unboundedPreceding, 0)
    return hourly.withColumn("level", f.sum(f.col("came") - f.col("went")).over(so_far))


def quality(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return one row per check.

    Returns:
        check, rows (that were looked at), violations.
    """
    ended, claimed, enqueued = f.col("ended_at"), f.col("claimed_at"), f.col("enqueued_at")
    of_jobs = {
        "a job has one row": f.count("seq") - f.count_distinct("seq"),
        "a job ends after it was enqueued": f.count_if(ended < enqueued),
        "a job that is over has an end": f.count_if((f.col("state") == "open") != ended.isNull()),
        "a completed job was claimed": f.count_if((f.col("state") == "completed") & (f.col("deliveries") == 0)),
    }
    of_attempts = {
        "an attempt has one row": f.count("seq") - f.count_distinct("seq", "attempt"),
        "an attempt ends after its claim": f.count_if(ended < claimed),
        "an attempt is claimed after its job was enqueued": f.count_if(claimed < enqueued),
        "an attempt has a node": f.count_if(f.col("node").isNull()),
        "a handler runs no longer than its lease is held": f.count_if(f.col("ran") > f.col("held") + 1),
    }
    return _counted(jobs, of_jobs).unionByName(_counted(attempts, of_attempts))


def _counted(rows: DataFrame, checks: dict[str, Column]) -> DataFrame:
    """Return a row for each check, of one pass over the rows."""
    counts = rows.agg(f.count("seq").alias("rows"), *[count.alias(name) for name, count in checks.items()])
    each = [f.struct(f.lit(name).alias("check"), "rows", f.col(name).alias("violations")) for name in checks]
    return counts.select(f.inline(f.array(*each)))


def hour_of_week(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the usual load by hour of week (0 = Monday 00:00 UTC).

    Hours count from the first of a queue to the newest full one of the lake, also those in which nothing came. The
    newest hour itself is left out (it is not over), unless the queue has no other.

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
    come = jobs.select("project", "queue", hour_of("enqueued_at"), f.lit(1).alias("came"))
    work = attempts.select("project", "queue", hour_of("claimed_at"), "ran", "attempt")
    known = (
        come.unionByName(work, allowMissingColumns=True)
        .groupBy(*keys)
        .agg(
            f.count("came").alias("arrivals"),
            f.coalesce(f.sum("ran"), f.lit(0)).alias("busy"),
            f.count("ran").alias("runs"),
            f.count_if((f.col("attempt") == 1) & f.col("ran").isNotNull()).alias("worked"),
        )
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

    Returns:
        project, queue, hour_of_week, expected (jobs an hour), trend, run, per_job.
    """
    expected = (f.col("arrivals") * f.col("trend")).alias("expected")
    return weekly.select("project", "queue", "hour_of_week", expected, "trend", "run", "per_job")


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
    if rate is None or run is None:
        return None
    load = rate * run
    if load <= 0:
        return 1
    for count in range(int(load) + 1, MOST_WORKERS):
        if erlang_c(load, count) * exp(-(count - load) * wait / run) <= 0.01:
            return count
    return MOST_WORKERS


def workers_needed(expected: DataFrame, wait: float = 5.0) -> DataFrame:
    """Return a forecast with the workers that would hold the wanted 99th percentile of waiting (seconds).

    Returns:
        its columns, and workers, wanted_wait.
    """
    needed = f.udf(lambda rate, run: workers(rate, run, wait), IntegerType())
    rate = f.col("expected") * f.greatest(f.col("per_job"), f.lit(1.0)) / 3600
    return expected.withColumn("workers", needed(rate, f.col("run"))).withColumn("wanted_wait", f.lit(float(wait)))
