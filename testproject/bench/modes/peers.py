"""Jobs of five durable steps with DBOS and django-absurd, on the same server, from environments of their own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from psycopg import sql

from django_leasequeue.engine import pool

from ..bench import Bench
from ..children import ChildFailed
from ..drains import drain
from ..figures import Figure, Target
from .durable import fill_steps

SUMMARY = "jobs of 5 steps beside DBOS and django-absurd; needs a Python that has them (LEASEQUEUE_BENCH_PEERS)"
ON_REQUEST = True

PYTHON = "LEASEQUEUE_BENCH_PEERS"
PEERS = {"dbos": "DBOS", "absurd": "django-absurd"}
#: Of each worker: what ours has by default.
THREADS = 8
_DRIVERS = Path(__file__).resolve().parents[1] / "peers"


def run(bench: Bench) -> None:
    """Add the figures."""
    python = os.environ.get(PYTHON)
    if not python:
        raise ChildFailed(
            f"{PYTHON} names no Python that has the peers: python3.12 -m venv peers; peers/bin/pip install dbos"
            f" django-absurd 'psycopg[binary]'; {PYTHON}=peers/bin/python manage.py leasequeue_bench --modes peers"
        )
    jobs = max(100, bench.options.size // 10)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for round_ in range(1, bench.options.rounds + 1):
        bench.progress.step(f"{bench.mode}: {jobs:,} jobs, round {round_} of {bench.options.rounds}")
        queue = bench.queue()
        fill_steps(bench, queue, jobs, "five_steps")
        ours.append(
            drain(bench, jobs, arguments=["--burst", "--concurrency", str(THREADS)], fill=False, queue=queue).rate
        )
        for peer, found in theirs.items():
            found.append(_rate(bench, python, peer, jobs))
    for peer, found in theirs.items():
        name = f"jobs of 5 steps, start-up included, {PEERS[peer]}"
        bench.add(Figure(bench.mode, name, "jobs/s", ours, found, PEERS[peer], Target("ratio", at_least=1)))


def _rate(bench: Bench, python: str, peer: str, jobs: int) -> float:
    """Run a driver on a database of its own."""
    parts: dict[str, Any] = pool.connection_parameters(bench.options.using)
    parts = {name: parts[name] for name in ("host", "port", "user", "password", "dbname") if parts.get(name)}
    parts["dbname"] = f"{parts['dbname']}_bench_peer"
    database = sql.Identifier(parts["dbname"])
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(database)
    bench.plain.execute(drop)
    bench.plain.execute(sql.SQL("CREATE DATABASE {}").format(database))
    try:
        done = subprocess.run(
            [python, str(_DRIVERS / f"{peer}_driver.py"), json.dumps(parts), str(jobs), str(THREADS)],
            # Nothing of this Python is for that one.
            env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO_"))},
            capture_output=True, text=True, check=False, timeout=bench.patience(jobs * 10),
        )  # fmt: skip
    finally:
        bench.plain.execute(drop)
    if done.returncode:
        raise ChildFailed(f"The driver of {PEERS[peer]} failed:\n{done.stderr[-2_000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["done"] < jobs:
        raise ChildFailed(f"{PEERS[peer]} has done {found['done']:,} of {jobs:,} jobs.")
    return float(jobs / found["seconds"])
