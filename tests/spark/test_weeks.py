"""Two made-up weeks from their events to the list of things to do: a bad one, and one in which all is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from django_leasequeue.spark import advice, bronze, pipeline, report
from django_leasequeue.spark.advice import Links
from django_leasequeue.spark.layout import FORMATS, TABLES, Lake
from tests.spark.helpers import SCHEMA, History, at

# All figures of a week, twice: several times the price of any other test here.
pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(1_800)]

HOUR, DAY = 3_600, 86_400
#: The newest event.
END = 7 * DAY


def served(history: History, came: list[float], slots: int, seconds: float, nodes: str) -> None:
    """Let nodes with so many slots in all serve jobs that came at these times, first come, first served."""
    free = [0.0] * slots
    for number, begin in enumerate(came):
        slot = min(range(slots), key=free.__getitem__)
        claimed = max(begin + 0.1, free[slot])
        free[slot] = claimed + seconds
        history.job(begin, (nodes[number % len(nodes)], claimed, free[slot], "acked"))


def week(bad: bool) -> History:
    history = History()

    def queue(name: str, lease: float = 300) -> None:
        history.queue, history.lease = name, lease

    queue("healthy")
    served(history, [1_000.0 * n for n in range(600)], 2, 2, "ab")
    # One task fails with each of its arguments; in the other week the second try helps.
    queue("poison")
    for number in range(30):
        begin = END - DAY + 60 * number
        last = "dead_lettered" if bad else "acked"
        history.job(begin, ("a", begin + 1, begin + 2, "released"), ("b", begin + 3, begin + 4, last))
    # 400 jobs come in one hour: with two slots the last of them wait for hours.
    queue("short")
    served(history, [5 * DAY + 9 * n for n in range(400)], 2 if bad else 20, 60, "ab")
    # A node fails every second job of the last day.
    queue("mixed")
    for number in range(300):
        begin = END - DAY + 280 * number
        node = "wxyz"[number % 4]
        ill = bad and node == "z" and number % 8 == 3
        tries = [(node, begin + 1, begin + 3, "released" if ill else "acked")]
        history.job(begin, *tries, *([("w", begin + 10, begin + 12, "acked")] if ill else []))
    # Claims that nobody ends, on every node.
    queue("abandoned", 60)
    for number in range(800):
        begin, node = 6 * DAY + 20 * number, "cd"[number % 2]
        gone = number % (20 if bad else 100) < 2
        tries = [(node, begin + 1, begin + (61 if gone else 11), "expired" if gone else "acked")]
        history.job(begin, *tries, *([(node, begin + 62, begin + 72, "acked")] if gone else []))
    # Leases that are too short for one job of ten.
    queue("tight", 30)
    for number in range(400):
        begin = 4 * DAY + 60 * number
        history.job(begin, ("e", begin + 1, begin + (29 if bad and number % 10 == 0 else 6), "acked"))
    # Many jobs of the last hours wait.
    queue("late")
    served(history, [DAY * 6 + 3_000.0 * n for n in range(20)], 1, 60, "a")
    for number in range(400 if bad else 40):
        history.job(END - 2 * HOUR + number)
    return history


@pytest.mark.parametrize("bad", [True, False], ids=["bad", "well"])
def test_what_a_week_asks_for(spark: SparkSession, tmp_path: Path, monkeypatch: Any, bad: bool) -> None:
    history = week(bad)
    events = spark.createDataFrame(history.rows, SCHEMA).withColumn("queue_id", f.lit(1))
    monkeypatch.setattr(bronze, "read_or_none", lambda lake: bronze.with_days(events))
    made = Lake(spark, str(tmp_path / "made"), "parquet")
    pipeline.refine(made)
    pipeline.figure(made)
    told = {}
    for format in FORMATS:
        if format == "delta":
            deltalake = pytest.importorskip("deltalake")
        for name in TABLES:
            path, parts = str(tmp_path / format / "gold" / name), made.read(made.gold(name)).repartition(3)
            if format == "delta":
                for part in parts.toArrow().to_batches(max_chunksize=40) or [parts.toArrow()]:
                    deltalake.write_deltalake(path, part, mode="append")
            else:
                parts.write.parquet(path)
        gold, _ = report.in_directory(tmp_path / format)
        rows = {name: report._in_order(name, table).to_pylist() for name, table in gold.items()}
        found = advice.actions({**rows, "run": [{"at": at(END)}]}, at(END), Links())
        told[format] = [(each.what.split(" (")[0], each.command) for each in found]
    assert told["delta"] == told["parquet"]
    assert sorted(told["parquet"]) == ([] if not bad else [
        ("Find out which workers of abandoned stop or hang", "manage.py leasequeue_status"),
        ("Give late more workers", "manage.py runworker --queues late"),
        (
            "Lengthen the leases of tight from 30 seconds to 84 seconds",
            "manage.py leasequeue_queues set tight lease_ms=84000",
        ),
        (
            "Mend t of poison, then redrive 30 dead jobs",
            "manage.py leasequeue_dlq retry --queue poison --fingerprint boom",
        ),
        ("Plan at least 14 concurrent jobs for short", "manage.py runworker --queues short --concurrency 14"),
        ("Stop z", "manage.py leasequeue_status"),
    ])  # fmt: skip
