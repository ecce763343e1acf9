"""How well queues and nodes serve.

Of queues: objectives held, what failed attempts cost, where the time went, recoveries and changes. And what is ill: a
node against all others on the same queues, clusters of failures that look alike.

The newest days end with ``newest``, the newest event that was read; without it with the latest row that is counted.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import log

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from .rates import UNSUCCESSFUL, attempts_by_hour

#: Share of the jobs that are to start within the wanted wait.
AIM = 0.99
#: Jobs from which a backlog may be an outage, and times the usual level that it has.
OUTAGE, TIMES = 100, 3.0
#: Days on either side of a change, standard errors between them, and times that a value changed at least.
DAYS, ERRORS, CHANGE = 3, 4.0, 1.5


def _newest(rows: DataFrame, at: str, newest: datetime | None, days: int = 7) -> DataFrame:
    """Return the rows of the ``days`` days up to ``newest``; without it, up to the latest of them."""
    if newest is None:
        last = rows.agg(f.max(at).alias("newest"))
        return rows.crossJoin(f.broadcast(last)).where(f"{at} > newest - interval {days} days").drop("newest")
    return rows.where(f.col(at) > f.lit(newest - timedelta(days=days)))


def _share() -> Column:
    """Return the part of the seconds of all rows of the queue."""
    return f.try_divide("seconds", f.sum("seconds").over(Window.partitionBy("project", "queue")))


def objectives(attempts: DataFrame, wait: float = 5.0, newest: datetime | None = None) -> DataFrame:
    """Return the share of the attempts of the newest seven days that began within the wanted wait, by queue.

    Returns:
        project, queue, wanted_wait, n, in_time, share, budget_left (of the 1 % that may be late, the part that is not
        used up; below 0 the objective is missed).
    """
    week = _newest(attempts.where(~f.col("unstarted")), "claimed_at", newest)
    counts = [f.count("seq").alias("n"), f.count_if(f.col("waited") <= wait).alias("in_time")]
    counted = week.groupBy("project", "queue").agg(f.lit(float(wait)).alias("wanted_wait"), *counts)
    shared = counted.withColumn("share", f.col("in_time") / f.col("n"))
    return shared.withColumn("budget_left", f.lit(1.0) - (f.lit(1.0) - f.col("share")) / (1 - AIM))


def retry_cost(attempts: DataFrame, newest: datetime | None = None) -> DataFrame:
    """Return the worker time that attempts of the newest seven days took and did not complete, by cause.

    Returns:
        project, queue, task, outcome (failed, released, expired), error_type, n, seconds (held), share (of all seconds
        held on the queue).
    """
    week = _newest(attempts.where(f.col("held").isNotNull() & ~f.col("unstarted")), "claimed_at", newest)
    causes = week.groupBy("project", "queue", "task", "outcome", "error_type").agg(
        f.count("seq").alias("n"), f.sum("held").alias("seconds")
    )
    return causes.withColumn("share", _share()).where(f.col("outcome").isin(*UNSUCCESSFUL))


def tenants(jobs: DataFrame, tag: str | None, newest: datetime | None = None) -> DataFrame:
    """Return what each value of a tag had of each queue in the newest seven days; no rows without the tag's name.

    Returns:
        tag (its name), tenant (its value; null: jobs without it), project, queue, jobs (enqueued), completed, failed
        (ended in any other way), seconds (held by workers), waited (mean seconds of an attempt), share (of all seconds
        held on the queue).
    """
    name = tag or ""
    week = _newest(jobs, "enqueued_at", newest).where(f.lit(tag is not None))
    value = f.from_json("tags", "map<string,string>")[name]
    summed = week.groupBy(f.lit(name).alias("tag"), value.alias("tenant"), "project", "queue").agg(
        f.count("seq").alias("jobs"),
        f.count_if(f.col("state") == "completed").alias("completed"),
        f.count_if(~f.col("state").isin("open", "completed")).alias("failed"),
        f.coalesce(f.sum("held"), f.lit(0.0)).alias("seconds"),
        f.try_divide(f.sum("waited"), f.sum("deliveries")).alias("waited"),
    )
    return summed.withColumn("share", _share())


def time_split(jobs: DataFrame, newest: datetime | None = None) -> DataFrame:
    """Return where the time of the jobs that ended in the newest seven days went, by queue.

    Returns:
        project, queue, n, total (seconds from enqueue to end, summed), and its parts: delay (before the first attempt
        could begin), ready (a worker could have taken it), retry_wait (between attempts), run (held by a worker).
    """
    run = f.coalesce("held", f.lit(0.0))
    rest = f.greatest(f.lit(0.0), f.col("total") - f.col("delay") - f.col("waited") - run)
    parts = {"total": f.col("total"), "delay": f.col("delay"), "ready": f.col("waited"), "retry_wait": rest, "run": run}
    ended = _newest(jobs.where(f.col("first_claimed_at").isNotNull()), "ended_at", newest)
    sums = [f.sum(value).alias(name) for name, value in parts.items()]
    return ended.groupBy("project", "queue").agg(f.count("seq").alias("n"), *sums)


def recoveries(levels: DataFrame) -> DataFrame:
    """Return the times in which a queue's backlog was at least 100 jobs and three times its median.

    Returns:
        project, queue, began, highest (jobs), ended (the hour in which it was usual again; null: it is not), seconds.
    """
    queue = Window.partitionBy("project", "queue")
    ordered = queue.orderBy("hour")
    high = (f.col("level") >= OUTAGE) & (f.col("level") > TIMES * f.percentile_approx("level", 0.5).over(queue))
    told = levels.withColumn("high", high).withColumn("next_hour", f.lead("hour").over(ordered))
    # A span of high hours is numbered by the hours before it that were not high.
    spans = told.withColumn("span", f.count(f.when(~f.col("high"), 1)).over(ordered)).where("high")
    # The last hour of a span is followed by one that is not high, or by none.
    ended = f.max_by("next_hour", "hour").alias("ended")
    found = spans.groupBy("project", "queue", "span").agg(
        f.min("hour").alias("began"), f.max("level").alias("highest"), ended
    )
    lasted = f.unix_timestamp("ended") - f.unix_timestamp("began")
    return found.drop("span").withColumn("seconds", lasted)


def changes(days: DataFrame, newest: datetime | None = None) -> DataFrame:
    """Return the day of the newest 14 from which a queue's median wait, run or total time differs from before.

    It is the day with three on either side where the two means lie farthest apart, and far enough (see the reference).

    Returns:
        project, queue, measure, day, before, after (geometric means of the daily medians, seconds), ratio, errors.
    """
    value = f.ln(f.greatest(f.col("p50"), f.lit(1e-3)))
    each = _newest(days, "day", newest, 14).select("project", "queue", "measure", "day", value.alias("x"))
    keys = Window.partitionBy("project", "queue", "measure")
    before = keys.orderBy("day").rowsBetween(Window.unboundedPreceding, -1)
    after = keys.orderBy("day").rowsBetween(Window.currentRow, Window.unboundedFollowing)

    def spread(side: str) -> Column:
        # A day's median is not known better than to 5 %.
        return f.greatest(f.col(f"variance_{side}"), f.lit(0.0025)) / f.col(f"n_{side}")

    points = each.select(
        *("project", "queue", "measure", "day"),
        *[
            how(f.col("x")).over(side).alias(f"{name}_{word}")
            for word, side in (("before", before), ("after", after))
            for name, how in (("n", f.count), ("mean", f.mean), ("variance", f.var_pop))
        ],
    ).where((f.col("n_before") >= DAYS) & (f.col("n_after") >= DAYS))
    error = f.sqrt(spread("before") + spread("after"))
    moved = f.col("mean_after") - f.col("mean_before")
    place = f.row_number().over(keys.orderBy(f.col("errors").desc(), "day"))
    best = points.withColumn("errors", f.abs(moved) / error).withColumn("place", place)
    told = best.where((f.col("place") == 1) & (f.col("errors") > ERRORS)).select(
        *("project", "queue", "measure", "day"),
        *(f.exp("mean_before").alias("before"), f.exp("mean_after").alias("after")),
        *(f.exp(moved).alias("ratio"), "errors"),
    )
    return told.where((f.col("ratio") >= CHANGE) | (f.col("ratio") <= 1 / CHANGE))


#: Standard deviations above the others' rate (of a proportion) from which a node is sick, and the least distance.
SIGMAS, MARGIN = 4.0, 0.05
#: Times the others' run time from which a node counts as slow.
SLOW = 2.0
#: Attempts below which nothing is said about a node.
FEWEST = 20
_COUNTS = ("n", "unsuccessful", "expired", "compared", "failed_there", "to_expect", "timed", "logs", "usual_logs")


def node_health(attempts: DataFrame) -> DataFrame:
    """Return one row per node.

    A node is compared with the others on the queues that both work on. A bad release, with which all nodes fail, marks
    no node. The reference (docs/reference/lake.md) defines each column.

    Returns:
        node, n, unsuccessful, expired, compared, rate, others_rate, sigmas, speed, first_at, last_at, verdict (sick,
        slow, well, unknown), ill_since, ill_until (null while it goes on).
    """
    everything = Window.partitionBy("node")
    hours = _by_hour(attempts).select(
        *("node", "hour", "first_at", "last_at", "first_bad", "last_bad"),
        *[f.col(name).alias(f"hour_{name}") for name in _COUNTS],
        *[f.sum(name).over(everything).alias(name) for name in _COUNTS],
    )
    rate, others = (f.try_divide(name, "compared") for name in ("failed_there", "to_expect"))
    spread = f.sqrt(f.try_divide(f.greatest(others * (f.lit(1.0) - others), f.lit(1e-4)), "compared"))
    speed = f.exp(f.try_divide(f.col("logs") - f.col("usual_logs"), "timed"))
    compared = hours.withColumns({"rate": rate, "others_rate": others, "speed": speed})
    above = f.col("rate") - f.col("others_rate")
    verdict = (
        f.when((f.col("compared") < FEWEST) | f.col("others_rate").isNull(), "unknown")
        .when((f.col("sigmas") > SIGMAS) & (above > MARGIN), "sick")
        .when(f.col("speed") > SLOW, "slow")
        .otherwise("well")
    )
    judged = compared.withColumn("sigmas", above / spread).withColumn("verdict", verdict)
    named = ("n", "unsuccessful", "expired", "compared", "rate", "others_rate", "sigmas", "speed", "verdict")
    inside = f.col("hour").between(f.col("span.from"), f.col("span.to"))
    after = f.sum(f.when(f.col("hour") > f.col("span.to"), f.col("hour_n")).otherwise(0))
    sick, slow = f.col("verdict") == "sick", f.col("verdict") == "slow"
    begins = f.when(sick, f.col("first_bad")).when(slow, f.col("first_at"))
    ends = f.when(sick, f.col("last_bad")).when(slow, f.col("last_at"))
    return (
        _worst_time(judged)
        .groupBy("node", *named)
        .agg(
            *(f.min("first_at").alias("first_at"), f.max("last_at").alias("last_at")),
            f.min(f.when(inside, begins)).alias("ill_since"),
            f.when(after >= FEWEST, f.max(f.when(inside, ends))).alias("ill_until"),
        )
        .select("node", *named[:-1], "first_at", "last_at", "verdict", "ill_since", "ill_until")
    )


def _by_hour(attempts: DataFrame) -> DataFrame:
    """Return the sums of every node by hour, and what the others would have had in its place."""
    known = (f.col("outcome") != "running") & ~f.col("unstarted") & f.col("node").isNotNull()
    bad = f.col("outcome").isin(*UNSUCCESSFUL)
    ended = attempts_by_hour(attempts).where(known).groupBy("node", "project", "queue", "task", "hour")
    tasks = ended.agg(
        *[f.sum(name).alias(name) for name in ("n", "timed", "logs")],
        f.sum(f.when(bad, f.col("n"))).alias("unsuccessful"),
        f.sum(f.when(f.col("outcome") == "expired", f.col("n"))).alias("expired"),
        *(f.min("first_at").alias("first_at"), f.max("last_at").alias("last_at")),
        f.min(f.when(bad, f.col("first_at"))).alias("first_bad"),
        f.max(f.when(bad, f.col("last_at"))).alias("last_bad"),
    ).na.fill(0)

    def others(name: str, *place: str) -> Column:
        """Return the figure of all other nodes together."""
        own = f.sum(name).over(Window.partitionBy(*place, "node"))
        return f.sum(name).over(Window.partitionBy(*place)) - own

    queue, task = ("project", "queue"), ("project", "queue", "task")
    told = tasks.withColumn("others", f.try_divide(others("unsuccessful", *queue), others("n", *queue))).withColumn(
        "usual", f.try_divide(others("logs", *task), others("timed", *task))
    )
    shared, known = f.col("others").isNotNull(), f.col("usual").isNotNull()
    return told.groupBy("node", "hour").agg(
        *[f.sum(name).alias(name) for name in ("n", "unsuccessful", "expired")],
        f.sum(f.when(shared, f.col("n")).otherwise(0)).alias("compared"),
        f.sum(f.when(shared, f.col("unsuccessful"))).alias("failed_there"),
        f.sum(f.col("others") * f.col("n")).alias("to_expect"),
        f.sum(f.when(known, f.col("timed")).otherwise(0)).alias("timed"),
        f.sum(f.when(known, f.col("logs"))).alias("logs"),
        f.sum(f.col("usual") * f.col("timed")).alias("usual_logs"),
        *[f.min(name).alias(name) for name in ("first_at", "first_bad")],
        *[f.max(name).alias(name) for name in ("last_at", "last_bad")],
    )


def _worst_time(judged: DataFrame) -> DataFrame:
    """Add the first and last hour of the node's worst time (``span``)."""
    failed = f.coalesce("hour_failed_there", f.lit(0)) - f.col("hour_compared") * (f.col("others_rate") + MARGIN)
    slower = f.coalesce(f.col("hour_logs") - f.col("hour_usual_logs"), f.lit(0.0)) - f.col("hour_timed") * log(SLOW) / 2
    by_node = Window.partitionBy("node")
    so_far = by_node.orderBy("hour").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    sums = judged.withColumn("excess", f.when(f.col("verdict") == "slow", slower).otherwise(failed)).withColumn(
        "before", f.sum("excess").over(so_far) - f.col("excess")
    )
    # The greatest sum of consecutive hours ends where the sum of all so far is highest above its lowest before.
    lowest = sums.withColumn("lowest", f.min(f.struct("before", "hour")).over(so_far))
    above = (f.col("before") + f.col("excess") - f.col("lowest.before")).alias("sum")
    best = f.struct(above, f.col("lowest.hour").alias("from"), f.col("hour").alias("to"))
    return lowest.withColumn("best", best).withColumn("span", f.max("best").over(by_node))


