"""Adding jobs: one at a time, from several threads at once, many in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob

from ..bare import BareQueue, copy_text
from ..bench import Bench, Measurement, jobs_of
from ..figures import Figure, Sample, Target
from ..options import PROJECT

SUMMARY = "enqueue one at a time, from 8 threads, and in bulk"

CALLERS = 8
#: Jobs of one call in bulk.
BULK = 1_000


def run(bench: Bench) -> None:
    """Add the figures."""
    queue = bench.queue()
    singles, size = bench.options.singles, bench.options.size
    executors = [ConnectionExecutor(bench.connect()) for _ in range(CALLERS)]
    tables = [BareQueue(bench.connect()) for _ in range(CALLERS)]
    ours = [_one(executor, queue) for executor in executors]
    bare = [table.enqueue for table in tables]
    insert = "INSERT of one row"
    bench.compare("one at a time", _singles(bench, ours[:1]), _singles(bench, bare[:1]), singles, label=insert)
    bench.compare(
        f"one at a time, {CALLERS} threads",
        _singles(bench, ours),
        _singles(bench, bare),
        singles * 2,
        label=f"{insert}, {CALLERS} threads",
    )
    records = bench.queue(preset="topics")
    bench.compare(
        f"in bulk, {BULK:,} a call",
        _bulk(bench, lambda jobs: bench.enqueue(records, list(jobs)), key=None),
        _bulk(bench, bench.bare.enqueue_many, key=None),
        size,
        label="COPY, from the same Python values",
        target=Target("ratio", at_least=0.5),
    )
    # What the unique ids of tasks and their lease log cost: the ceiling keeps neither.
    calls = bench.compare(
        f"in bulk, {BULK:,} calls of a task at once",
        _bulk(bench, lambda jobs: bench.enqueue(queue, list(jobs))),
        _bulk(bench, bench.bare.enqueue_many),
        size,
        label="COPY, from the same Python values",
        target=Target("ratio", at_least=0.5),
    )
    rate = Target("value", at_least=45_000)
    bench.add(
        Figure(
            bench.mode,
            f"in bulk, {BULK:,} calls of a task at once, the rate alone",
            "jobs/s",
            calls.values,
            target=rate,
        )
    )
    bench.compare(
        f"in bulk, {BULK:,} calls of a task at once, beside ready-made text",
        _bulk(bench, lambda jobs: bench.enqueue(queue, list(jobs))),
        _ready_made(bench),
        size,
        label="COPY, of text that is ready",
    )


def _one(executor: ConnectionExecutor, queue: str) -> Callable[[NewJob], object]:
    return lambda job: executor.run(engine.enqueue(queue, [job], project=PROJECT, create=False))


def _singles(bench: Bench, callers: Sequence[Callable[[NewJob], object]]) -> Measurement:
    """Return the measurement of callers that add one job after the other, each in a thread of its own."""

    def measure(jobs: int) -> Sample:
        parts = [jobs_of(max(1, jobs // len(callers))) for _ in callers]

        def work(number: int) -> None:
            call = callers[number]
            for job in parts[number]:
                call(job)

        with ThreadPoolExecutor(len(callers)) as threads, bench.meter.measure(sum(map(len, parts))) as sample:
            list(threads.map(work, range(len(callers))))
        return sample

    return measure


def _bulk(bench: Bench, call: Callable[[Sequence[NewJob]], object], **fields: Any) -> Measurement:
    """Return the measurement of adding ``BULK`` jobs a call."""

    def measure(jobs: int) -> Sample:
        parts = [jobs_of(min(BULK, jobs - start), **fields) for start in range(0, jobs, BULK)]
        with bench.meter.measure(jobs) as sample:
            for part in parts:
                call(part)
        return sample

    return measure


def _ready_made(bench: Bench) -> Measurement:
    def measure(jobs: int) -> Sample:
        texts = [copy_text(jobs_of(min(BULK, jobs - start))) for start in range(0, jobs, BULK)]
        with bench.meter.measure(jobs) as sample:
            for text in texts:
                bench.bare.copy(text)
        return sample

    return measure
