"""Beside a long transaction: somebody's report or dump holds a snapshot, and nothing dead can be removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

import psycopg

from django_leasequeue import engine
from django_leasequeue.engine import Ending, claim, finish, pool
from django_leasequeue.engine.leases.floor import ClaimCursor

from .. import children, stamps
from ..bench import NODE, Bench, jobs_of
from ..drains import Drain, drain
from ..figures import Figure, Target
from ..options import PROJECT
from ..sql import statement

SUMMARY = "production and consumption beside a held REPEATABLE READ snapshot"

#: Jobs of one turn of producing and consuming.
BATCH = 200
TALLY = "testproject.bench.tasks.tally"
#: Jobs that may wait for the workers before production pauses.
_AHEAD = 2_000

_AT_LEAST = Target("ratio", at_least=0.9)

#: Moments (monotonic seconds) at which so many fifths of the jobs were done, beginning with none.
_Fifths = list[float]


@contextmanager
def held_snapshot(using: str) -> Iterator[None]:
    """Hold a snapshot in a transaction of its own, as a report does."""
    with psycopg.connect(**pool.connection_parameters(using)) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute(statement("snapshot"))
        yield
        connection.rollback()


def run(bench: Bench) -> None:
    """Add the figures."""
    jobs = bench.options.steady
    _compare(bench, "runworker and a producer", lambda: _workers(bench, jobs), jobs, targets=True)
    _drains(bench)
    bench.start_reaper()
    queue = bench.queue()
    _compare(bench, "enqueue, claim, finish in turn", lambda: _engine_turns(bench, queue, jobs), jobs)
    _compare(bench, "the same in bare SQL", lambda: _turns(jobs, lambda: _bare_turn(bench)), jobs)


def _compare(bench: Bench, name: str, measure: Callable[[], _Fifths], jobs: int, *, targets: bool = False) -> None:
    """Measure without a snapshot and beside one, in turn; what one leaves behind is removed before the next."""
    free: list[_Fifths] = []
    held: list[_Fifths] = []
    for round_ in range(1, bench.options.rounds + 1):
        for kept, snapshot in ((free, nullcontext()), (held, held_snapshot(bench.options.using))):
            beside = "beside a snapshot" if kept is held else "without one"
            bench.progress.step(f"{bench.mode}: {name}, {beside}, round {round_} of {bench.options.rounds}")
            with snapshot:
                kept.append(measure())
            bench.vacuum()
    _add(bench, name, jobs, free, held, targets=targets)


def _add(
    bench: Bench, name: str, jobs: int, free: Sequence[_Fifths], held: Sequence[_Fifths], *, targets: bool
) -> None:
    bench.add(
        Figure(
            bench.mode,
            f"{name}, beside a snapshot",
            "jobs/s",
            [_rate(jobs, times) for times in held],
            [_rate(jobs, times) for times in free],
            "the same without one",
            _AT_LEAST if targets else None,
        )
    )
    bench.add(
        Figure(
            bench.mode,
            f"{name}, last fifth beside a snapshot",
            "jobs/s",
            [_rate(jobs / 5, times[-2:]) for times in held],
            [_rate(jobs / 5, times[:2]) for times in held],
            "the first fifth",
            _AT_LEAST if targets else None,
            details={"without_ratio": round(median(_first_to_last(times) for times in free), 3)},
        )
    )


def _rate(jobs: float, times: _Fifths) -> float:
    return jobs / max(times[-1] - times[0], 1e-9)


def _first_to_last(times: _Fifths) -> float:
    return (times[1] - times[0]) / max(times[-1] - times[-2], 1e-9)


def _turns(jobs: int, turn: Callable[[], int]) -> _Fifths:
    """Produce and consume in turn until ``jobs`` are done; a fifth as many are done first, and not counted."""
    done = 0
    while done < jobs // 5:
        done += turn()
    done = 0
    times = [time.monotonic()]
    while done < jobs:
        done += turn()
        if done >= len(times) * jobs / 5:
            times.append(time.monotonic())
    return times


def _engine_turns(bench: Bench, queue: str, jobs: int) -> _Fifths:
    trail = ClaimCursor()

    def turn() -> int:
        bench.fill(queue, BATCH)
        leased = bench.executor.run(claim(queue, NODE, BATCH, project=PROJECT, cursor=trail))
        endings = [Ending(job.seq, job.token, result_json="null") for job in leased]
        bench.executor.run(finish(endings, NODE, project=PROJECT))
        return len(leased)

    return _turns(jobs, turn)


def _bare_turn(bench: Bench) -> int:
    bench.fill_bare(BATCH)
    rows = bench.bare.claim(BATCH)
    bench.bare.finish(rows)
    return len(rows)


def _workers(bench: Bench, jobs: int) -> _Fifths:
    """A worker, and a producer that keeps a little ahead of it; the first fifth as many jobs are not counted."""
    queue = bench.queue()
    started = jobs // 5
    with stamps.Stamps() as told, children.worker(bench.options.using, queue, environment=told.environment) as worker:
        produced = 0
        times: _Fifths = []
        deadline = time.monotonic() + bench.patience(jobs)
        while len(times) < 6:
            if produced < jobs + started and produced - told.count < _AHEAD:
                batch = [job._replace(name=TALLY) for job in jobs_of(500)]
                bench.executor.run(engine.enqueue(queue, batch, project=PROJECT, create=False, fresh=True))
                produced += len(batch)
            else:
                time.sleep(0.001)
            if told.count >= started + len(times) * jobs / 5:
                times.append(time.monotonic())
            worker.check()
            if time.monotonic() > deadline:
                raise children.ChildFailed(f"The worker has done {told.count:,} of {produced:,} jobs; it is given up.")
    return times


def _drains(bench: Bench) -> None:
    """A worker that drains what waits already."""
    found: dict[bool, list[Drain]] = {False: [], True: []}
    for round_ in range(1, bench.options.rounds + 1):
        for held in (False, True):
            beside = "beside a snapshot" if held else "without one"
            bench.progress.step(f"{bench.mode}: drain, {beside}, round {round_} of {bench.options.rounds}")
            snapshot: Any = held_snapshot(bench.options.using) if held else nullcontext()
            with snapshot:
                found[held].append(drain(bench, bench.options.size))
            bench.vacuum()
    bench.add(
        Figure(
            bench.mode,
            "runworker drains, beside a snapshot",
            "jobs/s",
            [one.steady_rate for one in found[True]],
            [one.steady_rate for one in found[False]],
            "the same without one",
            _AT_LEAST,
        )
    )
