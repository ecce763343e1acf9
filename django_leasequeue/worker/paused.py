"""Jobs of paused tasks: a worker gives them back instead of starting them, each time for longer."""

from __future__ import annotations

import logging
import time
from collections import defaultdict

from ..engine import LeasedJob
from ..engine.jobs.pausing import list_paused, make_due
from .batches import take_apart
from .buffer import take_each
from .coroutines import CoroutinePool
from .link import DatabaseLink
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Shortest and longest time, in seconds, for which a job goes back. In between it is the age of the pause, so a job
#: is claimed some ten times in the first hour, and then every ten minutes.
FIRST, LAST = 5.0, 600.0
#: Seconds after the end of a pause for which a reading looks for jobs that this worker was still giving back.
SETTLED = 3.0


class PausedTasks:
    """The paused tasks of the project, as the worker has read them last. For the fetcher's thread."""

    def __init__(self, state: WorkerState, link: DatabaseLink, coroutines: CoroutinePool) -> None:
        self._state, self._link, self._coroutines = state, link, coroutines
        #: When each was paused (monotonic), by name.
        self.since: dict[str, float] = {}
        #: When those were found resumed (monotonic) whose jobs may not all be due yet.
        self._resumed: dict[str, float] = {}

    def read(self) -> list[LeasedJob]:
        """Read which tasks are paused; return the jobs claimed ahead, if more tasks are paused than before."""
        project = self._state.options.project
        found, now, before = self._link.run(list_paused(project)), time.monotonic(), self.since
        self.since = {each.name: now - each.seconds for each in found}
        self._resumed |= dict.fromkeys(before.keys() - self.since.keys(), now)
        for name, at in list(self._resumed.items()):
            if name not in self.since:
                self._link.run(make_due(name, project))
            if now - at > SETTLED:
                del self._resumed[name]
        if not (added := self.since.keys() - before.keys()):
            return []
        logger.info("Paused tasks: their jobs go back", extra={"tasks": ",".join(sorted(added))})
        ahead = self._state.buffer.take_all() + take_each(self._coroutines.jobs)
        return [*take_apart(ahead), *self._state.batches.take_all()]

    def sort_out(self, jobs: list[LeasedJob]) -> list[LeasedJob]:
        """Give back the held jobs of paused tasks; return the others."""
        back: defaultdict[str, list[LeasedJob]] = defaultdict(list)
        for job in jobs:
            if job.name in self.since:
                back[job.name].append(job)
        for name, of_task in back.items():
            seconds = min(max(time.monotonic() - self.since[name], FIRST), LAST)
            self._state.give_back(of_task, unstarted=True, delay_ms=int(seconds * 1_000))
        return [job for job in jobs if job.name not in back] if back else jobs
