"""How long things take: jobs and leases by hour and day, and workflows by their critical paths.

A critical path is the chain of jobs, one after the other, that took as long as the workflow did. The job that ended
last stands at its end. Before each job stands that parent which ended last and so set it free. No other chain took
longer, and a shorter job elsewhere would not have made the workflow shorter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from ..arrow import ddl_schema
from .rates import hour_of

PERCENTILES = (0.5, 0.95, 0.99)
#: Size of a day's sketch (``k`` of a KLL sketch): a percentile of it is off by less than half a percent of the rank.
SKETCH = 800
_POINTS = [f"points[{place}] AS {name}" for place, name in enumerate(("p50", "p95", "p99"))]


def latencies(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return percentiles by hour, of tasks and of queues, with sketches that :func:`percentiles` adds up.

    Of waiting and running by the hour of the claim, end to end by the hour of the end. Percentiles are values that
    occurred, accurate to one in 10,000 by rank.

    Returns:
        of (``task`` or ``queue``), project, queue, task (null for a queue), hour, measure (wait, run, total), n, p50,
        p95, p99, highest (seconds), sketch.
    """
    by = ("project", "queue", "task")

    def measured(rows: DataFrame, at: str, **measures: str) -> DataFrame:
        pairs = [f.struct(f.lit(word).alias("measure"), f.col(name).alias("value")) for word, name in measures.items()]
        return rows.select(*by, hour_of(at), f.inline(f.array(*pairs)))

    started = measured(attempts.where(~f.col("unstarted")), "claimed_at", wait="waited", run="ran")
    ended = measured(jobs.where(f.col("state") == "completed"), "ended_at", total="total")
    keys = (*by, "hour", "measure")
    sets = [[f.col(name) for name in names] for names in (keys, ("project", "queue", "hour", "measure"))]
    grouped = started.unionByName(ended).where(f.col("value").isNotNull()).groupingSets(sets, *keys)
    figures = grouped.agg(
        f.when(f.grouping("task") == 1, "queue").otherwise("task").alias("of"),
        *(f.count("value").alias("n"), f.max("value").alias("highest")),
        f.percentile_approx("value", list(PERCENTILES), 10_000).alias("points"),
        f.kll_sketch_agg_double("value", SKETCH).alias("sketch"),
    )
    return figures.selectExpr("of", *by, "hour", "measure", "n", *_POINTS, "highest", "sketch")


