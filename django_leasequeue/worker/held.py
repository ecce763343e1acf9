"""Claimed jobs that wait for a thread of the worker, and the leases that it holds, by its own clock.

No connection is needed to know that a lease ends. It is counted from before the statement that took or renewed it was
sent. So it never ends later here than in the database, even if the clocks of the two machines differ.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..engine import LeasedJob
from ..engine.leases.sweep import surely_until
from ..enums import JobFlag
from ..notify.alarms import Alarm
from .control import JobControl

logger = logging.getLogger("django_leasequeue.worker")

#: The shortest pause, in seconds, of the thread that watches leases.
SHORTEST_PAUSE = 0.02
#: The number of leases above which those without held jobs are dropped.
MANY = 1_000
#: Seconds after its admission in which a job under a rate must start; its window has as many more (flow_admit.sql).
START = 0.04
#: As plain numbers: the operators of an enum cost more than the rest of the check.
FLOW, RATED, SUSPECT = int(JobFlag.FLOW), int(JobFlag.RATED), int(JobFlag.SUSPECT)


class JobBuffer:
    """A queue for threads without a lock on the way: an idle thread parks, and new jobs wake as many as there are jobs.

    The thread that parked last is woken first: few threads stay warm, and few open database connections.
    """

    def __init__(self) -> None:
        #: Threads take from the left themselves, and park when it is empty.
        self.jobs: deque[LeasedJob] = deque()
        #: At this length and below, a thread that takes a job wakes the fetcher if it sleeps.
        self.low = 0
        self.fetcher = Alarm()
        self.closed = False
        self._parked: list[threading.Lock] = []
        #: The jobs while paused, so that threads find none: the next free thread is for a job of a rate.
        self._aside: deque[LeasedJob] | None = None
        self._lock = threading.Lock()

    @property
    def idle(self) -> int:
        return len(self._parked)

    @property
    def waiting(self) -> int:
        return len(self.jobs) + len(self._aside or ())

    def put(self, jobs: Sequence[LeasedJob], first: bool = False) -> None:
        """Add jobs, in order; with ``first`` before those that are there."""
        with self._lock:
            place = self.jobs if self._aside is None else self._aside
            if first:
                place.extendleft(reversed(jobs))
            else:
                place.extend(jobs)
            if self._aside is not None:
                return
        self._wake(len(jobs))

    def pause(self) -> None:
        with self._lock:
            if self._aside is None:
                self._aside = deque(take_each(self.jobs))

    def resume(self) -> None:
        with self._lock:
            if self._aside is None:
                return
            aside, self._aside = self._aside, None
            self.jobs.extend(aside)
        self._wake(len(self.jobs))

    def _wake(self, count: int) -> None:
        parked = self._parked
        while count and parked:
            try:
                parked.pop().release()
            except IndexError:  # they woke by themselves
                return
            count -= 1

    def park(self, parker: threading.Lock) -> bool:
        """Sleep by the thread's own lock, which it holds, until jobs arrive; return False once the buffer is closed."""
        self._parked.append(parker)
        if self.fetcher.sleeping:
            self.fetcher.wake()
        if self.jobs or self.closed:
            try:
                self._parked.remove(parker)
            except ValueError:
                parker.acquire()  # it is released, or about to be
        else:
            parker.acquire()
        return bool(self.jobs) or not self.closed

    def take_all(self) -> list[LeasedJob]:
        with self._lock:
            return take_each(self._aside or deque()) + take_each(self.jobs)

    def take_back(self, count: int) -> list[LeasedJob]:
        """Take up to ``count`` jobs from the end, those that would start last."""
        taken: list[LeasedJob] = []
        with suppress(IndexError):
            while len(taken) < count:
                taken.append(self.jobs.pop())
        return taken

    def take_first(self, flags: int) -> list[LeasedJob]:
        """Take the jobs with one of these flags from the front."""
        taken = []
        with suppress(IndexError):
            while (job := self.jobs.popleft()).flags & flags:
                taken.append(job)
            self.jobs.appendleft(job)
        return taken

    def close(self) -> None:
        """Let every thread end that finds no job."""
        self.closed = True
        self._wake(len(self._parked))


def take_each(jobs: deque[LeasedJob]) -> list[LeasedJob]:
    """Take out every job; others may do so meanwhile."""
    taken = []
    with suppress(IndexError):
        while True:
            taken.append(jobs.popleft())
    return taken


