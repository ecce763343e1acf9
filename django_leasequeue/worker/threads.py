"""The threads that run sync jobs."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ..engine import Failure
from ..engine.jobs.results import STALLED
from . import forked
from .batches import Answers, BatchRun, JobBatch
from .control import JobControl, JobTimeout
from .edge import check_edge, clear_edge, connected_threads, tidy_connections
from .held import RATED
from .run import COMPLETED, FAILED, RETRY, UNSTARTED, Entry, RunAlarm, Slot, ThreadAlarm, failed
from .state import WorkerState

T = TypeVar("T")

#: The failure of a run that was given up.
GIVEN_UP = Failure(STALLED, "the run took longer than its visibility timeout", fingerprint=STALLED.lower())


class ThreadPool:
    """Runs sync jobs from a buffer, one at a time in each thread."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        state.slots.extend(Slot(state.journal.slot()) for _ in range(state.options.concurrency))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for number, slot in enumerate(self._state.slots):
            self._threads.append(self._state.start_thread(f"job-{number}", partial(self._attend, slot)))

    def stop(self, timeout: float) -> bool:
        """End the threads that are idle; return whether all ended within ``timeout`` seconds."""
        self._state.buffer.close()
        end = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def abandon_run(self, alarm: RunAlarm) -> None:
        """Give up a run, also of a coroutine: its job is released as if its lease had expired, then the run aborts."""
        if not alarm.leave():
            return
        if isinstance(alarm, ThreadAlarm):
            # A new thread takes the slot; the old one ends with its run.
            new = Slot(alarm.slot.number)
            slots = self._state.slots
            slots[slots.index(alarm.slot)] = new
            thread = self._state.start_thread("job", partial(self._attend, new))
            self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        # Before the abort, so that whatever the run still does comes too late.
        jobs = [control.job for control in alarm.control.members or (alarm.control,)]
        self._state.journal.ended_together(jobs)
        self._state.ended.extend([(RETRY, job, None, GIVEN_UP, 0) for job in jobs])
        self._state.acknowledger.wake()
        alarm.control.abort("lease_lost")

    def _attend(self, slot: Slot) -> None:
        try:
            self._work(slot)
        finally:
            slot.control = None  # an embedded worker that broke waits for runs that go on

    def _work(self, slot: Slot) -> None:  # noqa: C901  (the hottest loop there is: no calls that can be spared)
        # Looked up once instead of for every job.
        state, buffer, ended_runs = self._state, self._state.buffer, self._state.ended
        node, using = state.node, state.options.database
        handler, held, leases = state.handler, state.held, state.leases.of
        timeout, run = state.timeout, handler.run
        jobs, take, append = buffer.jobs, buffer.jobs.popleft, ended_runs.append
        fetcher, acknowledger = buffer.fetcher, state.acknowledger
        monotonic, new_context = time.monotonic, contextvars.Context
        started, ended, number = state.journal.started, state.journal.ended, slot.number
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
            if held.get(job.seq) is not job:  # lost or given back before it was among the running jobs, or a batch
                slot.control = None
                if isinstance(job, JobBatch):
                    self._run_batch(slot, job)
                    if slot.left:
                        return
                continue
            # After the job is in the slot: from then on the end of its lease aborts it.
            slot.since = since = monotonic()
            lease = leases.get(job.token)
            if lease is None or lease.forbids(job, since):
                slot.control = None
                append((UNSTARTED, job, None, None, 0))
                acknowledger.wake()
                continue
            control.lease = lease
            if job.flags & RATED:
                control.begins_by = state.leases.begins_by(job)
            started(number, job)
            try:
                if soft is None and hard is None:
                    entry: Entry = (COMPLETED, job, control, new_context().run(run, job, control), None)
                else:
                    entry = (COMPLETED, job, control, self._run_timed(slot, control, soft, hard, run, job), None)
                control.ran_ms = int((monotonic() - since) * 1_000)
            except BaseException as error:  # noqa: BLE001  (a job may raise anything)
                forked.leave_if_child()
                control.ran_ms = int((monotonic() - since) * 1_000)
                if isinstance(error, JobTimeout) and error.seconds is None:
                    error = JobTimeout(soft)
                entry = failed(handler, job, control, error)
            if forked.is_child:
                forked.leave_if_child()
            if ident in connected_threads:
                entry = clear_edge(entry, handler)
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

    def _run_batch(self, slot: Slot, batch: JobBatch) -> None:
        state, waiting = self._state, batch.take()
        if not waiting:
            return
        run = BatchRun(state, waiting)
        slot.control, slot.since = run.control, time.monotonic()
        # After they are in the slot: from then on the end of a lease aborts its job.
        if jobs := run.begin():
            soft, hard = run.timeout
            answers: Answers = []
            error: BaseException | None = None
            try:
                answers = self._run_timed(slot, run.control, soft, hard, state.batching.run_batch, jobs)
                check_edge(run.control)
            except BaseException as raised:  # noqa: BLE001  (jobs may raise anything)
                error = raised
            run.end(answers, error)
            if threading.get_ident() in connected_threads:
                clear_edge((FAILED, batch, run.control, None, None), state.handler)
                tidy_connections()
        slot.control = None
        # Else it collects more: a thread without a next job ends its wait.
        if state.acknowledger.sleeping or slot.left:
            state.acknowledger.wake()

    def _run_timed(
        self, slot: Slot, control: JobControl, soft: float | None, hard: float | None, run: Callable[..., T], *jobs: Any
    ) -> T:
        alarm = ThreadAlarm(slot, control, soft, hard, self._state.options.timeout_grace)
        timekeeper = self._state.timekeeper
        timekeeper.expect(alarm)

        def restart(since: float) -> None:
            alarm.start(since)
            timekeeper.expect(alarm)

        control.restart_clock = restart
        try:
            return contextvars.Context().run(run, *jobs, control)
        finally:
            try:
                alarm.end()
            finally:  # it may raise the timeout that came last
                slot.left = not alarm.leave()
                timekeeper.forget(alarm)