def daily(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return percentiles by queue and day (UTC), with sketches that can be added up to those of any longer time.

    Percentiles of days cannot be averaged, their sketches can be merged: see :func:`percentiles`.

    Returns:
        project, queue, measure (wait, run, total), day, n, p50, p95, p99, highest (seconds), sketch.
    """
    hours = latencies(attempts, jobs).where("of = 'queue'").withColumn("day", f.col("hour").cast("date"))
    return percentiles(hours, "project", "queue", "measure", "day")


def percentiles(sketches: DataFrame, *by: str) -> DataFrame:
    """Return the percentiles of several sketches together, of rows of :func:`daily` or of this function.

    ``by`` are the columns to group by, ``measure`` among them.

    Returns:
        the columns of ``by``, n, p50, p95, p99, highest (seconds), sketch.
    """
    points = f.kll_sketch_get_quantile_double("sketch", f.array(*map(f.lit, PERCENTILES)))
    sketch = f.kll_merge_agg_double("sketch", SKETCH).alias("sketch")
    merged = sketches.groupBy(*by).agg(sketch, f.max("highest").alias("highest")).withColumn("points", points)
    n = f.kll_sketch_get_n_double("sketch").alias("n")
    return merged.select(*by, n, *map(f.expr, _POINTS), "highest", "sketch")


def weeks(days: DataFrame, newest: datetime | None = None) -> DataFrame:
    """Return the newest seven days of the lake (UTC, the last one as far as it goes) against the seven before.

    The last day is that of ``newest``, the newest event that was read; without it the latest of ``days``.

    Returns:
        project, queue, measure, this_n, this_p50, this_p99, last_n, last_p50, last_p99 (null where a week has nothing).
    """
    last = days.agg((f.max("day") if newest is None else f.lit(newest).cast("date")).alias("newest"))
    age = f.floor(f.datediff("newest", "day") / 7)
    near = days.crossJoin(f.broadcast(last)).withColumn("week", age).where("week < 2")
    figures = percentiles(near, "project", "queue", "measure", "week")
    told = [
        f.max(f.when(f.col("week") == week, f.col(name))).alias(f"{word}_{name}")
        for week, word in enumerate(("this", "last"))
        for name in ("n", "p50", "p99")
    ]
    return figures.groupBy("project", "queue", "measure").agg(*told)


#: Share of the lease from which an attempt counts as near its end, and that of such attempts that asks for more.
NEAR, SHARE = 0.8, 0.01


def lease_advice(attempts: DataFrame) -> DataFrame:
    """Return how long leases are held, against what was granted: a row for each queue, and for each node on it.

    Returns:
        project, queue, node (null: all nodes of the queue), nodes (how many), n, lease (median of what the claims
        granted, seconds), p99, p999 (of the seconds held, expired attempts left out), near, expired, extended (attempts
        of which the lease was extended), advice (longer, node, abandoned, shorter, keep), suggested (seconds).
    """
    ended = attempts.where(
        f.col("outcome").isin("completed", "failed", "released", "expired") & ~f.col("unstarted") & (f.col("lease") > 0)
    )
    expired = f.col("outcome") == "expired"
    near = ~expired & (f.col("extensions") == 0) & (f.col("held") > f.col("lease") * NEAR)
    place = [f.col(name) for name in ("project", "queue", "node")]

    def nodes(which: Column) -> Column:
        # They are few: a distinct count would take each row three times.
        return f.size(f.collect_set(which)).cast("bigint")

    grouped = (
        ended.groupingSets([place, place[:2]], *place)
        .agg(
            (f.grouping("node") == 1).alias("whole"),
            nodes(f.col("node")).alias("nodes"),
            f.count("seq").alias("n"),
            f.percentile_approx("lease", 0.5, 10_000).alias("lease"),
            f.percentile_approx(f.when(~expired, f.col("held")), [0.99, 0.999], 10_000).alias("points"),
            f.count_if(near).alias("near"),
            f.count_if(expired).alias("expired"),
            nodes(f.when(expired, f.col("node"))).alias("expired_nodes"),
            f.count_if(f.col("extensions") > 0).alias("extended"),
        )
        .where(f.col("whole") | f.col("node").isNotNull())
        .selectExpr("*", "points[0] AS p99", "points[1] AS p999")
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


_STEP = (
    "seq bigint, queue string, task string, label string, deliveries int, since bigint, claimed bigint, ended bigint,"
    " waited double, queued double, ran double"
)
_WORKFLOW = (
    "project string, workflow string, name string, state string, started bigint, ended bigint, nodes int,"
    " completed int, failed int, cancelled int, waited double, queued double, ran double"
)
#: What a node is in its workflow once it is over without having completed.
_BROKEN = {"failed": "failed", "dead": "failed", "cancelled": "cancelled", "redriven": "cancelled"}


def workflow_paths(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return one row per workflow with the steps of its critical path, for :func:`workflows` and `critical_paths`."""
    nodes = jobs.where(f.col("workflow").isNotNull())
    ran = f.when(~f.col("unstarted"), f.coalesce("ran", "held"))
    mine = attempts.join(nodes.select("seq"), "seq", "left_semi").groupBy("seq")
    tried = mine.agg(f.sum(ran).alias("ran"), f.sum("waited").alias("queued"))
    told = nodes.join(tried, "seq", "left").select(
        *("project", "workflow", "workflow_name", "seq", "queue", "task", "label", "parents", "tolerant", "state"),
        *("deliveries", "ran", "queued"),
        *(f.unix_micros("enqueued_at").alias("enqueued"), f.unix_micros("first_claimed_at").alias("claimed")),
        f.unix_micros("ended_at").alias("ended"),
    )
    steps = ", ".join(column.replace(" ", ": ") for column in _STEP.split(", "))
    return told.groupBy("workflow").applyInArrow(_of_one, f"{_WORKFLOW}, steps array<struct<{steps}>>")


def workflows(paths: DataFrame) -> DataFrame:
    """Return one row per workflow.

    Returns:
        project, workflow (its id), name, state (running, completed, failed, cancelled), started_at, ended_at (null
        while it runs), elapsed (seconds), nodes, completed, failed, cancelled, steps (of its critical path), and of
        that path together, in seconds: waited, queued, ran; wait_share (``waited`` of ``waited`` and ``ran``).
    """
    return paths.select(
        *("project", "workflow", "name", "state"),
        *[f.timestamp_micros(name).alias(f"{name}_at") for name in ("started", "ended")],
        ((f.col("ended") - f.col("started")) / f.lit(1e6)).alias("elapsed"),
        *("nodes", "completed", "failed", "cancelled"),
        f.size("steps").alias("steps"),
        *("waited", "queued", "ran"),
        f.try_divide("waited", f.col("waited") + f.col("ran")).alias("wait_share"),
    )


def critical_paths(paths: DataFrame) -> DataFrame:
    """Return one row per step of each workflow's critical path.

    Returns:
        project, workflow, name, step (from 1), seq, queue, task, label, deliveries, since (when it could start),
        claimed_at (first), ended_at, waited, queued (that part of ``waited`` in which it was ready), ran (seconds),
        rank (1: the step that took longest).
    """
    slowest = Window.partitionBy("workflow").orderBy(f.col("at.since") - f.col("at.ended"), "place")
    return paths.select("project", "workflow", "name", f.posexplode("steps").alias("place", "at")).select(
        *("project", "workflow", "name"),
        (f.col("place") + 1).alias("step"),
        *[f"at.{name}" for name in ("seq", "queue", "task", "label", "deliveries")],
        f.timestamp_micros("at.since").alias("since"),
        f.timestamp_micros("at.claimed").alias("claimed_at"),
        f.timestamp_micros("at.ended").alias("ended_at"),
        *[f"at.{name}" for name in ("waited", "queued", "ran")],
        f.row_number().over(slowest).alias("rank"),
    )


def _of_one(nodes: pa.Table) -> pa.Table:
    """The row of one workflow, of those of its nodes. Runs in Spark's Python processes."""
    rows = nodes.to_pylist()
    steps = _path({row["seq"]: row for row in rows})
    states = _states(rows)
    broken = next((state for state in ("failed", "cancelled") if states[state]), "completed")
    state = "running" if states["open"] else broken
    ends = [row["ended"] for row in rows if row["ended"] is not None]
    told = {
        **{name: rows[0][name] for name in ("project", "workflow")},
        "name": rows[0]["workflow_name"],
        "state": state,
        "started": min(row["enqueued"] for row in rows),
        "ended": None if state == "running" else max(ends, default=None),
        "nodes": len(rows),
        **{name: states[name] for name in ("completed", "failed", "cancelled")},
        **{name: sum(step[name] for step in steps) for name in ("waited", "queued", "ran")},
        "steps": steps,
    }
    schema = pa.schema([*ddl_schema(_WORKFLOW), pa.field("steps", pa.list_(pa.struct(list(ddl_schema(_STEP)))))])
    return pa.Table.from_pylist([told], schema)


def _path(nodes: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The critical path as far as it has come, from its first step on."""

    def end(row: dict[str, Any]) -> tuple[int, int]:
        return row["ended"], row["seq"]

    ended = [row for row in nodes.values() if row["ended"] is not None]
    row = max((row for row in ended if row["claimed"] is not None), key=end, default=None)
    steps: list[dict[str, Any]] = []
    while row is not None:
        begun = row["ended"] if row["claimed"] is None else row["claimed"]
        parents = (nodes[seq] for seq in row["parents"] if seq in nodes)
        # One that ended later has run again meanwhile.
        over = (each for each in parents if each["ended"] is not None and each["ended"] <= begun)
        before = max(over, key=end, default=None)
        since = max(row["enqueued"], before["ended"] if before else row["enqueued"])
        took = (row["ended"] - since) / 1e6
        ran = min(row["ran"] or 0.0, took)
        queued = min(row["queued"] or 0.0, took - ran)
        steps.append({**row, "since": since, "waited": took - ran, "queued": queued, "ran": ran})
        row = before
    steps.reverse()
    return steps


def _states(rows: list[dict[str, Any]]) -> Counter[str]:
    """How many nodes there are of each state, as the workflow counts them."""
    # What comes after a node that did not complete will not start: cancelled, unless it starts however its parents end.
    children = defaultdict(list)
    for row in rows:
        for parent in row["parents"]:
            children[parent].append(row)
    states = {row["seq"]: _BROKEN.get(row["state"], row["state"]) for row in rows}
    stopped = [seq for seq, state in states.items() if state in _BROKEN]
    while stopped:
        for row in children[stopped.pop()]:
            if states[row["seq"]] == "open" and row["claimed"] is None and not row["tolerant"]:
                states[row["seq"]] = "cancelled"
                stopped.append(row["seq"])
    return Counter(states.values())