def poison(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the failures by fingerprint.

    Returns:
        project, queue, task, fingerprint, error_type, failures, jobs, dead (jobs dead or failed for good), nodes (how
        many), node_names (at most 10), first_at, last_at, one_node (whether a single node sees it although others work
        on the queue: then the node is the suspect, not the job).
    """
    failed = attempts.where(f.col("fingerprint").isNotNull() & (f.col("fingerprint") != ""))
    keys = ("project", "queue", "task", "fingerprint")
    clusters = failed.groupBy(*keys).agg(
        f.max("error_type").alias("error_type"),
        f.count("seq").alias("failures"),
        *(f.countDistinct("seq").alias("jobs"), f.countDistinct("node").alias("nodes")),
        f.slice(f.array_sort(f.collect_set("node")), 1, 10).alias("node_names"),
        *(f.min("ended_at").alias("first_at"), f.max("ended_at").alias("last_at")),
    )
    lost = jobs.where(f.col("state").isin("dead", "failed") & f.col("fingerprint").isNotNull())
    dead = lost.groupBy(*keys).agg(f.count("seq").alias("dead"))
    workers = attempts_by_hour(attempts).groupBy("project", "queue").agg(f.size(f.collect_set("node")).alias("workers"))

    def same(other: str, *names: str) -> list[Column]:
        return [f.col(f"c.{name}").eqNullSafe(f.col(f"{other}.{name}")) for name in names]

    return (
        clusters.alias("c")
        .join(dead.alias("d"), same("d", *keys), "left")
        .join(workers.alias("w"), same("w", "project", "queue"), "left")
        .select(
            "c.*",
            f.coalesce("d.dead", f.lit(0)).alias("dead"),
            ((f.col("c.nodes") == 1) & (f.col("w.workers") > 1) & (f.col("c.jobs") > 1)).alias("one_node"),
        )
    )
