"""Jobs of rates beside others: a worker claims them when their rate is due, for threads that start them at once."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from django_leasequeue.engine import LeasedJob
from django_leasequeue.engine.leases.floor import ClaimCursor
from django_leasequeue.worker import load_options, starts
from django_leasequeue.worker.coroutines import CoroutinePool
from django_leasequeue.worker.held import RATED, START
from django_leasequeue.worker.run import Slot
from django_leasequeue.worker.state import WorkerState
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler
from tests.worker.support import a_job

pytestmark = pytest.mark.django_db


class Cursor:
    """A cursor that says of one queue that a turn is due, or not."""

    def __init__(self) -> None:
        self.names = ["paced"]

    def due(self) -> list[str]:
        return self.names

    def until_turn(self) -> float:
        return 0.0 if self.names else float("inf")


class Bench:
    """A worker's buffer with as many parked threads as are said, and what it claims."""

    def __init__(self, state: WorkerState) -> None:
        self.state, self.cursor = state, Cursor()
        self.coroutines = CoroutinePool(state)
        self.rates = starts.RatedStarts(state, self.coroutines, cast(ClaimCursor, self.cursor))
        self._seq = 0

    def claimed(self, count: int = 1, flags: int = 0) -> list[LeasedJob]:
        jobs = []
        for _ in range(count):
            self._seq += 1
            job = a_job(self._seq, self._seq)._replace(flags=flags, deadline_epoch=60.0, claimed_epoch=0.0)
            self.state.held[job.seq] = job
            self.state.leases.add(job, time.monotonic())
            jobs.append(job)
        self.state.figures.add(claimed=count)
        return jobs

    def plain(self, count: int) -> None:
        self.state.buffer.put(self.claimed(count))

    def rated(self, count: int = 1) -> list[LeasedJob]:
        jobs = self.claimed(count, RATED)
        self.rates.hand_over(jobs, [])
        return jobs

    def start(self) -> LeasedJob:
        return self.state.buffer.jobs.popleft()

    @contextmanager
    def parked(self) -> Iterator[None]:
        thread = threading.Thread(target=self.state.buffer.park, args=(locked(),))
        idle = self.state.buffer.idle
        thread.start()
        eventually(lambda: self.state.buffer.idle > idle, "it is parked")
        try:
            yield
        finally:
            self.state.buffer.close()
            thread.join()


def locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@pytest.fixture
def bench() -> Iterator[Bench]:
    state = WorkerState(load_options(concurrency=4, async_concurrency=2), "n", ScriptHandler())
    yield Bench(state)
    state.held.clear()
    state.journal.close()


def test_the_next_thread_that_comes_free_is_for_what_is_due(bench: Bench) -> None:
    bench.plain(5)
    assert bench.rates.plan(100) == []
    assert not bench.state.buffer.jobs, "busy threads find nothing else when they come free"
    assert not bench.rates.free
    with bench.parked():
        assert bench.rates.free, "this wakes the fetcher"
        assert bench.rates.plan(100) == ["paced"]
        assert bench.rates.room == 1
        (job,) = bench.rated()
        bench.rates.done()
    assert next(bench.start() for _ in range(6)) is job


def test_while_none_is_due_nothing_is_kept_free(bench: Bench) -> None:
    bench.plain(5)
    bench.rates.plan(100)
    bench.cursor.names = []
    assert bench.rates.plan(100) == []
    assert len(bench.state.buffer.jobs) == 5


def test_a_worker_that_may_hold_no_more_keeps_no_thread_free(bench: Bench) -> None:
    bench.plain(5)
    assert bench.rates.plan(0) == []
    assert (bench.rates.room, len(bench.state.buffer.jobs)) == (0, 5)


def test_of_two_starts_one_is_left_to_others(bench: Bench) -> None:
    bench.plain(20)
    started: list[LeasedJob] = []
    for _ in range(10):
        bench.rates.plan(100)
        if bench.rates.waits and not bench.state.buffer.jobs:  # a thread comes free, and parks
            bench.rates.room = 1
            bench.rates._no_thread = False
            bench.rated()
            bench.rates.done()
        started.append(bench.start())
    assert [job.flags & RATED > 0 for job in started] == [True, False] * 5


def test_where_nothing_else_waits_all_starts_are_theirs(bench: Bench) -> None:
    for _ in range(5):
        bench.state.buffer._parked.append(locked())
        assert bench.rates.plan(100) == ["paced"]
        bench.rated()
        bench.start()


@pytest.mark.parametrize(("seconds", "room"), [(0.002, 10), (0.1, 0)])
def test_only_where_jobs_are_short_busy_threads_count_as_free(bench: Bench, seconds: float, room: int) -> None:
    """500 a second of 2 ms come free all the time; 500 a second of 0.1 s may all come free at once, and later."""
    speed = 500
    bench.state.slots.extend(Slot(n) for n in range(50))
    for slot in bench.state.slots[: int(speed * seconds)]:
        slot.control = cast(Any, object())
    bench.rates._speed = speed
    bench.plain(5)
    bench.rates.plan(100)
    assert bench.rates.room == room


def test_coroutines_have_places_of_their_own(bench: Bench) -> None:
    bench.plain(5)
    bench.rates.hand_over([], bench.claimed(1, RATED))
    bench.coroutines.jobs.clear()
    assert bench.rates.plan(100) == ["paced"]
    assert bench.rates.room == 2
    for place in range(2):
        bench.state.coroutines[cast(Any, place)] = cast(Any, None)
    bench.coroutines.jobs.extend(bench.claimed(3))
    bench.rates._next_at = 0
    assert bench.rates.plan(100) == []
    assert bench.coroutines.paused
    assert len(bench.state.buffer.jobs) == 5, "threads go on"
    bench.state.coroutines.clear()
    assert bench.rates.free
    assert bench.rates.plan(100) == ["paced"]
    bench.rates.done()
    assert not bench.coroutines.paused


def test_what_no_thread_takes_in_time_is_given_back_for_others(bench: Bench) -> None:
    jobs = bench.rated(2)
    bench.plain(3)
    bench.cursor.names = []
    bench.rates.plan(100)
    assert not bench.state.ended
    for lease in bench.state.leases.of.values():
        lease.claimed -= START
    bench.rates._late_at -= START
    bench.rates.plan(100)
    assert [entry[1] for entry in bench.state.ended] == jobs
    assert len(bench.state.buffer.jobs) == 3
