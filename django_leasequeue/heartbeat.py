"""Keeping a lease while work goes on: ``with Heartbeat(queue, job) as heart: ...``, in threads and in coroutines."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import psycopg
from django.db import connections

from . import engine
from .calls import storage_errors
from .engine import pool
from .engine.limits import MAX_BATCH
from .exceptions import InvalidOption, JobNotFound, LeaseLost, LeaseQueueError
from .handle import leased
from .job import Job

logger = logging.getLogger("django_leasequeue")

#: Beats in one length of a lease: two may fail before it is over (seed 003, tuning guidelines).
BEATS = 3
#: Seconds between tries while the database is away.
RETRY = 1.0


class Extends(Protocol):
    """What a heartbeat beats on: a ``Queue`` or a ``BufferedQueue``."""

    @property
    def using(self) -> str: ...

    @property
    def project(self) -> str: ...

    def extend(self, job: Job, lease_ms: int | None = None) -> Job: ...

    async def aextend(self, job: Job, lease_ms: int | None = None) -> Job: ...


class Heartbeat:
    """Extends the lease of a job while the body of ``with`` or ``async with`` runs.

    When the lease is lost (somebody else has the job, or the database was away for longer than the lease) the beating
    ends silently: the body goes on, and ``lost`` tells it. In threads all heartbeats of a process share one thread and
    one connection; in coroutines each beat is a call of the queue, which a ``BufferedQueue`` folds together.

    Inside ``transaction.atomic()`` (Django's ``TestCase``, say) no other connection sees the lease: call ``beat``.

    Args:
        queue: the handle that the job was claimed with.
        job: what ``claim`` returned.
        interval: seconds between beats; by default a third of the lease.
        lease_ms: what each beat sets the lease to; by default its present length.
    """

    def __init__(self, queue: Extends, job: Job, *, interval: float | None = None, lease_ms: int | None = None) -> None:
        self.queue = queue
        #: The job with its newest deadline.
        self.job = leased(job)
        held = (job.deadline - job.claimed_at).total_seconds()
        self.lease_ms = round(held * 1000) if lease_ms is None else lease_ms
        self.interval = self.lease_ms / 1000 / BEATS if interval is None else interval
        if not self.interval > 0:
            raise InvalidOption(f"interval must be more than 0 seconds; it is {interval!r}.")
        self._lost = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._beats = False
        self.good_until = time.monotonic() + held

    @property
    def lost(self) -> bool:
        """Whether the lease is lost: stop, nobody will take the result."""
        return self._lost.is_set()

    def raise_if_lost(self) -> None:
        """Raise ``LeaseLost`` if the lease is lost."""
        if self.lost:
            raise LeaseLost(self.job.id)

    def wait_lost(self, timeout: float) -> bool:
        """Sleep until the lease is lost, at most ``timeout`` seconds; return whether it is. For threads that wait."""
        return self._lost.wait(timeout)

    def beat(self) -> Job:
        """Extend the lease now, on the caller's connection; return the job with its new deadline.

        Raises:
            LeaseLost, JobNotFound: it is lost.
        """
        try:
            job = self.queue.extend(self.job, self.lease_ms)
        except JobNotFound:
            self._lost.set()
            raise
        self.beaten(job)
        return job

    async def abeat(self) -> Job:
        """Async twin of ``beat``."""
        try:
            job = await self.queue.aextend(self.job, self.lease_ms)
        except JobNotFound:
            self._lost.set()
            raise
        self.beaten(job)
        return job

    def beaten(self, job: Job | None, sent: float | None = None) -> None:
        """Note that the lease was extended, or is lost (``None``)."""
        if job is None:
            self._lost.set()
            return
        self.job = job
        self.good_until = (time.monotonic() if sent is None else sent) + self.lease_ms / 1000

    def __enter__(self) -> Self:
        # A lease taken in a transaction that is still open is invisible to the beater's connection.
        self._beats = not connections[self.queue.using].in_atomic_block
        if self._beats:
            _beater(self.queue.using).add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._beats:
            _beater(self.queue.using).remove(self)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        pause = self.interval
        while not self.lost:
            await asyncio.sleep(pause)
            try:
                await self.abeat()
                pause = self.interval
            except JobNotFound:
                return
            except LeaseQueueError as error:
                logger.warning("A heartbeat failed: %s", error, extra={"seq": self.job.seq})
                if time.monotonic() >= self.good_until:
                    self._lost.set()
                    return
                pause = min(self.interval, RETRY)


class Beater:
    """The thread that beats for all ``with`` blocks of this process on one database.

    Args:
        using: alias of the database.
    """

    def __init__(self, using: str) -> None:
        self.using = using
        self._lock = threading.Lock()
        self._due: dict[Heartbeat, float] = {}
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, heart: Heartbeat) -> None:
        """Beat for this one from now on."""
        with self._lock:
            self._due[heart] = time.monotonic() + heart.interval
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"leasequeue-beat-{self.using}", daemon=True)
                self._thread.start()
        self._changed.set()

    def remove(self, heart: Heartbeat) -> None:
        """Beat for this one no more."""
        with self._lock:
            self._due.pop(heart, None)
        self._changed.set()

    # What follows runs in the thread.

    def _run(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        try:
            while (pause := self._pause()) is not None:
                self._changed.wait(pause)
                self._changed.clear()
                due = self._take_due()
                if due:
                    connection = self._beat(due, connection)
        finally:
            if connection is not None:
                connection.close()

    def _pause(self) -> float | None:
        """Return the seconds until the next beat; ``None`` when there is nobody to beat for, which ends the thread."""
        with self._lock:
            if not self._due:
                self._thread = None
                return None
            return max(0.0, min(self._due.values()) - time.monotonic())

    def _take_due(self) -> list[Heartbeat]:
        now = time.monotonic()
        with self._lock:
            # Those that come next anyway share the statement.
            due = [heart for heart, at in self._due.items() if at <= now + heart.interval / 10]
            if not any(self._due[heart] <= now for heart in due):
                return []
            for heart in due:
                self._due[heart] = now + heart.interval
        return due

    def _beat(self, due: list[Heartbeat], connection: psycopg.Connection[Any] | None) -> psycopg.Connection[Any] | None:
        try:
            with storage_errors():
                if connection is None or connection.closed:
                    connection = pool.connect(self.using)
                for same in _alike(due):
                    self._extend(same, connection)
        except LeaseQueueError as error:
            logger.warning("Heartbeats failed: %s", error, extra={"jobs": len(due)})
            self._try_again(due)
            if connection is not None:
                connection.close()
            return None
        return connection

    def _extend(self, hearts: list[Heartbeat], connection: psycopg.Connection[Any]) -> None:
        first, sent = hearts[0], time.monotonic()
        settled = engine.ConnectionExecutor(connection).run(
            engine.extend(
                [heart.job.seq for heart in hearts],
                first.job.node,
                first.lease_ms,
                claims=[heart.job.claim for heart in hearts],
                project=first.queue.project,
            )
        )
        for heart in hearts:
            deadline = settled.deadlines.get(heart.job.seq)
            if deadline is None:
                self.remove(heart)
                heart.beaten(None)
            else:
                job = heart.job
                heart.beaten(Job(job.lease._replace(deadline=deadline), job.node, job.serializer), sent)

    def _try_again(self, due: Iterable[Heartbeat]) -> None:
        now = time.monotonic()
        for heart in due:
            if now >= heart.good_until:
                self.remove(heart)
                heart.beaten(None)
                continue
            with self._lock:
                if heart in self._due:
                    self._due[heart] = now + min(heart.interval, RETRY)


def _alike(hearts: Iterable[Heartbeat]) -> Iterator[list[Heartbeat]]:
    """Those that one statement can extend: one holder, one tenant, one length; a job at most once."""
    groups: dict[tuple[str, str, int], list[dict[int, Heartbeat]]] = {}
    for heart in hearts:
        parts = groups.setdefault((heart.job.node, heart.queue.project, heart.lease_ms), [])
        seq = heart.job.seq
        part = next((part for part in parts if seq not in part and len(part) < MAX_BATCH), None)
        if part is None:
            part = {}
            parts.append(part)
        part[seq] = heart
    for parts in groups.values():
        for part in parts:
            yield list(part.values())


_beaters: dict[str, Beater] = {}
_beaters_lock = threading.Lock()


def _beater(using: str) -> Beater:
    with _beaters_lock:
        return _beaters.setdefault(using, Beater(using))


def _forget() -> None:
    """In a forked child: the threads and connections are the parent's."""
    global _beaters_lock
    _beaters_lock = threading.Lock()
    _beaters.clear()


os.register_at_fork(after_in_child=_forget)
