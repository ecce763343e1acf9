"""The API of jqueue on PostgreSQL.

``BrokerQueue(storage)`` and ``DirectQueue(storage)`` take the name of a queue, or a ``Queue``, instead of a storage.
The rest is as in jqueue::

    async with BrokerQueue("mail") as q:
        await q.enqueue("send_email", b"...")
        for job in await q.dequeue("send_email", batch_size=2):
            async with HeartbeatManager(q, job.id):
                ...
            await q.ack(job.id)

``job.id`` is a string that knows its lease: a late worker gets ``JobNotFoundError`` and never ends the job of another
worker. A plain text id stands for the lease that this process had last, or else for the present lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol, Self, runtime_checkable
from uuid import uuid4

from .. import conf
from ..engine import clock
from ..engine.jobs.read import get_jobs
from ..engine.jobs.results import Status
from ..engine.limits import MAX_BATCH, MAX_SPAN_MS, MIN_LEASE_MS, LongLease, check_integer
from ..engine.operation import Statements, operation
from ..engine.queues.presets import complete
from ..engine.queues.queues import find
from ..exceptions import InvalidOption, LeaseLost, LeaseQueueError, QueueNotFound, StorageError
from ..exceptions import JobNotFound as JobNotFoundError
from ..queue import outcomes as leases
from ..queue.base import arun, definition, end, status_of
from ..queue.buffered import BufferedQueue
from ..queue.enqueue import CancelStatus
from ..queue.flush import ENQUEUE
from ..queue.queue import Queue
from . import jqueue_values as values
from . import missing_storage
from .jqueue_values import Job, JobId, JobStatus, Leases, QueueState

__all__ = [
    "BrokerQueue", "CASConflictError", "DirectQueue", "GCSStorage", "HeartbeatManager", "InMemoryStorage",
    "JQueueError", "Job", "JobNotFoundError", "JobStatus", "LocalFileSystemStorage", "ObjectStoragePort", "QueueState",
    "S3Storage", "StorageError",
]  # fmt: skip

logger = logging.getLogger("django_leasequeue")

#: Bytes above which a payload is not sent together with others.
LARGE_BYTES = 65_536
#: How often a job may change hands while one call searches it.
TRIES = 5

#: The base class of all errors of this app.
JQueueError = LeaseQueueError


class CASConflictError(JQueueError):
    """Never raised, since writers do not collide here; for code that catches it."""


#: The command ``leasequeue_import`` moves the jobs of a file or an object.
InMemoryStorage, LocalFileSystemStorage, S3Storage, GCSStorage = (
    missing_storage(name, "BrokerQueue('mail')")
    for name in ("InMemoryStorage", "LocalFileSystemStorage", "S3Storage", "GCSStorage")
)


@runtime_checkable
class ObjectStoragePort(Protocol):
    """The protocol of a storage, for annotations; queues refuse every storage, as they do the four above."""

    async def read(self) -> tuple[bytes, str | None]: ...

    async def write(self, content: bytes, if_match: str | None = None) -> str: ...


class DirectQueue:
    """One transaction for each call. ``JQueueError`` names an invalid argument, without any effect.

    ``storage`` is the name of a queue, or its handle; a name makes a queue with the preset ``jqueue``. A job without a
    heartbeat for ``stale_timeout`` (the length of a lease, up to 100 years) becomes ready again; with ``None`` only
    ``requeue_stale`` does that.
    """

    def __init__(self, storage: Queue | str, *, stale_timeout: timedelta | None = timedelta(minutes=5)) -> None:
        if not isinstance(storage, Queue | str):
            raise InvalidOption(
                f"storage must be the name of a queue, or a Queue; it is a {type(storage).__name__}. Jobs are kept in"
                " PostgreSQL."
            )
        self.queue = Queue(storage, preset="jqueue") if isinstance(storage, str) else storage
        length = MAX_SPAN_MS if stale_timeout is None else values.milliseconds(stale_timeout, "stale_timeout")
        self.lease_ms = LongLease(max(length, MIN_LEASE_MS))
        self._leases = Leases(self.queue)
        self._priorities: range | None = None

    def _calls(self) -> Queue | BufferedQueue:
        return self.queue

    async def enqueue(self, entrypoint: str, payload: bytes | str, priority: int = 0) -> Job:
        """Add a job to an entrypoint, the logical name of its handler: any text without NUL.

        ``payload`` has at most 16 MiB (or ``LEASEQUEUE["MAX_PAYLOAD_BYTES"]``, if more); text must be base64. Jobs of a
        lower ``priority`` (-32,767 to 32,767) are processed first.
        """
        calls, options, body = self._calls(), values.options_of(entrypoint), values.payload_of(payload)
        check_integer(priority, "priority", -32_767, 32_767)
        if priority not in await self._allowed():
            raise InvalidOption(
                f"priority must be one that the queue {self.queue.name!r} keeps; it is {priority}. Give the queue"
                " priority_order 'asc' and a wider range (priority_min, priority_max)."
            )
        job_id, lane = JobId(uuid4()), self.queue if len(body) > LARGE_BYTES else calls
        receipt = await lane.aenqueue(body, key=job_id, priority=priority, **options)
        made = (receipt.created_at or datetime.now(UTC)).astimezone(UTC)
        return Job(job_id, entrypoint, body, JobStatus.QUEUED, priority, made)

    async def dequeue(self, entrypoint: str | None = None, *, batch_size: int = 1) -> list[Job]:
        """Lease up to ``batch_size`` jobs of one entrypoint, or of any; return ``[]`` when there is none."""
        calls, tag = self._calls(), None if entrypoint is None else values.tag_of(entrypoint)
        missing = check_integer(batch_size, "batch_size", 0, 2**31 - 1)
        found: list[leases.ClaimedJob] = []
        try:
            # One claim returns at most 1,000 jobs and 16 MiB.
            while missing and (more := await calls.aclaim(min(missing, MAX_BATCH), lease_ms=self.lease_ms, tag=tag)):
                found += more
                missing -= len(more)
        except StorageError:
            if not found:
                raise
        return [values.leased_job(job, self._leases.taken(job)) for job in found]

    async def ack(self, job_id: str) -> None:
        """Remove a job that this lease holds, or a queued one.

        ``JobNotFoundError``: there is no such job, or another worker has it now.
        """
        await self._settle(job_id, self._calls().aack, removes=True)
        self._leases.ended(job_id)

    async def nack(self, job_id: str) -> None:
        """Return a job to its place in the queue; a queued one stays there. Errors as for ``ack``."""
        await self._settle(job_id, partial(self._calls().anack, delay_ms=0))

    async def heartbeat(self, job_id: str) -> None:
        """Keep a lease for another ``stale_timeout``; a queued job stays as it is. Errors as for ``ack``."""
        calls = self._calls()

        async def keep(lease: leases.ClaimedJob) -> Any:
            # A lease that is longer than this queue's keeps its length.
            length = round((lease.deadline - lease.claimed_at) / timedelta(milliseconds=1))
            return await calls.aextend(lease, LongLease(max(self.lease_ms, length)))

        await self._settle(job_id, keep)

    async def _settle(
        self, job_id: str, held: Callable[[leases.ClaimedJob], Awaitable[Any]], *, removes: bool = False
    ) -> None:
        """Call ``held`` with the lease of an id; a queued job stays, or is removed."""
        if not isinstance(job_id, str):
            raise JobNotFoundError(job_id)
        known = self._leases.find(job_id)
        if known is not None:
            with suppress(JobNotFoundError):
                await held(known)
                return
        for _ in range(TRIES):
            row = await arun(self._find_row(job_id), self.queue.using)
            if row is None or row.ended:
                raise JobNotFoundError(job_id)
            lease = values.lease_of(row, self.queue.name)
            if lease is None:
                if not removes or await self.queue.acancel(row.seq) is CancelStatus.CANCELLED:
                    return
            elif known is not None:
                break
            else:
                with suppress(JobNotFoundError):
                    await held(lease)
                    return
        raise LeaseLost(job_id)

    def _find_row(self, job_id: str) -> Statements[Status | None]:
        """Find a job by its key, or by its number if it has none."""
        try:
            row = yield from status_of(self.queue, str(job_id))
            if row is None and job_id.isascii() and job_id.isdecimal():
                row = yield from status_of(self.queue, int(job_id))
                return row if row is None or row.key is None else None
        except InvalidOption:  # no job can have that id
            return None
        return row

    async def read_state(self, size: int | None = None) -> QueueState:
        """Return a snapshot of the queue, without locks; ``complete``: whether it has all jobs.

        Version, order and status are of one instant. Payloads are read right after it, without jobs that ended in
        between. ``size`` bounds queued jobs and jobs in progress, each up to ``LEASEQUEUE["MAX_PAGE"]`` and 1,000, the
        default. ``Queue.counts`` returns the totals.
        """
        most = min(conf.settings.MAX_PAGE, MAX_BATCH)
        size = most if size is None else check_integer(size, "size", 1, most)
        try:
            snapshot = await self.queue.aread_state(size)
        except QueueNotFound:
            await self.queue.amake()
            snapshot = await self.queue.aread_state(size)
        shown = [*snapshot.ready, *snapshot.in_progress]
        rows = await arun(get_jobs([row.seq for row in shown], project=self.queue.project), self.queue.using)
        by_seq = {row.seq: row for row in rows}
        jobs = [values.shown_job(row, by_seq[row.seq]) for row in shown if row.seq in by_seq]
        return QueueState(tuple(jobs), snapshot.version, not snapshot.more)

    async def requeue_stale(self, timeout: timedelta) -> int:  # noqa: ASYNC109  (an age of heartbeats, not a wait)
        """Make jobs without a heartbeat for ``timeout`` ready again, with 0 all leased jobs; return how many."""
        try:
            return await self.queue.arequeue_stale(values.milliseconds(timeout, "timeout"))
        except QueueNotFound:
            return 0

    async def _allowed(self) -> range:
        if self._priorities is None:
            self._priorities = await arun(kept_priorities(self.queue), self.queue.using)
        return self._priorities


@operation
def kept_priorities(queue: Queue) -> Statements[range]:
    """Return the priorities that a queue keeps unchanged, or will when it is made."""
    info = yield from find(queue.project, queue.name)
    if info is None:
        missing = definition(queue)
        options = complete(missing.preset, **missing.options)
    else:
        options = info.config
    if options["priority_order"] != "asc":
        return range(1)
    return range(options["priority_min"], options["priority_max"] + 1)


class BrokerQueue(DirectQueue):
    """Group commit: the calls of many coroutines share transactions; a refused call fails alone.

    Use ``async with BrokerQueue("mail") as q``: the exit flushes the buffer and refuses later calls. Arguments as for
    ``DirectQueue``. ``dequeue`` makes all jobs of the queue without a heartbeat for ``stale_timeout`` ready again,
    whatever the length of their leases.
    """

    def __init__(self, storage: Queue | str, stale_timeout: timedelta = timedelta(minutes=5)) -> None:
        super().__init__(storage, stale_timeout=stale_timeout)
        self._stale = timedelta(milliseconds=values.milliseconds(stale_timeout, "stale_timeout"))
        self._swept: float | None = None
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
        """Lease up to ``batch_size`` jobs, stale ones included; see ``DirectQueue.dequeue``."""
        self._calls()
        now, between = clock.elapsing(), min(1.0, self._stale.total_seconds() / 20)
        if self._swept is None or abs(now - self._swept) >= between:
            self._swept = now
            await self.requeue_stale(self._stale)
        return await super().dequeue(entrypoint, batch_size=batch_size)


class Beats(Protocol):
    async def heartbeat(self, job_id: str) -> None: ...


class HeartbeatManager:
    """Calls ``queue.heartbeat(job_id)`` every ``interval`` while the body of ``async with`` runs.

    When the job is lost, it sets ``lost`` and ends; the body continues. It retries while the database is unreachable.
    The interval must be a third of the lease or less. ``queue`` is any object with an async ``heartbeat``.
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
