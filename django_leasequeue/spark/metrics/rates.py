"""Jobs and attempts by hour, how far the figures reach and if they hold; what to expect, and the workers for it.

To compute several figures, ``persist`` the aggregates by hour first: each figure builds the same plan, which Spark's
cache knows.
"""

from __future__ import annotations

from datetime import datetime
from math import exp

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType

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


#: Workers that :func:`workers_needed` considers at most.
MOST_WORKERS = 10_000
_HOUR = ("project", "queue", "hour")


def throughput(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return counts and rates by project, queue, task and hour.

    Returns:
        project, queue, task, hour, enqueued, claimed, completed, failed (jobs that ended in any other way),
        redelivered, failure_rate, redelivery_rate.
    """
    keys, n = ("project", "queue", "task", "hour"), f.col("n")
    unsuccessful = f.col("outcome").isin(*UNSUCCESSFUL) & ~f.col("unstarted")
    tried = attempts_by_hour(attempts).select(
        *keys,
        n.alias("claimed"),
        f.when(~f.col("first"), n).alias("redelivered"),
        f.when(unsuccessful, n).alias("unsuccessful"),
        f.when(f.col("outcome") != "running", n).alias("tried"),
    )
    # A union, not a join: project and task may be null, and nulls join nothing.
    every = jobs_by_hour(jobs).drop("first_at", "last_at").unionByName(tried, allowMissingColumns=True)
    told = ("enqueued", "claimed", "completed", "failed", "redelivered")
    rates = (("failure_rate", "unsuccessful", "tried"), ("redelivery_rate", "redelivered", "claimed"))
    summed = (
        every.groupBy(*keys).agg(*[f.sum(name).alias(name) for name in (*told, "unsuccessful", "tried")]).na.fill(0)
    )
    return summed.select(*keys, *told, *[f.try_divide(part, whole).alias(name) for name, part, whole in rates])


def span(attempts: DataFrame, jobs: DataFrame, newest: datetime | None = None) -> DataFrame:
    """Return in one row how far the figures reach.

    Returns:
        first_at (the oldest thing that is known to have happened), newest_at (``newest``, the newest event that was
        read; without it the newest thing of these rows), jobs, attempts.
    """
    ends = [f.min("first_at").alias("first_at"), f.max("last_at").alias("newest_at")]
    came = jobs_by_hour(jobs).agg(*ends, f.sum("enqueued").alias("jobs"))
    worked = attempts_by_hour(attempts).agg(f.max("last_at").alias("claimed_at"), f.sum("n").alias("attempts"))
    newest_at = f.greatest("newest_at", "claimed_at") if newest is None else f.lit(newest)
    return came.crossJoin(worked).select("first_at", newest_at.alias("newest_at"), "jobs", "attempts").na.fill(0)


def backlog(jobs: DataFrame) -> DataFrame:
    """Return the jobs that were enqueued and not yet over, at the end of each hour.

    Returns:
        project, queue, hour, came, went, level.
    """
    went = (f.col("completed") + f.col("failed")).alias("went")
    return _level(jobs_by_hour(jobs).select(*_HOUR, f.col("enqueued").alias("came"), went), "hour")


def in_flight(attempts: DataFrame) -> DataFrame:
    """Return the attempts that had begun and not yet ended, at the end of each hour.

    Returns:
        project, queue, hour, came, went, level.
    """
    return _level(attempts_by_minute(attempts).select("project", "queue", hour_of("minute"), "came", "went"), "hour")


def use(attempts: DataFrame) -> DataFrame:
    """Return how busy the workers were that were there, by queue and hour.

    Returns:
        project, queue, hour, nodes (that claimed in the hour), busy (seconds held a second: the mean number of busy
        slots), most (attempts under way at the end of the minute that had the most: so many slots were there at least).
    """
    minutes = _level(attempts_by_minute(attempts), "minute")
    most = minutes.groupBy("project", "queue", hour_of("minute")).agg(f.max("level").alias("most"))
    # Nodes are few: a set of them takes one shuffle, where a distinct count takes two.
    nodes = f.size(f.collect_set("node")).cast("bigint").alias("nodes")
    worked = attempts_by_hour(attempts).groupBy(*_HOUR).agg(nodes, (f.sum("held") / 3600).alias("busy"))
    every = worked.unionByName(most, allowMissingColumns=True).groupBy(*_HOUR)
    return every.agg(*[f.coalesce(f.max(name), f.lit(0)).alias(name) for name in ("nodes", "busy", "most")])


def _level(changes: DataFrame, unit: str) -> DataFrame:
    """Return the changes summed by project, queue and unit of time, with the level that they add up to."""
    so_far = Window.partitionBy("project", "queue").orderBy(unit).rowsBetween(Window.unboundedPreceding, 0)
    summed = changes.groupBy("project", "queue", unit).agg(f.sum("came").alias("came"), f.sum("went").alias("went"))
    return summed.withColumn("level", f.sum(f.col("came") - f.col("went")).over(so_far))


def quality(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return one row per check.

    Returns:
        check, rows (that were looked at), violations.
    """
    ended, claimed, enqueued = f.col("ended_at"), f.col("claimed_at"), f.col("enqueued_at")
    of_jobs = {
        "a job ends after it was enqueued": ended < enqueued,
        "a job that is over has an end": (f.col("state") == "open") != ended.isNull(),
        "a completed job was claimed": (f.col("state") == "completed") & (f.col("deliveries") == 0),
    }
    of_attempts = {
        "an attempt ends after its claim": ended < claimed,
        "an attempt is claimed after its job was enqueued": claimed < enqueued,
        "an attempt has a node": f.col("node").isNull(),
        "a handler runs no longer than its lease is held": f.col("ran") > f.col("held") + 1,
    }
    checked = _counted(jobs, "a job has one row", of_jobs)
    return checked.unionByName(_counted(attempts, "an attempt has one row", of_attempts, "attempt"))


def _counted(rows: DataFrame, unique: str, violated: dict[str, Column], *also: str) -> DataFrame:
    """Return a row for each check; ``unique`` is the check that no ``seq`` (with the columns ``also``) repeats."""
    # A distinct count would shuffle every number: here 64 of them are the bits of one.
    bits = f.expr("bit_or(shiftleft(1L, int(seq & 63)))")
    blocks = rows.groupBy(f.shiftright("seq", 6), *also).agg(
        *(f.count("seq").alias("rows"), bits.alias("bits")),
        *[f.count_if(violation).alias(name) for name, violation in violated.items()],
    )
    twice = (f.sum("rows") - f.sum(f.bit_count("bits"))).alias(unique)
    counts = blocks.agg(f.sum("rows").alias("rows"), twice, *[f.sum(name).alias(name) for name in violated]).na.fill(0)
    checks = [
        f.struct(f.lit(name).alias("check"), "rows", f.col(name).alias("violations")) for name in (unique, *violated)
    ]
    return counts.select(f.inline(f.array(*checks)))


def hour_of_week(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the usual load by hour of week (0 = Monday 00:00 UTC).

    Hours count from the first of a queue to the newest full one of the lake, also those in which nothing came.

    Returns:
        project, queue, hour_of_week, weeks, arrivals (median an hour), peak (highest), run (mean seconds of an
        attempt), per_job (attempts a job), load (mean number of busy workers), trend (arrivals of the newest 168 full
        hours against the 168 before, between a half and two).
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
    sums = ("arrivals", "busy", "runs", "worked")
    come = jobs_by_hour(jobs).where("enqueued > 0").select(*_HOUR, f.col("enqueued").alias("arrivals"))
    worked = f.when(f.col("first"), f.col("timed")).alias("worked")
    work = attempts_by_hour(attempts).select(*_HOUR, f.col("ran").alias("busy"), f.col("timed").alias("runs"), worked)
    known = (
        come.unionByName(work, allowMissingColumns=True)
        .groupBy(*_HOUR)
        .agg(*[f.sum(name).alias(name) for name in sums])
        .na.fill(0)
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
