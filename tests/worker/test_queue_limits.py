"""Limits of a worker: at most so many jobs of a queue run in its process, and its other threads stay for others."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from django_leasequeue import engine
from django_leasequeue.enums import JobState
from django_leasequeue.models import LiveJob, Worker
from django_leasequeue.worker import ExitCode, JobControl
from tests.engine.flow import limited
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler, lines
from tests.worker.processes import Start
from tests.worker.support import NEVER, Threaded, burst, ready, results, working

pytestmark = pytest.mark.usefixtures("queues")


@pytest.fixture
def queues(test_dsn: str) -> None:
    for name in ("heavy", "light"):
        engine.run(engine.create(name, preset="django", backoff="fixed", backoff_base_ms=20))


def enqueue(*jobs: dict[str, Any], queue: str, delay_ms: int | None = None) -> None:
    engine.run(engine.enqueue(queue, [engine.NewJob(data=data, delay_ms=delay_ms) for data in jobs]))


class Counting(ScriptHandler):
    """Counts the jobs of each queue that run at once; those of "heavy" wait until they are let go."""

    def __init__(self, release: bool = False) -> None:
        super().__init__()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.go = threading.Event()
        self._lock = threading.Lock()
        if release:
            self.go.set()

    @contextmanager
    def counted(self, queue: str) -> Iterator[None]:
        with self._lock:
            self.now[queue] += 1
            self.most[queue] = max(self.most[queue], self.now[queue])
        try:
            yield
        finally:
            with self._lock:
                self.now[queue] -= 1
                self.done[queue] += 1

    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        with self.counted(job.queue):
            if job.queue == "heavy":
                assert self.go.wait(60)
                time.sleep(0.002)
            return super().run(job, control)

    async def arun(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        with self.counted(job.queue):
            while job.queue == "heavy" and not self.go.is_set():
                await asyncio.sleep(0.005)
            return await super().arun(job, control)


def started(handler: Counting, count: int) -> Callable[[], bool]:
    return lambda: handler.now["heavy"] == count


def quiet(threaded: Threaded) -> bool:
    """Return whether the fetcher sleeps."""
    fetcher = threaded.worker._fetcher
    time.sleep(0.3)  # what is due by then is due
    with patch.object(fetcher, "_step", wraps=fetcher._step) as step:
        time.sleep(0.3)
    return step.call_count < 10


@pytest.mark.parametrize("data", [{}, {"async": True}], ids=["threads", "coroutines"])
@pytest.mark.parametrize("prefetch", [0, 2_000])
def test_light_jobs_drain_beside_the_limit_and_the_rest_stays_for_other_workers(
    data: dict[str, Any], prefetch: int
) -> None:
    enqueue(*[data] * 20, queue="heavy")
    enqueue(*[data] * 200, queue="light")
    handler, other = Counting(), Counting()
    options: dict[str, Any] = {"queues": ("heavy", "light"), "poll": NEVER, "prefetch": prefetch}
    with working(handler, concurrency=8, limits={"heavy": 2}, **options) as threaded:
        eventually(lambda: handler.done["light"] == 200, "the light ones drain")
        eventually(lambda: len(threaded.state.held) == 2, "none is held idle")
        assert (handler.now["heavy"], ready("heavy")) == (2, 18)
        with working(other, concurrency=4, limits={"heavy": 3}, **options):
            eventually(started(other, 3), "another worker takes heavy ones meanwhile")
            enqueue(*[data] * 20, queue="light")
            eventually(lambda: handler.done["light"] + other.done["light"] == 220, "new light ones start")
            handler.go.set()
            other.go.set()
            eventually(lambda: handler.done["heavy"] + other.done["heavy"] == 20, "all heavy ones end")
    assert (handler.most["heavy"], other.most["heavy"]) == (2, 3)


def test_a_burst_runs_all_jobs_of_limited_queues_as_many_at_once_as_they_may() -> None:
    enqueue(*[{"do": "sleep", "seconds": 0.02}] * 12, queue="heavy")
    enqueue(*[{}] * 12, queue="light")
    handler = Counting(release=True)
    assert burst(handler, limits={"heavy": 3, "light": 1}, poll=NEVER).code is ExitCode.OK
    assert (handler.done, handler.most) == ({"heavy": 12, "light": 12}, {"heavy": 3, "light": 1})
    assert not LiveJob.objects.exists()


def test_a_pattern_limits_each_of_its_queues_and_a_name_comes_before_it() -> None:
    for name in ("heavy.a", "heavy.b"):
        engine.run(engine.create(name, preset="django"))
        enqueue(*[{"do": "sleep", "seconds": 0.02}] * 6, queue=name)
    enqueue(*[{}] * 6, queue="heavy")
    handler = Counting(release=True)
    assert burst(handler, limits={"heavy*": 2, "heavy.a": 1}).code is ExitCode.OK
    assert handler.most == {"heavy.a": 1, "heavy.b": 2, "heavy": 2}


def test_the_fetcher_sleeps_when_an_announced_job_has_brought_every_queue_to_its_limit() -> None:
    handler = Counting(release=True)
    with working(handler, queues=("heavy",), limits={"heavy": 1}, poll=NEVER) as threaded:
        enqueue({}, queue="heavy")
        eventually(lambda: handler.done["heavy"] == 1, "it has ended")
        assert quiet(threaded)
        handler.go.clear()
        enqueue({}, {}, queue="heavy")
        eventually(started(handler, 1), "it runs")
        assert quiet(threaded)
        handler.go.set()
        eventually(lambda: handler.done["heavy"] == 3, "both have ended")


def test_a_job_that_is_due_wakes_no_fetcher_whose_queue_is_at_its_limit_and_a_later_one_starts_in_time() -> None:
    enqueue({}, queue="heavy")
    handler = Counting()
    with working(handler, limits={"heavy": 1}, poll=NEVER) as threaded:
        eventually(started(handler, 1), "it runs")
        enqueue({}, queue="heavy", delay_ms=50)
        enqueue({}, queue="heavy", delay_ms=900)
        assert quiet(threaded)
        handler.go.set()
        eventually(lambda: handler.done["heavy"] == 3, "one runs when the first has ended, the last when it is due")


def test_a_lost_run_that_goes_on_counts_for_its_limit() -> None:
    enqueue({}, {}, queue="heavy")
    handler = Counting()
    with working(handler, limits={"heavy": 1}, poll=0.05) as threaded:
        eventually(started(handler, 1), "it runs")
        threaded.state.held.clear()
        time.sleep(0.3)
        assert handler.now["heavy"] == 1
        handler.go.set()
        eventually(lambda: handler.done["heavy"] >= 2, "the next one runs after its end")
    assert handler.most["heavy"] == 1


def test_jobs_under_a_rate_keep_to_the_limit_of_their_queue() -> None:
    limited(["calls"] * 10, engine.LimitValues("calls", rate=1_000, per_ms=1_000, burst=1_000), queue="heavy")
    enqueue(*[{}] * 50, queue="light")
    handler = Counting()
    with working(handler, limits={"heavy": 2}, poll=NEVER) as threaded:
        eventually(started(handler, 2), "as many run as may")
        eventually(lambda: handler.done["light"] == 50, "the light ones drain")
        assert quiet(threaded), "a rate whose jobs cannot start makes the fetcher ask for nothing"
        handler.go.set()
        eventually(lambda: handler.done["heavy"] == 10, "all end")
    assert handler.most["heavy"] == 2


def test_a_worker_says_its_limits_in_its_row_and_on_its_health_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.keeper.PRESENCE", 0.05)
    with working(limits={"heavy": 2}) as threaded:
        row = eventually(Worker.objects.first, "it has a row")
        assert row.info["limits"] == threaded.worker.report()[1]["limits"] == {"heavy": 2}
    plain = Threaded()
    assert "limits" not in plain.worker.report()[1]
    plain.state.journal.close()


@pytest.mark.slow  # processes
def test_each_process_has_the_limit_for_itself(start: Start, notes: Path) -> None:
    enqueue(*[{"do": "wait", "file": str(notes)}] * 6, queue="heavy")
    worker = start("--processes", "2", "--limit", "heavy=2", "--queues", "he*,light", "--concurrency", "4")
    eventually(lambda: len(lines(notes)) == 4, "two run in each")
    time.sleep(0.3)
    assert sorted(Counter(pid for _, _, pid in lines(notes)).values()) == [2, 2]
    assert LiveJob.objects.filter(state=JobState.READY).count() == 2
    worker.close()
    assert not results()
