"""Jobs that run together in one call: gathered before they start, each with an end of its own."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from ..engine import LeasedJob
from ..exceptions import InvalidOption
from . import forked
from .control import JobControl, JobTimeout, Reason
from .held import RATED, SUSPECT
from .run import COMPLETED, UNSTARTED, Entry, failed

if TYPE_CHECKING:
    from .state import WorkerState

#: Of each job of a call, in order: its result as JSON, and its error.
Answers = list[tuple[str | None, BaseException | None]]
#: Seconds after a call for which the fetcher claims as many jobs as the next one takes.
RECENT = 10.0
_guard = threading.Lock()


class BatchGroup(NamedTuple):
    """Which jobs run together: those of one key, so many at most, and how many seconds the first one waits."""

    key: Hashable
    size: int
    wait: float


class BatchHandler(Protocol):
    """The kind of handler that has jobs that run together; see ``worker.control.Handler``."""

    def takes_batches(self) -> bool:
        """Return whether it has seen such jobs; if not, no job is asked for its group."""

    def batch_of(self, job: LeasedJob) -> BatchGroup | None:
        """Return the group of a job; ``None``: it runs alone. Must not raise."""

    def run_batch(self, jobs: Sequence[LeasedJob], control: BatchControl) -> Answers:
        """Run jobs of one group with one call, in a thread of the worker; return the answer of each."""

    async def arun_batch(self, jobs: Sequence[LeasedJob], control: BatchControl) -> Answers:
        """Run jobs of one group with one call, in the worker's event loop; return the answer of each."""


class JobBatch(LeasedJob):
    """Jobs that wait to run together. It stands in the place of the first one, whose fields it has."""

    jobs: list[LeasedJob]
    group: BatchGroup
    #: When they start even if others would have a place (monotonic); whether they wait for a thread only.
    at: float
    offered = False
    closed = False

    def add(self, jobs: list[LeasedJob]) -> list[LeasedJob]:
        """Add jobs, from any thread; return those for which there is no place, or all if it has been taken."""
        with _guard:
            room = 0 if self.closed else self.missing
            self.jobs += jobs[:room]
            return jobs[room:]

    def take(self) -> list[LeasedJob]:
        """Take out the jobs, from any thread: nobody else gets them."""
        with _guard:
            self.closed = True
            jobs, self.jobs = self.jobs, []
            return jobs

    @property
    def missing(self) -> int:
        return self.group.size - len(self.jobs)


def take_apart(jobs: Sequence[LeasedJob]) -> list[LeasedJob]:
    """Return jobs one by one: those of batches are taken out."""
    return [one for job in jobs for one in (job.take() if isinstance(job, JobBatch) else (job,))]


class BatchGatherer:
    """Gathers jobs that run together. For the fetcher's thread; a batch is taken by the thread that runs it."""

    def __init__(self, handler: BatchHandler) -> None:
        self._handler = handler
        #: Those that may still get jobs, by the key of their group; and all that were not taken yet.
        self._open: dict[Hashable, JobBatch] = {}
        self._untaken: list[JobBatch] = []
        self._recent = (-math.inf, 0)

    def gather(self, jobs: list[LeasedJob]) -> list[LeasedJob]:
        """Return what can start of newly claimed jobs: batches in the place of jobs that run together."""
        # Suspects and jobs of rates start by rules of their own, alone.
        groups = [None if job.flags & (SUSPECT | RATED) else self._handler.batch_of(job) for job in jobs]
        if not any(groups):
            return jobs
        places: dict[Hashable, tuple[BatchGroup | None, list[LeasedJob]]] = {}
        for job, group in zip(jobs, groups, strict=True):
            places.setdefault(job.seq if group is None else group.key, (group, []))[1].append(job)
        return [one for group, found in places.values() for one in (self._put(group, found) if group else found)]

    def _put(self, group: BatchGroup, jobs: list[LeasedJob]) -> list[LeasedJob]:
        """Put jobs into batches of their group; return those batches that can start by now."""
        now, started, batch = time.monotonic(), list[LeasedJob](), self._open.get(group.key)
        self._recent = (now, group.size)
        while True:
            if batch is not None:
                jobs = batch.add(jobs)
                if not batch.offered and (group.wait == 0 or batch.missing == 0):
                    batch.offered = True
                    started.append(batch)
            if not jobs:
                return started
            batch = self._open[group.key] = JobBatch(*jobs[0])
            batch.jobs, batch.group, batch.at = [], group, now + group.wait
            self._untaken.append(batch)

    def due(self, now: float) -> list[LeasedJob]:
        """Return the batches that have waited long enough at this time (monotonic)."""
        self._untaken = [batch for batch in self._untaken if not batch.closed]
        self._open = {key: batch for key, batch in self._open.items() if batch.missing and not batch.closed}
        found: list[LeasedJob] = []
        for batch in self._untaken:
            if batch.at <= now and not batch.offered:
                batch.offered = True
                found.append(batch)
        return found

    def until(self) -> float:
        """Return the seconds until the next batch has waited long enough."""
        at = min((batch.at for batch in self._untaken if not (batch.offered or batch.closed)), default=math.inf)
        return max(0.0, at - time.monotonic())

    @property
    def waiting(self) -> int:
        return sum(len(batch.jobs) for batch in self._untaken)

    @property
    def missing(self) -> int:
        """How many jobs one more batch could take."""
        at, size = self._recent
        missing = [batch.missing for batch in self._untaken if not batch.closed]
        return max(missing) if missing else size if time.monotonic() - at < RECENT else 0

    def take_all(self) -> list[LeasedJob]:
        """Take the jobs that wait, from any thread."""
        return [job for batch in list(self._untaken) for job in batch.take()]


