"""Finding a worker that is ill: its failures, its lost leases and its speed against all others'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Standard deviations above the others' rate (of a proportion) from which a node counts as sick, and the least
#: distance.
SIGMAS = 4.0
MARGIN = 0.05
#: Times the others' median run time from which a node counts as slow.
SLOW = 2.0
#: Attempts below which nothing is said about a node.
FEWEST = 20


def node_health(attempts: DataFrame) -> DataFrame:
    """Return one row per node, the worst first.

    A node is *sick* when its share of failed or expired attempts lies more than four standard deviations and five
    points above that of all other nodes on the same queues, and *slow* when its median run time, task by task, is more
    than
    twice the other nodes'. Comparing with the others keeps a bad release (everybody fails) from marking every node.

    Returns:
        node, n, unsuccessful, expired, rate, others_rate, sigmas, speed (its run time against the others', 1 = the
        same), first_at, last_at, verdict (sick, slow, well, unknown).
    """
    ended = attempts.where((f.col("outcome") != "running") & ~f.col("unstarted") & f.col("node").isNotNull())
    bad = f.col("outcome").isin("failed", "released", "expired")
    nodes = ended.groupBy("node").agg(
        f.count("seq").alias("n"),
        f.count(f.when(bad, 1)).alias("unsuccessful"),
        f.count(f.when(f.col("outcome") == "expired", 1)).alias("expired"),
        f.min("claimed_at").alias("first_at"),
        f.max("claimed_at").alias("last_at"),
    )
    everyone = Window.partitionBy(f.lit(1))
    others_n = f.sum("n").over(everyone) - f.col("n")
    others_bad = f.sum("unsuccessful").over(everyone) - f.col("unsuccessful")
    nodes = (
        nodes.withColumn("rate", f.col("unsuccessful") / f.col("n"))
        .withColumn("others_rate", f.when(others_n > 0, others_bad / others_n))
        .withColumn("spread", f.sqrt(f.greatest(_variance("others_rate"), f.lit(1e-4)) / f.col("n")))
        .withColumn("sigmas", (f.col("rate") - f.col("others_rate")) / f.col("spread"))
    )
    speed = _speed(ended.where(f.col("outcome") == "completed"))
    verdict = (
        f.when((f.col("n") < FEWEST) | f.col("others_rate").isNull(), "unknown")
        .when((f.col("sigmas") > SIGMAS) & (f.col("rate") - f.col("others_rate") > MARGIN), "sick")
        .when(f.col("speed") > SLOW, "slow")
        .otherwise("well")
    )
    return (
        nodes.join(speed, "node", "left")
        .select(
            "node",
            "n",
            "unsuccessful",
            "expired",
            "rate",
            "others_rate",
            "sigmas",
            "speed",
            "first_at",
            "last_at",
            verdict.alias("verdict"),
        )
        .orderBy(f.col("sigmas").desc_nulls_last(), "node")
    )


def _variance(rate: str) -> Column:
    return f.col(rate) * (f.lit(1.0) - f.col(rate))


def _speed(completed: DataFrame) -> DataFrame:
    """Compare a node's time with the median of all nodes' medians, task by task, weighted by how many it ran."""
    by_task = completed.groupBy("node", "queue", "task").agg(
        f.percentile_approx("ran", 0.5, 1_000).alias("median"), f.count("seq").alias("runs")
    )
    task = Window.partitionBy("queue", "task")
    usual = f.percentile_approx("median", 0.5, 1_000).over(task)
    ratio = f.when((usual > 0) & (f.count("node").over(task) > 1), f.col("median") / usual)
    return (
        by_task.withColumn("ratio", ratio)
        .where(f.col("ratio").isNotNull())
        .groupBy("node")
        .agg((f.sum(f.col("ratio") * f.col("runs")) / f.sum("runs")).alias("speed"))
    )
