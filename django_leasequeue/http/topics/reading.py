"""Reading a topic for a request, and waiting for what comes next without polling it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ...engine.topics.log import LogPage, read, sealer
from ...notify import AsyncWaiter, get_listener
from ..running import RequestRunner
from .sealing import seal_watcher

#: Seconds that a read which does not wait gives other transactions to end: most are over in a moment.
PATIENCE = 0.05
#: Seconds after which a waiting reader looks although nobody woke it.
BACKSTOP = 5.0


def unsealed(page: LogPage, after: int) -> bool:
    """Return whether there is something behind the cursor that cannot be read yet."""
    return not page.records and page.gap is None and not page.sealed and page.head_seq > max(after, page.cursor)


async def read_page(
    runner: RequestRunner,
    project: str,
    topic: str,
    *,
    after: int,
    size: int,
    skip_nodes: Sequence[str] = (),
    wait: float = 0.0,
    timeline: int | None = None,
    reset: bool = False,
) -> LogPage:
    """Return a page of a topic; wait up to ``wait`` seconds for a record if there is none.

    Raises:
        QueueNotFound, LogTruncated: as ``engine.topics.log.read``, which has the other arguments.
    """
    seals = sealer(runner.using)

    async def look(after: int, timeline: int | None) -> LogPage:
        return await runner.run(
            read(
                topic,
                project=project,
                after=after,
                size=size,
                skip_nodes=skip_nodes,
                timeline=timeline,
                reset=reset,
                seals=seals,
            )
        )

    page = await look(after, timeline)
    if unsealed(page, after):
        await _wait_for_seal(runner, page.head_seq, PATIENCE)
        page = await look(after, timeline)
    if not wait or page.records or page.gap is not None or page.more or page.reset_to is not None:
        return page
    ends = time.monotonic() + wait
    async with AsyncWaiter(get_listener(runner.using), [page.queue_id]) as waiter:
        while True:
            page = await look(after, page.timeline)
            left = ends - time.monotonic()
            if page.records or page.gap is not None or page.reset_to is not None or left <= 0:
                return page
            if unsealed(page, after):
                await _wait_for_seal(runner, page.head_seq, min(left, BACKSTOP))
            else:
                await waiter.wait(min(left, BACKSTOP))
            after = page.cursor


async def _wait_for_seal(runner: RequestRunner, number: int, timeout: float) -> None:  # noqa: ASYNC109  (how patient the caller is)
    future = seal_watcher(runner).when(number)
    try:
        async with asyncio.timeout(timeout):
            await future
    except TimeoutError:
        pass
    finally:
        future.cancel()
