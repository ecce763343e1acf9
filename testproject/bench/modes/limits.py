"""What limits promise, told by the jobs themselves: how many at once, how many a second, and who is not slowed."""

from __future__ import annotations

from bisect import bisect_left

from django_leasequeue import engine
from django_leasequeue.engine import Limited, LimitValues, NewJob

from .. import notes
from ..bench import Bench, jobs_of
from ..crew import NAP, NOTE, WORKERS, crew, wait
from ..figures import Figure, Target
from ..options import PROJECT
from ..tasks import NAP_MS

SUMMARY = (
    f"a queue of 3 at once, a rate of 500 a second, unlimited jobs beside 1,000 keys: what {WORKERS} processes hold to"
)

#: Jobs of the queue that run at once.
AT_ONCE = 3
#: Jobs that start in a second.
RATE = 500
#: Jobs of a key.
OF_A_KEY = 10
#: Jobs of one call of enqueue.
_PART = 1_000
#: The number of every job that is not measured.
_OTHER = 1 << 32


def run(bench: Bench) -> None:
    """Add the figures."""
    size = bench.options.size
    rounds = range(1, bench.options.rounds + 1)
    at_once: list[float] = []
    apart: list[float] = []
    most: list[float] = []
    beside: list[float] = []
    alone: list[float] = []
    for round_ in rounds:
        bench.progress.step(f"{bench.mode}: round {round_} of {bench.options.rounds}")
        at_once.append(_at_once(bench, max(20, size // 40)))
        rate, window = _rate(bench, size)
        apart.append(abs(rate / RATE - 1) * 100)
        most.append(window)
        alone.append(_beside(bench, size // 2, limited=False))
        beside.append(_beside(bench, size // 2, limited=True))
    ideal = [AT_ONCE * 1000 / NAP_MS] * len(at_once)
    bench.add(
        Figure(
            bench.mode,
            f"jobs of {NAP_MS} ms, {AT_ONCE} of the queue at once",
            "jobs/s",
            at_once,
            ideal,
            f"{AT_ONCE} threads that do nothing else",
            Target("ratio", at_least=0.8),
        )
    )
    held = f"{RATE} a second over {size / RATE:g} s"
    bench.add(Figure(bench.mode, f"{held}: off the rate by", "%", apart, target=Target("value", at_most=6)))
    limit = Target("value", at_most=RATE)
    bench.add(Figure(bench.mode, f"{held}: most starts in any second", "jobs", most, target=limit))
    bench.add(
        Figure(
            bench.mode,
            f"{size // 2:,} unlimited jobs beside as many under limits of {max(1, size // 2 // OF_A_KEY):,} keys",
            "jobs/s",
            beside,
            alone,
            "beside as many without limits",
            Target("ratio", at_least=0.9),
        )
    )


def _middle(told: notes.Notes, jobs: int) -> list[float]:
    """The times of the jobs, without how the work began."""
    return [at for _, at in told.read()[jobs // 10 :]]


def _at_once(bench: Bench, jobs: int) -> float:
    queue = bench.queue(concurrency=AT_ONCE)
    with crew(bench, queue) as told:
        bench.executor.run(engine.enqueue(queue, jobs_of(jobs, name=NAP), project=PROJECT))
        wait(bench, told, jobs)
        times = _middle(told, jobs)
    return (len(times) - 1) / (times[-1] - times[0])


def _rate(bench: Bench, jobs: int) -> tuple[float, float]:
    """The rate of starts, and the most of them in any second."""
    queue = bench.queue()
    with crew(bench, queue) as told:
        limit = Limited("all", LimitValues(f"rate-{queue}", rate=RATE, per_ms=1000))
        for first in range(0, jobs, _PART):
            part = jobs_of(min(_PART, jobs - first), name=NOTE, limit=limit)
            bench.executor.run(engine.enqueue(queue, part, project=PROJECT))
        wait(bench, told, jobs)
        times = _middle(told, jobs)
    most = max(bisect_left(times, start + 1) - place for place, start in enumerate(times))
    return (len(times) - 1) / (times[-1] - times[0]), float(most)


def _beside(bench: Bench, jobs: int, *, limited: bool) -> float:
    """The rate at which unlimited jobs are done, one after each of which as many others were enqueued."""
    queue = bench.queue()
    with crew(bench, queue) as told:
        one = LimitValues("bench-beside", concurrency=1)
        keys = [Limited(f"{queue}-{number}", one) for number in range(max(1, jobs // OF_A_KEY))]
        mixed: list[NewJob] = []
        for number, job in enumerate(jobs_of(jobs, name=NOTE)):
            limit = keys[number % len(keys)] if limited else None
            mixed += jobs_of(1, name=NOTE, data={"args": [_OTHER]}, limit=limit)
            mixed.append(job)
        # What is measured is the workers, not how fast all this is enqueued.
        bench.executor.run(engine.pause(queue, project=PROJECT))
        for first in range(0, len(mixed), _PART):
            bench.executor.run(engine.enqueue(queue, mixed[first : first + _PART], project=PROJECT))
        bench.executor.run(engine.pause(queue, project=PROJECT, paused=False))
        wait(bench, told, 2 * jobs)
        times = [at for number, at in told.read() if number < _OTHER]
    return (len(times) - 1) / (times[-1] - times[0])
