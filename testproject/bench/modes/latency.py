"""From enqueue to the start of the task, on a worker that has nothing to do; and wake-ups that get lost."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from statistics import quantiles

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.tasks.results import new_end

from .. import bare_worker, children, stamps
from ..bench import Bench
from ..figures import Figure, Target
from ..options import PROJECT

SUMMARY = "from enqueue to the task's start on an idle worker; lost wake-ups"

STAMP = "testproject.bench.tasks.stamp"

#: The worker's own look for jobs, in seconds. A job that waits a tenth of it was not told of.
POLL = 5.0
_LATE = POLL / 10
#: Milliseconds between two tries: long enough for the worker to be idle again, or none, to meet it on its way there.
_IDLE_MS = (20, 40)
_RACE_MS = (0, 3)
#: Tries of one side before the other has its turn.
_TURN = 50


class _Side:
    """Tries on one worker: ours, or the bare one."""

    def __init__(self, send: Callable[[int], None], told: stamps.Stamps) -> None:
        self._send = send
        self._stamps = told
        self._numbers = itertools.count(1)
        self.waits: list[float] = []
        self.late = 0

    def warm_up(self, worker: children.Child) -> None:
        """Wait for the worker's start, and until its ways are warm."""
        for _ in range(20):
            if self._try(POLL * 12) is None:
                worker.check()
                raise children.ChildFailed("The worker does not start jobs.")
        time.sleep(0.2)

    def _try(self, timeout: float) -> float | None:
        number = next(self._numbers)
        start = time.monotonic_ns()
        self._send(number)
        began = self._stamps.wait(number, timeout)
        return None if began is None else (began - start) / 1e6

    def tries(self, count: int, gap_ms: tuple[int, int]) -> None:
        """Enqueue so many jobs, one at a time, and note how long each waited, in ms."""
        for _ in range(count):
            time.sleep(random.uniform(*gap_ms) / 1000)
            waited = self._try(POLL * 4)
            self.waits.append(POLL * 4_000 if waited is None else waited)
            self.late += waited is None or waited > _LATE * 1000


def run(bench: Bench) -> None:
    """Add the figures."""
    queue = bench.queue()
    tries = bench.options.singles
    using = bench.options.using
    with stamps.Stamps() as ours_told, stamps.Stamps() as bare_told:
        ours = _Side(lambda number: _enqueue(bench, queue, number), ours_told)
        bare = _Side(lambda number: _insert(bench, number), bare_told)
        poll = ("--poll", str(POLL))
        with (
            children.worker(using, queue, *poll, environment=ours_told.environment) as worker,
            children.bare(using, "listen", environment=bare_told.environment) as listener,
        ):
            bench.progress.step(f"{bench.mode}: starting workers")
            ours.warm_up(worker)
            bare.warm_up(listener)
            for start in range(0, tries, _TURN):
                bench.progress.step(f"{bench.mode}: idle worker, try {start:,} of {tries:,}")
                ours.tries(min(_TURN, tries - start), _IDLE_MS)
                bare.tries(min(_TURN, tries - start), _IDLE_MS)
            _add_waits(bench, ours.waits, bare.waits)
            bench.progress.step(f"{bench.mode}: {tries:,} tries on a worker that is about to be idle")
            ours.tries(tries, _RACE_MS)
    bench.add(
        Figure(
            bench.mode,
            f"jobs later than {_LATE * 1000:g} ms, of {tries * 2:,}",
            "jobs",
            [ours.late],
            target=Target("value", at_most=0),
            details={"poll_seconds": POLL, "slowest_ms": round(max(ours.waits), 3)},
        )
    )


def _enqueue(bench: Bench, queue: str, number: int) -> None:
    job = NewJob(id_end=new_end(), name=STAMP, data={"args": [number]})
    bench.executor.run(engine.enqueue(queue, [job], project=PROJECT, create=False))


def _insert(bench: Bench, number: int) -> None:
    bench.bare.enqueue_told(NewJob(key=new_end(), name=STAMP, data={"args": [number]}), bare_worker.CHANNEL)


def _add_waits(bench: Bench, ours: list[float], bare: list[float]) -> None:
    label = "INSERT, NOTIFY, the barest loop that listens and deletes"
    hundredths, bare_hundredths = _hundredths(ours), _hundredths(bare)
    for name, place, most in (("half of the jobs", 50, 1.5), ("99 of 100 jobs", 99, 2.0)):
        bench.add(
            Figure(
                bench.mode,
                f"enqueue to start, {name} within",
                "ms",
                [hundredths[place - 1]],
                [bare_hundredths[place - 1]],
                label,
                Target("ratio", at_most=most),
                details={"tries": len(ours), "slowest_ms": round(max(ours), 3)},
            )
        )


def _hundredths(values: list[float]) -> list[float]:
    return quantiles(values, n=100, method="inclusive")
