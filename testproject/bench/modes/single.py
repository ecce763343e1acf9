"""Django tasks enqueued one at a time into empty tables: no plan that was made on an empty table may grow dear."""

from __future__ import annotations

import json
from itertools import pairwise

from .. import children
from ..bench import Bench
from ..children import Child
from ..figures import Figure, Target
from ..producer import Mark

SUMMARY = "20,000 calls of a Django task, one at a time, into empty tables; level, and beside a bare INSERT"

_LABEL = "INSERT of one row, durable"


def run(bench: Bench) -> None:
    """Add the figures. Each producer is a new process on a new connection, and begins with tables that hold nothing."""
    jobs, using = bench.options.size, bench.options.using
    ours: list[list[Mark]] = []
    beside: list[list[Mark]] = []
    for round_ in range(1, bench.options.rounds + 1):
        bench.progress.step(f"{bench.mode}: {jobs:,} tasks, round {round_} of {bench.options.rounds}")
        bench.vacuum()
        ours.append(_marks(bench, children.producer(using, bench.queue(), jobs), jobs))
        bench.vacuum()
        beside.append(_marks(bench, children.bare_producer(using, jobs), jobs))
    name = f"a task at a time, {jobs:,} into empty tables"
    rates, bare_rates = ([_rate(jobs, marks) for marks in side] for side in (ours, beside))
    bench.add(Figure(bench.mode, name, "jobs/s", rates, bare_rates, _LABEL, Target("ratio", at_least=0.6)))
    bench.add(
        Figure(
            bench.mode,
            f"{name}, last fifth",
            "jobs/s",
            [_rate(jobs / 5, marks[-2:]) for marks in ours],
            [_rate(jobs / 5, marks[:2]) for marks in ours],
            "the first fifth",
            Target("ratio", at_least=0.95),
            details={"fifths": [round(_rate(jobs / 5, pair)) for pair in pairwise(ours[-1])]},
        )
    )
    costs, bare_costs = ([_cpu_us(jobs, marks) for marks in side] for side in (ours, beside))
    if None not in costs and None not in bare_costs:
        bench.add(
            Figure(
                bench.mode,
                f"{name}, CPU of PostgreSQL",
                "us",
                [cost for cost in costs if cost is not None],
                [cost for cost in bare_costs if cost is not None],
                _LABEL,
                Target("ratio", at_most=2),
            )
        )


def _marks(bench: Bench, producer: Child, jobs: int) -> list[Mark]:
    with producer:
        found = json.loads(producer.wait(bench.patience(jobs * 10)))
    return [(at, cpu) for at, cpu in found]


def _rate(jobs: float, marks: list[Mark] | tuple[Mark, ...]) -> float:
    return jobs / max(marks[-1][0] - marks[0][0], 1e-9)


def _cpu_us(jobs: int, marks: list[Mark]) -> float | None:
    first, last = marks[0][1], marks[-1][1]
    return None if first is None or last is None else (last - first) / jobs * 1e6
