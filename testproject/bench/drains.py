"""Draining a queue with real processes, and the bare table with the bare worker: rates, CPU, memory, WAL."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

from django_leasequeue import engine

from . import children
from .bench import Bench
from .children import Child
from .figures import Sample
from .options import PROJECT

#: Jobs of one claim of the bare worker: what it is fastest with.
BARE_BATCH = 200

#: The steady rate leaves out how the work begins and ends.
_FROM, _TO = 0.1, 0.9
_FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(slots=True)
class Drain:
    """One drain: times are epoch seconds."""

    jobs: int
    #: Just before the processes were started.
    start: float
    #: When these shares of the jobs were done, and all of them.
    at_tenth: float
    at_nine_tenths: float
    end: float
    fifths: list[float]
    cost: Sample
    #: CPU seconds of the workers between the tenth and nine tenths.
    steady_cpu: float | None
    children: list[Child]

    @property
    def rate(self) -> float:
        """Jobs a second, the start of the processes included."""
        return self.jobs / (self.end - self.start)

    @property
    def steady_rate(self) -> float:
        """Jobs a second between the first tenth and nine tenths; the whole rate where that is too short to tell."""
        seconds = self.at_nine_tenths - self.at_tenth
        return self.jobs * (_TO - _FROM) / seconds if seconds > 0.001 else self.rate

    @property
    def worker_cpu_us(self) -> float:
        """CPU microseconds of the workers for one job, while the work is steady."""
        return math.nan if self.steady_cpu is None else self.steady_cpu / (self.jobs * (_TO - _FROM)) * 1e6


def drain(
    bench: Bench, jobs: int, *, processes: int = 1, arguments: Sequence[str] = (), fill: bool = True, queue: str = ""
) -> Drain:
    """Fill a queue and let workers drain it.

    Args:
        bench: the run.
        jobs: how many.
        processes: workers at once.
        arguments: further options of ``runworker``.
        fill: whether to enqueue the jobs; otherwise ``queue`` holds them already.
        queue: the queue to use; a new one by default.
    """
    queue = queue or bench.queue()
    if fill:
        bench.fill(queue, jobs)
    info = bench.executor.run(engine.get(queue, project=PROJECT))
    assert info is not None
    now = bench.server_time()
    with ExitStack() as stack, bench.meter.measure(jobs) as cost:
        workers = [
            stack.enter_context(children.worker(bench.options.using, queue, *(arguments or ["--burst"])))
            for _ in range(processes)
        ]
        for worker in workers:
            worker.wait(bench.patience(jobs))
    shares = [_FROM, _TO, *_FIFTHS]
    row = bench.fetch("drain_times", {"queue": info.id, "since": now, "shares": shares})[0]
    done, end, times = row
    if done < jobs:
        raise children.ChildFailed(f"The workers ended with {done:,} of {jobs:,} jobs done.")
    return Drain(jobs, now.timestamp(), times[0], times[1], end, times[2:], cost, _cpu(workers, *times[:2]), workers)


def bare_drain(bench: Bench, jobs: int, *, processes: int = 1) -> Drain:
    """Fill the bare table and let bare workers drain it."""
    bench.fill_bare(jobs)
    now = bench.server_time()
    with ExitStack() as stack, bench.meter.measure(jobs) as cost:
        workers = [stack.enter_context(children.bare(bench.options.using, str(BARE_BATCH))) for _ in range(processes)]
        printed = [worker.wait(bench.patience(jobs)) for worker in workers]
    done = sorted(_batches(printed))
    total = sum(count for _, count in done)
    if total < jobs:
        raise children.ChildFailed(f"The bare workers ended with {total:,} of {jobs:,} jobs done.")
    times = [_time_of(done, share * total) for share in (_FROM, _TO, *_FIFTHS)]
    return Drain(
        jobs, now.timestamp(), times[0], times[1], done[-1][0], times[2:], cost, _cpu(workers, *times[:2]), workers
    )


def _batches(printed: Sequence[str]) -> list[tuple[float, int]]:
    """(time, jobs of the batch) of all batches of all bare workers."""
    batches = []
    for text in printed:
        times = json.loads(text)
        for (_, before), (at, after) in pairwise(times):
            batches.append((at, after - before))
    return batches


def _time_of(batches: Sequence[tuple[float, int]], wanted: float) -> float:
    done = 0
    for at, count in batches:
        done += count
        if done >= wanted:
            return at
    return batches[-1][0]


def _cpu(workers: Sequence[Child], start: float, end: float) -> float | None:
    used = [worker.cpu_between(start, end) for worker in workers]
    known = [value for value in used if value is not None]
    return sum(known) if len(known) == len(workers) else None
