"""The queue of ``compat.jqueue`` whose calls go together."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from ..engine import clock
from ..queue.buffered import BufferedQueue
from ..queue.flush import ENQUEUE
from ..queue.queue import Queue
from .jqueue_direct import DirectQueue, milliseconds
from .jqueue_values import Job


class BrokerQueue(DirectQueue):
    """Group commit: the calls of many coroutines share transactions; one that is refused fails alone.

    ``async with BrokerQueue("mail") as q``. What is buffered is flushed on exit; calls after it are refused.

    Its ``dequeue`` brings back the jobs of all workers of the queue that had no heartbeat for ``stale_timeout``,
    however long their own leases are.

    Args:
        storage: the name of a queue, or its handle. A name makes a queue with the preset ``jqueue``.
        stale_timeout: the length of a lease, 0 to 100 years: a job without a heartbeat for so long comes back by
            itself.

    Raises:
        JQueueError: an argument is not allowed.
    """

    def __init__(self, storage: Queue | str, stale_timeout: timedelta = timedelta(minutes=5)) -> None:
        super().__init__(storage, stale_timeout=stale_timeout)
        self._stale = timedelta(milliseconds=milliseconds(stale_timeout, "stale_timeout"))
        self._swept: datetime | None = None
        self._buffer = BufferedQueue(self.queue)

    def _calls(self) -> BufferedQueue:
        self._buffer._lane_of(ENQUEUE)
        return self._buffer

    async def __aenter__(self) -> Self:
        await self._allowed()
        await self._buffer.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._buffer.__aexit__(*error)

    async def dequeue(self, entrypoint: str | None = None, *, batch_size: int = 1) -> list[Job]:
        """Lease up to ``batch_size`` jobs, after those without a heartbeat came back; see ``DirectQueue.dequeue``."""
        self._calls()
        now, between = clock.now(), min(timedelta(seconds=1), self._stale / 20)
        if self._swept is None or abs(now - self._swept) >= between:
            self._swept = now
            await self.requeue_stale(self._stale)
        return await super().dequeue(entrypoint, batch_size=batch_size)
