"""How claimed jobs start; suspects run alone, jobs of rates start at once or go back, those of paused tasks go back."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable

from ..conf.loglines import about
from ..engine import LeasedJob
from ..engine.jobs.pausing import list_paused, make_due
from ..engine.leases.floor import ClaimCursor
from .batches import take_apart
from .coroutines import CoroutinePool
from .held import RATED, START, take_each
from .link import DatabaseLink
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds between polls whether a suspect can start, or has ended.
SUSPECT_POLL = 0.05
#: Seconds that a suspect waits for the running jobs to end before it goes to another worker.
QUIET = 5.0
#: Seconds of a suspect's run after which other jobs start beside it.
ALONE = 30.0
#: First and longest delay, in milliseconds, of a suspect that could not start; doubled each time.
FIRST_DELAY, LAST_DELAY = 5_000, 300_000
#: The number of suspects whose delay is remembered.
MOST = 10_000
#: Seconds in which a job of a rate surely starts if jobs take no longer than that.
SOON = START / 2
#: Seconds of a measurement of how fast jobs start.
WINDOW = 0.25
#: Shortest and longest pause, in seconds, until the fetcher checks again whether other jobs have had their share.
FIRST_CHECK, LAST_CHECK = 0.01, 0.25


class SuspectIsolation:
    """Runs suspects alone, where the handler has no processes for them (``Handler.isolates``).

    For the fetcher's thread: nothing is claimed meanwhile, so nothing else starts.
    """

    def __init__(self, state: WorkerState, start: Callable[[list[LeasedJob]], None]) -> None:
        self._state = state
        self._start = start
        self._delays: dict[int, int] = {}

    def run(self, job: LeasedJob) -> None:
        """Run a held job when nothing else is held; return when it has ended, or after ``ALONE`` seconds."""
        state = self._state
        if not self._wait(QUIET, lambda: len(state.held) > (job.seq in state.held) or state.settling > 0):
            if len(self._delays) >= MOST:
                self._delays.clear()
            delay = self._delays.get(job.seq, FIRST_DELAY)
            self._delays[job.seq] = min(2 * delay, LAST_DELAY)
            logger.warning("A suspect is given back: other jobs do not end", extra=about(job, delay_ms=delay))
            state.give_back([job], unstarted=True, delay_ms=delay)
            return
        if state.held.get(job.seq) is not job:
            return
        if state.draining.is_set():
            state.give_back([job], unstarted=True)
            return
        self._delays.pop(job.seq, None)
        logger.warning("A suspect runs alone: its worker starts nothing else meanwhile", extra=about(job))
        state.alone = job, time.monotonic()
        try:
            self._start([job])
            if not self._wait(ALONE, lambda: state.held.get(job.seq) is job):
                logger.warning("A suspect still runs; other jobs start beside it", extra=about(job, seconds=ALONE))
        finally:
            state.alone = None

    def _wait(self, seconds: float, goes_on: Callable[[], bool]) -> bool:
        """Wait until ``goes_on`` is false or the worker stops; return False after ``seconds``."""
        end, state = time.monotonic() + seconds, self._state
        while goes_on() and not state.draining.is_set():
            if time.monotonic() >= end:
                return False
            state.buffer.fetcher.doze(SUSPECT_POLL, state.draining.is_set)
        return True


class RatedStarts:
    """Decides when the fetcher claims jobs of rates, and how many. For its thread.

    A permit expires, so such a job is claimed when its rate is due and starts before jobs that were claimed ahead.
    It is claimed only if it can start at once: on an idle thread, on one that comes free very soon because jobs are
    short, or on the next free one, which then takes nothing else. Every other start is left to other jobs.
    """

    def __init__(self, state: WorkerState, coroutines: CoroutinePool, cursor: ClaimCursor) -> None:
        self._state, self._coroutines, self._cursor = state, coroutines, cursor
        #: Jobs of rates that a claim may bring.
        self.room = 0
        #: Why no job of a rate is claimed although one is due: no thread is free, or others come first.
        self._no_thread = self._no_share = False
        #: Whether the last jobs of rates were coroutines.
        self._async = False
        #: Whether the last claim may have left other jobs.
        self.others = False
        #: Jobs that have begun, and how many will have when a rate may start one again.
        self._begun = self._next_at = 0
        #: Jobs that begin in a second; when that was measured, and how many had begun by then.
        self._speed = 0.0
        self._measured = (time.monotonic(), 0)
        #: When the claimed ones become too late to start (monotonic).
        self._late_at = math.inf

    def plan(self, most: int) -> list[str]:
        """Return the queues whose rates are due, if up to ``most`` such jobs would start at once.

        If no thread can start one, the next free thread waits for it.
        """
        self._give_back_late()
        self._measure()
        due = self._cursor.due()
        idle, waiting = self._free_and_waiting()
        crowded = waiting > 0 or (self.others and not self._state.options.prefetch)
        self._no_share = crowded and self._begun < self._next_at
        self.room = 0 if self._no_share else max(0, min(most, idle + self._soon()))
        self._no_thread = bool(due) and not (self.room or self._no_share) and most > 0
        if self._no_thread and waiting:
            if self._async:
                self._coroutines.paused = True
            else:
                self._state.buffer.pause()
        elif not (due and self.room):
            self._let_go()
        return due if self.room else []

    def done(self) -> None:
        """After a claim, let threads take any job again, unless a rate still waits for one."""
        if not self._no_thread:
            self._let_go()

    def hand_over(self, threads: list[LeasedJob], coroutines: list[LeasedJob]) -> None:
        """Let jobs of rates start before all others."""
        if not (threads or coroutines):
            return
        if threads:
            self._state.buffer.put(threads, first=True)
        if coroutines:
            self._coroutines.put(coroutines, first=True)
        self._async = not threads
        self.room = max(0, self.room - len(threads) - len(coroutines))
        self._next_at = self._begun + 2 * (len(threads) + len(coroutines))
        since = min(self._state.leases.of[job.token].claimed for job in (*threads, *coroutines))
        self._late_at = min(self._late_at, since + START)

    def _let_go(self) -> None:
        self._state.buffer.resume()
        if self._coroutines.paused:
            self._coroutines.resume()

    def _free_and_waiting(self) -> tuple[int, int]:
        """Return how many jobs of rates could start now, and how many other jobs wait for those threads."""
        if self._async:
            return self._coroutines.free, len(self._coroutines.jobs)
        return self._state.buffer.idle, self._state.buffer.waiting

    def _measure(self) -> None:
        figures, (before, begun) = self._state.figures, self._measured
        waiting = self._state.buffer.waiting + len(self._coroutines.jobs)
        self._begun = figures.claimed - figures.returned - waiting
        if (span := time.monotonic() - before) >= WINDOW:
            self._speed = max(0.0, (self._begun - begun) / span)
            self._measured = (before + span, self._begun)

    def _soon(self) -> int:
        """Return how many jobs will start soon on threads that are busy; 0 unless these have short jobs."""
        running = sum(slot.control is not None for slot in self._state.slots) + len(self._state.coroutines)
        return int(self._speed * SOON) if running <= self._speed * SOON else 0

    @property
    def waits(self) -> bool:
        """Whether a rate is due and waits for a thread, or for its share."""
        return self._no_thread or (self._no_share and bool(self._cursor.due()))

    @property
    def free(self) -> bool:
        """Whether a thread has come free for a rate that waits for one."""
        return self._no_thread and self._free_and_waiting()[0] > 0

    def until(self) -> float:
        """Return the seconds until the next ``plan``; a thread that comes free wakes the fetcher earlier."""
        late = self._late_at - time.monotonic()
        if self._no_thread:
            return late
        if self.waits:
            others = (self._next_at - self._begun) / max(self._speed, 1)
            return min(late, max(FIRST_CHECK, min(others / 2, LAST_CHECK)))
        return min(late, self._cursor.until_turn())

    def _give_back_late(self) -> None:
        """Give back the jobs that no thread took in time: another worker may start them."""
        if time.monotonic() < self._late_at:
            return
        late: list[LeasedJob] = []
        early: list[LeasedJob] = []
        for job in self._state.buffer.take_first(RATED):
            (late if self._state.leases.over(job) else early).append(job)
        self._state.buffer.put(early, first=True)
        self._late_at = time.monotonic() + START if early else math.inf
        if late:
            self._state.give_back(late, unstarted=True)


class Starts:
    """Gives claimed jobs to the threads and to the event loop. For the fetcher's thread."""

    def __init__(self, state: WorkerState, coroutines: CoroutinePool, rates: RatedStarts) -> None:
        self._state, self._coroutines, self._rates = state, coroutines, rates

    def start(self, jobs: list[LeasedJob]) -> None:
        """Start jobs: those of rates first, those that run together once they are enough."""
        is_async = self._state.handler.is_async
        rated = [job for job in jobs if job.flags & RATED]
        if rated:
            jobs = [job for job in jobs if not job.flags & RATED]
            self._rates.hand_over([job for job in rated if not is_async(job)], [job for job in rated if is_async(job)])
        threads = [job for job in jobs if not is_async(job)]
        if self._state.takes_batches():  # known by now: each job's task was looked up
            jobs = self._state.batches.gather(jobs)
            threads = [job for job in jobs if not is_async(job)]
        self._pass_on(threads, jobs)

    def start_due(self, now: float) -> None:
        """Start the batches that have waited long enough at this time (monotonic)."""
        if jobs := self._state.batches.due(now):
            self._pass_on([job for job in jobs if not self._state.handler.is_async(job)], jobs)

    def _pass_on(self, threads: list[LeasedJob], jobs: list[LeasedJob]) -> None:
        self._state.buffer.put(threads)
        if len(threads) < len(jobs):
            self._coroutines.put([job for job in jobs if self._state.handler.is_async(job)])


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
