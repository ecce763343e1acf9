"""``Consumer``: runs the jobs of a queue with a function of the host, in threads of any process; and its handler."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from asgiref.sync import async_to_sync

from .. import signals, twins
from ..conf.options import WorkerOptions
from ..engine import Failure, LeasedJob, codec
from ..engine.jobs.results import STALLED
from ..engine.limits import MAX_SPAN_MS, check_integer
from ..exceptions import InvalidOption, JobFailed, QueueClosed
from ..tasks.exceptions import FailForGood, RetryLater
from ..twins import AsyncStartStop, Steps, either
from ..worker.control import EndingName, GiveUp, JobControl, Retry
from ..worker.worker import Worker
from .base import arun, find_serializer, run
from .lease import failure_from
from .outcomes import ClaimedJob
from .queue import Queue
from .serializers import JSON, Serializer

logger = logging.getLogger("django_leasequeue")


@dataclass(slots=True)
class Execution:
    """One run of a handler, as ``after_execution`` sees it before anything is stored; what it changes counts.

    ``error`` is ``None`` where the handler returned. Setting it fails the run, clearing it completes it with
    ``result``.
    """

    job: ClaimedJob
    result: Any
    error: BaseException | None
    #: Milliseconds for which the end is remembered (of a run that is tried again: no matter); ``None`` for the job's or
    #: the queue's.
    result_ttl_ms: int | None
    #: Seconds that the handler took.
    seconds: float


class Consumer(AsyncStartStop):
    """Runs the jobs of one queue with a function, in threads of its own (a coroutine function: in an event loop).

    It is the machinery of ``runworker`` inside any process: heartbeats, waiting without polling, retries with the
    queue's backoff, batches. Sync functions have a Django connection per thread, as in a request::

        def resize(job, control):
            for step in steps(job.payload):
                control.raise_if_aborted()
                ...
            return {"url": url}

        with Consumer("images", resize, concurrency=4):
            ...

    Args:
        queue: the handle of the queue, or its name.
        handler: takes the ``ClaimedJob``; a second parameter gets the ``JobControl`` (``lost``, ``raise_if_aborted``,
            ``set_progress``). What it returns is the result. An exception fails the attempt; ``FailForGood`` fails the
            job, ``RetryLater(seconds)`` names the delay.
        concurrency: runs at once.
        timeout: seconds that a run may take; then ``JobTimeout`` is raised in it. ``None`` for no end.
        visibility_timeout: seconds after which a run counts as hung: it is told to stop (``lease_lost``), the next job
            takes its place, and its own may run again; what it still returns does not count. ``None`` for never: leases
            are kept for as long as runs last.
        after_execution: called with the ``Execution`` of every run before its end is stored; may change result, error
            and TTL. One that raises changes nothing and is logged. A function or a coroutine function.
        drain_timeout: seconds that ``stop`` waits for running jobs before it tells them to stop and gives them back.
        reaper: whether this process also does the reaper's duties while it leads.
        prefetch: jobs claimed ahead at most; 0 claims only what can start at once.
        worker_options: further options of ``WorkerOptions``.

    Raises:
        InvalidOption: an argument is not allowed.
    """

    def __init__(
        self,
        queue: Queue | str,
        handler: Callable[..., Any],
        *,
        concurrency: int = 1,
        timeout: float | None = None,
        visibility_timeout: float | None = None,
        after_execution: Callable[[Execution], Any] | None = None,
        drain_timeout: float = 25.0,
        reaper: bool = True,
        prefetch: int = 0,
        **worker_options: Any,
    ) -> None:
        self.queue: Queue = Queue(queue) if isinstance(queue, str) else queue
        if not callable(handler):
            raise InvalidOption(f"the handler must be a function; it is {handler!r}.")
        for name, seconds in (("timeout", timeout), ("visibility_timeout", visibility_timeout)):
            if seconds is not None and not seconds > 0:
                raise InvalidOption(f"{name} must be more than 0 seconds, or None; it is {seconds!r}.")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 1_000:
            raise InvalidOption(f"concurrency must be an integer from 1 to 1,000; it is {concurrency!r}.")
        self.handler = FunctionHandler(
            self.queue, handler, timeout=timeout, visibility_timeout=visibility_timeout, after_execution=after_execution
        )
        self._options = WorkerOptions(
            queues=(self.queue.name,),
            project=self.queue.project,
            concurrency=concurrency,
            prefetch=prefetch,
            drain_timeout=drain_timeout,
            timeout_grace=0,
            reaper=reaper,
            **worker_options,
        )
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether it takes jobs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def node(self) -> str:
        """The name under which it holds leases.

        Raises:
            QueueClosed: it has not been started.
        """
        if self._worker is None:
            raise QueueClosed("The consumer has not been started.")
        return self._worker.state.node

    def start(self) -> Self:
        """Begin to take jobs; return at once. The queue is made if it is missing.

        Raises:
            QueueNotFound: it is missing and may not be made.
            StorageError: the database cannot be reached.
        """
        twins.run(self._starting())
        return self

    async def astart(self) -> Self:
        """Async twin of ``start``."""
        await twins.arun(self._starting())
        return self

    def _starting(self) -> Steps[None]:
        queue = self.queue
        if self.running:
            return
        if (yield either(queue.info, queue.ainfo)) is None:
            yield either(queue.make, queue.amake)
        self._start((yield either(run, arun, find_serializer(queue), queue.using)))

    def _start(self, serializer: Serializer) -> None:
        """Begin to take jobs of a queue that is there; nothing is asked of the database here."""
        self.handler.serializer = serializer
        options = replace(self._options, database=self.queue.using)
        # This process is not ours to replace.
        self._worker = Worker(options, node=self.queue._node or "", handler=self.handler, recycles=False)
        self._thread = threading.Thread(
            target=self._worker.run, name=f"leasequeue-consumer-{self.queue.name}", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Take no more jobs, wait for the running ones, give the rest back.

        Jobs that were claimed but not started go back at once and keep their deliveries. Those that still run after
        ``timeout`` seconds are told to stop and given back.

        Args:
            timeout: seconds in place of ``drain_timeout``.

        Returns:
            Whether every job that had started has ended.
        """
        worker, thread = self._worker, self._thread
        if worker is None or thread is None:
            return True
        if timeout is not None:
            worker.state.options = replace(worker.state.options, drain_timeout=timeout)
        worker.state.ask_stop("the consumer was stopped")
        # 20 seconds beyond the drain, for the database to hear of the last ends.
        thread.join(worker.state.options.drain_timeout + 20)
        self._thread = None
        return not thread.is_alive() and not worker.state.held and worker.clean

    async def astop(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        """Async twin of ``stop``."""
        return await asyncio.to_thread(self.stop, timeout)


class FunctionHandler:
    """Handler of jobs that a function runs; see ``worker.control.Handler``, and ``Consumer`` for the arguments."""

    def __init__(
        self,
        queue: Queue,
        function: Callable[..., Any],
        *,
        serializer: Serializer = JSON,
        timeout: float | None = None,
        visibility_timeout: float | None = None,
        after_execution: Callable[[Execution], Any] | None = None,
    ) -> None:
        self._queue = queue
        self._function = function
        self._takes_control = _takes_two(function)
        self._is_async = is_async(function)
        self.serializer = serializer
        #: Changes a result before the serializer has it; ``after_execution`` sees what the function returned.
        self.encode: Callable[[Any], Any] | None = None
        #: When a run is broken off, and when it is given up: a thread cannot be ended from outside.
        self._timeouts = (timeout, visibility_timeout)
        self._after = after_execution
        self._after_is_async = after_execution is not None and is_async(after_execution)
        # Results for the signal, from the run to the moment the database has taken them.
        self._results: dict[tuple[int, int], Any] = {}
        #: The worker's name, once something has run.
        self._node = ""

    def is_async(self, job: LeasedJob) -> bool:
        return self._is_async

    def timeout(self, job: LeasedJob) -> tuple[float | None, float | None]:
        return self._timeouts

    def run(self, leased: LeasedJob, control: JobControl) -> str | None:
        job, args = self._begin(leased.loaded(), control)
        with _running(job) as execution:
            execution.result = self._function(*args)
        if self._after is not None:
            with _counting(execution) as seen:
                (async_to_sync(self._after) if self._after_is_async else self._after)(seen)
        return self._end(execution, control)

    async def arun(self, leased: LeasedJob, control: JobControl) -> str | None:
        job, args = self._begin(await leased.aloaded(), control)
        with _running(job) as execution:
            execution.result = await self._function(*args)
        if self._after is not None:
            with _counting(execution) as seen:
                answer = self._after(seen)
                if self._after_is_async:
                    await answer
        return self._end(execution, control)

    def _begin(self, leased: LeasedJob, control: JobControl) -> tuple[ClaimedJob, tuple[Any, ...]]:
        self._node = control.node
        job = ClaimedJob(leased, control.node, self.serializer)
        if signals.started.receivers:
            signals.send(signals.started, job=job, node=control.node, **signals.about(leased, self._queue.project))
        return job, (job, control) if self._takes_control else (job,)

    def _end(self, execution: Execution, control: JobControl) -> str | None:
        if execution.result_ttl_ms is not None:
            control.result_ttl_ms = execution.result_ttl_ms
        control.raise_if_suspended()
        if execution.error is not None:
            raise execution.error
        control.returned()
        result = execution.result
        if signals.completed.receivers and control.reason != "lease_lost":
            self._results[execution.job.seq, execution.job.token] = result
        if self.encode is not None:
            result = self.encode(result)
        if result is None:
            return None
        value, control.result_body = self.serializer.write(result, "the result")
        return None if value is None else codec.dumps(value, "the result")

    def failed(self, job: LeasedJob, error: BaseException) -> tuple[Failure, Retry | GiveUp]:
        """Say what is kept of an error, and whether the job is tried again: ``FailForGood`` and ``RetryLater`` tell."""
        failure = failure_from(error)
        assert failure is not None
        if isinstance(error, FailForGood):
            return failure, GiveUp()
        if isinstance(error, RetryLater) and error.delay is not None:
            return failure, Retry(int(error.delay * 1000))
        return failure, Retry()

    def settled(
        self,
        job: LeasedJob,
        ending: EndingName,
        *,
        result_json: str | None = None,
        failure: Failure | None = None,
        available_at: datetime | None = None,
    ) -> None:
        more: dict[str, Any] = {"result": self._results.pop((job.seq, job.token), None)}
        about = signals.about(job, self._queue.project)
        signal = {"completed": signals.completed, "failing": signals.failing}.get(ending, signals.failed)
        if failure is not None:
            more = {"failure": failure}
            if failure.type == STALLED:
                state = "ready" if ending == "failing" else "dead"
                signals.send(signals.stalled, node=self._node, deliveries=job.deliveries, state=state, **about)
                if ending == "failing":
                    return
        if ending == "failing":
            more["available_at"] = available_at
        if signal.receivers:
            signals.send(signal, job=ClaimedJob(job, "", self.serializer), **more, **about)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or the ``__call__`` of an object, is a coroutine function."""
    call = getattr(function, "__call__", None)  # noqa: B004  (an object may have an async one)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


@contextmanager
def _running(job: ClaimedJob) -> Iterator[Execution]:
    """Measure a run, and keep its error: ``after_execution`` hears of it before it is raised."""
    execution, began = Execution(job, None, None, None, 0.0), time.monotonic()
    try:
        yield execution
    except BaseException as error:  # noqa: BLE001  (the handler may raise anything)
        execution.error = error
    execution.seconds = time.monotonic() - began


@contextmanager
def _counting(execution: Execution) -> Iterator[Execution]:
    """Give the hook a copy of a run; what it changed counts, unless it raises or the change is not allowed."""
    seen = replace(execution)
    try:
        yield seen
        if seen.result_ttl_ms is not None:
            check_integer(seen.result_ttl_ms, "result_ttl_ms", 1, MAX_SPAN_MS)
    except Exception:
        logger.exception("after_execution raised: the run of %s counts as it was", execution.job)
        return
    if seen.error is not None and not isinstance(seen.error, BaseException):
        seen.error = JobFailed(seen.job.id, "error", str(seen.error), seen.job.deliveries)
    execution.result, execution.error, execution.result_ttl_ms = seen.result, seen.error, seen.result_ttl_ms


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    places = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    return len(places) >= 2 or any(item.kind is item.VAR_POSITIONAL for item in parameters)
