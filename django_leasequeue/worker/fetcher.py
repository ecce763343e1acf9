"""The fetcher: claims jobs ahead of those who run them, as many as will start soon, and waits for new ones."""

from __future__ import annotations

import logging
import math
import time
from collections import deque

from ..engine import LeasedJob, Release, claim, release
from ..engine.leases.floor import ClaimCursor
from ..engine.limits import MAX_BATCH
from ..notify import JOBS, Subscription, Watch, get_listener
from ..notify.alarms import Patience
from ..notify.listener import BREATH
from .buffer import SuspectIsolation
from .coroutines import CoroutinePool
from .leases import FLOW, RATED, START, SUSPECT
from .link import DatabaseLink, NotAnnounced, Primed, read_strays, until_due
from .queue_names import QueueNames
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: What is claimed ahead is what would start in so many seconds.
HORIZON = 0.25
#: Seconds of a measurement after which less is claimed ahead; and how fast it grows.
WINDOW, GROWTH = 0.1, 4
#: Seconds of work without a pause after which producers need not tell us of new jobs.
BUSY = 1.0
#: Seconds that an idle worker sleeps at least because of a lease that expires: sweeping is also done by the reaper.
SWEEP_EVERY = 1.0
#: Seconds between readings of when the next delayed job is due.
DUE_EVERY = 0.25
#: Queues of one such reading.
MAX_DUE = 1_000
#: Queues of which an idle worker is told at most (each is a lock in shared memory); with more it looks so often.
MAX_WATCHED, UNWATCHED_POLL = 250, 1.0
#: Seconds after the loss of the connection at which claims are looked for whose answer never came.
STRAYS = (0.0, 2.0, 10.0)
#: Seconds between looks whether a suspect can start, or has ended.
APART = 0.05
#: Seconds of a pause after a claim that found few jobs, while producers announce jobs, which ends it: the next look
#: does not compete with the start and the ack of these few for the processors.
LULL = 0.005
#: Seconds until a burst looks again that saw others set jobs free.
TURNS = 0.01


