"""``python -m tests.spark.report_time``: what the report of a week of 5 million events costs, for both formats.

Gold has a row for each queue, task and hour, however many events there were: it is made here as large as the pipeline
makes it of ``leasequeue_bench --events 5000000``, without Spark. Each run is a process of its own, as a user starts it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import psutil

from django_leasequeue.spark.layout import FORMATS
from testproject.bench.events import NODES, QUEUES
from tests.spark import gold

BASE = Path(__file__).resolve().parents[2]
NEWEST = datetime(2030, 3, 14, 12, tzinfo=UTC)
HOURS = [NEWEST - timedelta(hours=number) for number in range(168)]
WORKFLOWS, STEPS = 2_000, 5
MEASURES = ("wait", "run", "total")


def week(dice: random.Random) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all tables: names and times as they are, figures by chance."""
    names = [{"project": "", "queue": queue, "task": task} for queue, (task, _) in QUEUES.items()]
    keys: dict[str, list[dict[str, Any]]] = {
        **{name: _each(names, hour=HOURS) for name in ("throughput", "backlog", "in_flight", "use")},
        **{name: _each(names, hour=HOURS, measure=MEASURES) for name in ("latency", "queue_latency")},
        **{name: _each(names, hour_of_week=range(168)) for name in ("capacity", "forecast")},
        "daily": _each(names, measure=MEASURES, day=[date(2030, 3, 8 + number) for number in range(7)]),
        **{name: _each(names, measure=MEASURES) for name in ("weeks", "changes")},
        "nodes": _each([{}], node=NODES, verdict=["well"]),
        "poison": _each(names, fingerprint=["f1", "f2", "lease_expired"]),
        "leases": _each(names, node=[None, *NODES], advice=["keep"]),
        "span": [{"newest_at": NEWEST}],
        "quality": [{"check": f"check {number}", "violations": 0} for number in range(8)],
        "workflows": _each(names[:1], workflow=[f"w{number}" for number in range(WORKFLOWS)]),
        "critical_paths": _each(
            names[:1], workflow=[f"w{number}" for number in range(WORKFLOWS)], step=range(1, STEPS + 1)
        ),
        **dict.fromkeys(("objectives", "time_split", "recoveries"), names),
        "retry_cost": _each(names, outcome=["failed", "expired"]),
        "tenants": _each(names, tag=["tenant"], tenant=[f"t{number}" for number in range(20)]),
    }
    return {name: [_filled(dice, name, row) for row in rows] for name, rows in keys.items()}


def _each(names: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return [{**name, **dict(zip(more, values, strict=True))} for name in names for values in product(*more.values())]


def _filled(dice: random.Random, name: str, key: dict[str, Any]) -> dict[str, Any]:
    made = {
        "string": lambda: "app.Error", "timestamp": lambda: NEWEST - timedelta(hours=dice.randrange(168)),
        "date": NEWEST.date, "double": lambda: dice.uniform(0.1, 9), "boolean": lambda: False,
        "binary": lambda: dice.randbytes(2_000), "array<string>": lambda: list(NODES[:2]),
    }  # fmt: skip
    columns = gold.columns(name).items()
    return {column: key[column] if column in key else made.get(kind, lambda: 5)() for column, kind in columns}


def measured(command: list[str]) -> tuple[float, float]:
    """Run a command; return the seconds of CPU that it took, and those that passed."""
    begin = time.monotonic()
    process = psutil.Popen(command, cwd=BASE, stdout=subprocess.DEVNULL)
    # The kernel's figures outlive the process until it is waited for.
    while process.status() != psutil.STATUS_ZOMBIE:
        times = process.cpu_times()
        time.sleep(0.01)
    took = time.monotonic() - begin
    if code := process.wait():
        raise RuntimeError(f"{' '.join(command)} ended with {code}")
    return times.user + times.system, took


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.report_time", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each format; the median counts (default 5)")
    runs = parser.parse_args().runs
    rows = week(random.Random(1))
    for format in FORMATS:
        with tempfile.TemporaryDirectory() as root:
            gold.write_week(Path(root), rows, format)
            words = ["leasequeue_lake", "report", "--lake", root, "--output", f"{root}/report"]
            found = [measured([sys.executable, "manage.py", *words]) for _ in range(runs)]
        cpu, passed = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{format}: {cpu:.2f} s of CPU, {passed:.2f} s by the clock (median of {runs})", flush=True)


if __name__ == "__main__":
    main()