def take_from(job: LeasedJob, held: dict[int, LeasedJob]) -> bool:
    """Take a job out of ``held``; return False if it is not held, or by a later claim."""
    found = held.pop(job.seq, None)
    if found is job:
        return True
    if found is not None:
        held[job.seq] = found
    return False


class Lease:
    """The lease of the jobs of one claim: its length in seconds, from when its statement was sent (monotonic)."""

    __slots__ = ("claimed", "seconds", "since", "until")

    def __init__(self, since: float, seconds: float) -> None:
        self.claimed = since
        self.renew(since, seconds)

    def renew(self, since: float, seconds: float) -> None:
        self.since = since
        self.seconds = seconds
        #: Until when its jobs may start and run (monotonic seconds).
        self.until = surely_until(since, seconds)

    def forbids(self, job: LeasedJob, now: float) -> bool:
        return now >= self.until or (job.flags & RATED > 0 and now >= self.claimed + START)


class Leases:
    """Knows all leases, and aborts running jobs whose lease is about to end, in a thread that does nothing else."""

    def __init__(self, held: dict[int, LeasedJob]) -> None:
        self._held = held
        #: By claim. Checked before every start.
        self.of: dict[int, Lease] = {}
        self._many = MANY
        #: Jobs that could not begin when they were claimed last.
        self._late: set[int] = set()
        self._wakeup = Alarm()
        self._next_at = math.inf
        self._closing = False

    def add(self, job: LeasedJob, since: float, admitted_at: float = 0.0) -> Lease:
        """Note the claim of a job, before the job is held. For the thread that claims, which calls ``expect`` next."""
        lease = self.of[job.token] = Lease(since, job.deadline_epoch - job.claimed_epoch)
        # A rate counts from the admission: the claim may have waited before it.
        lease.claimed = max(since, admitted_at)
        return lease

    def expect(self, until: float) -> None:
        """Wake the watching thread if a lease ends (``until``, monotonic seconds) before its next check."""
        if until < self._next_at:
            self._wakeup.wake()

    def forget(self) -> None:
        """Forget leases without held jobs, if there are many. For the thread that claims."""
        if len(self.of) <= self._many:
            return
        held = {job.token for job in list(self._held.values())}
        for claim in [claim for claim in list(self.of) if claim not in held]:
            self.of.pop(claim, None)
        self._many = 2 * len(self.of) + MANY

    def over(self, job: LeasedJob) -> bool:
        lease = self.of.get(job.token)
        return lease is None or lease.forbids(job, time.monotonic())

    def begins_by(self, job: LeasedJob) -> float:
        """Return until when the function of a job under a rate must begin (monotonic); never if it was late before."""
        if not job.flags & RATED or job.seq in self._late or (lease := self.of.get(job.token)) is None:
            self._late.discard(job.seq)
            return math.inf
        return lease.claimed + START

    def was_late(self, job: LeasedJob) -> None:
        if len(self._late) >= MANY:
            self._late.clear()
        self._late.add(job.seq)

    def renewed(self, job: LeasedJob, since: float, seconds: float) -> None:
        lease = self.of.get(job.token)
        if lease is None:
            lease = self.of[job.token] = Lease(since, seconds)
        else:
            lease.renew(since, seconds)
        self.expect(lease.until)

    def watch(self, running: Callable[[], list[tuple[JobControl, float]]]) -> None:
        """Abort jobs whose lease ends, until ``close``. A job is among ``running`` before it checks its lease."""
        while not self._closing:
            self._next_at = math.inf
            now = time.monotonic()
            ended = [entry for entry in list(self.of.items()) if entry[1].until <= now]
            if ended:
                self._abort_lost(running(), now)
                for claim, lease in ended:
                    if lease.until <= now:  # not renewed meanwhile
                        self.of.pop(claim, None)
            next_at = min((lease.until for lease in list(self.of.values())), default=math.inf)
            self._next_at = next_at
            self._wakeup.wait(None if next_at == math.inf else max(SHORTEST_PAUSE, next_at - time.monotonic()))

    def _abort_lost(self, running: list[tuple[JobControl, float]], now: float) -> None:
        aborted = 0
        for control, _ in running:
            lease = self.of.get(control.job.token)
            if lease is not None and lease.until <= now and not control.lost:
                control.abort("lease_lost")
                aborted += 1
        if aborted:
            logger.warning("Leases end and could not be renewed: their running jobs abort", extra={"jobs": aborted})

    def close(self) -> None:
        self._closing = True
        self._wakeup.wake()
