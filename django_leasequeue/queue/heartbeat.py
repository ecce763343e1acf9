"""Keeping a lease while work goes on: ``with Heartbeat(queue, job) as heart: ...``, in threads and in coroutines."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import psycopg

from .. import engine
from ..conf import process
from ..engine import pool
from ..engine.leases.sweep import surely_until
from ..engine.limits import MAX_BATCH, MAX_LEASE_MS, MIN_LEASE_MS, check_integer, clamp_lease
from ..engine.outage import Outage, passes, read_only
from ..exceptions import InvalidOption, JobNotFound, LeaseLost
from ..twins import Body, Twins, either, sync, twin
from .base import end, leased
from .outcomes import ClaimedJob

if TYPE_CHECKING:
    from .buffered import BufferedQueue
    from .queue import Queue

logger = logging.getLogger("django_leasequeue")

_IDLE = psycopg.pq.TransactionStatus.IDLE
#: Seconds between tries while the database is away.
RETRY = 1.0
#: Seconds that one statement may take: a sixth of the lease, within these. Then the connection is broken off.
SHORTEST, LONGEST = 1.0, 5.0
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
        self._thread = None if pool.in_transaction(using) else _threads.get(using, HeartbeatThread)
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
            _threads.get(self.queue.using, HeartbeatThread).outage.ends(self)

    async def _keep(self) -> None:
        thread, pause = _threads.get(self.queue.using, HeartbeatThread), self.first_pause
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
                thread.outage.ends(self)
                pause = self.interval


class HeartbeatThread:
    """The thread that beats for all ``with`` blocks of this process on one database."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._lock = threading.Lock()
        self._due: dict[Heartbeat, float] = {}
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: pool.Connection | None = None
        self.outage = Outage(logger, "Heartbeats fail, trying again", "Heartbeats go on", database=using)

    def add(self, heart: Heartbeat) -> None:
        with self._lock:
            self._due[heart] = time.monotonic() + heart.first_pause
            self._start()
        self._changed.set()

    def _start(self, after: float = 0.0) -> None:
        """Start the thread unless it runs."""
        if self._thread is None or not self._thread.is_alive():
            name = f"leasequeue-beat-{self.using}"
            self._thread = threading.Thread(target=self._run, args=(after,), name=name, daemon=True)
            self._thread.start()

    def remove(self, heart: Heartbeat) -> None:
        with self._lock:
            self._due.pop(heart, None)
        self.outage.ends(heart)
        self._changed.set()

    # What follows runs in the thread.

    def _run(self, after: float) -> None:
        process.own_thread()
        time.sleep(after)
        try:
            while (pause := self._pause()) is not None:
                self._changed.wait(pause)
                self._changed.clear()
                self._beat(self._take_due())
        except BaseException:
            logger.exception("The thread of the heartbeats broke: another one begins")
            with self._lock:
                self._thread = None
                self._disconnect()
                with suppress(RuntimeError):  # the interpreter ends
                    self._start(RETRY)

    def _pause(self) -> float | None:
        """Return the seconds until the next beat; ``None`` without leases, which ends the thread."""
        with self._lock:
            if not self._due:
                self._thread = None
                self._disconnect()
                return None
            return max(0.0, min(self._due.values()) - time.monotonic())

    def _take_due(self) -> list[Heartbeat]:
        now = time.monotonic()
        with self._lock:
            lost = [heart for heart in self._due if heart.lost]
            for heart in lost:
                del self._due[heart]
                self.outage.ends(heart)
            # Those that come next anyway share the statement.
            due = [heart for heart, at in self._due.items() if at <= now + heart.interval / 10]
            if not any(self._due[heart] <= now for heart in due):
                return []
            for heart in due:
                self._due[heart] = now + heart.interval
        return due

    def _beat(self, due: list[Heartbeat]) -> None:
        """Beat group by group: an error of one group leaves the others alone."""
        groups = list(_alike(due))
        while groups:
            try:
                connection = self._connected()
            except Exception as error:  # noqa: BLE001  (whatever it is, it may pass)
                self._failed(groups, error)
                return
            group = groups.pop()
            try:
                connection.patience = min(LONGEST, max(SHORTEST, group[0].lease_ms / 6000))
                self._extend(group, connection)
                for heart in group:
                    heart.apart = False
                    self.outage.ends(heart)
            except Exception as error:  # noqa: BLE001  (whatever it is: the leases have to be kept)
                if read_only(error):
                    # This may not be the server to beat on any more.
                    self._disconnect()
                    self._failed([group, *groups], error)
                    return
                for heart in group:
                    heart.apart = True
                if connection.info.transaction_status != _IDLE:
                    self._disconnect()
                self._failed([group], error)

    def _connected(self) -> pool.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = pool.connect(self.using, patience=LONGEST)
            if pool.prepares(self.using):  # not a pooler's, which others use next
                # While a beat waits for a job that a transaction has locked, others wait for theirs.
                self._connection.execute("SET lock_timeout = '500ms'")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _extend(self, hearts: list[Heartbeat], connection: pool.Connection) -> None:
        first, sent = hearts[0], time.monotonic()
        settled = engine.ConnectionExecutor(connection).run(
            engine.extend(
                [heart.job.seq for heart in hearts],
                first.job.node,
                first.lease_ms,
                tokens=[heart.job.token for heart in hearts],
                project=first.queue.project,
            )
        )
        for heart in hearts:
            deadline = settled.deadlines.get(heart.job.seq)
            if deadline is None:
                self.remove(heart)
                heart.beaten(None, sent)
            else:
                heart.beaten(heart.job.extended(deadline), sent)

    def _failed(self, groups: list[list[Heartbeat]], error: Exception) -> None:
        now = time.monotonic()
        with self._lock:
            for heart in [heart for group in groups for heart in group if heart in self._due]:
                self._due[heart] = now + min(heart.interval, RETRY)
                self.failed(heart, error)

    def failed(self, heart: Heartbeat, error: Exception) -> None:
        """Log a failed beat, once for all; log an error that does not pass by itself with its traceback."""
        self.outage.begins(heart, error)
        if not passes(error):
            logger.error("A heartbeat failed", exc_info=error, extra={"seq": heart.job.seq})


def _alike(hearts: Iterable[Heartbeat]) -> Iterator[list[Heartbeat]]:
    """Yield the heartbeats that one statement can extend: one holder, one tenant, one length; a job at most once."""
    groups: dict[tuple[str, str, int, Heartbeat | None], list[dict[int, Heartbeat]]] = {}
    for heart in hearts:
        alone = heart if heart.apart else None
        parts = groups.setdefault((heart.job.node, heart.queue.project, heart.lease_ms, alone), [])
        seq = heart.job.seq
        part = next((part for part in parts if seq not in part and len(part) < MAX_BATCH), None)
        if part is None:
            part = {}
            parts.append(part)
        part[seq] = heart
    for parts in groups.values():
        for part in parts:
            yield list(part.values())


#: The threads of this process, by database.
_threads: process.Shared[str, HeartbeatThread] = process.Shared()
