"""The API of ``@platformatic/job-queue`` in Python style, on PostgreSQL.

``Queue(storage)`` takes the name of a queue, or a handle of this package, instead of a storage. Each call has an async
twin with the prefix ``a``. ``timeout`` is in seconds; ``result_ttl`` and ``visibility_timeout`` are in milliseconds, as
in that library::

    queue = Queue("images", concurrency=5)

    @queue.execute
    def resize(job):
        return {"url": store(job.payload), "by": job.id}

    with queue:
        queue.enqueue_and_wait("img-1", {"width": 200}, timeout=60)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from .. import reaper as reapers
from .. import twins
from ..engine.limits import MAX_LEASE_MS, MIN_LEASE_MS, check_integer
from ..engine.queues.queues import QueueInfo
from ..exceptions import InvalidOption, LeaseQueueError, QueueNotFound, StorageError
from ..exceptions import JobCancelled as JobCancelledError
from ..exceptions import JobFailed as JobFailedError
from ..exceptions import JobNotFound as JobNotFoundError
from ..exceptions import MaxRetries as MaxRetriesError
from ..exceptions import WaitTimeout as TimeoutError
from ..queue import consumer as consumers
from ..queue import queue as queues
from ..queue.base import arun, find_serializer, run
from ..queue.serializers import Serializer
from ..twins import AsyncStartStop, StartStop, either
from ..worker.control import JobAborted as AbortError
from . import missing_storage
from .jobqueue_execution import AbortSignal, AfterExecutionContext, Events, Job, after, runner, takes
from .jobqueue_producer import (
    CancelResult,
    EnqueueResult,
    JsonSerde,
    MessageStatus,
    Producer,
    Serde,
    SerializedError,
    UpdateResultTTLResult,
    create_json_serde,
    runs,
)

__all__ = [
    "AbortError", "AbortSignal", "AfterExecutionContext", "CancelResult", "EnqueueResult", "FileStorage", "Job",
    "JobCancelledError", "JobFailedError", "JobNotFoundError", "JobQueueError", "JsonSerde", "MaxRetriesError",
    "MemoryStorage", "MessageStatus", "PgStorage", "Queue", "Reaper", "RedisStorage", "SQLiteStorage", "Serde",
    "SerializedError", "StorageError", "TimeoutError", "UpdateResultTTLResult", "create_json_serde",
]  # fmt: skip

#: The base class of all errors of this app.
JobQueueError = LeaseQueueError

MemoryStorage, FileStorage, RedisStorage, SQLiteStorage, PgStorage = (
    missing_storage(name, "Queue('images')")
    for name in ("MemoryStorage", "FileStorage", "RedisStorage", "SQLiteStorage", "PgStorage")
)

F = TypeVar("F", bound=Callable[..., Any])


class Queue(Producer, AsyncStartStop):
    """A producer, a consumer (after ``execute``), or both.

    ``storage`` is the name of a queue, or a handle of this package; a name makes a queue with the preset ``jobqueue``.
    Payloads and results are JSON unless a serde writes them. ``worker_id`` is the name that holds jobs (by default
    host, process id and a random part); ``concurrency`` handlers run at once.

    A job runs at most ``max_retries`` times (by default 3, or as the queue says); 0 and 1 are one run. Outcomes stay
    for ``result_ttl`` milliseconds (by default an hour, or as the queue says). After ``visibility_timeout``
    milliseconds (100 to a day; by default the length of the queue's leases, 30 s) a run counts as hung: its signal is
    set, the next job takes its place, and the job runs again. A queue that this makes has leases of this length: so
    long a dead worker goes unnoticed.

    ``after_execution``, a function or a coroutine function, gets the ``AfterExecutionContext`` of the run that ends a
    job before its outcome is stored; an error in it is logged without effect. ``reaper``: whether this process also
    does the reaper's duties while it leads.
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
        after_execution: Callable[[AfterExecutionContext], Any] | None = None,
        reaper: bool = True,
    ) -> None:
        if visibility_timeout is not None:
            check_integer(visibility_timeout, "visibility_timeout", MIN_LEASE_MS, MAX_LEASE_MS)
        if after_execution is not None and not callable(after_execution):
            raise InvalidOption(f"after_execution must be a function; it is {after_execution!r}.")
        if isinstance(storage, str):
            most = runs(max_retries, "max_retries")
            given = {"max_deliveries": most, "result_ttl_ms": result_ttl, "lease_ms": visibility_timeout}
            options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            storage = queues.Queue(storage, preset="jobqueue", node=worker_id, **options)
        elif worker_id is not None:
            raise InvalidOption(f"worker_id goes with the name of a queue, not with a handle; it is {worker_id!r}.")
        super().__init__(storage, payload_serde, result_serde, max_retries, result_ttl)
        self._visibility_timeout = visibility_timeout
        self._after_execution = after_execution
        self._consumer_options: dict[str, Any] = {"concurrency": concurrency, "reaper": reaper}
        self._handler: Callable[..., Any] | None = None
        self._consumer: consumers.Consumer | None = None
        #: Between start and stop: the queue and its serializer.
        self._found: tuple[QueueInfo, Serializer] | None = None
        self._events = Events(storage, self._payload)

    def execute(self, handler: F) -> F:
        """Set the handler: a function or coroutine function that takes the ``Job`` only.

        Its value is the result; an error fails the run. After ``start`` it runs jobs at once; a second handler counts
        from the next start on.
        """
        if not callable(handler):
            raise InvalidOption(f"handler must be a function; it is {handler!r}.")
        if not takes(handler, 1):
            raise InvalidOption(
                f"handler must take the job and nothing else; it is {handler!r}. There is no callback: it returns the"
                " result, or raises an error."
            )
        self._handler = handler
        if self._found is not None:
            self._consume(*self._found)
        return handler

    def start(self) -> Self:
        """Make the queue if it is missing; run jobs, if ``execute`` has set a handler."""
        twins.run(self._starting())
        return self

    async def astart(self) -> Self:
        """Async twin of ``start``."""
        await twins.arun(self._starting())
        return self

    def _starting(self) -> twins.Body[None]:
        """Listen to events, and run jobs; a failed start leaves nothing behind."""
        queue = self.queue
        if self._found is not None:
            return
        yield either(queue.make, queue.amake)
        info: QueueInfo | None = yield either(queue.info, queue.ainfo)
        serializer: Serializer = yield either(run, arun, find_serializer(queue), self.using)
        if info is None:
            raise QueueNotFound(queue.name, queue.project)
        self._events.connect(info.id)
        try:
            self._consume(info, serializer)
        except BaseException:
            self._events.disconnect()
            raise
        self._found = info, serializer
        self._events.emit("started")

    def _consume(self, info: QueueInfo, serializer: Serializer) -> None:
        """Start the consumer, if there is a handler and no consumer."""
        if self._handler is None or self._consumer is not None:
            return
        hook = self._after_execution
        consumer = consumers.Consumer(
            self.queue,
            runner(self._handler, self._payload),
            visibility_timeout=(self._visibility_timeout or info.config["lease_ms"]) / 1_000,
            after_execution=None if hook is None else after(hook, self._payload, info.config["result_ttl_ms"]),
            **self._consumer_options,
        )
        if self._result_serde is not None:
            consumer.handler.encode = self._result_serde.serialize
        consumer._start(serializer)
        self._consumer = consumer

    def stop(self, timeout: float | None = None) -> bool:
        """Take no more jobs, wait for running ones (25 seconds by default), then abort them and give them back.

        Return whether every job that had started has ended.
        """
        return twins.run(self._stopping(timeout))

    async def astop(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        """Async twin of ``stop``."""
        return await twins.arun(self._stopping(timeout))

    def _stopping(self, timeout: float | None) -> twins.Body[bool]:
        consumer = self._consumer
        if self._found is None:
            return True
        try:
            return consumer is None or (yield either(consumer.stop, consumer.astop, timeout))
        finally:
            self._found = self._consumer = None
            self._events.emit("stopped")
            self._events.disconnect()

    def on(self, event: str, handler: Callable[..., Any]) -> None:
        """Subscribe to events of this queue and its jobs in this process, between ``start`` and ``stop``.

        ``started`` and ``stopped`` (the queue itself) call ``handler()``; ``enqueued``, ``processing``, ``stalled`` and
        ``cancelled`` call ``handler(id)``; ``completed`` calls ``handler(id, result)``; ``failing`` calls ``handler(id,
        error, attempt)`` and ``failed`` ``handler(id, error)``, where ``error.payload`` is the job's; ``error`` calls
        ``handler(error)`` with an error of the worker or the reaper.
        """
        self._events.on(event, handler)

    def off(self, event: str, handler: Callable[..., Any]) -> None:
        """Unsubscribe."""
        self._events.off(event, handler)


class Reaper(StartStop):
    """Makes stalled jobs ready again, and does the reaper's other duties; of several reapers one leads.

    Workers do that by themselves, except with ``Queue(..., reaper=False)``. ``storage`` is the queue of the ``stalled``
    events: its name, or a handle of this package.
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
        """Subscribe to ``stalled`` (``handler(id)``), once for each expired lease, and to ``error``."""
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
