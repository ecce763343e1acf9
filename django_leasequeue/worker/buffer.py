"""Jobs that were claimed and wait to run: for a thread, or, as suspects, until nothing else runs."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..engine import LeasedJob
from ..notify.alarms import Alarm
from .logs import about

if TYPE_CHECKING:
    from .coroutines import CoroutinePool
    from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds that a suspect waits for what runs to end; then another worker may have it.
QUIET = 5.0
#: Seconds of a suspect's run after which what waits behind it is given back.
PATIENCE = 3.0
#: Milliseconds until such a suspect comes again: doubled with every time, up to.
FIRST_DELAY, LAST_DELAY = 5_000, 300_000


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
        #: While paused the jobs are here, and threads find none.
        self._aside: deque[LeasedJob] | None = None
        self._lock = threading.Lock()

    @property
    def idle(self) -> int:
        return len(self._parked)

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

    def put_alone(self, job: LeasedJob) -> None:
        """Let a thread take this job although the buffer is paused."""
        self.jobs.append(job)
        self._wake(1)

    def pause(self) -> None:
        with self._lock:
            self._aside = deque(take_each(self.jobs))

    def resume(self) -> None:
        with self._lock:
            aside, self._aside = self._aside or (), None
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
        """Sleep by the thread's own lock, held, until there are or were jobs; return False once it is closed."""
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
        taken = []
        for _ in range(count):
            try:
                taken.append(self.jobs.pop())
            except IndexError:
                break
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
    """Take one job out of those that are held; False if it is not, or if it is held again by a later claim."""
    found = held.pop(job.seq, None)
    if found is job:
        return True
    if found is not None:
        held[job.seq] = found
    return False


class SuspectIsolation:
    """Lets a suspect run when nothing else of the process runs, and nothing start beside it.

    For the fetcher's thread. Either the starter of a job, which shows it among the running ones before it asks
    ``state.admits``, sees the closed gate, or isolation, which closes the gate first, sees the job.
    """

    def __init__(self, state: WorkerState, coroutines: CoroutinePool) -> None:
        self._state = state
        self._coroutines = coroutines
        self._pending: deque[LeasedJob] = deque()
        self._since = 0.0
        self._delays: dict[int, int] = {}

    def add(self, jobs: Sequence[LeasedJob]) -> None:
        """Take suspects; nothing else starts from now on."""
        self._close()
        self._pending.extend(jobs)

    def take_waiting(self) -> list[LeasedJob]:
        """Take out every job that waits to be started, suspects last."""
        return self._state.buffer.take_all() + take_each(self._coroutines.jobs) + take_each(self._pending)

    def _quiet(self) -> bool:
        state = self._state
        return not (self._coroutines.starting or state.running() or state.ended or state.settling)

    def step(self) -> bool:
        """Do what can be done now; return whether suspects are under way."""
        state, now = self._state, time.monotonic()
        if state.alone is not None:
            if state.held.get(state.alone.seq) is state.alone or not self._quiet():
                # Among what waits may be the suspect itself, if no thread has taken it.
                if now - self._since > PATIENCE and (waiting := self.take_waiting()):
                    state.give_back(waiting, unstarted=True)
                return True
            state.alone = None
        while True:
            try:
                job = self._pending[0]
            except IndexError:  # none, or the worker stops and took them
                break
            if state.held.get(job.seq) is not job:  # its lease was lost
                self._drop(job)
                continue
            self._close()
            if self._quiet():
                if not self._drop(job):
                    continue
                self._delays.pop(job.seq, None)
                state.alone, self._since = job, now
                logger.info("A suspect runs alone", extra=about(job))
                (self._coroutines if state.handler.is_async(job) else state.buffer).put_alone(job)
                return True
            if now - self._since <= QUIET:
                return True
            # What runs here does not end: others may have the suspects, and this process looks again later.
            if len(self._delays) > 10_000:
                self._delays.clear()
            for job in take_each(self._pending):
                delay = self._delays.get(job.seq, FIRST_DELAY)
                self._delays[job.seq] = min(2 * delay, LAST_DELAY)
                state.give_back([job], unstarted=True, delay_ms=delay)
        if state.isolating:
            state.isolating = False
            state.buffer.resume()
            self._coroutines.resume()
        return False

    def _drop(self, job: LeasedJob) -> bool:
        try:
            self._pending.remove(job)
        except ValueError:
            return False
        return True

    def _close(self) -> None:
        if not self._state.isolating:
            self._since = time.monotonic()
            self._state.isolating = True
            self._state.buffer.pause()
