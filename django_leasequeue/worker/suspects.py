"""Suspects: jobs whose last delivery ended with the process, maybe by their own doing. Each runs by itself."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence

from ..engine import LeasedJob
from .buffer import take_each
from .coroutines import CoroutinePool
from .logs import about
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds that a suspect waits for what runs to end; then another worker may have it.
QUIET = 5.0
#: Seconds of a suspect's run after which what waits behind it is given back.
PATIENCE = 3.0
#: Milliseconds until such a suspect comes again: doubled with every time, up to.
FIRST_DELAY, LAST_DELAY = 5_000, 300_000


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
        """Return whether nothing runs, and the database knows of all that has ended."""
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
            self._postpone(take_each(self._pending))
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

    def _postpone(self, jobs: list[LeasedJob]) -> None:
        """Let others have the suspects, and this process look again later: what runs here does not end."""
        if len(self._delays) > 10_000:
            self._delays.clear()
        for job in jobs:
            delay = self._delays.get(job.seq, FIRST_DELAY)
            self._delays[job.seq] = min(2 * delay, LAST_DELAY)
            self._state.give_back([job], unstarted=True, delay_ms=delay)
