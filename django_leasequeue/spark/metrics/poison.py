"""Clusters of failures that look alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def poison(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return the failures by fingerprint, the most harmful first.

    SQL: attempts with a fingerprint grouped by project, queue, task, fingerprint; dead jobs joined by the same.

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
        f.countDistinct("seq").alias("jobs"),
        f.countDistinct("node").alias("nodes"),
        f.slice(f.array_sort(f.collect_set("node")), 1, 10).alias("node_names"),
        f.min("ended_at").alias("first_at"),
        f.max("ended_at").alias("last_at"),
    )
    dead = (
        jobs.where(f.col("state").isin("dead", "failed") & f.col("fingerprint").isNotNull())
        .groupBy(*keys)
        .agg(f.count("seq").alias("dead"))
    )
    workers = attempts.groupBy("project", "queue").agg(f.countDistinct("node").alias("workers"))

    def same(left: str, right: str, names: tuple[str, ...]) -> Column:
        condition = f.lit(True)
        for name in names:
            condition = condition & f.col(f"{left}.{name}").eqNullSafe(f.col(f"{right}.{name}"))
        return condition

    return (
        clusters.alias("c")
        .join(dead.alias("d"), same("c", "d", keys), "left")
        .join(workers.alias("w"), same("c", "w", ("project", "queue")), "left")
        .select(
            "c.*",
            f.coalesce("d.dead", f.lit(0)).alias("dead"),
            ((f.col("c.nodes") == 1) & (f.col("w.workers") > 1) & (f.col("c.jobs") > 1)).alias("one_node"),
        )
        .orderBy(f.col("dead").desc(), f.col("failures").desc(), "fingerprint")
    )
