"""Keeping a lease while work goes on: ``with Heartbeat(queue, job) as heart: ...``, in threads and in coroutines."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from ..engine import pool
from ..engine.leases.sweep import surely_until
from ..engine.limits import MAX_LEASE_MS, MIN_LEASE_MS, check_integer, clamp_lease
from ..exceptions import InvalidOption, JobNotFound, LeaseLost
from ..twins import Body, Twins, either, sync, twin
from .base import leased
from .heartbeat_thread import RETRY, HeartbeatThread, get_heartbeat_thread
from .outcomes import ClaimedJob

if TYPE_CHECKING:
    from .buffered import BufferedQueue
    from .queue import Queue

#: Beats in one length of a lease: two may fail before it is over.
BEATS = 3


class Heartbeat(Twins):
    """Extends the lease of a job while the body of ``with`` or ``async with`` runs.

    When the lease is lost (another worker has the job, or it could not be extended in time) the beating ends silently:
    the body goes on, and ``lost`` tells it. For that no answer of the database is needed: a lease that was not extended
    counts as lost a little before it ends, by this process's own clock. In threads all heartbeats of a process share
    one thread and one connection; in coroutines each beat is a call of the queue, which a ``BufferedQueue`` folds
    together.

    Inside ``transaction.atomic()`` (Django's ``TestCase``, say) no other connection sees the lease: call ``beat``.

    Args:
        queue: the handle that the job was claimed with.
        job: what ``claim`` returned.
        interval: seconds between beats, fewer than the lease has; by default a third of it.
        lease_ms: what each beat sets the lease to, 100 to 86,400,000; by default its present length.

    Raises:
        InvalidOption: one of these cannot be.
    """

    def __init__(
        self,
        queue: Queue | BufferedQueue,
        job: ClaimedJob,
        *,
        interval: float | None = None,
        lease_ms: int | None = None,
    ) -> None:
        self.queue = queue
        #: The job with its newest deadline.
        self.job: ClaimedJob = leased(job)
        if lease_ms is None:
            lease_ms = clamp_lease(round((job.deadline - job.claimed_at).total_seconds() * 1000))
        self.lease_ms: int = check_integer(lease_ms, "lease_ms", MIN_LEASE_MS, MAX_LEASE_MS)
        lease = self.lease_ms / 1000
        if interval is None:
            interval = lease / BEATS
        elif isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 < interval < lease:
            raise InvalidOption(
                f"interval must be seconds, more than 0 and fewer than the lease has ({lease:g}); it is {interval!r}."
            )
        self.interval = float(interval)
        self._lost = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread: HeartbeatThread | None = None
        #: Whether it beats by itself, because a beat together with others failed.
        self.apart = False
        #: Until when the lease is surely held (monotonic).
        self.good_until: float = self.job.good_until

    @property
    def lost(self) -> bool:
        """Whether the lease is lost: stop, the result would be refused. Once it is, it stays so."""
        if time.monotonic() >= self.good_until:
            self._lost.set()
        return self._lost.is_set()

    def raise_if_lost(self) -> None:
        """Raise ``LeaseLost`` if the lease is lost."""
        if self.lost:
            raise LeaseLost(self.job.id)

    def wait_lost(self, timeout: float) -> bool:
        """Sleep until the lease is lost, at most ``timeout`` seconds; return whether it is. For threads that wait."""
        ends = time.monotonic() + timeout
        # The end of the lease comes without a word, and later with each beat.
        while not self.lost and (left := min(ends, self.good_until) - time.monotonic()) > 0:
            self._lost.wait(left)
        return self.lost

    @sync
    def beat(self) -> Body[ClaimedJob]:
        """Extend the lease now, on the caller's connection; return the job with its new deadline.

        Raises:
            LeaseLost, JobNotFound: it is lost.
        """
        self.raise_if_lost()
        sent = time.monotonic()
        try:
            job: ClaimedJob = yield either(self.queue.extend, self.queue.aextend, self.job, self.lease_ms)
        except JobNotFound:
            self._lost.set()
            raise
        self.beaten(job, sent)
        return job

    abeat = twin(beat)

    def beaten(self, job: ClaimedJob | None, sent: float) -> None:
        """Note that the lease was extended by a call of the time ``sent`` (monotonic), or is lost (``None``)."""
        if job is None or self.lost:
            self._lost.set()
            return
        self.job = job
        self.good_until = max(job.good_until, surely_until(sent, self.lease_ms / 1000))

    @property
    def first_pause(self) -> float:
        """Seconds until the first beat: sooner than usual if much of the lease is over."""
        return max(0.0, min(self.interval, (self.good_until - time.monotonic()) / BEATS))

    def __enter__(self) -> Self:
        # A lease taken in a transaction that is still open is invisible to the connection of the heartbeat thread.
        using = self.queue.using
        self._thread = None if pool.in_transaction(using) else get_heartbeat_thread(using)
        if self._thread is not None:
            self._thread.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is not None:
            self._thread.remove(self)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *error: object) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end(task)
            get_heartbeat_thread(self.queue.using).succeeded(self)

    async def _keep(self) -> None:
        thread, pause = get_heartbeat_thread(self.queue.using), self.first_pause
        while not self.lost:
            await asyncio.sleep(pause)
            try:
                await self.abeat()
            except JobNotFound:
                return
            except Exception as error:  # noqa: BLE001  (whatever it is: the lease has to be kept)
                thread.failed(self, error)
                pause = min(self.interval, RETRY)
            else:
                thread.succeeded(self)
                pause = self.interval


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
