"""The pools that run jobs: threads for sync ones, and an event loop, in a thread of its own, for async ones."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Set
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created

from ..engine import Failure, LeasedJob
from ..engine.jobs.results import STALLED
from ..engine.pool import close_pools
from .control import JobControl, JobTimeout
from .leases import RATED
from .run import COMPLETED, RETRY, UNSTARTED, Entry, RunAlarm, Slot, ThreadAlarm, failed
from .state import WorkerState

#: What is kept of a run that was given up.
GIVEN_UP = Failure(STALLED, "the run took longer than its visibility timeout", fingerprint=STALLED.lower())
#: Seconds without an async job after which the fetcher claims nothing for coroutines.
RECENT = 10.0
#: Idents of the threads in which Django has opened a connection that may have to be closed.
connected_threads: set[int] = set()


connection_created.connect(
    lambda **_: connected_threads.add(threading.get_ident()),
    weak=False,
    dispatch_uid="django_leasequeue.worker.pools",
)


def tidy_connections() -> None:
    """Do at a job's edge what Django does at a request's: close connections that are broken or too old."""
    close_old_connections()
    if all(connection.connection is None for connection in connections.all(initialized_only=True)):
        connected_threads.discard(threading.get_ident())


class ThreadPool:
    """Runs sync jobs from a buffer, one at a time in each thread."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        state.slots.extend(Slot(state.journal.slot()) for _ in range(state.options.concurrency))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for number, slot in enumerate(self._state.slots):
            self._threads.append(self._state.start_thread(f"job-{number}", partial(self._work, slot)))

    def stop(self, timeout: float) -> bool:
        """End the threads that are idle; return whether all ended within ``timeout`` seconds."""
        self._state.buffer.close()
        end = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def abandon_run(self, alarm: RunAlarm) -> None:
        """Give a run up, also one of a coroutine: its job goes back as if its lease had expired, and it is told."""
        if not alarm.leave():
            return
        if isinstance(alarm, ThreadAlarm):
            # Another thread gets the place of the one that ends when its run does.
            new = Slot(alarm.slot.number)
            slots = self._state.slots
            slots[slots.index(alarm.slot)] = new
            thread = self._state.start_thread("job", partial(self._work, new))
            self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        # First, so that what it does when it is told comes too late.
        self._state.ended.append((RETRY, alarm.control.job, None, GIVEN_UP, 0))
        self._state.acknowledger.wake()
        alarm.control.abort("lease_lost")

    def _work(self, slot: Slot) -> None:  # noqa: C901  (the hottest loop there is: no calls that can be spared)
        # Everything that is looked up once instead of for every job.
        state, buffer, ended_runs = self._state, self._state.buffer, self._state.ended
        node, using = state.node, state.options.database
        handler, held, leases = state.handler, state.held, state.leases.of
        timeout, run = handler.timeout, handler.run
        jobs, take, append = buffer.jobs, buffer.jobs.popleft, ended_runs.append
        fetcher, acknowledger = buffer.fetcher, state.acknowledger
        monotonic, new_context = time.monotonic, contextvars.Context
        admits, started, ended, number = state.admits, state.journal.started, state.journal.ended, slot.number
        ident = threading.get_ident()
        parker = threading.Lock()
        parker.acquire()
        while True:
            try:
                job = take()
            except IndexError:
                if ended_runs:
                    acknowledger.wake()
                if not buffer.park(parker):
                    return
                continue
            if fetcher.sleeping and len(jobs) <= buffer.low:
                fetcher.wake()
            if ident in connected_threads:
                tidy_connections()
            control = JobControl(job, node, using)
            soft, hard = timeout(job)
            slot.control = control
            if held.get(job.seq) is not job:  # lost or given back before it was shown among the running ones
                slot.control = None
                continue
            if not admits(job):
                slot.control = None
                buffer.put([job], first=True)
                continue
            # After the job is shown in the slot: from then on it is told when its lease ends.
            slot.since = since = monotonic()
            lease = leases.get(job.token)
            if lease is None or lease.forbids(job, since):
                slot.control = None
                append((UNSTARTED, job, None, None, 0))
                acknowledger.wake()
                continue
            if job.flags & RATED:
                control.begins_by = state.leases.begins_by(job)
            started(number, job)
            try:
                if soft is None and hard is None:
                    entry: Entry = (COMPLETED, job, control, new_context().run(run, job, control), None)
                else:
                    entry = self._run_timed(slot, control, soft, hard)
                control.ran_ms = int((monotonic() - since) * 1_000)
            except BaseException as error:  # noqa: BLE001  (a job may raise anything)
                control.ran_ms = int((monotonic() - since) * 1_000)
                if isinstance(error, JobTimeout) and error.seconds is None:
                    error = JobTimeout(soft)
                entry = failed(handler, job, control, error)
            ended(job)
            append(entry)
            slot.control = None
            if slot.left:
                acknowledger.wake()
                return
            if acknowledger.sleeping:
                acknowledger.wake()
            if ident in connected_threads:
                tidy_connections()

    def _run_timed(self, slot: Slot, control: JobControl, soft: float | None, hard: float | None) -> Entry:
        alarm = ThreadAlarm(slot, control, soft, hard, self._state.options.timeout_grace)
        self._state.timekeeper.expect(alarm)
        try:
            result = contextvars.Context().run(self._state.handler.run, control.job, control)
            return (COMPLETED, control.job, control, result, None)
        finally:
            try:
                alarm.end()
            finally:  # it may raise the timeout that came last
                slot.left = not alarm.leave()
                self._state.timekeeper.forget(alarm)


