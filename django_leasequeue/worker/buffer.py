"""Jobs that were claimed and wait for a thread, and the cheapest way to wake one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..engine import LeasedJob


class JobBuffer:
    """A queue for threads without a lock on the way: an idle thread parks, and new jobs wake as many as there are jobs.

    The thread that parked last is woken first: few threads stay warm, and few open database connections.
    """

    def __init__(self) -> None:
        #: Threads take from the left themselves, and park when it is empty.
        self.jobs: deque[LeasedJob] = deque()
        #: At this length and below, a thread that takes a job wakes the fetcher if it sleeps.
        self.low = 0
        self.fetcher = WakeUp()
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
        """Let no thread find a job."""
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


class WakeUp:
    """A binary semaphore for one waiting thread, lighter than ``threading.Event``: one lock, not three objects."""

    __slots__ = ("_lock", "sleeping")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        #: Set by the owner while a ``wake`` is worth its cost; the first one takes it back.
        self.sleeping = False

    def wake(self) -> None:
        """End the current or the next wait, from any thread."""
        self.sleeping = False
        try:  # noqa: SIM105  (suppress takes four times as long, and jobs wait for it)
            self._lock.release()
        except RuntimeError:  # it was woken already
            pass

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until a ``wake``, at most ``timeout`` seconds; return whether one came."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))

    def doze(self, timeout: float | None, unless: Callable[[], object]) -> None:
        """Sleep until a ``wake``, while one is worth its cost, ``unless`` there is something to do by now."""
        self.sleeping = True
        if not unless():
            self.wait(timeout)
        self.sleeping = False
