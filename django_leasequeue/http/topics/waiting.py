"""What a request waits for without polling: the next records of a topic, or its part of a cohort's jobs."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Sequence

from ...conf import process
from ...engine import LeasedJob, Operation
from ...engine.leases.claim import load_hands
from ...engine.leases.cohort import Claimer, deal_cohort, join, leave, take
from ...engine.topics.log import LogPage, seal, sealer
from ...engine.topics.topics import TopicLook
from ...notify import get_listener, waking
from ..errors import logger
from ..running import RequestRunner
from ..streaming import in_background, within

#: Where deleted topics are announced.
TOPICS_CHANNEL = "leasequeue_topics"
#: Seconds between looks: doubled from, up to.
FIRST_LOOK, LAST_LOOK = 0.002, 0.25


class SealWatcher:
    """Watches the sealed number of one database while readers wait for it."""

    def __init__(self, runner: RequestRunner) -> None:
        self._runner = runner
        self._seals = sealer(runner.using)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._running = False

    def when(self, number: int) -> asyncio.Future[None]:
        """Return a future that is done when ``number`` is sealed; cancel it to stop waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, next(self._order), future))
        if not self._running:
            self._running = True
            in_background(self._run())
        return future

    async def _run(self) -> None:
        step = FIRST_LOOK
        sealed = self._seals.sealed
        try:
            while self._waiting:
                await asyncio.sleep(step)
                step = min(step * 2, LAST_LOOK)
                before, sealed = sealed, await self._runner.run(seal(self._seals))
                if sealed > before:
                    step = FIRST_LOOK
                while self._waiting and (self._waiting[0][0] <= sealed or self._waiting[0][2].done()):
                    _done(heapq.heappop(self._waiting)[2])
        except Exception as error:  # noqa: BLE001  (most often the database is gone: its stack says nothing more)
            reason = " ".join(str(error).split())
            logger.warning("Looking for sealed numbers ended; readers look themselves, and begin it anew: %s", reason)
        finally:
            self._running = False
            # If this ends because the database is gone: those that wait read, and get the error.
            for _, _, future in self._waiting:
                _done(future)
            self._waiting.clear()


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_watchers: process.PerLoop[dict[tuple[str, bool], SealWatcher]] = process.PerLoop(dict)


def seal_watcher(runner: RequestRunner) -> SealWatcher:
    """Return this loop's watcher of the runner's database."""
    found = _watchers.get()
    place = (runner.using, runner.threaded)
    if place not in found:
        found[place] = SealWatcher(runner)
    return found[place]


#: Seconds that a read which does not wait gives other transactions to end: most are over in a moment.
PATIENCE = 0.05
#: Fallback polling interval of a waiting reader, in seconds.
BACKSTOP = 5.0


def unsealed(page: LogPage, after: int) -> bool:
    """Return whether there is something behind the cursor that cannot be read yet."""
    return not page.records and page.gap is None and not page.sealed and page.head_seq > max(after, page.cursor)


async def read_page(
    runner: RequestRunner, reads: Callable[..., Operation[LogPage]], after: int, timeline: int | None, wait: float
) -> LogPage:
    """Return a page of a topic (``log.read``); wait up to ``wait`` seconds for a record if there is none."""

    async def look(after: int, timeline: int | None) -> LogPage:
        return await runner.run(reads(after=after, timeline=timeline))

    page = await look(after, timeline)
    if unsealed(page, after):
        await _wait_for_seal(runner, page.head_seq, PATIENCE)
        page = await look(after, timeline)
    if not wait or page.records or page.gap is not None or page.more or page.reset_to is not None:
        return page
    ends = time.monotonic() + wait
    async with waking(get_listener(runner.using), [page.queue_id]) as sleep:
        while True:
            page = await look(after, page.timeline)
            left = ends - time.monotonic()
            if page.records or page.gap is not None or page.reset_to is not None or left <= 0:
                return page
            if unsealed(page, after):
                await _wait_for_seal(runner, page.head_seq, min(left, BACKSTOP))
            else:
                await sleep(min(left, BACKSTOP))
            after = page.cursor


async def _wait_for_seal(runner: RequestRunner, number: int, timeout: float) -> None:  # noqa: ASYNC109  (how patient the caller is)
    future = seal_watcher(runner).when(number)
    try:
        await within(timeout, future)
    finally:
        future.cancel()


_locks: process.PerLoop[dict[tuple[str, int], asyncio.Lock]] = process.PerLoop(dict)


async def claim_together(
    runner: RequestRunner, project: str, topic: str, found: TopicLook, claimers: Sequence[Claimer]
) -> list[list[LeasedJob]]:
    """Join the cohort of a queue, wait until its window closes, and return what each claimer was dealt."""
    joined = await runner.run(join(found.id, found.claim_jitter_ms, claimers))
    waiters = joined.waiters

    async def give_back() -> None:
        try:
            await runner.run(leave(waiters, project=project))
        except Exception as error:  # noqa: BLE001  (most often the database is gone: its stack says nothing more)
            reason = " ".join(str(error).split())
            logger.warning("A cohort could not be left; what it was dealt comes back when its leases end: %s", reason)

    try:
        await asyncio.sleep(joined.wait_ms / 1000)
        locks = _locks.get()
        if len(locks) > 10_000:
            locks.clear()
        # One dealer of this process at a time: the others would only hold connections while they wait.
        async with locks.setdefault((runner.using, found.id), asyncio.Lock()):
            dealt = await runner.run(take(waiters))
            missing = [waiter for waiter in waiters if waiter not in dealt]
            if missing:
                dealt = dealt | await runner.run(deal_cohort(topic, found, missing, project=project))
    except BaseException:  # (the client went away: nothing stays leased)
        in_background(give_back())
        raise
    hands = [dealt.get(waiter, []) for waiter in waiters]
    return await load_large(runner, project, claimers, hands)


async def load_large(
    runner: RequestRunner, project: str, claimers: Sequence[Claimer], hands: list[list[LeasedJob]]
) -> list[list[LeasedJob]]:
    """Return what claimers were dealt with the payloads that stand in a storage."""
    if all(job.is_loaded for jobs in hands for job in jobs):
        return hands
    return await runner.run(load_hands(hands, [claimer.node for claimer in claimers], project=project))
