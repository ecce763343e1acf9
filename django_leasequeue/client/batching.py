"""Settling many jobs with few requests: whatever gathers while one request is under way goes with the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from .messages import ClientJob, Settled

logger = logging.getLogger("django_leasequeue.client")

#: Jobs of one request.
MAX_BATCH = 1_000


class Ending(NamedTuple):
    """The end of a job: ``delay_ms`` of a nack, ``None`` for an ack."""

    job: ClientJob
    delay_ms: int | None
    done: asyncio.Future[bool]


class Batcher:
    """Sends acks and nacks in batches. A job that ends alone goes at once: nothing waits for company.

    Args:
        ack: completes jobs.
        nack: gives jobs back after so many milliseconds.
    """

    def __init__(
        self,
        ack: Callable[[list[ClientJob]], Awaitable[Settled]],
        nack: Callable[[list[ClientJob], int], Awaitable[Settled]],
    ) -> None:
        self._ack, self._nack = ack, nack
        self._waiting: list[Ending] = []
        self._task: asyncio.Task[None] | None = None

    async def settle(self, job: ClientJob, delay_ms: int | None) -> bool:
        """End a job; return whether the server took it: the lease may be over, or the server away."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(Ending(job, delay_ms, done))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
        return await done

    async def finish(self) -> None:
        """Wait until everything is sent."""
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._waiting:
            # Those of the first one's kind; the others keep their order.
            delay_ms = self._waiting[0].delay_ms
            batch = [item for item in self._waiting if item.delay_ms == delay_ms][:MAX_BATCH]
            chosen = {id(item) for item in batch}
            self._waiting = [item for item in self._waiting if id(item) not in chosen]
            await self._send(batch, delay_ms)

    async def _send(self, batch: list[Ending], delay_ms: int | None) -> None:
        jobs = [item.job for item in batch]
        skipped: set[int] | None = None
        try:
            settled = await (self._ack(jobs) if delay_ms is None else self._nack(jobs, delay_ms))
            skipped = set(settled.skipped)
            # After a lost answer nobody knows: the first request may have done it.
            if skipped and not settled.repeated:
                logger.warning("The leases of jobs %s were over: they are delivered again", sorted(skipped))
        except Exception as error:  # noqa: BLE001  (whatever it is: those behind them have their turn)
            logger.warning("Cannot settle %d jobs, which come again when their leases end: %s", len(jobs), error)
        finally:
            for item in batch:
                if not item.done.done():
                    item.done.set_result(skipped is not None and item.job.seq not in skipped)
