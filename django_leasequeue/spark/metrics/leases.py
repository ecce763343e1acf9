"""A comparison of the lease length of a queue with what its jobs take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from .spans import seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Share of the lease from which a run counts as near its end, and the share of such runs that asks for a longer one.
NEAR = 0.8
SHARE = 0.01


def lease_advice(attempts: DataFrame) -> DataFrame:
    """Return, by queue and task, how runs compare with their leases.

    *longer* when more than 1 % of the runs went over 80 % of their lease, or any lease expired; *shorter* when the
    99.9th percentile of running is below a twentieth of the lease (a dead worker's jobs wait needlessly long); else
    *keep*.
    The suggestion is three times the 99th percentile, at least a second.

    Returns:
        project, queue, task, n, lease (median, seconds), p99, p999, near, expired, extended, advice, suggested
        (seconds).
    """
    ended = attempts.where(f.col("outcome").isin("completed", "failed", "released", "expired") & ~f.col("unstarted"))
    lease = seconds(f.col("deadline"), f.col("claimed_at"))
    grouped = (
        ended.withColumn("lease", lease)
        .where(f.col("lease") > 0)
        .groupBy("project", "queue", "task")
        .agg(
            f.count("seq").alias("n"),
            f.percentile_approx("lease", 0.5, 1_000).alias("lease"),
            f.percentile_approx(f.when(f.col("outcome") != "expired", f.col("ran")), [0.99, 0.999], 10_000).alias(
                "points"
            ),
            f.count(f.when(f.col("ran") > f.col("lease") * NEAR, 1)).alias("near"),
            f.count(f.when(f.col("outcome") == "expired", 1)).alias("expired"),
            f.count(f.when(f.col("extensions") > 0, 1)).alias("extended"),
        )
        .withColumn("p99", f.col("points")[0])
        .withColumn("p999", f.col("points")[1])
    )
    advice = (
        f.when((f.col("near") > f.col("n") * SHARE) | (f.col("expired") > 0), "longer")
        .when(f.col("p999") < f.col("lease") / 20, "shorter")
        .otherwise("keep")
    )
    suggested = f.when(
        advice == "longer", f.greatest(f.col("p99") * 3, f.col("lease") * 1.5, f.lit(1.0))
    ).when(advice == "shorter", f.greatest(f.col("p99") * 3, f.lit(1.0))).otherwise(f.col("lease"))  # fmt: skip
    return grouped.select(
        "project",
        "queue",
        "task",
        "n",
        "lease",
        "p99",
        "p999",
        "near",
        "expired",
        "extended",
        advice.alias("advice"),
        suggested.alias("suggested"),
    )
