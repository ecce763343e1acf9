"""The buffer of claimed jobs that wait for a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from ..engine import LeasedJob
from ..notify.alarms import Alarm


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
        taken = []
        for _ in range(count):
            try:
                taken.append(self.jobs.pop())
            except IndexError:
                break
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
