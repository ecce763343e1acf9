"""Waiting until a number is sealed: one poll for all readers of a process, and only while somebody waits."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging

from ...conf import process
from ...engine.topics.log import seal, sealer
from ..running import RequestRunner
from ..streaming import in_background

logger = logging.getLogger("django_leasequeue.http")

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
        """Return a future that is done when ``number`` is sealed; cancel it to wait no more."""
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
                    future = heapq.heappop(self._waiting)[2]
                    if not future.done():
                        future.set_result(None)
        except Exception as error:  # noqa: BLE001  (most often the database is gone: its stack says nothing more)
            reason = " ".join(str(error).split())
            logger.warning("Looking for sealed numbers ended; readers look themselves, and begin it anew: %s", reason)
        finally:
            self._running = False
            # If this ends because the database is gone: whoever waits looks, and is told.
            for _, _, future in self._waiting:
                if not future.done():
                    future.set_result(None)
            self._waiting.clear()


_watchers: process.PerLoop[dict[tuple[str, bool], SealWatcher]] = process.PerLoop(dict)


def seal_watcher(runner: RequestRunner) -> SealWatcher:
    """Return this loop's watcher of the runner's database."""
    found = _watchers.get()
    place = (runner.using, runner.threaded)
    if place not in found:
        found[place] = SealWatcher(runner)
    return found[place]