class BatchControl(JobControl):
    """The control of one call for many jobs: it is to stop once each of its jobs is, or at the timeout of the call."""

    def __init__(self, members: Sequence[JobControl]) -> None:
        self.node, self.using = members[0].node, members[0].using
        self.members = members
        follow = (self._follow,)
        for member in members:
            member._calls += follow
        self._follow()

    def _follow(self) -> None:
        if all(member.reason for member in self.members):
            super().abort(self.members[0].reason if self.members else "lease_lost")

    def abort(self, reason: Reason) -> None:
        super().abort(reason)
        for member in self.members:
            member.abort(reason)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidOption(
            "a batch runs the calls of many jobs: current() in it has no job, steps, sleeps, waits or progress. Give"
            " what needs them a task of its own, and enqueue that."
        )

    job = _done = property(_refuse)
    replace = set_progress = _refuse


class BatchRun:
    """The run of a batch: makes its controls, and then the entries of its jobs. For the thread or loop that runs it."""

    def __init__(self, state: WorkerState, jobs: list[LeasedJob]) -> None:
        self._state = state
        self.control = BatchControl([JobControl(job, state.node, state.options.database) for job in jobs])
        self._since = 0.0
        self._soft: float | None = None

    def begin(self) -> list[LeasedJob]:
        """Return the jobs to run, once this run is among the running ones: without those that are lost by now."""
        held, leases, kept = self._state.held, self._state.leases.of, []
        self._since = time.monotonic()
        for control in self.control.members:
            job = control.job
            if held.get(job.seq) is not job:
                continue
            lease = leases.get(job.token)
            if lease is None or lease.forbids(job, self._since):
                self._state.ended.append((UNSTARTED, job, None, None, 0))
                continue
            control.lease = lease
            kept.append(control)
        self.control.members = kept
        jobs = [control.job for control in kept]
        if jobs:
            self._state.journal.started_together(jobs)
            self._state.figures.add(batches=1, batched_jobs=len(jobs))
        return jobs

    @property
    def timeout(self) -> tuple[float | None, float | None]:
        """The soft and the hard timeout of the call: its jobs have the same."""
        self._soft, hard = self._state.timeout(self.control.members[0].job)
        return self._soft, hard

    def end(self, answers: Answers, error: BaseException | None = None) -> None:
        """Pass on the end of each job: its own answer, or the error of the call."""
        forked.leave_if_child()
        state = self._state
        ran_ms = int((time.monotonic() - self._since) * 1_000)
        entries: list[Entry] = []
        for number, control in enumerate(self.control.members):
            control.ran_ms = ran_ms
            text, own = (None, error) if error is not None else answers[number]
            if self.control.reason == "timeout" and isinstance(own, JobTimeout | asyncio.CancelledError):
                own = JobTimeout(self._soft).with_traceback(own.__traceback__)
            if own is None:
                entries.append((COMPLETED, control.job, control, text, None))
            else:
                entries.append(failed(state.handler, control.job, control, own))
        state.journal.ended_together([control.job for control in self.control.members])
        state.ended.extend(entries)
