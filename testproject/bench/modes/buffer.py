"""Many callers in one process, each with single jobs: group commit beside one transaction a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

from django_leasequeue.queue.buffered import BufferedQueue
from django_leasequeue.queue.outcomes import ClaimedJob
from django_leasequeue.queue.queue import Queue

from ..bench import Bench, Measurement, close_connections
from ..figures import Sample, Target
from ..options import PROJECT

SUMMARY = "50 concurrent callers of BufferedQueue beside one transaction a call"

CALLERS = 50
#: How many more jobs the buffered side takes, to run about as long.
_MORE = 10

#: What one caller does with one job.
_Work = Callable[[int], Awaitable[object]]


def run(bench: Bench) -> None:
    """Add the figures."""
    bench.start_reaper()
    handle = Queue(bench.queue(), project=PROJECT, using=bench.options.using)
    singles = bench.options.singles
    bench.compare(
        f"enqueue, {CALLERS} callers of BufferedQueue",
        _measurement(lambda jobs: _buffered_enqueues(handle, jobs * _MORE)),
        _measurement(lambda jobs: _gather(jobs, lambda number: handle.aenqueue({"args": [number]}, key=str(uuid4())))),
        singles,
        label="the same callers, one transaction a call",
        target=Target("ratio", at_least=10),
    )
    bench.vacuum()
    bench.compare(
        f"enqueue, claim, ack, {CALLERS} callers of BufferedQueue",
        _measurement(lambda jobs: _buffered_rounds(handle, jobs * _MORE)),
        _measurement(lambda jobs: _gather(jobs, lambda number: _round(handle, number))),
        singles,
        label="the same callers, one transaction a call",
        target=Target("ratio", at_least=10),
    )


def _measurement(work: Callable[[int], Awaitable[Sample]]) -> Measurement:
    async def closed(jobs: int) -> Sample:
        try:
            return await work(jobs)
        finally:
            await close_connections()

    return lambda jobs: asyncio.run(closed(jobs))


async def _gather(jobs: int, work: _Work) -> Sample:
    """Let the callers work until the jobs are done; connections are open by then."""
    await asyncio.gather(*(work(number) for number in range(CALLERS)))
    numbers = iter(range(jobs))

    async def caller() -> None:
        for number in numbers:
            await work(number)

    client, start = time.process_time(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return Sample(jobs, time.perf_counter() - start, time.process_time() - client)


async def _buffered_enqueues(handle: Queue, jobs: int) -> Sample:
    async with BufferedQueue(handle) as buffer:
        return await _gather(jobs, lambda number: buffer.aenqueue({"args": [number]}, key=str(uuid4())))


async def _buffered_rounds(handle: Queue, jobs: int) -> Sample:
    async with BufferedQueue(handle) as buffer:
        return await _gather(jobs, lambda number: _round(buffer, number))


async def _round(queue: Queue | BufferedQueue, number: int) -> None:
    await queue.aenqueue({"args": [number]}, key=str(uuid4()))
    found: list[ClaimedJob] = await queue.aclaim()
    for job in found:
        await queue.aack(job)
