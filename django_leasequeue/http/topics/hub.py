"""Feeding the ``/work`` streams of one queue: one task for all of them in this process.

It sleeps until a job arrives, a place becomes free, a lease of a stream expires or a delayed job is due. Then one
statement looks which leases still stand, and one deals jobs to every stream that has a place and whose client keeps up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from ... import engine
from ...engine import LeasedJob, Release
from ...engine.leases.cohort import Claimer, deal
from ...engine.leases.sweep import next_due, still_held
from ...engine.outage import passes
from ...engine.topics.topics import TopicLook, look
from ...exceptions import NotAQueue, QueueNotFound
from ...notify import Watch, get_listener
from ..access import HOLDS_TASKS
from ..backlog import STREAM_BYTES
from ..errors import logger
from ..streaming import in_background, outage, within
from ..views import RequestRunner
from .base import note_figures
from .leases import claim_together, load_large
from .work_stream import WorkStream

if TYPE_CHECKING:
    from .streams import StreamRegistry

#: Seconds between looks at all leases: what removes a leased job without a word (a cap, a purge) frees its place then.
BACKSTOP = 5.0
#: Seconds between looks for jobs without a LISTEN connection, and with one: an expired lease of another worker is not
#: notified before a sweep.
POLL, LOOK = 0.5, 1.0
#: Seconds between two looks for what is due by the clock.
DUE_STEP = 0.25
#: Seconds from the notice of a cancel to a second look: the answer of a claim may come after it.
SECOND_LOOK = 0.4
#: Seconds that this process stays announced as waiting after the last free place was taken: producers pay a NOTIFY.
LINGER = 1.0


class WorkHub:
    """The streams of one queue in this process."""

    def __init__(
        self, registry: StreamRegistry, runner: RequestRunner, project: str, topic: str, found: TopicLook
    ) -> None:
        self.channel, self.queue_id = registry.channel, found.id
        self._registry, self._runner, self._project, self._topic = registry, runner, project, topic
        self._streams: dict[int, WorkStream] = {}
        self._event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watch: Watch | None = None
        self._idle_since = 0.0
        self._look_at = 0.0
        self._due_at = inf
        self._dealt_at = 0.0
        #: Streams whose leases are to be looked at.
        self._doubtful: set[int] = set()
        #: When to look at all leases once more (monotonic), after the notice of a cancel.
        self._look_again_at = inf
        #: Whether there may be jobs: not after a deal that could not fill everybody, until something happens.
        self._more = True
        #: Counts what happened, so that a deal can tell whether its end is still the truth.
        self._news = 0
        #: Bytes of the largest payload, of late.
        self._largest = 1_024
        self._loop = asyncio.get_running_loop()

    def enter(self, stream: WorkStream) -> None:
        self._streams[stream.number] = stream
        self._registry.of_stream[stream.number] = self
        self._more = True
        if self._task is None:
            self._task = in_background(self._run())
        self.wake()

    def leave(self, stream: WorkStream) -> Awaitable[Any] | None:
        """Feed a stream no more, and give back what it holds."""
        self._streams.pop(stream.number, None)
        self._registry.of_stream.pop(stream.number, None)
        self.wake()
        if not stream.held:
            return None
        return in_background(self._release(stream.claimer.node, stream.held, unstarted=False))

    def wake(self) -> None:
        self._event.set()

    def jobs_may_be_there(self) -> None:
        """A job may be ready. Called by the listener's thread."""

        def news() -> None:
            self._more = True
            self._news += 1
            self._event.set()

        with suppress(RuntimeError):  # the loop is closed, and its streams with it
            self._loop.call_soon_threadsafe(news)

    def settled(self, number: int | None) -> None:
        """A job of a stream was settled (``None``: of any stream)."""
        self._doubtful.update(self._streams if number is None else (number,))
        self._event.set()

    def leases_taken(self) -> None:
        """A workflow with jobs in this queue was cancelled."""
        self._look_again_at = time.monotonic() + SECOND_LOOK
        self.settled(None)

    def end(self, message: str) -> None:
        """End every stream: the topic is not the queue that it was."""
        for stream in list(self._streams.values()):
            stream.end(stream.error(409, message))

    async def _release(self, node: str, held: dict[int, int], *, unstarted: bool) -> None:
        releases = [Release(seq, token, 0) for seq, token in held.items()]
        try:
            await self._runner.run(engine.release(releases, node, project=self._project, unstarted=unstarted))
            note_figures(self._runner.using, self._project, self._topic, recount=True)
        except Exception as error:
            trace = None if passes(error) else error
            logger.warning("The leases of a stream could not be released, they expire: %s", error, exc_info=trace)

    def _failed(self, error: Exception) -> None:
        """Go on looking: the database is away, or something is wrong."""
        if passes(error):
            outage.begins(self, error)
        else:
            logger.error("The streams of %r could not be fed; trying again", self._topic, exc_info=error)
        self._more = True

    async def _run(self) -> None:
        try:
            while self._streams:
                self._event.clear()
                try:
                    pause = await self._round()
                except (QueueNotFound, NotAQueue) as error:
                    gone = isinstance(error, QueueNotFound)
                    why = "was deleted." if gone else "is a log now: it has no jobs to lease."
                    self.end(f"The topic {self._topic!r} {why}")
                    pause = POLL
                except Exception as error:  # noqa: BLE001  (whatever it is, it may pass)
                    self._failed(error)
                    pause = 1.0
                await within(pause, self._event.wait())
        finally:
            self._task = None
            self._stop_watching()
            outage.ends(self)
            if self._streams:
                self._task = in_background(self._run())
            elif self._registry.hubs.get((self._project, self._topic)) is self:
                del self._registry.hubs[self._project, self._topic]

    async def _round(self) -> float:
        """Look at leases, deal jobs; return the seconds to sleep unless something happens."""
        now = time.monotonic()
        await self._check_leases(now)
        if now >= self._due_at:
            self._due_at, self._more = inf, True
        streams = self._streams.values()
        takers = [stream for stream in streams if stream.hungry and stream.free > 0 and not stream.joining]
        if takers:
            self._idle_since = now
            if now - self._dealt_at >= (LOOK if self._watch is None or self._watch.live else POLL):
                self._more = True
            if self._more:
                await self._deal(takers)
                return 0.0
            if self._watch is None:
                # Announce that we wait, then look once more: what came before that was not notified.
                self._watch = get_listener(self._runner.using).watch([self.queue_id], self.jobs_may_be_there)
                await self._watch.async_ready()
                self._more = True
                return 0.0
        elif self._watch is not None and now - self._idle_since >= LINGER:
            self._stop_watching()
        return self._pause(now, bool(takers))

    def _pause(self, now: float, takers: bool) -> float:
        ends = [min(stream.ends.values()) for stream in self._streams.values() if stream.ends]
        waits = [self._backstop(), self._look_again_at - now, *(end - now + 0.01 for end in ends)]
        if takers:
            waits += [self._due_at - now, LOOK if self._watch is None or self._watch.live else POLL]
        elif self._watch is not None:
            waits.append(self._idle_since + LINGER - now)
        return max(0.0, min(waits))

    def _backstop(self) -> float:
        """Seconds between looks at all leases: short while cancels are not heard and could concern them."""
        hears = all(subscription.live for subscription in self._registry.subscriptions)
        return BACKSTOP if hears or not any(stream.members for stream in self._streams.values()) else POLL

    async def _check_leases(self, now: float) -> None:
        every = now >= min(self._look_again_at, self._look_at + self._backstop())
        if every:
            self._look_at = now
        if now >= self._look_again_at:
            self._look_again_at = inf
        checked = [
            stream
            for stream in self._streams.values()
            if stream.held and (every or stream.number in self._doubtful or min(stream.ends.values()) < now)
        ]
        self._doubtful.clear()
        if not checked:
            return
        asked = {stream.number: dict(stream.held) for stream in checked}
        leases = {seq: token for held in asked.values() for seq, token in held.items()}
        standing = await self._runner.run(still_held(leases))
        for stream in checked:
            stream.keep(self._topic, asked[stream.number], standing)

    async def _deal(self, takers: list[WorkStream]) -> None:
        found = await self._runner.run(look(self._topic, project=self._project, leases=True))
        if found.id != self.queue_id:
            raise QueueNotFound(self._topic, self._project)
        self._dealt_at = time.monotonic()
        backlog = takers[0].backlog
        room = min(len(takers) * STREAM_BYTES, max(backlog.room, STREAM_BYTES))
        with backlog.reserved(takers, room) as reserved:
            if reserved:
                await self._deal_within(room, found, takers)

    async def _deal_within(self, room: int, found: TopicLook, takers: list[WorkStream]) -> None:
        if found.claim_jitter_ms:
            # Others who want jobs while the window is open join as well: do not wait here.
            for stream in takers:
                stream.joining = True
            fitting = max(1, STREAM_BYTES // self._largest)
            claimers = [stream.claimer._replace(size=min(stream.free, fitting)) for stream in takers]
            in_background(self._deal_together(found, takers, claimers))
            return
        news = self._news
        claimers = [stream.claimer._replace(size=stream.free) for stream in takers]
        hands = await self._runner.run(deal(self._topic, claimers, project=self._project, most=(STREAM_BYTES, room)))
        hands = await load_large(self._runner, self._project, claimers, hands)
        await self._give(takers, claimers, hands, news)

    async def _deal_together(self, found: TopicLook, takers: list[WorkStream], claimers: list[Claimer]) -> None:
        news = self._news
        try:
            hands = await claim_together(self._runner, self._project, self._topic, found, claimers)
            await self._give(takers, claimers, hands, news)
        except Exception as error:  # noqa: BLE001  (whatever it is, it may pass)
            self._failed(error)
            await asyncio.sleep(1.0)
        finally:
            for stream in takers:
                stream.joining = False
            self.wake()

    async def _give(
        self, takers: list[WorkStream], claimers: list[Claimer], hands: list[list[LeasedJob]], news: int
    ) -> None:
        outage.ends(self)
        wanted = given = 0
        sizes = [[len(job.data_json or "") + len(job.meta_json or "") for job in jobs] for jobs in hands]
        self._largest = max(self._largest // 2, 1_024, *chain(*sizes))
        # A hand that another job might not have fitted into says nothing of the queue.
        cut = any(sum(each) + self._largest > STREAM_BYTES for each in sizes)
        for stream, claimer, jobs in zip(takers, claimers, hands, strict=True):
            wanted, given = wanted + claimer.size, given + len(jobs)
            refused = not stream.access.may_claim(jobs)
            if refused:
                stream.end(stream.error(403, HOLDS_TASKS))
            if stream.closed or refused:
                if jobs:
                    held = {job.seq: job.token for job in jobs}
                    in_background(self._release(claimer.node, held, unstarted=True))
            else:
                stream.give(self._topic, jobs)
                note_figures(self._runner.using, self._project, self._topic, ready=-len(jobs), in_flight=len(jobs))
        if given < wanted and not (given and cut) and news == self._news:
            # Drained, until something happens.
            self._more = False
            due = await self._runner.run(next_due(self.queue_id))
            self._due_at = inf if due is None else time.monotonic() + max(due, DUE_STEP)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
            self._more = True
