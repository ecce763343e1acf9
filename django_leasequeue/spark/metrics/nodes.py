"""Finding what is ill: a node against all others on the same queues, and clusters of failures that look alike."""

from __future__ import annotations

from math import log

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from .hours import UNSUCCESSFUL, attempts_by_hour

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
        """What all other nodes had there."""
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
