"""The leases of a worker's jobs: their renewal, their end by the worker's own clock, and acks in batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from .client import AsyncClient
from .messages import ClientJob
from .plans import logger

MAX_BATCH = 1_000
#: Heartbeats during one lease: two may fail.
BEATS = 3
#: Seconds before the retry of a failed heartbeat.
AFTER_FAILURE = 1.0
#: Seconds before the end of a lease at which its job becomes lost and does not start; and the largest share of a lease.
NOTICE, NOTICE_SHARE = 1.0, 0.25
#: Seconds between checks for leases that end.
WATCH_INTERVAL = 0.05


class Leases:
    """Extends the leases of jobs, and marks jobs as lost before their lease is over.

    Deadlines are on the server's clock. The times of a heartbeat's request and answer bound its difference to ours, so
    a delayed message is known to be old.
    """

    def __init__(self, client: AsyncClient, topic: str, node: str, lease_ms: int) -> None:
        self._client = client
        self._topic = topic
        self._node = node
        self._lease_ms = lease_ms
        self._seconds = lease_ms / 1000
        self._notice = min(NOTICE, NOTICE_SHARE * self._seconds)
        #: Until when each lease surely lasts (monotonic); ``None``: unknown before the job starts.
        self._good_until: dict[ClientJob, float | None] = {}
        #: The smallest possible difference between our monotonic clock and the server's clock, in seconds.
        self._clock_difference: float | None = None
        self._asking = asyncio.Lock()

    def take(self, job: ClientJob) -> None:
        self._good_until[job] = None

    def drop(self, job: ClientJob) -> None:
        self._good_until.pop(job, None)

    async def may_start(self, job: ClientJob) -> bool:
        """Return whether a job's lease lasts for a while; if that is not sure, try to extend it first."""
        if self._good_until[job] is None and self._clock_difference is not None:
            left = job.deadline.timestamp() + self._clock_difference - time.monotonic()
            if left > self._seconds:
                # Longer than any lease: the server's clock was set forward since the last heartbeat.
                self._clock_difference = None
            # A short time is not noted: the difference errs on the safe side, and the job may not be lost.
            elif left > self._notice:
                self._good_until[job] = time.monotonic() + left
        if not self.is_good(job):
            async with self._asking:
                doubtful = [other for other, known in self._good_until.items() if known is None or other is job]
                if not self.is_good(job) and not job.lost:
                    await self._extend([other for other in doubtful if not other.lost][:MAX_BATCH])
            if not self.is_good(job):
                job.lose()
        return not job.lost

    def is_good(self, job: ClientJob) -> bool:
        """Return whether a job's lease surely lasts for a while. From any thread."""
        good_until = self._good_until.get(job)
        return good_until is not None and good_until > time.monotonic() + self._notice

    async def beat(self) -> None:
        """Extend the leases of all jobs, endlessly."""
        usual = self._seconds / BEATS
        pause = usual
        while True:
            await asyncio.sleep(pause)
            pause = usual
            held = [job for job in self._good_until if not job.lost]
            for start in range(0, len(held), MAX_BATCH):
                if not await self._extend(held[start : start + MAX_BATCH]):
                    pause = min(usual, AFTER_FAILURE)

    async def watch(self) -> None:
        """Mark jobs as lost before their leases are over, endlessly, also while a heartbeat hangs."""
        while True:
            await asyncio.sleep(min(WATCH_INTERVAL, self._notice / 2))
            now = time.monotonic()
            for job, good_until in list(self._good_until.items()):
                if good_until is not None and good_until <= now + self._notice and not job.lost:
                    logger.warning("The lease of job %s ends and could not be extended: it is lost", job.seq)
                    job.lose()

    async def _extend(self, jobs: Sequence[ClientJob]) -> bool:
        """Extend leases; return whether the server answered."""
        sent = time.monotonic()
        try:
            settled = await self._client.extend(self._topic, self._node, jobs, self._lease_ms)
        except Exception as error:  # noqa: BLE001  (without heartbeats all leases end)
            logger.warning("Cannot extend the leases of %d jobs: %s", len(jobs), error)
            return False
        answered = time.monotonic()
        for job in jobs:
            if job.seq in settled.deadlines and job in self._good_until:
                self._good_until[job] = sent + self._seconds
        for deadline in settled.deadlines.values():
            # The server's clock showed this time between the request and its answer.
            said = deadline.timestamp() - self._seconds
            if self._clock_difference is None or not sent - said <= self._clock_difference <= answered - said:
                self._clock_difference = sent - said
        return True


class Batcher:
    """Sends acks and nacks in batches, each at once if none is under way."""

    def __init__(self, client: AsyncClient, topic: str, node: str) -> None:
        self._client, self._place = client, (topic, node)
        #: By ``delay_ms`` of a nack, ``None`` for acks: ended jobs, and futures that are done when they are sent.
        self._waiting: dict[int | None, list[tuple[ClientJob, asyncio.Future[None]]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def settle(self, job: ClientJob, delay_ms: int | None) -> None:
        """Ack or nack a job; a failure is logged: its lease may be over, or the server unreachable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(delay_ms, []).append((job, done))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
        await done

    async def finish(self) -> None:
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._waiting:
            # The batch that has waited longest.
            delay_ms = next(iter(self._waiting))
            ended = self._waiting.pop(delay_ms)
            for start in range(0, len(ended), MAX_BATCH):
                batch = ended[start : start + MAX_BATCH]
                await self._send([job for job, _ in batch], delay_ms)
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)

    async def _send(self, jobs: list[ClientJob], delay_ms: int | None) -> None:
        try:
            if delay_ms is None:
                settled = await self._client.ack(*self._place, jobs)
            else:
                settled = await self._client.nack(*self._place, jobs, delay_ms=delay_ms)
            # After a lost answer the first request may have settled them.
            if settled.skipped and not settled.repeated:
                logger.warning(
                    "The leases of jobs %s were over: they are delivered again", sorted(set(settled.skipped))
                )
        except Exception as error:  # noqa: BLE001  (later batches must not stop)
            logger.warning(
                "Cannot settle %d jobs; they are delivered again when their leases end: %s", len(jobs), error
            )