class Fetcher:
    """Claims jobs for the buffers. ``run`` is the body of a thread."""

    def __init__(self, state: WorkerState, coroutines: CoroutinePool, isolation: SuspectIsolation) -> None:
        self._state = state
        self._buffer = state.buffer
        self.wakeup = state.buffer.fetcher
        self._coroutines = coroutines
        self._isolation = isolation
        self.link = DatabaseLink(state.options.database, "claim", state.node, state.outage)
        self._queues = QueueNames(state, self.link)
        self._ahead = min(state.options.concurrency, state.options.prefetch)
        self._measured = (time.monotonic(), 0)
        #: Whether the first claim has been answered.
        self.asked = False
        self._cursor = ClaimCursor(eager=True)
        #: Claims whose answer came, of late: after the loss of the connection every other one of ours is a stray.
        self._known: deque[int] = deque(maxlen=10_000)
        #: When to look for strays (monotonic): a claim that was on its way may reach the database later.
        self._stray_looks: list[float] = []
        self._losses = 0
        self._watch: Watch | None = None
        self._news: Subscription | None = None
        self._busy_since = time.monotonic()
        self._patience = Patience()
        #: Seconds for which the next claim waits for producers to announce jobs, and what holds it back.
        self._rest = 0.0
        self._primed: Primed | None = None
        self._due_at = self._due_read_at = -math.inf
        self._most_held = 2 * state.options.prefetch + state.options.concurrency + state.options.coroutines + MAX_BATCH

    def run(self) -> None:
        try:
            self._subscribe()
            while not self._state.draining.is_set():
                self._queues.refresh()
                self._step()
        finally:
            for entry in (self._watch, self._news):
                if entry is not None:
                    entry.close()
            self.link.close()

    def _subscribe(self) -> None:
        # A new queue is announced on the jobs' channel: it need not wait for the next reading of the list. What was
        # cancelled is not started by a worker that claimed it ahead.
        def hear(payload: str | None) -> None:
            if payload is None:  # it may have missed something
                self._state.taken.update({job.queue_id for job in list(self._state.held.values())})
                self._state.keeper.wake()
            if payload == "n" or payload is None:
                self._queues.read_at = -math.inf
                self.wakeup.wake()
            elif payload[:1] == "l" and payload[1:].isdigit():
                self._state.taken[int(payload[1:])] += 1
                self._state.keeper.wake()

        news = self._news = get_listener(self._state.options.database).subscribe(JOBS, hear)
        self._state.hears = lambda: news.live

    def _step(self) -> None:
        primed = self._primed = Primed(self.wakeup, self._rest) if self._rest else None
        self._rest = 0.0
        if self._isolation.step():
            self.wakeup.doze(APART, self._state.draining.is_set)
            return
        want = self._want()
        if want <= 0:  # until a thread or a coroutine can take another job
            self.wakeup.doze(self._state.options.poll, lambda: self._want() > 0 or self._state.draining.is_set())
            return
        if self.link.losses > self._losses:
            self._losses, now = self.link.losses, time.monotonic()
            self._stray_looks = [now + seconds for seconds in STRAYS]
        if self._stray_looks and self._stray_looks[0] <= time.monotonic():
            self._return_strays()
        # The end of a job may set others free: nothing is left when a claim that began after the last end gave nothing.
        over = self._state.empty
        try:
            jobs = self._claim(want, primed)
        except NotAnnounced as error:
            if error.woken:
                self._patience = Patience()
                self._cursor.announced()  # perhaps while the claim was prepared
            return
        finally:
            if primed is not None:
                self._busy_since = time.monotonic()
        if not self.asked:
            self.asked = True
            self._state.main.wake()
        if 0 < len(jobs) < want:
            # The end of a job under a limit is no producer: a look sees what else it has set free.
            if self._watch is not None and self._watch.live and not jobs[-1].flags & FLOW:
                if self.wakeup.wait(LULL):
                    self._cursor.announced()
                    return
            else:
                time.sleep(BREATH)
        if len(jobs) == want or self._cursor.cut or self._state.isolating:
            if self._watch is not None and time.monotonic() - self._busy_since > BUSY:
                self._watch.close()
                self._watch = None
            return
        self._idle(over and not jobs)
        self._busy_since = time.monotonic()

    def _want(self) -> int:
        options = self._state.options
        ready = len(self._buffer.jobs) + len(self._coroutines.jobs)
        want = self._buffer.idle + self._coroutines.idle() - ready
        if options.prefetch:
            ahead = self._measure(ready)
            self._buffer.low = ahead * 3 // 4  # asked for early: many start while the answer is on its way
            if want > 0 or ready <= self._buffer.low:
                want += ahead
        limits = [want, MAX_BATCH, self._most_held - len(self._state.held)]
        if options.max_jobs:
            figures = self._state.figures
            left = options.max_jobs - figures.claimed + figures.returned
            if left <= 0:
                if self._state.empty:
                    self._state.finish()
                return 0
            limits.append(left)
        return min(limits)

    def _measure(self, ready: int) -> int:
        """Return how many jobs to have ready beyond those that can start at once: what will start soon."""
        now, state = time.monotonic(), self._state
        # Ends, not starts: threads that were idle start jobs at once, however long these take.
        running = sum(slot.control is not None for slot in state.slots) + len(state.coroutines)
        left = state.figures.claimed - ready - running
        before, left_before = self._measured
        soon = int((left - left_before) / max(now - before, 0.001) * HORIZON)
        # Up at once, by steps; down only after a longer look, since a short one may fall between two jobs.
        if soon > self._ahead:
            self._ahead = min(state.options.prefetch, soon, GROWTH * self._ahead + 1)
            self._measured = (now, left)
        elif now - before >= WINDOW:
            self._ahead = max(soon, 1)
            self._measured = (now, left)
        return self._ahead

    def shrink(self, ahead: int) -> None:
        """Claim less ahead: jobs turned out longer than they were. For the thread that gives surplus jobs back."""
        self._ahead = min(self._ahead, ahead)

    def _claim(self, want: int, primed: Primed | None) -> list[LeasedJob]:
        options = self._state.options
        jobs: list[LeasedJob] = []
        for names in self._queues.chunks():
            found = self.link.run(
                claim(
                    names,
                    self._state.node,
                    want - len(jobs),
                    starts=max(1, self._buffer.idle + self._coroutines.idle() + int(self._ahead / HORIZON * START)),
                    project=options.project,
                    cursor=self._cursor,
                    alone=True,
                    strict=False,
                    load=False,
                ),
                primed,
            )
            primed = None
            if found:
                self._dispatch(found, self.link.asked_at)
                jobs.extend(found)
            if len(jobs) == want or self._cursor.cut or self._state.isolating:
                break
        if primed is not None:  # there is no queue, and so no statement
            primed.hold(lambda: None)
        return jobs

    def _dispatch(self, jobs: list[LeasedJob], asked_at: float) -> None:
        """Pass on jobs of a claim that was sent at ``asked_at`` (monotonic seconds)."""
        state = self._state
        now = time.monotonic()
        state.leases.forget()
        until, is_shorter = math.inf, False
        for job in {job.token: job for job in jobs}.values():
            self._known.append(job.token)
            state.journal.claimed(job.token)
            state.drained[job.queue_id] = now
            lease = state.leases.add(job, asked_at, self._cursor.admitted_at)
            until = min(until, lease.until)
            if lease.seconds < state.shortest_lease:
                state.shortest_lease, is_shorter = lease.seconds, True
        state.held.update({job.seq: job for job in jobs})
        state.figures.add(claimed=len(jobs))
        self._hand_over(jobs)
        # Only now: threads that are woken before those of the jobs get the interpreter before them.
        state.leases.expect(until)
        if is_shorter or state.keeper.sleeping:
            state.keeper.wake()

    def _hand_over(self, jobs: list[LeasedJob]) -> None:
        state = self._state
        if state.draining.is_set():
            state.give_back(jobs, unstarted=True)
            return
        suspects = [job for job in jobs if job.flags & SUSPECT]
        if suspects:
            self._isolation.add(suspects)
            jobs = [job for job in jobs if not job.flags & SUSPECT]
        is_async = state.handler.is_async
        threads = [job for job in jobs if not is_async(job)]
        rated = [job for job in threads if job.flags & RATED]
        if rated:
            self._buffer.put(rated, first=True)
        if len(rated) < len(threads):
            self._buffer.put([job for job in threads if not job.flags & RATED])
        if len(threads) < len(jobs):
            self._coroutines.put([job for job in jobs if is_async(job)])

    def _return_strays(self) -> None:
        """Give back what we claimed without getting the answer: else it would run only when its lease has expired."""
        strays = self.link.run(read_strays(self._queues.ids[:MAX_DUE], self._state.node, list(self._known)))
        if strays:
            releases = [Release(seq, claim_id, 0) for seq, claim_id in strays]
            self.link.run(release(releases, self._state.node, project=self._state.options.project, unstarted=True))
            logger.info("Jobs given back whose claim was lost with its connection", extra={"jobs": len(strays)})
        if len(strays) < MAX_BATCH:
            del self._stray_looks[0]

    def _idle(self, over: bool) -> None:
        """Let the next claim wait for new jobs; in a burst, end if no job had been left when the last claim began."""
        state = self._state
        if state.options.burst:
            if state.empty and not over:
                return
            if state.empty and self._cursor.turns:
                self.wakeup.wait(TURNS)
                return
            if state.empty:
                state.finish()
            # The end of the last job wakes this thread: it may have enqueued others.
            self.wakeup.wait(state.options.poll)
            return
        watched = self._queues.ids[:MAX_WATCHED]
        if self._watch is None or self._watch.keys != tuple(watched):
            # Producers tell us from now on; the next claim sees what came before.
            before = self._watch
            self._watch = get_listener(state.options.database).watch(watched, self._announced)
            if before is not None:
                before.close()
            self._watch.wait_ready(5)
            return
        if self._queues.unheard:
            return
        ends = [state.options.poll, self._until_due()]
        if len(watched) < len(self._queues.ids):
            ends.append(UNWATCHED_POLL)
        if self._ahead > 1:  # how fast jobs ended says little of those that come after a pause
            ends.append(WINDOW)
        self._rest = self._patience.limit(min(ends), self._watch.live)

    def _announced(self) -> None:
        """Send the claim that waits, or wake the thread that prepares one; called by the listener."""
        if (primed := self._primed) is not None:
            primed.send()
        self.wakeup.wake()

    def _until_due(self) -> float:
        now = time.monotonic()
        if self._state.due_changed or now - self._due_read_at >= DUE_EVERY:
            self._state.due_changed = False
            delayed, lease = self.link.run(until_due(self._queues.ids[:MAX_DUE]))
            now = self._due_read_at = time.monotonic()
            self._due_at = now + min(
                math.inf if delayed is None else max(0.001, delayed),
                math.inf if lease is None else max(SWEEP_EVERY, lease),
            )
        return max(self._due_at - now, 0.001)
