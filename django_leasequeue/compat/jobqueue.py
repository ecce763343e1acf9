"""The names of the job queue ``@platformatic/job-queue`` in Python style, on PostgreSQL.

``Queue(storage)`` takes the name of a queue, or a handle of this package, where that library takes a storage. Each call
has a twin with ``a`` for coroutines. ``timeout`` is in seconds; ``result_ttl`` and ``visibility_timeout`` are in
milliseconds, as there::

    queue = Queue("images", concurrency=5)

    @queue.execute
    def resize(job):
        return {"url": store(job.payload), "by": job.id}

    with queue:
        queue.enqueue_and_wait("img-1", {"width": 200}, timeout=60)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from .. import reaper as reapers
from ..exceptions import InvalidOption, StorageError
from ..exceptions import JobCancelled as JobCancelledError
from ..exceptions import JobFailed as JobFailedError
from ..exceptions import JobNotFound as JobNotFoundError
from ..exceptions import MaxRetries as MaxRetriesError
from ..exceptions import WaitTimeout as TimeoutError
from ..queue import consumer as consumers
from ..queue import job as leases
from ..queue import queue as queues
from ..queue.outcomes import JobStatus, Receipt
from ..worker.handler import JobAborted as AbortError
from ..worker.handler import JobControl
from .events import Events
from .values import AbortSignal, CancelResult, EnqueueResult, Job, MessageStatus, Serde

__all__ = [
    "AbortError",
    "AbortSignal",
    "CancelResult",
    "EnqueueResult",
    "Job",
    "JobCancelledError",
    "JobFailedError",
    "JobNotFoundError",
    "MaxRetriesError",
    "MessageStatus",
    "Queue",
    "Reaper",
    "Serde",
    "StorageError",
    "TimeoutError",
]

F = TypeVar("F", bound=Callable[..., Any])


class Queue:
    """A producer, a consumer (after ``execute``), or both.

    Args:
        storage: the name of a queue, or a handle of this package. A name makes a queue with the preset ``jobqueue``.
        payload_serde: how payloads are written; JSON by default.
        result_serde: how results are written; JSON by default.
        worker_id: the name under which jobs are held; one from host, process and chance by default.
        concurrency: handlers at once.
        max_retries: how often a job is run at most (3 unless the queue says otherwise).
        result_ttl: milliseconds for which ends are remembered (an hour unless the queue says otherwise).
        visibility_timeout: milliseconds after which a job counts as stalled whose worker is gone, if this makes the
            queue (else the queue's; 30 s by default). A worker that lives keeps its leases by itself.
        reaper: whether this process also does the reaper's duties while it leads.

    Raises:
        InvalidOption: an argument is not allowed.
    """

    def __init__(
        self,
        storage: queues.Queue | str,
        *,
        payload_serde: Serde | None = None,
        result_serde: Serde | None = None,
        worker_id: str | None = None,
        concurrency: int = 1,
        max_retries: int | None = None,
        result_ttl: int | None = None,
        visibility_timeout: int | None = None,
        reaper: bool = True,
    ) -> None:
        if isinstance(storage, str):
            given = {"max_deliveries": max_retries, "result_ttl_ms": result_ttl, "lease_ms": visibility_timeout}
            options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            storage = queues.Queue(storage, preset="jobqueue", node=worker_id, **options)
        elif worker_id is not None or visibility_timeout is not None:
            raise InvalidOption("worker_id and visibility_timeout are the handle's business where one is given.")
        self.queue = storage
        self._payload_serde = payload_serde
        self._result_serde = result_serde
        self._max_retries = max_retries
        self._result_ttl = result_ttl
        self._consumer_options: dict[str, Any] = {"concurrency": concurrency, "reaper": reaper}
        self._handler: Callable[..., Any] | None = None
        self._consumer: consumers.Consumer | None = None
        self._events = Events(storage, self._result, self._payload)

    # Life

    def execute(self, handler: F) -> F:
        """Say what runs the jobs, before ``start``: a function or coroutine function that takes the ``Job``.

        What it returns is the result; what it raises fails the run.
        """
        if not callable(handler):
            raise InvalidOption(f"the handler must be a function; it is {handler!r}.")
        self._handler = handler
        return handler

    def start(self) -> Self:
        """Make the queue if it is missing; begin to run jobs, if ``execute`` said how.

        Raises:
            QueueNotFound: it is missing and may not be made.
            StorageError: the database cannot be reached.
        """
        self.queue.make()
        info = self.queue.info()
        with self._connected(None if info is None else info.id) as consumer:
            if consumer is not None:
                consumer.start()
        return self

    async def astart(self) -> Self:
        """Async twin of ``start``."""
        await self.queue.amake()
        info = await self.queue.ainfo()
        with self._connected(None if info is None else info.id) as consumer:
            if consumer is not None:
                await consumer.astart()
        return self

    @contextmanager
    def _connected(self, queue_id: int | None) -> Iterator[consumers.Consumer | None]:
        """Listen to events, and make the consumer that is to be started; nothing is left of a start that fails."""
        self._events.connect(queue_id)
        try:
            if self._handler is not None and self._consumer is None:
                run = _arunner(self, self._handler) if _is_async(self._handler) else _runner(self, self._handler)
                self._consumer = consumers.Consumer(self.queue, run, **self._consumer_options)
            yield self._consumer
        except BaseException:
            self._consumer = None
            self._events.disconnect()
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Take no more jobs, wait for running ones, then tell them to stop and give them back.

        Args:
            timeout: seconds to wait; 25 by default.

        Returns:
            Whether every job that had started has ended.
        """
        consumer, self._consumer = self._consumer, None
        try:
            return True if consumer is None else consumer.stop(timeout)
        finally:
            self._events.disconnect()

    async def astop(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        """Async twin of ``stop``."""
        consumer, self._consumer = self._consumer, None
        try:
            return True if consumer is None else await consumer.astop(timeout)
        finally:
            self._events.disconnect()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.astop()

    def on(self, event: str, handler: Callable[..., Any]) -> None:
        """Hear what happens to this queue's jobs in this process, between ``start`` and ``stop``.

        ``enqueued``, ``started``, ``stalled`` and ``cancelled`` call ``handler(id)``; ``completed`` calls
        ``handler(id, result)``; ``failing`` and ``failed`` call ``handler(id, error)``, where ``error.payload`` is the
        job's; ``error`` calls ``handler(error)`` with what worker or reaper could not do.
        """
        self._events.on(event, handler)

    def off(self, event: str, handler: Callable[..., Any]) -> None:
        """Hear it no more."""
        self._events.off(event, handler)

    # Jobs

    def enqueue(
        self, id: str, payload: Any = None, *, max_attempts: int | None = None, result_ttl: int | None = None
    ) -> EnqueueResult:
        """Add a job unless its id is taken.

        Args:
            id: names the job: the same id is not run twice at once, nor again while its end is remembered.
            payload: any JSON, or what the serde takes.
            max_attempts: how often it is run at most.
            result_ttl: milliseconds for which its end is remembered; fixed by the first accepted enqueue.

        Raises:
            InvalidOption, PayloadTooLarge, SerializerError: the job was refused; nothing was added.
        """
        return self._enqueued(self.queue.enqueue(self._written(payload), **self._options(id, max_attempts, result_ttl)))

    async def aenqueue(
        self, id: str, payload: Any = None, *, max_attempts: int | None = None, result_ttl: int | None = None
    ) -> EnqueueResult:
        """Async twin of ``enqueue``."""
        options = self._options(id, max_attempts, result_ttl)
        return self._enqueued(await self.queue.aenqueue(self._written(payload), **options))

    def enqueue_and_wait(
        self,
        id: str,
        payload: Any = None,
        *,
        timeout: float = 30.0,
        max_attempts: int | None = None,
        result_ttl: int | None = None,
    ) -> Any:
        """Add a job, or join the one with its id, and wait for its result.

        Args:
            id, payload, max_attempts, result_ttl: as for ``enqueue``.
            timeout: seconds.

        Raises:
            TimeoutError: not in time; the job goes on.
            MaxRetriesError: it failed as often as it may. ``JobFailedError``: its handler gave up.
            JobCancelledError: it was cancelled.
        """
        options = self._options(id, max_attempts, result_ttl)
        return self._result(self.queue.enqueue_and_wait(self._written(payload), timeout=timeout, **options))

    async def aenqueue_and_wait(
        self,
        id: str,
        payload: Any = None,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109  (the same call as the thread's)
        max_attempts: int | None = None,
        result_ttl: int | None = None,
    ) -> Any:
        """Async twin of ``enqueue_and_wait``."""
        options = self._options(id, max_attempts, result_ttl)
        return self._result(await self.queue.aenqueue_and_wait(self._written(payload), timeout=timeout, **options))

    def cancel(self, id: str) -> CancelResult:
        """Take out a job that nobody runs; its id is free again at once."""
        return CancelResult(str(self.queue.cancel(id)))

    async def acancel(self, id: str) -> CancelResult:
        """Async twin of ``cancel``."""
        return CancelResult(str(await self.queue.acancel(id)))

    def get_status(self, id: str) -> MessageStatus | None:
        """Return where a job is, ``None`` if nothing is known of it (any more)."""
        return _message_status(self.queue.get_status(id))

    async def aget_status(self, id: str) -> MessageStatus | None:
        """Async twin of ``get_status``."""
        return _message_status(await self.queue.aget_status(id))

    def get_result(self, id: str) -> Any:
        """Return the result of a completed job, ``None`` if there is none (yet, or any more)."""
        return self._result(self.queue.get_result(id))

    async def aget_result(self, id: str) -> Any:
        """Async twin of ``get_result``."""
        return self._result(await self.queue.aget_result(id))

    def update_result_ttl(self, id: str, ttl: int) -> bool:
        """Remember the end of a job for ``ttl`` milliseconds from now, or from its end; return whether it is known."""
        return self.queue.update_result_ttl(id, ttl)

    async def aupdate_result_ttl(self, id: str, ttl: int) -> bool:
        """Async twin of ``update_result_ttl``."""
        return await self.queue.aupdate_result_ttl(id, ttl)

    def _options(self, id: str, max_attempts: int | None, result_ttl: int | None) -> Any:
        attempts = self._max_retries if max_attempts is None else max_attempts
        ttl = self._result_ttl if result_ttl is None else result_ttl
        return {"key": id, "max_deliveries": attempts, "result_ttl_ms": ttl}

    def _written(self, payload: Any) -> Any:
        return payload if self._payload_serde is None else self._payload_serde.serialize(payload)

    def _payload(self, value: Any) -> Any:
        return value if self._payload_serde is None else self._payload_serde.deserialize(value)

    def _result(self, value: Any) -> Any:
        """Return a result as its serde reads it; ``None`` where there is none."""
        return value if self._result_serde is None or value is None else self._result_serde.deserialize(value)

    def _enqueued(self, receipt: Receipt) -> EnqueueResult:
        if receipt.status == "completed":
            return EnqueueResult("completed", None, self._result(receipt.result))
        return EnqueueResult(receipt.status, receipt.state if receipt.status == "duplicate" else None)

    def _job(self, job: leases.Job, control: JobControl) -> Job:
        return Job(job.id, self._payload(job.payload), job.deliveries, job.created_at, AbortSignal(control))

    def _returned(self, value: Any) -> Any:
        return value if self._result_serde is None else self._result_serde.serialize(value)


class Reaper:
    """Brings stalled jobs back, and does the reaper's other duties: of many that run, one leads.

    Workers do that by themselves unless told otherwise (``Queue(..., reaper=False)``).

    Args:
        storage: the name of the queue whose ``stalled`` events are heard, or a handle of this package.
    """

    def __init__(self, storage: queues.Queue | str) -> None:
        self.queue = queues.Queue(storage, preset="jobqueue") if isinstance(storage, str) else storage
        self._reaper = reapers.Reaper(self.queue.using)
        self._events = Events(self.queue)

    @property
    def leading(self) -> bool:
        """Whether this one leads."""
        return self._reaper.leading

    def on(self, event: str, handler: Callable[..., Any]) -> None:
        """Hear ``stalled`` (``handler(id)``), once for each lease that ran out, and ``error``."""
        self._events.on(event, handler)

    def start(self) -> Self:
        """Run in a thread."""
        self.queue.make()
        info = self.queue.info()
        self._events.connect(None if info is None else info.id)
        self._reaper.start()
        return self

    def stop(self) -> bool:
        """Hand over at once; return whether it has stopped."""
        try:
            return self._reaper.stop()
        finally:
            self._events.disconnect()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _message_status(found: JobStatus | None) -> MessageStatus | None:
    if found is None:
        return None
    return MessageStatus(found.id, found.state, found.created_at, found.deliveries, found.error)


def _is_async(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def _runner(queue: Queue, handler: Callable[..., Any]) -> Callable[[leases.Job, JobControl], Any]:
    def run(job: leases.Job, control: JobControl) -> Any:
        return queue._returned(handler(queue._job(job, control)))

    return run


def _arunner(queue: Queue, handler: Callable[..., Any]) -> Callable[[leases.Job, JobControl], Any]:
    async def run(job: leases.Job, control: JobControl) -> Any:
        return queue._returned(await handler(queue._job(job, control)))

    return run
