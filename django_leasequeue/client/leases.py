"""The leases of a worker's jobs: how long each is surely good by the worker's own clock, and keeping them so."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from .batching import MAX_BATCH
from .client import AsyncClient
from .messages import ClientJob

logger = logging.getLogger("django_leasequeue.client")

#: Heartbeats in one length of a lease: two may fail before it is over.
BEATS = 3
#: Seconds before a heartbeat that failed is sent again.
AFTER_FAILURE = 1.0
#: Seconds before the end of its lease at which a job is told, and is not started any more; at most this share of it.
NOTICE, NOTICE_SHARE = 1.0, 0.25
#: Seconds between looks which leases come to their end.
LOOK = 0.05


class Leases:
    """Extends the leases of jobs, and tells those whose lease may be over before it is.

    What the server says of a deadline is on the server's clock. How far that is from ours is learned from heartbeats,
    whose request and answer lie around it; so a message that a network held back is known to be old. What is not known
    is asked, before the job starts.

    Args:
        client: has connections of its own, and tries nothing again: the next heartbeat is soon.
        topic: the queue.
        node: who holds the leases.
        lease_ms: their length.
    """

    def __init__(self, client: AsyncClient, topic: str, node: str, lease_ms: int) -> None:
        self._client = client
        self._topic = topic
        self._node = node
        self._lease_ms = lease_ms
        self._seconds = lease_ms / 1000
        self._notice = min(NOTICE, NOTICE_SHARE * self._seconds)
        #: Until when each lease is surely good (monotonic); ``None`` until that is known: before the job starts.
        self._good_until: dict[ClientJob, float | None] = {}
        #: The seconds that have to be added to the server's clock, at least, to get ours (monotonic).
        self._apart: float | None = None
        self._asking = asyncio.Lock()

    def take(self, job: ClientJob) -> None:
        """Note a job that has come."""
        self._good_until[job] = None

    def drop(self, job: ClientJob) -> None:
        """Forget a job that has ended."""
        self._good_until.pop(job, None)

    async def may_start(self, job: ClientJob) -> bool:
        """Return whether a job's lease is good for a while; where that is not sure, try to extend it first."""
        if self._good_until[job] is None and self._apart is not None:
            left = job.deadline.timestamp() + self._apart - time.monotonic()
            if left > self._seconds:
                # No lease is longer: the server's clock was set forward since the last heartbeat.
                self._apart = None
            # Only what is good is noted: the clock's difference may be wrong on the safe side, and the job not lost.
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
        """Return whether a job's lease is known to be good for a while. From any thread."""
        good_until = self._good_until.get(job)
        return good_until is not None and good_until > time.monotonic() + self._notice

    async def beat(self) -> None:
        """Extend the leases of all jobs, for ever."""
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
        """Tell jobs that they are lost before their leases are over, for ever: also while a heartbeat hangs."""
        while True:
            await asyncio.sleep(min(LOOK, self._notice / 2))
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
        except Exception as error:  # noqa: BLE001  (whatever it is: without heartbeats all leases end)
            logger.warning("Cannot extend the leases of %d jobs: %s", len(jobs), error)
            return False
        answered = time.monotonic()
        for job in jobs:
            if job.seq in settled.deadlines and job in self._good_until:
                self._good_until[job] = sent + self._seconds
        for deadline in settled.deadlines.values():
            # The server's clock said so between the request and its answer.
            said = deadline.timestamp() - self._seconds
            if self._apart is None or not sent - said <= self._apart <= answered - said:
                self._apart = sent - said
        return True
