"""The leases that a worker holds, by the worker's own clock: no connection is needed to know that one ends.

A lease is counted from before the statement that took or renewed it was sent. So it never ends later here than in the
database, even if the clocks of the two machines differ.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

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
        """Note that the lease of a job's claim was renewed."""
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
