"""The consumer side of ``compat.jobqueue``: events, handlers, and the hook after a run."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.dispatch import Signal

from .. import signals
from ..exceptions import InvalidOption, JobFailed, LeaseQueueError, MaxRetries
from ..queue.function_handler import Execution, is_async
from ..queue.outcomes import ClaimedJob
from ..queue.queue import Queue
from ..tasks.exceptions import FailForGood
from ..worker.control import JobAborted, JobControl

logger = logging.getLogger("django_leasequeue")

SIGNALS: dict[str, Signal] = {
    "enqueued": signals.enqueued,
    "processing": signals.started,
    "completed": signals.completed,
    "failing": signals.failing,
    "failed": signals.failed,
    "stalled": signals.stalled,
    "cancelled": signals.cancelled,
}
#: Errors of the worker and the reaper, as they log them.
ERROR = "error"
#: The arguments of each event's handlers. ``started`` and ``stopped`` are about the queue itself.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "started": (),
    "stopped": (),
    ERROR: ("error",),
    **dict.fromkeys(SIGNALS, ("id",)),
    "completed": ("id", "result"),
    "failing": ("id", "error", "attempt"),
    "failed": ("id", "error"),
}


class Events:
    """Calls handlers by the name of an event, from ``connect`` to ``disconnect``."""

    def __init__(self, queue: Queue, payload: Callable[[Any], Any] | None = None) -> None:
        self._queue = queue
        self._payload = payload or (lambda value: value)
        self._handlers: dict[str, list[Callable[..., Any]]] = {}
        self._connected = ExitStack()
        self._queue_id: int | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def on(self, event: str, handler: Callable[..., Any]) -> None:
        if event not in ARGUMENTS:
            raise InvalidOption(f"event must be one of {', '.join(ARGUMENTS)}; it is {event!r}.")
        if not callable(handler):
            raise InvalidOption(f"handler must be a function; it is {handler!r}.")
        arguments = ARGUMENTS[event]
        if not takes(handler, len(arguments)):
            raise InvalidOption(f"handler must take ({', '.join(arguments)}) for {event!r}; it is {handler!r}.")
        self._handlers.setdefault(event, []).append(handler)

    def off(self, event: str, handler: Callable[..., Any]) -> None:
        if handler in self._handlers.get(event, []):
            self._handlers[event].remove(handler)

    def connect(self, queue_id: int | None) -> None:
        self.disconnect()
        self._queue_id = queue_id
        for event, signal in SIGNALS.items():
            receiver = partial(self._receive, event)
            signal.connect(receiver, weak=False)
            self._connected.callback(signal.disconnect, receiver)
        log = _Log(self)
        logger.addHandler(log)
        self._connected.callback(logger.removeHandler, log)

    def disconnect(self) -> None:
        self._connected.close()

    def emit(self, event: str, *args: Any) -> None:
        """Call all handlers of an event; an error of one is logged."""
        for handler in list(self._handlers.get(event, ())):
            try:
                if inspect.iscoroutinefunction(handler):
                    self._run(handler, args)
                else:
                    handler(*args)
            except Exception:
                # A warning: as an error it would go to the handlers of errors, which may have raised it.
                logger.warning("A handler of the event %s raised", event, exc_info=True)

    def _run(self, handler: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            async_to_sync(handler)(*args)
            return
        task = loop.create_task(handler(*args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _receive(self, event: str, **info: Any) -> None:
        ours = (self._queue.name, self._queue.project) == (info["queue"], info["project"])
        if not self._handlers.get(event) or not (ours or info["queue"] == self._queue_id):
            return
        more: tuple[Any, ...] = (info["result"],) if event == "completed" else ()
        if event in ("failing", "failed"):
            job, failure = info["job"], info["failure"]
            used_up = event == "failed" and 0 < job.max_deliveries <= job.deliveries
            attempts = [{"traceback": failure.traceback}]
            kind = MaxRetries if used_up else JobFailed
            error = kind(job.id, failure.type, failure.message, job.deliveries, attempts)
            # For handlers that move the job elsewhere. Errors of other calls have no payload.
            vars(error)["payload"] = self._payload(job.payload)
            more = (error, job.deliveries) if event == "failing" else (error,)
        self.emit(event, info["key"] or str(info["seq"]), *more)


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can take ``count`` arguments, as far as its signature is known."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


class _Log(logging.Handler):
    """Passes logged errors on, without those of jobs, which have their own events."""

    def __init__(self, events: Events) -> None:
        super().__init__(logging.ERROR)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "delivery"):
            return
        error = record.exc_info[1] if record.exc_info else None
        self._events.emit(ERROR, error or LeaseQueueError(record.getMessage()))


class AbortSignal:
    """Tells a running handler to stop: its lease is lost, or its worker stops."""

    def __init__(self, control: JobControl) -> None:
        self._control = control

    @property
    def aborted(self) -> bool:
        """Whether to stop."""
        return self._control.lost

    @property
    def reason(self) -> str:
        """The reason to stop: ``lease_lost`` or ``stopping``; empty while there is none."""
        return self._control.reason

    def throw_if_aborted(self) -> None:
        """Raise ``AbortError`` if the handler is to stop."""
        self._control.raise_if_aborted()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep in a thread until the handler is to stop, at most ``timeout`` seconds; return whether it is."""
        return self._control.event.wait(timeout)

    async def wait_aborted(self) -> str:
        """Wait in a coroutine until the handler is to stop; return the reason."""
        return await self._control.wait_aborted()


