"""Critical paths of workflows: the chain of jobs, one after the other, that took as long as the workflow did.

The job that ended last stands at its end. Before each job stands that parent which ended last and so set it free. No
other chain took longer, and a shorter job elsewhere would not have made the workflow shorter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ..arrow import ddl_schema

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