class CoroutinePool:
    """Runs async jobs, each as a task of its own, a bounded number at once. The loop starts with the first of them."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        #: Whether a job is on its way from ``jobs`` to ``running``.
        self.starting = False
        self.jobs: deque[LeasedJob] = deque()
        self._most = state.options.coroutines
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._used_at = float("-inf")
        #: The thread in which asgiref runs the sync parts of coroutines (the ORM's among them).
        self._sync_thread = 0

    def idle(self) -> int:
        """The number of async jobs that could start now; 0 if there were none lately."""
        if time.monotonic() - self._used_at > RECENT:
            return 0
        return self._most - len(self._state.coroutines)

    def put(self, jobs: list[LeasedJob]) -> None:
        self._used_at = time.monotonic()
        self.jobs.extend(jobs)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = self._state.start_thread("coroutines", partial(self._run, self._loop))
        self._loop.call_soon_threadsafe(self._pump)

    def put_alone(self, job: LeasedJob) -> None:
        self.jobs.appendleft(job)
        self.put([])

    def resume(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._pump)

    def stop(self, timeout: float) -> bool:
        if self._loop is None or self._thread is None:
            return True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            self._sync_thread = loop.run_until_complete(sync_to_async(threading.get_ident)())
            loop.run_forever()
            loop.run_until_complete(self._wind_up())
        finally:
            loop.close()

    async def _wind_up(self) -> None:
        # The jobs first: pools need tasks of their own to close their connections.
        await self._cancel({*self._state.coroutines})
        await close_pools()
        await self._cancel(asyncio.all_tasks() - {asyncio.current_task()})
        await asyncio.get_running_loop().shutdown_asyncgens()

    @staticmethod
    async def _cancel(tasks: Set[asyncio.Task[Any] | None]) -> None:
        """Cancel tasks and wait briefly for them; one that does not stop is left running until the process ends."""
        left = {task for task in tasks if task is not None}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1)

    def _pump(self) -> None:
        loop, held = self._loop, self._state.held
        assert loop is not None
        while self.jobs and len(self._state.coroutines) < self._most:
            self.starting = True
            try:
                job = self.jobs.popleft()
            except IndexError:
                self.starting = False
                return
            if held.get(job.seq) is not job:
                continue  # lost or given back before it started
            if not self._state.admits(job):
                self.jobs.appendleft(job)
                self.starting = False
                return
            control = JobControl(job, self._state.node, self._state.options.database)
            task = loop.create_task(self._one(job, control), context=contextvars.Context())
            self._state.coroutines[task] = (control, time.monotonic())
            task.add_done_callback(self._ended)
        self.starting = False
        if not self.jobs and self._state.buffer.fetcher.sleeping:
            self._state.buffer.fetcher.wake()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._state.coroutines[task]
        self._pump()
        if self._state.acknowledger.sleeping or not self.jobs:
            self._state.acknowledger.wake()

    async def _one(self, job: LeasedJob, control: JobControl) -> None:
        handler = self._state.handler
        task = asyncio.current_task()
        assert task is not None
        control.on_lost = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        # After that: from then on the run is broken off when its lease ends.
        given_back = self._state.held.get(job.seq) is not job  # before it was shown among the running ones
        if given_back or control.reason in ("lease_lost", "cancelled") or self._state.leases.over(job):
            control.on_lost = None
            self._state.ended.append((UNSTARTED, job, None, None, 0))
            return
        control.begins_by = self._state.leases.begins_by(job)
        slot = self._state.journal.slot()
        self._state.journal.started(slot, job)
        soft, hard = handler.timeout(job)
        since = time.monotonic()
        alarm = None
        if soft is not None or hard is not None:
            alarm = RunAlarm(control, since, soft, hard, self._state.options.timeout_grace)
            self._state.timekeeper.expect(alarm)
        try:
            entry: Entry = (COMPLETED, job, control, await handler.arun(job, control), None)
            control.ran_ms = int((time.monotonic() - since) * 1_000)
        except BaseException as caught:  # noqa: BLE001  (a job may raise anything)
            control.ran_ms = int((time.monotonic() - since) * 1_000)
            error = caught
            if isinstance(caught, asyncio.CancelledError) and control.reason == "timeout":
                error = JobTimeout(soft).with_traceback(caught.__traceback__)
            entry = failed(handler, job, control, error)
        finally:
            control.on_lost = None
            if alarm is not None:
                self._state.timekeeper.forget(alarm)
        self._state.journal.ended(job)
        self._state.journal.free(slot)
        self._state.ended.append(entry)
        if self._sync_thread in connected_threads:
            await sync_to_async(tidy_connections)()
