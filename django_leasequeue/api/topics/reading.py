"""Reading a topic for a request, and waiting for what comes next without polling it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ...engine.log import Page, read, sealer
from ...notify import AsyncWaiter, get_listener
from ..running import Runner

#: Seconds between looks while a transaction elsewhere keeps a number open: doubled from, up to.
FIRST_LOOK, LAST_LOOK = 0.002, 0.1
#: Looks of a read that does not wait, while what was just written is not sealed yet.
LOOKS = 4
#: Seconds after which a waiting reader looks although nobody woke it.
BACKSTOP = 5.0


async def read_page(
    runner: Runner,
    project: str,
    topic: str,
    *,
    after: int,
    size: int,
    skip_nodes: Sequence[str] = (),
    wait: float = 0.0,
) -> Page:
    """Return a page of a topic; wait up to ``wait`` seconds for a record if there is none.

    Raises:
        QueueNotFound: there is no such topic.
    """
    seals = sealer(runner.using)

    async def look() -> Page:
        return await runner.run(
            read(topic, project=project, after=after, size=size, skip_nodes=skip_nodes, seals=seals)
        )

    page = await look()
    # Other transactions are mostly short: what they hold open is settled in a moment.
    for attempt in range(LOOKS):
        if not _unsettled(page, after):
            break
        await asyncio.sleep(FIRST_LOOK * 2**attempt)
        page = await look()
    if not wait or page.records or page.gap is not None or page.more:
        return page
    ends = time.monotonic() + wait
    async with AsyncWaiter(get_listener(runner.using), [page.queue_id]) as waiter:
        step = FIRST_LOOK
        while True:
            page = await look()
            left = ends - time.monotonic()
            if page.records or page.gap is not None or left <= 0:
                return page
            step = min(step * 2, LAST_LOOK) if _unsettled(page, after) else FIRST_LOOK
            await waiter.wait(min(left, step if _unsettled(page, after) else BACKSTOP))
            after = page.cursor


def _unsettled(page: Page, after: int) -> bool:
    """Whether there is something behind the cursor that cannot be read yet."""
    return not page.records and page.gap is None and not page.settled and page.head_seq > max(after, page.cursor)
