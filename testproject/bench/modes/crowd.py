"""Four worker processes beside a long transaction: the floors must move although each sees only its own claims."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple

from django_leasequeue import engine

from .. import children, stamps
from ..bench import Bench, jobs_of
from ..figures import Figure, Target
from ..options import PROJECT
from .snapshot import TALLY, held_snapshot

SUMMARY = "4 workers and a producer beside a held snapshot, 300,000 jobs: rate and CPU, first and last fifth"

WORKERS = 4
#: Jobs that the producer keeps waiting, and jobs of one call of it.
AHEAD, BATCH = 1_000, 250

_FREE = "the same without a snapshot"


class _Mark(NamedTuple):
    """A moment: monotonic seconds, CPU seconds of PostgreSQL."""

    at: float
    cpu: float | None


def run(bench: Bench) -> None:
    """Add the figures."""
    jobs = bench.options.crowd
    free: list[list[_Mark]] = []
    held: list[list[_Mark]] = []
    for round_ in range(1, bench.options.rounds + 1):
        for kept in (free, held):
            beside = "beside a snapshot" if kept is held else "without one"
            bench.progress.step(f"{bench.mode}: {jobs:,} jobs {beside}, round {round_} of {bench.options.rounds}")
            snapshot: Any = held_snapshot(bench.options.using) if kept is held else nullcontext()
            with snapshot:
                kept.append(_marks(bench, jobs))
            bench.vacuum()
    name = f"{WORKERS} workers beside a snapshot"
    level = Target("ratio", at_least=0.95)
    _add(bench, name, "jobs/s", _rates(jobs, held), _rates(jobs, free), _FREE, level)
    last, first = _rates(jobs / 5, [marks[-2:] for marks in held]), _rates(jobs / 5, [marks[:2] for marks in held])
    _add(bench, f"{name}, last fifth", "jobs/s", last, first, "the first fifth", level)
    most = Target("ratio", at_most=1.2)
    _add(bench, f"{name}, CPU of PostgreSQL for a job", "us", _costs(jobs, held), _costs(jobs, free), _FREE, most)
    last, first = _costs(jobs / 5, [marks[-2:] for marks in held]), _costs(jobs / 5, [marks[:2] for marks in held])
    _add(bench, f"{name}, CPU of PostgreSQL for a job, last fifth", "us", last, first, "the first fifth", None)


def _add(
    bench: Bench, name: str, unit: str, values: list[float], beside: list[float], label: str, target: Target | None
) -> None:
    if values and len(values) == len(beside):
        bench.add(Figure(bench.mode, name, unit, values, beside, label, target))


def _rates(jobs: float, rounds: Sequence[Sequence[_Mark]]) -> list[float]:
    return [jobs / max(marks[-1].at - marks[0].at, 1e-9) for marks in rounds]


def _costs(jobs: float, rounds: Sequence[Sequence[_Mark]]) -> list[float]:
    ends = [(marks[0].cpu, marks[-1].cpu) for marks in rounds]
    return [(last - first) / jobs * 1e6 for first, last in ends if first is not None and last is not None]


def _marks(bench: Bench, jobs: int) -> list[_Mark]:
    """Let the workers do the jobs that a producer keeps a little ahead of them; a twentieth as many go before.

    Returns:
        The moments at which none, one, two, ... five fifths were done.
    """
    queue = bench.queue()
    started = max(jobs // 20, WORKERS)
    with ExitStack() as stack:
        counters = [stack.enter_context(stamps.Stamps()) for _ in range(WORKERS)]
        workers = [
            stack.enter_context(children.worker(bench.options.using, queue, environment=counter.environment))
            for counter in counters
        ]
        produced = base = 0
        marks: list[_Mark] = []
        deadline = time.monotonic() + bench.patience(jobs)
        while len(marks) < 6:
            done = sum(counter.count for counter in counters)
            if produced - done < AHEAD:
                batch = [job._replace(name=TALLY) for job in jobs_of(BATCH)]
                bench.executor.run(engine.enqueue(queue, batch, project=PROJECT, create=False, fresh=True))
                produced += len(batch)
            else:
                time.sleep(0.001)
            if not marks and done >= started and all(counter.count for counter in counters):
                base = done
                marks.append(_mark(bench))
            elif marks and done >= base + len(marks) * jobs / 5:
                marks.append(_mark(bench))
            for worker in workers:
                worker.check()
            if time.monotonic() > deadline:
                raise children.ChildFailed(f"The workers have done {done:,} of {produced:,} jobs; they are given up.")
    return marks


def _mark(bench: Bench) -> _Mark:
    return _Mark(time.monotonic(), bench.meter.server_cpu())
