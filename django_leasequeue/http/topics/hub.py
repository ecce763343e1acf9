"""Feeding the ``/work`` streams of one queue: one task for all of them in this process.

It sleeps until a job arrives, a place becomes free, a lease of a stream expires or a delayed job is due. Then one
statement looks which leases still stand, and one deals jobs to every stream that has a place and whose client keeps up.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ... import engine
from ...engine import LeasedJob, Release
from ...engine.leases.cohort import Claimer, deal
from ...engine.leases.sweep import Standing, next_due, still_held
from ...engine.outage import passes
from ...engine.topics.topics import TopicLook, look
from ...exceptions import NotAQueue, QueueNotFound
from ...models import JobFlag
from ...notify import Watch, get_listener
from ..errors import logger
from ..streaming import Stream, frame, in_background, outage, within
from ..views import RequestRunner
from .base import leased
from .leases import claim_together, load_large

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

_numbers = itertools.count(1)


class WorkStream(Stream):
    """One worker's stream, which may hold ``size`` jobs at once."""

    def __init__(
        self, hub: WorkHub, node: str, size: int, lease_ms: int | None, recheck: Callable[[], Awaitable[Any]]
    ) -> None:
        super().__init__(recheck)
        self.number = next(_numbers)
        self._hub = hub
        self.claimer = Claimer(node, size, lease_ms, f"{hub.channel}:{self.number}")
        #: seq -> token, and when it ends by this process's clock.
        self.held: dict[int, int] = {}
        #: Whether it waits in a cohort.
        self.joining = False
        self._paced_until = 0.0
        self.ends: dict[int, float] = {}
        #: seq -> lease id, of jobs of workflows: these can be cancelled while the client has them.
        self.members: dict[int, str] = {}

    @property
    def free(self) -> int:
        return self.claimer.size - len(self.held)

    @property
    def hungry(self) -> bool:
        return super().hungry and time.monotonic() >= self._paced_until

    def opened(self) -> None:
        self._hub.enter(self)

    def advise_pace(self, message: str, seconds: float) -> None:
        """Say once that requests are refused, and send no job until they are taken again: its ack would be refused."""
        now = time.monotonic()
        if now >= self._paced_until:
            self._paced_until = now + seconds
            self.push(frame("error", {"code": 429, "message": message, "retry_after_ms": round(seconds * 1000)}))
            asyncio.get_running_loop().call_later(seconds, self._hub.wake)

    def wants(self) -> None:
        self._hub.wake()

    def left(self) -> Awaitable[Any] | None:
        return self._hub.leave(self)

    def give(self, topic: str, jobs: Iterable[LeasedJob]) -> None:
        now = time.monotonic()
        for job in jobs:
            self.held[job.seq] = job.token
            self.ends[job.seq] = now + job.deadline_epoch - job.claimed_epoch
            answer = leased(job)
            if job.flags & JobFlag.FLOW:
                self.members[job.seq] = answer["lease_id"]
            self.push(frame("job", {"topic": topic, **answer}, str(job.seq)))

    def keep(self, topic: str, asked: Iterable[int], standing: dict[int, Standing]) -> None:
        """Forget those of the leases asked about that do not stand any more; announce the cancelled ones, once each."""
        now = time.monotonic()
        for seq in asked:
            if seq not in standing:
                self.held.pop(seq, None)
                self.ends.pop(seq, None)
                self.members.pop(seq, None)
                continue
            self.ends[seq] = now + standing[seq].seconds
            if standing[seq].cancelled and (lease_id := self.members.pop(seq, None)) is not None:
                self.push(frame("cancel", {"topic": topic, "$seq": seq, "lease_id": lease_id}))


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
        claimers = [stream.claimer._replace(size=stream.free) for stream in takers]
        self._dealt_at = time.monotonic()
        if found.claim_jitter_ms:
            # Others who want jobs while the window is open join as well: do not wait here.
            for stream in takers:
                stream.joining = True
            in_background(self._deal_together(found, takers, claimers))
            return
        news = self._news
        hands = await self._runner.run(deal(self._topic, claimers, project=self._project))
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
        for stream, claimer, jobs in zip(takers, claimers, hands, strict=True):
            wanted, given = wanted + claimer.size, given + len(jobs)
            if stream.closed:
                if jobs:
                    held = {job.seq: job.token for job in jobs}
                    in_background(self._release(claimer.node, held, unstarted=True))
            else:
                stream.give(self._topic, jobs)
        if given < wanted and news == self._news:
            # Drained, until something happens.
            self._more = False
            due = await self._runner.run(next_due(self.queue_id))
            self._due_at = inf if due is None else time.monotonic() + max(due, DUE_STEP)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
            self._more = True
