"""The queue of ``compat.jqueue``: what jqueue's calls mean on PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from .. import conf
from ..engine.jobs.read import JobRow, get_jobs
from ..engine.jobs.results import Status
from ..engine.limits import MAX_BATCH, MAX_SPAN_MS, MIN_LEASE_MS, LongLease, check_integer
from ..engine.operation import Steps, operation
from ..engine.queues.presets import complete
from ..engine.queues.queues import find
from ..engine.queues.stats import Waiting
from ..exceptions import InvalidOption, LeaseLost, QueueNotFound, StorageError
from ..exceptions import JobNotFound as JobNotFoundError
from ..queue import outcomes as leases
from ..queue.base import arun, definition, status_of
from ..queue.buffered import BufferedQueue
from ..queue.enqueue import CancelStatus
from ..queue.queue import Queue
from .jqueue_values import (
    Job,
    JobId,
    JobStatus,
    Leases,
    QueueState,
    entrypoint_of,
    lease_of,
    options_of,
    payload_of,
    tag_of,
)

#: Bytes of a payload that goes by itself and not together with those of others.
LARGE_BYTES = 65_536
#: How often a job may change hands while one call looks for it.
TRIES = 5

_MS = timedelta(milliseconds=1)


class DirectQueue:
    """One transaction for each call. ``JQueueError`` says which argument is not allowed; then nothing is done.

    ``storage`` is the name of a queue, or its handle; a name makes a queue with the preset ``jqueue``. A job without a
    heartbeat for ``stale_timeout``, up to 100 years, comes back by itself: this is the length of a lease. With ``None``
    it never does: call ``requeue_stale``.
    """

    def __init__(self, storage: Queue | str, *, stale_timeout: timedelta | None = timedelta(minutes=5)) -> None:
        if not isinstance(storage, Queue | str):
            raise InvalidOption(
                f"storage must be the name of a queue, or a Queue; it is a {type(storage).__name__}. Jobs are kept in"
                " PostgreSQL: there are no other storages."
            )
        self.queue = Queue(storage, preset="jqueue") if isinstance(storage, str) else storage
        length = MAX_SPAN_MS if stale_timeout is None else milliseconds(stale_timeout, "stale_timeout")
        self.lease_ms = LongLease(max(length, MIN_LEASE_MS))
        self._leases = Leases(self.queue)
        self._priorities: range | None = None

    def _calls(self) -> Queue | BufferedQueue:
        """Return what carries out the calls."""
        return self.queue

    async def enqueue(self, entrypoint: str, payload: bytes | str, priority: int = 0) -> Job:
        """Add a job to an entrypoint, the logical name of its handler: any text without NUL.

        ``payload`` has at most 16 MiB (more where ``LEASEQUEUE["MAX_PAYLOAD_BYTES"]`` is higher), and is stored as it
        is; text is taken as base64. Jobs of a lower ``priority`` are processed first; from -32,767 to 32,767.
        """
        calls, options, body = self._calls(), options_of(entrypoint), payload_of(payload)
        check_integer(priority, "priority", -32_767, 32_767)
        if priority not in await self._allowed():
            raise InvalidOption(
                f"the queue {self.queue.name!r} would not keep the priority {priority}: it takes them by other rules."
                " Give it priority_order 'asc' and a wider range (priority_min, priority_max)."
            )
        job_id, lane = JobId(uuid4()), self.queue if len(body) > LARGE_BYTES else calls
        receipt = await lane.aenqueue(body, key=job_id, priority=priority, **options)
        made = (receipt.created_at or datetime.now(UTC)).astimezone(UTC)
        return Job(job_id, entrypoint, body, JobStatus.QUEUED, priority, made)

    async def dequeue(self, entrypoint: str | None = None, *, batch_size: int = 1) -> list[Job]:
        """Lease up to ``batch_size`` jobs of one entrypoint, or of any; return ``[]`` when there is none."""
        calls, tag = self._calls(), None if entrypoint is None else tag_of(entrypoint)
        missing = check_integer(batch_size, "batch_size", 0, 2**31 - 1)
        found: list[leases.ClaimedJob] = []
        try:
            # An answer has 1,000 jobs and 16 MiB at most.
            while missing and (more := await calls.aclaim(min(missing, MAX_BATCH), lease_ms=self.lease_ms, tag=tag)):
                found += more
                missing -= len(more)
        except StorageError:
            if not found:
                raise
        return [_leased(job, self._leases.taken(job)) for job in found]

    async def ack(self, job_id: str) -> None:
        """Remove a job: one that this lease holds, or a queued one.

        ``JobNotFoundError``: it is not there, or another worker has taken it since.
        """
        calls = self._calls()

        async def remove(row: Status) -> bool:
            return await self.queue.acancel(row.seq) is CancelStatus.CANCELLED

        await self._settle(job_id, calls.aack, remove)
        self._leases.ended(job_id)

    async def nack(self, job_id: str) -> None:
        """Return a job to its place in the queue; a queued one is there already. Errors as for ``ack``."""
        calls = self._calls()

        async def release(lease: leases.ClaimedJob) -> Any:
            return await calls.anack(lease, delay_ms=0)

        await self._settle(job_id, release, _there)

    async def heartbeat(self, job_id: str) -> None:
        """Keep a lease for another ``stale_timeout``; a queued job stays as it is. Errors as for ``ack``."""
        calls = self._calls()

        async def keep(lease: leases.ClaimedJob) -> Any:
            # Of a lease that is longer than this queue's, nothing is taken away.
            length = round((lease.deadline - lease.claimed_at) / _MS)
            return await calls.aextend(lease, LongLease(max(self.lease_ms, length)))

        await self._settle(job_id, keep, _there)

    async def _settle(
        self,
        job_id: str,
        held: Callable[[leases.ClaimedJob], Awaitable[Any]],
        waiting: Callable[[Status], Awaitable[bool]],
    ) -> None:
        """Do what is asked with the lease that an id stands for, or else with the queued job."""
        if not isinstance(job_id, str):
            raise JobNotFoundError(job_id)
        known = self._leases.find(job_id)
        if known is not None:
            with suppress(JobNotFoundError):
                await held(known)
                return
        for _ in range(TRIES):
            row = await arun(self._look(job_id), self.queue.using)
            if row is None or row.ended:
                raise JobNotFoundError(job_id)
            lease = lease_of(row, self.queue.name)
            if lease is None:
                if await waiting(row):
                    return
            elif known is not None:
                break
            else:
                with suppress(JobNotFoundError):
                    await held(lease)
                    return
        raise LeaseLost(job_id)

    @operation
    def _look(self, job_id: str) -> Steps[Status | None]:
        """Find a job by its key, or by its number where it has none."""
        try:
            row = yield from status_of(self.queue, str(job_id))
            if row is None and job_id.isascii() and job_id.isdecimal():
                row = yield from status_of(self.queue, int(job_id))
                return row if row is None or row.key is None else None
        except InvalidOption:  # no job can have that id
            return None
        return row

    async def read_state(self, size: int | None = None) -> QueueState:
        """Return a snapshot of the queue, without locks; ``complete`` says whether all jobs are in it.

        Version, order and status are of one instant. Payloads are read right after it: a job that ended in between is
        left out. ``size`` bounds queued jobs and jobs in progress, each up to ``LEASEQUEUE["MAX_PAGE"]`` and 1,000,
        which is the default; ``Queue.counts`` says how many there are.
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
        jobs = [_shown(row, by_seq[row.seq]) for row in shown if row.seq in by_seq]
        return QueueState(tuple(jobs), snapshot.version, not snapshot.more)

    async def requeue_stale(self, timeout: timedelta) -> int:  # noqa: ASYNC109  (an age of heartbeats, not a wait)
        """Bring back the jobs without a heartbeat for ``timeout``, all with 0; return how many.

        Leases that are over come back by themselves: this is for those who will not wait for their end.
        """
        try:
            return await self.queue.arequeue_stale(milliseconds(timeout, "timeout"))
        except QueueNotFound:
            return 0

    async def _allowed(self) -> range:
        """Return the priorities that the queue keeps as they are."""
        if self._priorities is None:
            self._priorities = await arun(kept_priorities(self.queue), self.queue.using)
        return self._priorities


