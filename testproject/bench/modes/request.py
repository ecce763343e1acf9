"""Request and response: enqueue a job, wait until a worker has done it, return its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles
from typing import Any
from uuid import uuid4

import psycopg

from django_leasequeue.engine import NewJob, pool
from django_leasequeue.notify import close_listeners
from django_leasequeue.queue.buffered import BufferedQueue
from django_leasequeue.queue.queue import Queue

from .. import bare_worker, children, stamps
from ..bench import NOOP, Bench, close_connections
from ..figures import Figure, Target
from ..options import PROJECT

SUMMARY = "enqueue_and_wait: latency, 100 concurrent callers, and 10,000 that wait"

CALLERS = 100
_TIMEOUT = 60.0


def run(bench: Bench) -> None:
    """Add the figures."""
    handle = Queue(bench.queue(), project=PROJECT, using=bench.options.using)
    try:
        with children.worker(bench.options.using, handle.name) as worker:
            bench.progress.step(f"{bench.mode}: starting workers")
            _ask(handle, 0)
            worker.check()
            _one_by_one(bench, handle)
            _concurrent(bench, handle)
        _waiting(bench, Queue(bench.queue(), project=PROJECT, using=bench.options.using))
    finally:
        close_listeners()


def _ask(handle: Queue, number: int) -> None:
    handle.enqueue_and_wait({"args": [number]}, key=str(uuid4()), name=NOOP, timeout=_TIMEOUT)


def _one_by_one(bench: Bench, handle: Queue) -> None:
    tries = bench.options.singles
    turn = max(1, tries // 10)
    ours: list[float] = []
    beside: list[float] = []
    with stamps.Stamps() as told, psycopg.connect(**pool.connection_parameters(bench.options.using)) as hears:
        hears.autocommit = True
        hears.execute(f"LISTEN {bare_worker.REPLIES}")
        with children.bare(bench.options.using, "reply", environment=told.environment) as loop:
            _bare_ask(bench, hears, 0)
            loop.check()
            for start in range(0, tries, turn):
                bench.progress.step(f"{bench.mode}: one caller, try {start:,} of {tries:,}")
                ours += [_timed(lambda number: _ask(handle, number), number) for number in range(turn)]
                beside += [_timed(lambda number: _bare_ask(bench, hears, number), number) for number in range(turn)]
    hundredths, bare_hundredths = _hundredths(ours), _hundredths(beside)
    for name, place, most in (("half of the calls", 50, 2.0), ("99 of 100 calls", 99, 30.0)):
        bench.add(
            Figure(
                bench.mode,
                f"enqueue_and_wait, {name} within",
                "ms",
                [hundredths[place - 1]],
                [bare_hundredths[place - 1]],
                "INSERT, NOTIFY, the barest loop, NOTIFY",
                Target("value", at_most=most),
                details={"tries": len(ours), "slowest_ms": round(max(ours), 3)},
            )
        )


def _timed(call: Callable[[int], None], number: int) -> float:
    start = time.perf_counter()
    call(number)
    return (time.perf_counter() - start) * 1000


def _bare_ask(bench: Bench, hears: psycopg.Connection[Any], number: int) -> None:
    key = str(uuid4())
    bench.bare.enqueue_told(NewJob(key=key, name=NOOP, data={"args": [number]}), bare_worker.CHANNEL)
    for notify in hears.notifies(timeout=_TIMEOUT):
        if notify.payload == key:
            return
    raise children.ChildFailed("The bare worker does not reply.")


def _hundredths(values: list[float]) -> list[float]:
    return quantiles(values, n=100, method="inclusive")


def _concurrent(bench: Bench, handle: Queue) -> None:
    pairs = max(CALLERS, bench.options.size // 4)
    plain: list[float] = []
    buffered: list[float] = []
    for round_ in range(1, bench.options.rounds + 1):
        bench.progress.step(f"{bench.mode}: {CALLERS} callers, round {round_} of {bench.options.rounds}")
        plain.append(asyncio.run(_rate(handle, pairs, buffered=False)))
        buffered.append(asyncio.run(_rate(handle, pairs, buffered=True)))
    name = f"enqueue_and_wait, {CALLERS} callers"
    bench.add(
        Figure(
            bench.mode,
            f"{name} of BufferedQueue",
            "pairs/s",
            buffered,
            plain,
            "the same callers of Queue",
            Target("value", at_least=1_500),
        )
    )


async def _rate(handle: Queue, pairs: int, *, buffered: bool) -> float:
    numbers = iter(range(pairs))

    async def caller(ask: Callable[[int], Awaitable[object]]) -> None:
        for number in numbers:
            await ask(number)

    async def all_callers(queue: Queue | BufferedQueue) -> float:
        def ask(number: int) -> Awaitable[object]:
            return queue.aenqueue_and_wait({"args": [number]}, key=str(uuid4()), name=NOOP, timeout=_TIMEOUT)

        await asyncio.gather(*(ask(0) for _ in range(CALLERS)))
        start = time.perf_counter()
        await asyncio.gather(*(caller(ask) for _ in range(CALLERS)))
        return pairs / (time.perf_counter() - start)

    try:
        if not buffered:
            return await all_callers(handle)
        async with BufferedQueue(handle) as buffer:
            return await all_callers(buffer)
    finally:
        await close_connections()


def _waiting(bench: Bench, handle: Queue) -> None:
    """Let many callers wait for jobs that nobody does, and count the connections that this takes."""
    callers = bench.options.small_backlog
    bench.progress.step(f"{bench.mode}: {callers:,} callers wait")
    close_listeners()
    before = _connections(bench)
    held = asyncio.run(_held(bench, handle, callers)) - before
    bench.add(
        Figure(
            bench.mode,
            f"connections held by {callers:,} waiting callers",
            "of them",
            [held],
            target=Target("value", at_most=1),
        )
    )


async def _held(bench: Bench, handle: Queue, callers: int) -> int:
    async with BufferedQueue(handle) as buffer:
        waiting = [
            asyncio.ensure_future(buffer.aenqueue_and_wait({"args": [number]}, name=NOOP, timeout=_TIMEOUT * 10))
            for number in range(callers)
        ]
        deadline = time.monotonic() + bench.patience(callers)
        while bench.fetch("jobs_there", {"queue": handle.name, "project": PROJECT})[0][0] < callers:
            if time.monotonic() > deadline:
                raise children.ChildFailed("The callers' jobs are not enqueued in time.")
            await asyncio.sleep(0.1)
        # What the pool keeps open for the next call is not held by those who wait.
        await close_connections()
        await asyncio.sleep(0.5)  # the server's processes end a moment after their connections
        found = _connections(bench)
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    await close_connections()
    return found


def _connections(bench: Bench) -> int:
    return int(bench.fetch("connections")[0][0])
