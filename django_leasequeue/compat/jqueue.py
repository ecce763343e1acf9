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
that somebody else holds by now. An id as plain text stands for the lease that the process has, or had, of the job; in
a process that never had it, for whoever holds it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..exceptions import JobNotFound as JobNotFoundError
from ..exceptions import LeaseQueueError, StorageError
from . import MissingStorage
from .jqueue_broker import BrokerQueue, HeartbeatManager
from .jqueue_direct import DirectQueue
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

#: The base of all errors: everything that this app raises on purpose.
JQueueError = LeaseQueueError


class CASConflictError(JQueueError):
    """Never raised: writers do not collide here. It is there for code that catches it."""


class InMemoryStorage(MissingStorage):
    """Refused: tests use the test database."""

    example = "BrokerQueue('mail')"


class LocalFileSystemStorage(InMemoryStorage):
    """Refused: ``leasequeue_import`` moves the jobs of a file."""


class S3Storage(LocalFileSystemStorage):
    """Refused: ``leasequeue_import`` moves the jobs of an object."""


class GCSStorage(LocalFileSystemStorage):
    """Refused: ``leasequeue_import`` moves the jobs of an object."""


@runtime_checkable
class ObjectStoragePort(Protocol):
    """The form of a storage, for annotations; queues refuse an adapter of yours, as they do the four above."""

    async def read(self) -> tuple[bytes, str | None]: ...

    async def write(self, content: bytes, if_match: str | None = None) -> str: ...