@dataclass(slots=True)
class AfterExecutionContext:
    """The run that ends a job, as ``after_execution`` sees it before anything is stored.

    The hook may set ``result`` (of a completed run), ``error`` (of a failed one) and ``ttl``.
    """

    id: str
    payload: Any
    #: Runs so far, this one included; how many there may be, 0 for any number.
    attempts: int
    max_attempts: int
    created_at: datetime
    #: ``completed`` or ``failed``.
    status: str
    result: Any
    error: BaseException | None
    #: Milliseconds for which result or error are remembered.
    ttl: int
    worker_id: str
    started_at: datetime
    finished_at: datetime
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its handler gets it. It may run more than once: make the handler idempotent by ``id``."""

    id: str
    payload: Any
    #: Runs so far, this one included.
    attempts: int
    created_at: datetime
    signal: AbortSignal


#: The key in a job's meta for how long its outcome is kept.
TTL = "result_ttl"

Payload = Callable[[Any], Any]


def runner(handler: Callable[..., Any], payload: Payload) -> Callable[[ClaimedJob, JobControl], Any]:
    """Return the consumer's handler that runs jobs by ``handler``, a function or a coroutine function."""

    def seen(job: ClaimedJob, control: JobControl) -> Job:
        return Job(job.id, payload(job.payload), job.deliveries, job.created_at, AbortSignal(control))

    def run(job: ClaimedJob, control: JobControl) -> Any:
        return handler(seen(job, control))

    async def arun(job: ClaimedJob, control: JobControl) -> Any:
        return await handler(seen(job, control))

    return arun if is_async(handler) else run


def after(hook: Callable[[AfterExecutionContext], Any], payload: Payload, ttl: int) -> Callable[[Execution], Any]:
    """Return the consumer's hook that calls ``hook`` after each run that ends its job."""

    def run(execution: Execution) -> None:
        if _ends_its_job(execution):
            with _shown(execution, payload, ttl) as context:
                hook(context)

    async def arun(execution: Execution) -> None:
        if _ends_its_job(execution):
            with _shown(execution, payload, ttl) as context:
                await hook(context)

    return arun if is_async(hook) else run


def _ends_its_job(execution: Execution) -> bool:
    job, error = execution.job, execution.error
    if isinstance(error, JobAborted | asyncio.CancelledError):
        return False
    return error is None or isinstance(error, FailForGood) or 0 < job.max_deliveries <= job.deliveries


@contextmanager
def _shown(execution: Execution, payload: Payload, default_ttl: int) -> Iterator[AfterExecutionContext]:
    """Yield the snapshot of a run for the hook, then apply its changes."""
    job, error = execution.job, execution.error
    finished = datetime.now(UTC)
    ttl = (job.meta or {}).get(TTL, default_ttl)
    context = AfterExecutionContext(
        id=job.id,
        payload=payload(job.payload),
        attempts=job.deliveries,
        max_attempts=job.max_deliveries,
        created_at=job.created_at,
        status="completed" if error is None else "failed",
        result=execution.result,
        error=error,
        ttl=ttl,
        worker_id=job.node,
        started_at=finished - timedelta(seconds=execution.seconds),
        finished_at=finished,
        duration_ms=execution.seconds * 1_000,
    )
    yield context
    if context.ttl != ttl:
        execution.result_ttl_ms = context.ttl
    if error is None:
        execution.result = context.result
    elif context.error is not None and context.error is not error:
        execution.error = context.error
        if isinstance(error, FailForGood) and not isinstance(context.error, FailForGood):
            # Another class would allow a retry.
            execution.error = FailForGood(str(context.error))
