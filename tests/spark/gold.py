"""Tables of gold as files, without Spark: their columns, and rows in any order, in several files of either format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from django_leasequeue.spark.arrow import ARROW

_PLACE, _TASK = "project string, queue string", "project string, queue string, task string"
_TIMES = "n bigint, p50 double, p95 double, p99 double, highest double"
_LEVEL = f"{_PLACE}, hour timestamp, came bigint, went bigint, level bigint"
_WEEK = f"{_PLACE}, hour_of_week int"
#: The columns of each table; a test of the pipeline compares them with those of its tables.
GOLD = {
    "latency": f"{_TASK}, hour timestamp, measure string, {_TIMES}",
    "queue_latency": f"{_PLACE}, hour timestamp, measure string, {_TIMES}",
    "daily": f"{_PLACE}, measure string, day date, {_TIMES}, sketch binary",
    "weeks": (
        f"{_PLACE}, measure string, this_n bigint, this_p50 double, this_p99 double, last_n bigint, last_p50 double,"
        " last_p99 double"
    ),
    "throughput": (
        f"{_TASK}, hour timestamp, enqueued bigint, claimed bigint, completed bigint, failed bigint,"
        " redelivered bigint, failure_rate double, redelivery_rate double"
    ),
    "backlog": _LEVEL,
    "in_flight": _LEVEL,
    "use": f"{_PLACE}, hour timestamp, nodes bigint, busy double, most bigint",
    "nodes": (
        "node string, n bigint, unsuccessful bigint, expired bigint, compared bigint, rate double, others_rate double,"
        " sigmas double, speed double, first_at timestamp, last_at timestamp, verdict string, ill_since timestamp,"
        " ill_until timestamp"
    ),
    "poison": (
        f"{_TASK}, fingerprint string, error_type string, failures bigint, jobs bigint, nodes bigint,"
        " node_names array<string>, first_at timestamp, last_at timestamp, dead bigint, one_node boolean"
    ),
    "leases": (
        f"{_PLACE}, node string, nodes bigint, n bigint, lease double, p99 double, p999 double, near bigint,"
        " expired bigint, extended bigint, advice string, suggested double"
    ),
    "capacity": (
        f"{_WEEK}, weeks bigint, arrivals double, peak bigint, run double, per_job double, load double, trend double"
    ),
    "forecast": (
        f"{_WEEK}, expected double, trend double, run double, per_job double, workers int, wanted_wait double"
    ),
    "span": "first_at timestamp, newest_at timestamp, jobs bigint, attempts bigint",
    "quality": "check string, rows bigint, violations bigint",
    "workflows": (
        "project string, workflow string, name string, state string, started_at timestamp, ended_at timestamp,"
        " elapsed double, nodes int, completed int, failed int, cancelled int, steps int, waited double,"
        " queued double, ran double, wait_share double"
    ),
    "critical_paths": (
        "project string, workflow string, name string, step int, seq bigint, queue string, task string, label string,"
        " deliveries int, since timestamp, claimed_at timestamp, ended_at timestamp, waited double, queued double,"
        " ran double, rank int"
    ),
    "objectives": f"{_PLACE}, wanted_wait double, n bigint, in_time bigint, share double, budget_left double",
    "retry_cost": f"{_TASK}, outcome string, error_type string, n bigint, seconds double, share double",
    "tenants": (
        f"tag string, tenant string, {_PLACE}, jobs bigint, completed bigint, failed bigint, seconds double,"
        " waited double, share double"
    ),
    "time_split": (f"{_PLACE}, n bigint, total double, delay double, ready double, retry_wait double, run double"),
    "recoveries": f"{_PLACE}, began timestamp, highest bigint, ended timestamp, seconds bigint",
    "changes": f"{_PLACE}, measure string, day date, before double, after double, ratio double, errors double",
}
_ALSO = {
    "double": pa.float64(), "date": pa.date32(), "boolean": pa.bool_(), "array<string>": pa.list_(pa.string()),
}  # fmt: skip


def columns(name: str) -> dict[str, str]:
    """Return the columns of a table with Spark's words for their types."""
    return dict(column.split(" ", 1) for column in GOLD[name].split(", "))


def made(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    schema = pa.schema([(column, {**ARROW, **_ALSO}[kind]) for column, kind in columns(name).items()])
    return pa.Table.from_pylist([dict(row) for row in rows], schema)


def write(root: Path, name: str, parts: Sequence[Sequence[Mapping[str, Any]]], format: str) -> None:
    """Write a table of gold as so many files, in this order."""
    path = root / "gold" / name
    for number, rows in enumerate(parts):
        table = made(name, rows)
        if format == "delta":
            from deltalake import write_deltalake

            write_deltalake(str(path), table, mode="append")
        else:
            path.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, path / f"part-{number:05}.parquet")


def write_week(root: Path, week: Mapping[str, Sequence[Mapping[str, Any]]], format: str) -> None:
    """Write all tables of gold, those that the week does not name without rows; each in two files."""
    for name in GOLD:
        rows = week.get(name, [])
        write(root, name, [rows[len(rows) // 2 :], rows[: len(rows) // 2]], format)
