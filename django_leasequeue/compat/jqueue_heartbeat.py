"""Keeping a job of ``compat.jqueue`` while work goes on."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Protocol, Self

from ..exceptions import InvalidOption, LeaseQueueError, StorageError
from ..queue.heartbeat import end

logger = logging.getLogger("django_leasequeue")


class Beats(Protocol):
    """A queue whose jobs a heartbeat keeps."""

    async def heartbeat(self, job_id: str) -> None: ...


class HeartbeatManager:
    """Calls ``queue.heartbeat(job_id)`` every ``interval`` while the body of ``async with`` runs.

    It ends silently when the job is lost; the body goes on, and ``lost`` tells it. While the database is away it
    goes on trying.

    Args:
        queue: anything with an async ``heartbeat(job_id)``.
        job_id: of the job that the body works on.
        interval: time between two beats; a third of the lease or less.

    Raises:
        JQueueError: the interval is no time, or not more than 0.
    """

    def __init__(self, queue: Beats, job_id: str, interval: timedelta = timedelta(seconds=60)) -> None:
        if not isinstance(interval, timedelta) or interval <= timedelta(0):
            raise InvalidOption(f"interval must be a timedelta of more than 0; it is {interval!r}.")
        self._queue = queue
        self._job_id = job_id
        self._pause = interval.total_seconds()
        self._task: asyncio.Task[None] | None = None
        #: Whether the job is lost: nobody will take its ack.
        self.lost = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *error: object) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end(task)

    async def _beat(self) -> None:
        while not self.lost:
            await asyncio.sleep(self._pause)
            try:
                await self._queue.heartbeat(self._job_id)
            except StorageError as error:
                logger.warning("A heartbeat failed: %s", error, extra={"job": str(self._job_id)})
            except LeaseQueueError:
                self.lost = True
