"""Suspects: jobs whose last delivery ended with the process, maybe by their own doing. Each runs by itself."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from ..engine import LeasedJob
from .buffer import JobBuffer
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds that a suspect waits for what runs to end; then another worker may have it.
QUIET = 5.0
#: Seconds of a suspect's run after which what waits behind it is given back.
PATIENCE = 3.0
#: Milliseconds until such a suspect comes again: doubled with every time, up to.
FIRST_DELAY, LAST_DELAY = 5_000, 300_000


class Apart:
    """Lets a suspect run when nothing else of the process runs, and nothing start beside it.

    ``step`` and ``add`` are for the fetcher's thread. Whoever starts a job shows it among the running ones first, and
    then asks ``admits``; here the gate is closed first, and then what runs is looked at: one of the two sees the other.

    Args:
        state: the worker's.
        buffer: of the threads.
        quiet: whether nothing runs, and the database knows of all that has ended.
        start: starts a suspect.
        resume: lets coroutines go on.
        give_back: takes jobs that have not started, with a delay in ms.
        take_waiting: takes out every job that waits to be started.
    """

    def __init__(
        self,
        state: WorkerState,
        buffer: JobBuffer,
        quiet: Callable[[], bool],
        start: Callable[[LeasedJob], None],
        resume: Callable[[], None],
        give_back: Callable[[Sequence[LeasedJob], int], None],
        take_waiting: Callable[[], list[LeasedJob]],
    ) -> None:
        self._state = state
        self._buffer = buffer
        self._quiet = quiet
        self._start = start
        self._resume = resume
        self._give_back = give_back
        self._take_waiting = take_waiting
        self._pending: deque[LeasedJob] = deque()
        #: Whether nothing may start but ``job``.
        self.closed = False
        self.job: LeasedJob | None = None
        self._since = 0.0
        self._delays: dict[int, int] = {}

    def admits(self, job: LeasedJob) -> bool:
        """Return whether a job may start now, after it was shown among the running ones."""
        return not self.closed or self.job is job

    def add(self, jobs: Sequence[LeasedJob]) -> None:
        """Take suspects; nothing else starts from now on."""
        self._close()
        self._pending.extend(jobs)

    def take_all(self) -> list[LeasedJob]:
        """Take out the suspects that have not started."""
        taken = []
        while self._pending:
            taken.append(self._pending.popleft())
        return taken

    def step(self) -> bool:
        """Do what can be done now; return whether suspects are under way."""
        now = time.monotonic()
        if self.job is not None:
            if self._state.held.get(self.job.seq) is self.job or not self._quiet():
                # Among what waits may be the suspect itself, if no thread has taken it.
                if now - self._since > PATIENCE and (waiting := self._take_waiting() + self.take_all()):
                    self._give_back(waiting, 0)
                return True
            self.job = None
        while True:
            try:
                job = self._pending[0]
            except IndexError:  # none, or the worker stops and took them
                break
            if self._state.held.get(job.seq) is not job:  # its lease was lost
                self._drop(job)
                continue
            self._close()
            if self._quiet():
                if not self._drop(job):
                    continue
                self._delays.pop(job.seq, None)
                self.job, self._since = job, now
                logger.info("A suspect runs alone", extra={"seq": job.seq, "queue": job.queue, "job": job.name})
                self._start(job)
                return True
            if now - self._since <= QUIET:
                return True
            self._postpone(self.take_all())
        if self.closed:
            self.closed = False
            self._buffer.resume()
            self._resume()
        return False

    def _drop(self, job: LeasedJob) -> bool:
        try:
            self._pending.remove(job)
        except ValueError:
            return False
        return True

    def _close(self) -> None:
        if not self.closed:
            self._since = time.monotonic()
            self.closed = True
            self._buffer.pause()

    def _postpone(self, jobs: list[LeasedJob]) -> None:
        """Let others have the suspects, and this process look again later: what runs here does not end."""
        if len(self._delays) > 10_000:
            self._delays.clear()
        for job in jobs:
            delay = self._delays.get(job.seq, FIRST_DELAY)
            self._delays[job.seq] = min(2 * delay, LAST_DELAY)
            self._give_back([job], delay)
