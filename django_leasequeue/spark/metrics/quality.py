"""Checks of silver: what must hold of every history, and how often it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def quality(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return one row per check.

    Args:
        attempts: the table of silver with a row for each attempt.
        jobs: the table of silver with a row for each job.

    Returns:
        check, rows (that were looked at), violations.
    """
    ended = f.col("ended_at")
    found = [
        _counted(
            jobs,
            {
                "a job has one row": f.count("seq") - f.count_distinct("seq"),
                "a job ends after it was enqueued": _count(ended < f.col("enqueued_at")),
                "a job that is over has an end": _count((f.col("state") == "open") != ended.isNull()),
                "a completed job was claimed": _count((f.col("state") == "completed") & (f.col("deliveries") == 0)),
            },
        ),
        _counted(
            attempts,
            {
                "an attempt has one row": f.count("seq") - f.count_distinct("seq", "attempt"),
                "an attempt ends after its claim": _count(ended < f.col("claimed_at")),
                "an attempt is claimed after its job was enqueued": _count(f.col("claimed_at") < f.col("enqueued_at")),
                "an attempt has a node": _count(f.col("node").isNull()),
                "a handler runs no longer than its lease is held": _count(f.col("ran") > f.col("held") + 1),
            },
        ),
    ]
    return found[0].unionByName(found[1])


def _count(violation: Column) -> Column:
    return f.count(f.when(violation, 1))


def _counted(rows: DataFrame, checks: dict[str, Column]) -> DataFrame:
    """Return a row for each check, of one pass over the rows."""
    counts = rows.agg(f.count("seq").alias("rows"), *[count.alias(name) for name, count in checks.items()])
    each = f.explode(
        f.array(*[f.struct(f.lit(name).alias("check"), f.col(name).alias("violations")) for name in checks])
    )
    return counts.select("rows", each.alias("each")).select("each.check", "rows", "each.violations")
