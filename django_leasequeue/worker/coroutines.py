"""The event loop that runs async jobs, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import connections

from ..conf import process
from ..engine import LeasedJob
from ..engine.pool import close_pools
from . import forked
from .batches import Answers, BatchRun, JobBatch
from .control import UNBOUNDED, JobControl, JobTimeout
from .edge import SyncParts, error_of, judged, tidy_connections
from .run import COMPLETED, FAILED, UNSTARTED, Entry, RunAlarm, failed
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds without an async job after which the fetcher claims nothing for coroutines.
RECENT = 10.0


class CoroutinePool:
    """Runs async jobs, each as a task of its own, a bounded number at once. The loop starts with the first of them."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self.jobs: deque[LeasedJob] = deque()
        #: No job starts: the next free slot is for a job of a rate.
        self.paused = False
        self._most = state.options.coroutines
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._used_at = float("-inf")
        #: The thread in which the sync parts of coroutines run (the ORM's among them).
        self._sync_thread = ThreadPoolExecutor(1, "leasequeue-sync", process.own_thread)
        #: Whether the last jobs used that thread, so that connections may have to be closed.
        self._untidy = False
        self._stopping = asyncio.Event()

    def idle(self) -> int:
        """The number of async jobs that could start now; 0 without recent ones."""
        return 0 if time.monotonic() - self._used_at > RECENT else self.free

    @property
    def free(self) -> int:
        return self._most - len(self._state.coroutines)

    def put(self, jobs: list[LeasedJob], first: bool = False) -> None:
        self._used_at = time.monotonic()
        if first:
            self.jobs.extendleft(reversed(jobs))
        else:
            self.jobs.extend(jobs)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = self._state.start_thread("coroutines", partial(self._run, self._loop))
        self._loop.call_soon_threadsafe(self._pump)

    def resume(self) -> None:
        self.paused = False
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._pump)

    def stop(self, timeout: float) -> bool:
        if self._loop is None or self._thread is None:
            return True
        with suppress(RuntimeError):  # its loop is closed: it broke
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        process.own_thread()
        asyncio.set_event_loop(loop)
        try:
            main = _hidden(loop.create_task(self._until_stopped()))
            while not main.done():
                try:
                    loop.run_until_complete(main)
                except (SystemExit, KeyboardInterrupt, RuntimeError) as error:
                    if main.done() or loop.is_closed():
                        raise
                    # In asyncio such an error of any task ends the loop. The job gets it from its own await, and fails.
                    # And a RuntimeError says that a job has stopped the loop.
                    logger.warning("A task of an async job raised %r: the loop continues", error)
        finally:
            self._sync_thread.submit(connections.close_all)
            self._sync_thread.shutdown(wait=False)
            loop.close()
            self._state.coroutines.clear()  # what is left of them never runs again

    async def _until_stopped(self) -> None:
        await self._stopping.wait()
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
        while self.jobs and not self.paused and len(self._state.coroutines) < self._most:
            try:
                job = self.jobs.popleft()
            except IndexError:  # the worker stops and took them
                return
            many: BatchRun | None = None
            if held.get(job.seq) is not job:
                if not isinstance(job, JobBatch) or not (waiting := job.take()):
                    continue  # lost or given back before it started
                many = BatchRun(self._state, waiting)
            control = many.control if many else JobControl(job, self._state.node, self._state.options.database)
            context, parts = contextvars.Context(), SyncParts(self._sync_thread)
            context.run(parts.install)
            run = self._many(many, parts) if many else self._one(job, control, parts)
            task = _hidden(asyncio.Task(run, loop=loop, context=context))  # by no factory of a job
            self._state.coroutines[task] = (control, time.monotonic())
            task.add_done_callback(self._ended)
        if (self.paused or not self.jobs) and self._state.buffer.fetcher.sleeping:
            self._state.buffer.fetcher.wake()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._state.coroutines[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._state.breaks("coroutines", error)
        self._pump()
        if self._untidy and not self._state.coroutines:
            # Not before: another one may read a cursor of the connection that they share.
            self._untidy = False
            self._sync_thread.submit(tidy_connections)
        if self._state.acknowledger.sleeping or not self.jobs:
            self._state.acknowledger.wake()

    async def _many(self, run: BatchRun, parts: SyncParts) -> None:
        state, control, task = self._state, run.control, asyncio.current_task()
        assert task is not None
        control.on_lost = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        if not (jobs := run.begin()):
            control.on_lost = None
            return
        soft, hard = run.timeout
        alarm = RunAlarm(control, time.monotonic(), soft, hard, state.options.timeout_grace)
        state.timekeeper.expect(alarm)
        answers: Answers = []
        error: BaseException | None = None
        try:
            answers = await state.batching.arun_batch(jobs, control)
        except BaseException as raised:  # noqa: BLE001  (jobs may raise anything)
            error = raised
        control.on_lost = None
        state.timekeeper.forget(alarm)
        forked.leave_if_child()
        self._untidy = self._untidy or parts.used
        if parts.kept:
            found, spoils = await asyncio.wrap_future(parts.close())
            judged((FAILED, jobs[0], control, None, None), state.handler, found, spoils)
            error = error_of(control, found) if error is None else error
        run.end(answers, error)

    async def _one(self, job: LeasedJob, control: JobControl, parts: SyncParts) -> None:
        handler = self._state.handler
        task = asyncio.current_task()
        assert task is not None
        control.on_lost = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        # After that: from then on the end of its lease cancels the run.
        given_back = self._state.held.get(job.seq) is not job  # before it was among the running jobs
        if given_back or control.reason in ("lease_lost", "cancelled") or self._state.leases.over(job):
            control.on_lost = None
            self._state.ended.append((UNSTARTED, job, None, None, 0))
            return
        control.lease = self._state.leases.of.get(job.token, UNBOUNDED)
        control.begins_by = self._state.leases.begins_by(job)
        slot = self._state.journal.slot()
        self._state.journal.started(slot, job)
        soft, hard = self._state.timeout(job)
        since = time.monotonic()
        alarm = None
        if soft is not None or hard is not None:
            alarm = RunAlarm(control, since, soft, hard, self._state.options.timeout_grace)
            self._state.timekeeper.expect(alarm)
        try:
            entry: Entry = (COMPLETED, job, control, await handler.arun(job, control), None)
            control.ran_ms = int((time.monotonic() - since) * 1_000)
        except BaseException as caught:  # noqa: BLE001  (a job may raise anything)
            forked.leave_if_child()
            control.ran_ms = int((time.monotonic() - since) * 1_000)
            error = caught
            if isinstance(caught, asyncio.CancelledError) and control.reason == "timeout":
                error = JobTimeout(soft).with_traceback(caught.__traceback__)
            entry = failed(handler, job, control, error)
        finally:
            control.on_lost = None
            if alarm is not None:
                self._state.timekeeper.forget(alarm)
        forked.leave_if_child()
        self._untidy = self._untidy or parts.used
        if parts.kept:
            entry = judged(entry, handler, *await asyncio.wrap_future(parts.close()))
        self._state.journal.ended(job)
        self._state.journal.free(slot)
        self._state.ended.append(entry)


def _hidden(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """Leave a task out of ``asyncio.all_tasks``: a job that cancels all of these cancels no other job."""
    asyncio.tasks._unregister_task(task)
    return task
