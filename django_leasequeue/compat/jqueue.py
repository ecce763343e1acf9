"""jqueue's names and errors on PostgreSQL.

``BrokerQueue(storage)`` and ``DirectQueue(storage)`` take the name of a queue, or a ``Queue``, where jqueue takes a
storage. All else is spelled the same::

    async with BrokerQueue("mail") as q:
        await q.enqueue("send_email", b"...")
        for job in await q.dequeue("send_email", batch_size=2):
            async with HeartbeatManager(q, job.id):
                ...
            await q.ack(job.id)

``job.id`` is a string that knows its lease. A worker that comes too late gets ``JobNotFoundError`` and never ends a job
that another worker holds by now. An id as plain text stands for the lease that the process has, or had, of the job; in
a process that never had it, for the present lease.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Protocol, Self, runtime_checkable

from ..engine import clock
from ..exceptions import InvalidOption, LeaseQueueError, StorageError
from ..exceptions import JobNotFound as JobNotFoundError
from ..queue.buffered import BufferedQueue
from ..queue.flush import ENQUEUE
from ..queue.heartbeat import end
from ..queue.queue import Queue
from . import missing_storage
from .jqueue_direct import DirectQueue, milliseconds
from .jqueue_values import Job, JobStatus, QueueState

__all__ = [
    "BrokerQueue",
    "CASConflictError",
    "DirectQueue",
    "GCSStorage",
    "HeartbeatManager",
    "InMemoryStorage",
    "JQueueError",
    "Job",
    "JobNotFoundError",
    "JobStatus",
    "LocalFileSystemStorage",
    "ObjectStoragePort",
    "QueueState",
    "S3Storage",
    "StorageError",
]

logger = logging.getLogger("django_leasequeue")

#: The base of all errors: everything that this app raises on purpose.
JQueueError = LeaseQueueError


class CASConflictError(JQueueError):
    """Never raised: writers do not collide here. It is there for code that catches it."""


#: ``leasequeue_import`` moves the jobs of a file or an object.
InMemoryStorage, LocalFileSystemStorage, S3Storage, GCSStorage = (
    missing_storage(name, "BrokerQueue('mail')")
    for name in ("InMemoryStorage", "LocalFileSystemStorage", "S3Storage", "GCSStorage")
)


@runtime_checkable
class ObjectStoragePort(Protocol):
    """The form of a storage, for annotations; queues refuse an adapter of yours, as they do the four above."""

    async def read(self) -> tuple[bytes, str | None]: ...

    async def write(self, content: bytes, if_match: str | None = None) -> str: ...


class BrokerQueue(DirectQueue):
    """Group commit: the calls of many coroutines share transactions; one that is refused fails alone.

    ``async with BrokerQueue("mail") as q``. What is buffered is flushed on exit; calls after it are refused. Arguments
    as for ``DirectQueue``.

    Its ``dequeue`` brings back the jobs of all workers of the queue that had no heartbeat for ``stale_timeout``,
    however long their own leases are.
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


class Beats(Protocol):
    """A queue whose jobs a heartbeat keeps."""

    async def heartbeat(self, job_id: str) -> None: ...


class HeartbeatManager:
    """Calls ``queue.heartbeat(job_id)`` every ``interval`` while the body of ``async with`` runs.

    It ends silently when the job is lost; the body goes on, and ``lost`` tells it. While the database is away it goes
    on trying. The interval must be a third of the lease or less. ``queue`` is anything with an async ``heartbeat``.
    """

    def __init__(self, queue: Beats, job_id: str, interval: timedelta = timedelta(seconds=60)) -> None:
        if not isinstance(interval, timedelta) or interval <= timedelta(0):
            raise InvalidOption(f"interval must be a timedelta of more than 0; it is {interval!r}.")
        self._queue = queue
        self._job_id = job_id
        self._pause = interval.total_seconds()
        self._task: asyncio.Task[None] | None = None
        #: Whether the job is lost: its ack is refused.
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
