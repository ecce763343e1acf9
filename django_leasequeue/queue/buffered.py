"""``BufferedQueue``: the calls of many callers, folded into one transaction while the one before is under way."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import Future
from functools import partial
from typing import Any, Self, TypeVar, Unpack

import psycopg

from .. import engine, twins
from ..engine import pool
from ..engine.limits import MAX_BATCH, check_count, clamp_delay, clamp_lease
from ..engine.outage import undone
from ..exceptions import StorageError
from ..notify.alarms import AsyncAlarm
from ..twins import Repeatable, sync, twin
from . import flush, request
from .base import Handle, arun, find_serializer, leased, run, storage_errors
from .enqueue import JobOptions, tagged, written_job
from .flush import AsyncLane, Call, Claiming
from .lease import Error, failure_from
from .outcomes import ClaimedJob, Finished, Receipt
from .queue import Queue
from .serializers import JSON, Serializer

T = TypeVar("T")
#: The body of a method: one call, which goes together with those of others.
Folded = Generator[Call[Any], Any, T]


class BufferedQueue:
    """Group commit: while one transaction is under way the calls of all others gather, and go together in the next.

    Use it where many callers of one process each handle single jobs::

        async with BufferedQueue(Queue("mail")) as queue:
            await asyncio.gather(*(queue.aenqueue({"to": to}) for to in recipients))

    Each caller gets the answer to its own call: one that is refused fails alone. ``with`` serves threads, ``async
    with`` coroutines (methods whose names begin with ``a``). What is buffered is flushed on exit; calls after it are
    refused. Unlike those of ``Queue`` the calls are never part of the caller's transaction.

    Args:
        queue: the handle of the queue, or its name.
    """

    def __init__(self, queue: Queue | str) -> None:
        self.queue: Queue = Queue(queue) if isinstance(queue, str) else queue
        self._serializer: Serializer = JSON
        self._thread_lane: ThreadLane | None = None
        self._lanes: tuple[AsyncLane, ...] = ()

    @property
    def node(self) -> str:
        """The name under which leases are held."""
        return self.queue.node

    @property
    def project(self) -> str:
        """The tenant."""
        return self.queue.project

    @property
    def using(self) -> str:
        """Alias of the database."""
        return self.queue.using

    def __enter__(self) -> Self:
        self._serializer = run(find_serializer(self.queue), self.using)
        self._thread_lane = ThreadLane(self.queue, self._serializer)
        return self

    def __exit__(self, *error: object) -> None:
        lane, self._thread_lane = self._thread_lane, None
        if lane is not None:
            lane.close()

    async def __aenter__(self) -> Self:
        self._serializer = await arun(find_serializer(self.queue), self.using)
        self._lanes = tuple(AsyncLane(self.queue, self._serializer) for _ in range(4))
        return self

    async def __aexit__(self, *error: object) -> None:
        lanes, self._lanes = self._lanes, ()
        for lane in lanes:
            await lane.close()

    def _lane_of(self, kind: int) -> AsyncLane:
        if not self._lanes:
            raise flush.closed()
        return self._lanes[flush.LANES[kind]]

    def _run(self, body: Repeatable[T], /) -> T:
        lane = self._thread_lane
        if lane is None:
            raise flush.closed()
        return twins.run(body, lambda call: lane.put(call).result())

    async def _arun(self, body: Repeatable[T], /) -> T:
        return await twins.arun(body, lambda call: self._lane_of(call.kind).put(call))

    @sync
    def enqueue(self, payload: Any = None, **options: Unpack[JobOptions]) -> Folded[Receipt]:
        """Add a job. Arguments, answer and errors as ``Queue.enqueue``."""
        return Call(flush.ENQUEUE, written_job(tagged(engine.NewJob(payload, **options)), self._serializer)).steps()

    aenqueue = twin(enqueue)

    @sync
    def claim(self, size: int = 1, *, lease_ms: int | None = None, tag: str | None = None) -> Folded[list[ClaimedJob]]:
        """Lease up to ``size`` jobs. Arguments, answer and errors as ``Queue.claim``.

        Callers who wait share one claim: who asked first is served first.
        """
        size = check_count(size, "the number of jobs to claim", MAX_BATCH)
        return Call(flush.CLAIM, Claiming(size, clamp_lease(lease_ms), tag)).steps()

    aclaim = twin(claim)

    @sync
    def ack(self, job: ClaimedJob, result: Any = None, *, result_ttl_ms: int | None = None) -> Folded[Finished]:
        """Complete a job. Arguments, answer and errors as ``Queue.ack``."""
        value, body = (None, None) if result is None else self._serializer.write(result, "the result")
        ending = engine.Ending(leased(job).seq, job.token, result=value, body=body, result_ttl_ms=result_ttl_ms)
        return Call(flush.END, ending, job, result).steps()

    aack = twin(ack)

    @sync
    def fail(self, job: ClaimedJob, error: Error, *, result_ttl_ms: int | None = None) -> Folded[Finished]:
        """Fail a job for good. Arguments, answer and errors as ``Queue.fail``."""
        ending = engine.Ending(leased(job).seq, job.token, failure=failure_from(error), result_ttl_ms=result_ttl_ms)
        return Call(flush.END, ending, job).steps()

    afail = twin(fail)

    @sync
    def nack(
        self, job: ClaimedJob, *, delay_ms: int | None = None, error: Error | None = None
    ) -> Folded[engine.Released]:
        """Give a job back. Arguments, answer and errors as ``Queue.nack``."""
        release = engine.Release(leased(job).seq, job.token, clamp_delay(delay_ms), failure_from(error))
        return Call[engine.Released](flush.RELEASE, release, job).steps()

    anack = twin(nack)

    @sync
    def extend(self, job: ClaimedJob, lease_ms: int | None = None) -> Folded[ClaimedJob]:
        """Extend a lease. Arguments, answer and errors as ``Queue.extend``."""
        return Call(flush.EXTEND, clamp_lease(lease_ms), leased(job)).steps()

    aextend = twin(extend)

    @sync
    def progress(self, job: ClaimedJob, value: Any) -> Folded[None]:
        """Say how far a job is. Arguments and errors as ``Queue.progress``."""
        return Call(flush.PROGRESS, value, leased(job)).steps()

    aprogress = twin(progress)

    async def aenqueue_and_wait(
        self,
        payload: Any = None,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109  (it is told, not cancelled)
        **options: Unpack[JobOptions],
    ) -> Any:
        """Enqueue a job and wait for its result, as ``Queue.aenqueue_and_wait``; requests and replies are folded."""
        self._lane_of(flush.ENQUEUE)
        job = tagged(engine.NewJob(payload, **options))
        return await twins.arun(request.conversation(_Caller(self), job, timeout))


class _Caller(request.Caller):
    """The side of a conversation that coroutines of a buffer take."""

    def __init__(self, buffer: BufferedQueue) -> None:
        super().__init__(buffer.queue, AsyncAlarm)
        self._buffer = buffer

    async def lane(self, purpose: int) -> AsyncLane:
        return self._buffer._lane_of(purpose)

    async def aserializer(self) -> Serializer:
        return self._buffer._serializer


class ThreadLane:
    """Flushes in a thread, on a connection of its own."""

    def __init__(self, queue: Handle, serializer: Serializer) -> None:
        self._queue = queue
        self._serializer = serializer
        self._pending: list[Call[Any]] = []
        self._changed = threading.Condition()
        self._open = True
        self._connections: dict[str, psycopg.Connection[Any]] = {}
        self._thread = threading.Thread(target=self._run, name=f"leasequeue-buffer-{queue.name}", daemon=True)
        self._thread.start()

    def put(self, call: Call[Any]) -> Future[Any]:
        future: Future[Any] = Future()
        call.future = future
        with self._changed:
            if not self._open:
                raise flush.closed()
            self._pending.append(call)
            self._changed.notify()
        return future

    def close(self) -> None:
        """Flush what is buffered, and end."""
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while self._open and not self._pending:
                        self._changed.wait()
                    if not self._pending:
                        return
                    batch = flush.take(self._pending)
                for using, part in flush.by_database(self._queue, batch):
                    steps = flush.flushing(self._queue, self._serializer, part)
                    twins.run(steps, partial(self._carry_out, using=using))
        finally:
            for using in list(self._connections):
                self._disconnect(using)

    def _carry_out(self, operation: engine.Operation[Any], using: str) -> None:
        try:
            with storage_errors():
                connection = self._connections.get(using)
                if connection is None or connection.closed:
                    connection = self._connections[using] = pool.connect(using)
                engine.ConnectionExecutor(connection).run(operation)
        except StorageError as error:
            if not undone(error):
                self._disconnect(using)
            raise

    def _disconnect(self, using: str) -> None:
        if (connection := self._connections.pop(using, None)) is not None:
            connection.close()
