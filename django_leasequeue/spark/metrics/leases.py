"""A comparison of the lease length of a queue with the time that its jobs are held, by node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Share of the lease from which an attempt counts as near its end, and the share of such attempts that asks for a
#: longer one.
NEAR = 0.8
SHARE = 0.01


def lease_advice(attempts: DataFrame) -> DataFrame:
    """Return how long leases are held, against what was granted: a row for each queue, and for each node on it.

    *longer* when more than 1 % of the attempts were held for over 80 % of the lease and never extended it; *node* (of
    a queue) when all that expired had one and the same node while others worked there: it is the node that is to be
    looked at; *abandoned* when more than 1 % expired though the others ended in good time: a worker stopped or a
    handler hung, and with a longer lease the job would only wait longer; *shorter* when the 99.9th percentile of
    holding is below a twentieth of the lease (a dead worker's jobs wait needlessly long); else *keep*. The suggestion
    is three times the 99th percentile, at least a second, and for *longer* at least one and a half of the lease.

    Args:
        attempts: the table of silver with a row for each attempt.

    Returns:
        project, queue, node (null: all nodes of the queue), nodes (how many), n, lease (median of what the claims
        granted, seconds), p99, p999 (of the seconds held, expired attempts left out), near, expired, extended (attempts
        of which the lease was extended), advice, suggested (seconds).
    """
    ended = attempts.where(
        f.col("outcome").isin("completed", "failed", "released", "expired") & ~f.col("unstarted") & (f.col("lease") > 0)
    )
    expired = f.col("outcome") == "expired"
    near = ~expired & (f.col("extensions") == 0) & (f.col("held") > f.col("lease") * NEAR)
    place = [f.col(name) for name in ("project", "queue", "node")]
    grouped = (
        ended.groupingSets([place, place[:2]], *place)
        .agg(
            (f.grouping("node") == 1).alias("whole"),
            f.count_distinct("node").alias("nodes"),
            f.count("seq").alias("n"),
            f.percentile_approx("lease", 0.5, 10_000).alias("lease"),
            f.percentile_approx(f.when(~expired, f.col("held")), [0.99, 0.999], 10_000).alias("points"),
            f.count(f.when(near, 1)).alias("near"),
            f.count(f.when(expired, 1)).alias("expired"),
            f.count_distinct(f.when(expired, f.col("node"))).alias("expired_nodes"),
            f.count(f.when(f.col("extensions") > 0, 1)).alias("extended"),
        )
        .where(f.col("whole") | f.col("node").isNotNull())
        .withColumn("p99", f.col("points")[0])
        .withColumn("p999", f.col("points")[1])
    )
    advice = (
        f.when(f.col("near") > f.col("n") * SHARE, "longer")
        .when(f.col("whole") & (f.col("expired_nodes") == 1) & (f.col("nodes") > 1), "node")
        .when(f.col("expired") > f.col("n") * SHARE, "abandoned")
        .when(f.col("p999") < f.col("lease") / 20, "shorter")
        .otherwise("keep")
    )
    most = f.coalesce(f.col("p99") * 3, f.lit(0.0))
    suggested = (
        f.when(advice == "longer", f.greatest(most, f.col("lease") * 1.5, f.lit(1.0)))
        .when(advice == "shorter", f.greatest(most, f.lit(1.0)))
        .otherwise(f.col("lease"))
    )
    return grouped.select(
        *("project", "queue", "node", "nodes", "n", "lease", "p99", "p999", "near", "expired", "extended"),
        advice.alias("advice"),
        suggested.alias("suggested"),
    )
