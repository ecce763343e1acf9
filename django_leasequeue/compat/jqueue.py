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
that somebody else holds by now. An id as plain text (out of a log, say) stands for the lease of this process.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self
from uuid import uuid4

from ..engine.jobs.read import JobRow, get_jobs
from ..engine.limits import MAX_LEASE_MS
from ..engine.operation import Steps, operation
from ..engine.queues.snapshot import Waiting
from ..engine.rows import LeasedJob
from ..exceptions import InvalidOption, LeaseQueueError, QueueNotFound, StorageError
from ..exceptions import JobNotFound as JobNotFoundError
from ..queue import job as leases
from ..queue.buffered import BufferedQueue
from ..queue.calls import arun
from ..queue.queue import Queue

__all__ = [
    "BrokerQueue",
    "CASConflictError",
    "DirectQueue",
    "HeartbeatManager",
    "JQueueError",
    "Job",
    "JobNotFoundError",
    "JobStatus",
    "QueueState",
    "StorageError",
]

logger = logging.getLogger("django_leasequeue")

#: The base of all errors: everything that this app raises on purpose.
JQueueError = LeaseQueueError


class CASConflictError(StorageError):
    """Never raised: nobody has to try again here. It is there for code that catches it."""


class JobStatus(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    DEAD = "dead"


class JobId(str):
    """A job's id. Out of ``dequeue`` it knows the lease: it ends and keeps this delivery, and no other."""

    __slots__ = ("lease",)

    lease: leases.Job | None

    def __new__(cls, text: object, lease: leases.Job | None = None) -> Self:
        made = super().__new__(cls, text)
        made.lease = lease
        return made


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one instant. Times are aware and in UTC; a lower ``priority`` is processed first."""

    id: str
    entrypoint: str
    payload: bytes
    status: JobStatus
    priority: int
    created_at: datetime
    #: When its lease was taken or renewed last, ``None`` while it is queued.
    heartbeat_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """A picture of a queue at one instant: the queued jobs in the order of their processing, then those in progress."""

    jobs: tuple[Job, ...]
    #: Grows with every write.
    version: int

    def queued_jobs(self, entrypoint: str | None = None) -> tuple[Job, ...]:
        """Return the queued jobs, by priority and age; of one entrypoint or of all."""
        return tuple(
            job for job in self.jobs if job.status is JobStatus.QUEUED and entrypoint in (None, job.entrypoint)
        )

    def in_progress_jobs(self) -> tuple[Job, ...]:
        """Return the jobs that somebody holds."""
        return tuple(job for job in self.jobs if job.status is JobStatus.IN_PROGRESS)

    def find(self, job_id: str) -> Job | None:
        """Return one job, ``None`` if it is not in the picture."""
        return next((job for job in self.jobs if job.id == job_id), None)


class DirectQueue:
    """One transaction for each call.

    Args:
        storage: the name of a queue, or its handle. A name makes a queue with the preset ``jqueue``.
        stale_timeout: the length of a lease: a job without a heartbeat for so long comes back by itself.

    Raises:
        JQueueError: an argument is not allowed.
    """

    def __init__(self, storage: Queue | str, *, stale_timeout: timedelta = timedelta(minutes=5)) -> None:
        self.queue = Queue(storage, preset="jqueue") if isinstance(storage, str) else storage
        self.lease_ms = _milliseconds(stale_timeout, "stale_timeout")
        if not 100 <= self.lease_ms <= MAX_LEASE_MS:
            raise InvalidOption(f"stale_timeout must be from 0.1 seconds to a day; it is {stale_timeout!r}.")

    def _calls(self) -> Queue | BufferedQueue:
        """Return what carries out the calls."""
        return self.queue

    async def enqueue(self, entrypoint: str, payload: bytes, priority: int = 0) -> Job:
        """Add a job.

        Args:
            entrypoint: the logical name of its handler, at most 255 bytes.
            payload: stored as it is.
            priority: lower ones are processed first; from -32,767 to 32,767.

        Raises:
            JQueueError: an argument is not allowed, or the payload is too large; nothing was added.
            StorageError: the database could not do it.
        """
        if not isinstance(payload, bytes):
            raise InvalidOption(f"the payload must be bytes; it is a {type(payload).__name__}.")
        job_id = JobId(uuid4())
        receipt = await self._calls().aenqueue(payload, key=job_id, name=entrypoint, tag=entrypoint, priority=priority)
        made = (receipt.created_at or datetime.now(UTC)).astimezone(UTC)
        return Job(job_id, entrypoint, payload, JobStatus.QUEUED, priority, made)

    async def dequeue(self, entrypoint: str | None = None, *, batch_size: int = 1) -> list[Job]:
        """Lease up to ``batch_size`` jobs of one entrypoint, or of any; return ``[]`` when there is none."""
        found = await self._calls().aclaim(batch_size, lease_ms=self.lease_ms, tag=entrypoint)
        return [_leased(job) for job in found]

    async def ack(self, job_id: str) -> None:
        """Remove a job that is done.

        Raises:
            JobNotFoundError: it is not there, or this lease of it is over.
        """
        await self._calls().aack(await self._lease(job_id))

    async def nack(self, job_id: str) -> None:
        """Return a job to its place in the queue.

        Raises:
            JobNotFoundError: it is not there, or this lease of it is over.
        """
        await self._calls().anack(await self._lease(job_id), delay_ms=0)

    async def heartbeat(self, job_id: str) -> None:
        """Keep a lease for another ``stale_timeout`` from now on.

        Raises:
            JobNotFoundError: the job is not there, or this lease of it is over.
        """
        await self._calls().aextend(await self._lease(job_id), self.lease_ms)

    async def read_state(self, size: int = 1_000) -> QueueState:
        """Return a picture of the queue, without locks.

        Version, order and status are of one instant. Payloads are read right after it: a job that ended in between is
        left out.

        Args:
            size: queued jobs and jobs in progress at most, each up to ``LEASEQUEUE["MAX_PAGE"]``; ``Queue.counts`` says
                how many there are.
        """
        try:
            picture = await self.queue.aread_state(size)
        except QueueNotFound:
            await self.queue.amake()
            picture = await self.queue.aread_state(size)
        shown = [*picture.ready, *picture.in_progress]
        rows = await arun(get_jobs([row.seq for row in shown], project=self.queue.project), self.queue.using)
        by_seq = {row.seq: row for row in rows}
        jobs = [self._shown(row, by_seq[row.seq]) for row in shown if row.seq in by_seq]
        return QueueState(tuple(jobs), picture.version)

    def _shown(self, seen: Waiting, row: JobRow) -> Job:
        status = JobStatus.QUEUED if seen.deadline is None else JobStatus.IN_PROGRESS
        beat = None if seen.deadline is None else (seen.deadline - timedelta(milliseconds=self.lease_ms))
        if beat is not None and row.claimed_at is not None and row.claim == seen.claim:
            beat = max(beat, row.claimed_at)
        return Job(
            JobId(row.key or row.seq),
            row.name or "",
            row.body or b"",
            status,
            row.rank,
            row.created_at.astimezone(UTC),
            None if beat is None else beat.astimezone(UTC),
        )

    async def requeue_stale(self, timeout: timedelta) -> int:  # noqa: ASYNC109  (an age of heartbeats, not a wait)
        """Bring back the jobs without a heartbeat for ``timeout``; return how many.

        Leases that are over come back by themselves: this is for those who will not wait for their end.
        """
        return await self.queue.arequeue_stale(_milliseconds(timeout, "timeout"))

    async def _lease(self, job_id: str) -> leases.Job:
        if isinstance(job_id, JobId) and job_id.lease is not None:
            return job_id.lease
        return await arun(self._held(str(job_id)), self.queue.using)

    @operation
    def _held(self, job_id: str) -> Steps[leases.Job]:
        """Find the lease that this process has of a job."""
        row = yield from self.queue.status_steps(job_id)
        held = None if row is None or row.state != "processing" or row.node != self.queue.node else row
        if held is None or held.claim is None or held.deadline is None:
            raise JobNotFoundError(job_id)
        began = held.claimed_at or held.created_at
        lease = LeasedJob(
            seq=held.seq,
            queue_id=held.queue_id,
            queue=self.queue.name,
            claim=held.claim,
            deadline=held.deadline,
            created_at=held.created_at,
            claimed_at=began,
            deliveries=held.deliveries,
            max_deliveries=held.max_deliveries or 0,
            rank=0,
            key=held.key,
            name=held.name,
            tag=held.name,
            data_json=None,
            meta_json=None,
            body=None,
            reply_to=None,
            errors_json=held.errors_json,
            first_claimed_at=held.first_claimed_at or began,
            progress_json=held.progress_json,
            position=0,
        )
        return leases.Job(lease, self.queue.node)


class BrokerQueue(DirectQueue):
    """Group commit: the calls of many coroutines share transactions; one that is refused fails alone.

    ``async with BrokerQueue("mail") as q``. What is buffered is flushed on exit; calls after it are refused.

    Args:
        storage: the name of a queue, or its handle. A name makes a queue with the preset ``jqueue``.
        stale_timeout: the length of a lease: a job without a heartbeat for so long comes back by itself.
    """

    def __init__(self, storage: Queue | str, *, stale_timeout: timedelta = timedelta(minutes=5)) -> None:
        super().__init__(storage, stale_timeout=stale_timeout)
        self._buffer = BufferedQueue(self.queue)

    def _calls(self) -> BufferedQueue:
        return self._buffer

    async def __aenter__(self) -> Self:
        await self._buffer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._buffer.__aexit__(kind, error, traceback)


class Beats(Protocol):
    """What a heartbeat beats on."""

    async def heartbeat(self, job_id: str) -> None: ...


class HeartbeatManager:
    """Calls ``queue.heartbeat(job_id)`` every ``interval`` while the body of ``async with`` runs.

    It ends silently when the job is lost; the body goes on, and ``lost`` tells it. While the database is away it
    goes on trying.

    Args:
        queue: anything with an async ``heartbeat(job_id)``.
        job_id: of the job that the body works on.
        interval: time between two beats; a third of the lease or less.
    """

    def __init__(self, queue: Beats, job_id: str, interval: timedelta = timedelta(seconds=60)) -> None:
        self._queue = queue
        self._job_id = job_id
        self._pause = _milliseconds(interval, "interval") / 1000
        self._task: asyncio.Task[None] | None = None
        #: Whether the job is lost: nobody will take its ack.
        self.lost = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _beat(self) -> None:
        while not self.lost:
            await asyncio.sleep(self._pause)
            try:
                await self._queue.heartbeat(self._job_id)
            except StorageError as error:
                logger.warning("A heartbeat failed: %s", error, extra={"job": str(self._job_id)})
            except JQueueError:
                self.lost = True


def _leased(job: leases.Job) -> Job:
    body = job.lease.body
    return Job(
        JobId(job.id, job),
        job.name or "",
        b"" if body is None else bytes(body),
        JobStatus.IN_PROGRESS,
        job.lease.rank,
        job.created_at,
        job.claimed_at,
    )


def _milliseconds(value: timedelta, what: str) -> int:
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise InvalidOption(f"{what} must be a timedelta of more than 0; it is {value!r}.")
    return max(1, round(value / timedelta(milliseconds=1)))