@operation
def kept_priorities(queue: Queue) -> Steps[range]:
    """Return the priorities that a queue keeps as they are, or will when it is made."""
    info = yield from find(queue.project, queue.name)
    if info is None:
        missing = definition(queue)
        options = complete(missing.preset, **missing.options)
    else:
        options = info.config
    if options["priority_order"] != "asc":
        return range(1)
    return range(options["priority_min"], options["priority_max"] + 1)


async def _there(row: Status) -> bool:
    """Nothing is to be done with a queued job."""
    return True


def _leased(job: leases.ClaimedJob, job_id: JobId) -> Job:
    lease = job.lease
    return Job(
        job_id,
        entrypoint_of(job.name, job.meta),
        b"" if lease.body is None else bytes(lease.body),
        JobStatus.IN_PROGRESS,
        lease.rank,
        job.created_at,
        job.claimed_at,
    )


def _shown(seen: Waiting, row: JobRow) -> Job:
    return Job(
        JobId(row.key or row.seq),
        entrypoint_of(row.name, row.meta),
        row.body or b"",
        JobStatus.QUEUED if seen.deadline is None else JobStatus.IN_PROGRESS,
        row.rank,
        row.created_at.astimezone(UTC),
        None if seen.renewed_at is None else seen.renewed_at.astimezone(UTC),
    )


def milliseconds(value: timedelta, what: str) -> int:
    """Return the milliseconds of a time, which is not below 0 nor longer than 100 years."""
    longest = timedelta(milliseconds=MAX_SPAN_MS)
    if not isinstance(value, timedelta) or not timedelta(0) <= value <= longest:
        raise InvalidOption(f"{what} must be a timedelta from 0 to {longest.days} days; it is {value!r}.")
    return round(value / _MS)
