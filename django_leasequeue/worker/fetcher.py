"""The fetcher: claims as many jobs ahead as will start soon, and waits for new ones."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence

from ..engine import LeasedJob, Release, claim, release
from ..engine.leases.claim import MAX_QUEUES
from ..engine.leases.floor import ClaimCursor
from ..engine.limits import MAX_BATCH
from ..notify import JOBS, Subscription, Watch, get_listener
from ..notify.alarms import FallbackPoll
from ..notify.listener import YIELD_GIL
from .coroutines import CoroutinePool
from .held import FLOW, SUSPECT
from .link import DatabaseLink, read_strays, until_due
from .queue_names import QueueLimits, QueueNames
from .starts import PausedTasks, RatedStarts, Starts, SuspectIsolation
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: The fetcher claims ahead as many jobs as start in so many seconds.
HORIZON = 0.25
#: Seconds of a measurement after which less is claimed ahead; and how fast it grows.
WINDOW, GROWTH = 0.1, 4
#: Seconds of work without a pause after which producers need not notify us of new jobs.
BUSY = 1.0
#: Shortest sleep, in seconds, of an idle worker until a lease expires: the reaper sweeps as well.
SWEEP_EVERY = 1.0
#: Seconds between readings of when the next delayed job is due.
DUE_EVERY = 0.25
#: Queues of one such reading.
MAX_DUE = 1_000
#: Queues that an idle worker watches at most (each is a lock in shared memory); seconds between polls of the others.
MAX_WATCHED, UNWATCHED_POLL = 250, 1.0
#: Seconds after the loss of the connection at which the fetcher searches claims whose answer was lost.
STRAYS = (0.0, 2.0, 10.0)
#: Seconds of a pause after a claim that found few jobs: the next claim does not compete with their start and ack for
#: the processors. A producer's notification ends it.
AFTER_PARTIAL = 0.005
#: Seconds until a burst claims again after other workers took events of limits and workflows.
FLOW_RETRY = 0.01


class Fetcher:
    """Claims jobs for the buffers. ``run`` is the body of a thread."""

    def __init__(self, state: WorkerState, coroutines: CoroutinePool) -> None:
        self._state = state
        self._buffer = state.buffer
        self.wakeup = state.buffer.fetcher
        self._coroutines = coroutines
        self.link = DatabaseLink(state.options.database, "claim", state.node, state.outage)
        self._queues = QueueNames(state, self.link)
        self._paused = PausedTasks(state, self.link, coroutines)
        self._ahead = min(state.options.concurrency, state.options.prefetch)
        self._measured = (time.monotonic(), 0)
        #: Whether the first claim has been answered.
        self.asked = False
        self._cursor = ClaimCursor(eager=True)
        self._limits = QueueLimits(state, self._cursor) if state.options.limits else None
        self._sleep = self.wakeup.wait if self._limits is None else self._limits.sleep
        self._rates = RatedStarts(state, coroutines, self._cursor)
        self._starts = Starts(state, coroutines, self._rates)
        self._isolation = SuspectIsolation(state, self._starts.start)
        #: Recent claims with an answer: after the loss of the connection, every other claim of ours is a stray.
        self._known: deque[int] = deque(maxlen=10_000)
        #: When to search strays (monotonic): a claim that was on its way may reach the database later.
        self._stray_searches: list[float] = []
        self._losses = 0
        self._watch: Watch | None = None
        self._subscription: Subscription | None = None
        self._busy_since = time.monotonic()
        self._fallback = FallbackPoll()
        self._due_at = self._due_read_at = -math.inf
        self._most_held = 2 * state.options.prefetch + state.options.concurrency + state.options.coroutines + MAX_BATCH

    def run(self) -> None:
        try:
            self._subscribe()
            while not self._state.draining.is_set():
                if self._queues.refresh() and self._state.runs_tasks and (ahead := self._paused.read()):
                    self._hand_over(ahead)
                self._step()
        finally:
            for entry in (self._watch, self._subscription):
                if entry is not None:
                    entry.close()
            self.link.close()

    def _subscribe(self) -> None:
        # A new queue sends a notification on the jobs' channel, and so does the pause of a task, or its end. So does a
        # cancel: jobs claimed ahead must not start.
        def on_event(payload: str | None) -> None:
            if payload is None:  # notifications may be missing
                self._state.taken.update({job.queue_id for job in list(self._state.held.values())})
                self._state.keeper.wake()
            if payload == "n" or payload is None:
                self._queues.read_at = -math.inf
                self.wakeup.wake()
            elif payload[:1] == "l" and payload[1:].isdigit():
                self._state.taken[int(payload[1:])] += 1
                self._state.keeper.wake()

        subscription = get_listener(self._state.options.database).subscribe(JOBS, on_event)
        self._subscription = subscription
        self._state.notifications_arrive = lambda: subscription.live

    def _step(self) -> None:
        self._starts.start_due(time.monotonic())
        want = self._want()
        if (room := self._room()) <= 0 and self._state.options.max_jobs and self._state.empty:
            self._state.finish()
        rates = self._rates.plan(room)
        if want <= 0 and not rates:  # until a thread or a coroutine can take another job
            self.wakeup.doze(
                min(self._state.options.poll, self._rates.until(), self._state.batches.until()),
                lambda: self._want() > 0 or self._rates.free or self._state.draining.is_set(),
            )
            return
        self._return_strays()
        # The end of a job may make others ready: a burst is over when a claim after the last end returns nothing.
        over = self._state.empty
        try:
            if rates and (want <= 0 or len(self._queues.names) > MAX_QUEUES):
                # However much was claimed ahead: permits do not wait until more is wanted.
                self._claim_from(rates[:MAX_QUEUES], self._rates.room, others=False)
            if want <= 0:
                return
            jobs = self._claim(want)
        finally:
            self._rates.done()
        self._rates.others = len(jobs) >= want
        if not self.asked:
            self.asked = True
            self._state.main.wake()
        if 0 < len(jobs) < want:
            # The end of a job under a limit sends no notification: claim again at once.
            if self._watch is not None and self._watch.live and not jobs[-1].flags & FLOW:
                if self.wakeup.wait(AFTER_PARTIAL):
                    self._cursor.announced()
                    return
            else:
                time.sleep(YIELD_GIL)
        if len(jobs) == want or self._cursor.cut:
            if self._watch is not None and time.monotonic() - self._busy_since > BUSY:
                self._watch.close()
                self._watch = None
            return
        self._idle(over and not jobs)
        self._busy_since = time.monotonic()

    def _want(self) -> int:
        options = self._state.options
        ready = self._buffer.waiting + len(self._coroutines.jobs)
        idle = self._buffer.idle + self._coroutines.idle()
        want = idle - ready
        if self._state.takes_batches():
            want += self._state.batches.missing if idle or options.prefetch else 0
            ready += self._state.batches.waiting
        if options.prefetch:
            ahead = self._measure(ready)
            self._buffer.low = ahead * 3 // 4  # early: many start while the next claim is on its way
            if want > 0 or ready <= self._buffer.low:
                want += ahead
        return min(want, self._room())

    def _room(self) -> int:
        """Return how many jobs one claim may bring at most."""
        figures, most = self._state.figures, self._state.options.max_jobs
        left = most - figures.claimed + figures.returned if most else MAX_BATCH
        return min(MAX_BATCH, self._most_held - len(self._state.held), left)

    def _measure(self, ready: int) -> int:
        """Return how many jobs to claim beyond those that start at once: the number that will start soon."""
        now, state = time.monotonic(), self._state
        # Counts ends, not starts: idle threads start jobs at once, even long ones.
        running = sum(slot.control is not None for slot in state.slots) + len(state.coroutines)
        left = state.figures.claimed - ready - running
        before, left_before = self._measured
        soon = int((left - left_before) / max(now - before, 0.001) * HORIZON)
        # Up at once, in steps; down only after ``WINDOW``: a shorter time may fall between two jobs.
        if soon > self._ahead:
            self._ahead = min(state.options.prefetch, soon, GROWTH * self._ahead + 1)
            self._measured = (now, left)
        elif now - before >= WINDOW:
            self._ahead = max(soon, 1)
            self._measured = (now, left)
        return self._ahead

    def shrink(self, ahead: int) -> None:
        """Claim less ahead: jobs have become longer. For the thread that gives surplus jobs back."""
        self._ahead = min(self._ahead, ahead)

    def _claim(self, want: int) -> list[LeasedJob]:
        jobs: list[LeasedJob] = []
        if self._limits is not None:
            self._limits.begin()
        for names in self._queues.chunks():
            jobs.extend(self._claim_from(names, want - len(jobs)))
            if len(jobs) == want or self._cursor.cut:
                break
        return jobs

    def _claim_from(self, names: Sequence[str], size: int, others: bool = True) -> list[LeasedJob]:
        room: dict[str, int] = {}
        if self._limits is not None:
            names, room = self._limits.open(names)
            if not names:
                return []
        found = self.link.run(
            claim(
                names,
                self._state.node,
                size,
                starts=self._rates.room,
                others=others,
                most=room,
                project=self._state.options.project,
                cursor=self._cursor,
                alone=not self._state.isolates(),
                strict=False,
                load=False,
            )
        )
        if self._limits is not None:
            self._limits.note(room, found)
        if found:
            self._dispatch(found, self.link.asked_at)
        return found

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
        # Last: threads that wake earlier get the GIL earlier.
        state.leases.expect(until)
        if is_shorter or state.keeper.sleeping:
            state.keeper.wake()

    def _hand_over(self, jobs: list[LeasedJob]) -> None:
        state = self._state
        if state.draining.is_set():
            state.give_back(jobs, unstarted=True)
            return
        if self._paused.since:
            jobs = self._paused.sort_out(jobs)
        if state.isolates() or not any(job.flags & SUSPECT for job in jobs):
            self._starts.start(jobs)
            return
        self._starts.start([job for job in jobs if not job.flags & SUSPECT])
        self._starts.start_due(math.inf)  # a suspect waits until nothing else is held
        suspect, *others = [job for job in jobs if job.flags & SUSPECT]
        state.give_back(others, unstarted=True)
        self._isolation.run(suspect)

    def _return_strays(self) -> None:
        """Release jobs whose claim was never answered: else they run only after their lease has expired."""
        now = time.monotonic()
        if self.link.losses > self._losses:
            self._losses = self.link.losses
            self._stray_searches = [now + seconds for seconds in STRAYS]
        if not self._stray_searches or self._stray_searches[0] > now:
            return
        strays = self.link.run(read_strays(self._queues.ids[:MAX_DUE], self._state.node, list(self._known)))
        if strays:
            releases = [Release(seq, claim_id, 0) for seq, claim_id in strays]
            self.link.run(release(releases, self._state.node, project=self._state.options.project, unstarted=True))
            logger.info("Released jobs of a claim that was lost with its connection", extra={"jobs": len(strays)})
        if len(strays) < MAX_BATCH:
            del self._stray_searches[0]

    def _idle(self, over: bool) -> None:
        """Sleep until there may be new jobs; in a burst, end if no job had been left when the last claim began."""
        state = self._state
        if state.options.burst:
            if state.empty and not over:
                return
            if state.empty and self._cursor.turns:
                self.wakeup.wait(FLOW_RETRY)
                return
            if state.empty:
                state.finish()
            # The end of the last job wakes this thread: the job may have enqueued others.
            self._sleep(min(state.options.poll, state.batches.until()))
            return
        watched = self._queues.ids[:MAX_WATCHED]
        if self._watch is None or self._watch.keys != tuple(watched):
            # Producers notify us from now on; the next claim finds earlier jobs.
            before = self._watch
            self._watch = get_listener(state.options.database).watch(watched, self.wakeup.wake)
            if before is not None:
                before.close()
            self._watch.wait_ready(5)
            return
        if self._queues.unheard:
            return
        ends = [state.options.poll, self._until_due(), self._rates.until(), state.batches.until()]
        if self._rates.waits:
            self.wakeup.doze(min(ends), lambda: self._rates.free or state.draining.is_set())
            return
        if len(watched) < len(self._queues.ids):
            ends.append(UNWATCHED_POLL)
        if self._ahead > 1:  # the speed so far says little about jobs after a pause
            ends.append(WINDOW)
        if self._sleep(self._fallback.limit(min(ends), self._watch.live)):
            self._fallback = FallbackPoll()
            self._cursor.announced()

    def _until_due(self) -> float:
        now = time.monotonic()
        ids = self._queues.ids if self._limits is None else self._limits.open_ids(self._queues)
        if self._state.due_changed or now - self._due_read_at >= DUE_EVERY:
            self._state.due_changed = False
            delayed, lease = self.link.run(until_due(ids[:MAX_DUE]))
            now = self._due_read_at = time.monotonic()
            self._due_at = now + min(
                math.inf if delayed is None else max(0.001, delayed),
                math.inf if lease is None else max(SWEEP_EVERY, lease),
            )
        return max(self._due_at - now, 0.001)
