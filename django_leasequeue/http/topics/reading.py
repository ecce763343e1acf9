"""Reads that wait for the next record, and the sealed numbers that readers wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ...conf import process
from ...engine import Operation
from ...engine.topics.log import LogPage, seal, sealer
from ...notify import get_listener, waking
from ..errors import logger
from ..streaming import in_background, within
from ..views import RequestRunner

#: Seconds between looks for a sealed number: doubled from, up to.
FIRST_LOOK, LAST_LOOK = 0.002, 0.25


class SealWatcher:
    """Watches the sealed number of one database while readers wait for it."""

    def __init__(self, runner: RequestRunner) -> None:
        self._runner = runner
        self._seals = sealer(runner.using)
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._running = False

    def when(self, number: int) -> asyncio.Future[None]:
        """Return a future that is done when ``number`` is sealed; cancel it to stop waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = number
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
                for future, number in list(self._waiting.items()):
                    if number <= sealed or future.done():
                        del self._waiting[future]
                        _done(future)
        except Exception as error:  # noqa: BLE001  (most often the database is gone: its stack says nothing more)
            logger.warning("Looking for sealed numbers ended; readers look themselves, and begin it anew: %s", error)
        finally:
            self._running = False
            # If this ends because the database is gone: those that wait read, and get the error.
            for future in self._waiting:
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
READ_BACKSTOP = 5.0


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
                await _wait_for_seal(runner, page.head_seq, min(left, READ_BACKSTOP))
            else:
                await sleep(min(left, READ_BACKSTOP))
            after = page.cursor


async def _wait_for_seal(runner: RequestRunner, number: int, timeout: float) -> None:  # noqa: ASYNC109  (how patient the caller is)
    future = seal_watcher(runner).when(number)
    try:
        await within(timeout, future)
    finally:
        future.cancel()
