"""``Consumer``: runs the jobs of a queue with a function of the host, in threads of any process."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from .. import signals
from ..engine import Failure, LeasedJob, codec
from ..engine.limits import MAX_SPAN_MS, check_integer
from ..exceptions import InvalidOption, JobFailed, QueueClosed
from ..tasks.exceptions import FailForGood, RetryLater
from ..worker.handler import EndingName, GiveUp, JobControl, Retry
from ..worker.options import WorkerOptions
from ..worker.worker import Worker
from .calls import arun, run
from .job import Job
from .lease import failure_from
from .queue import Queue
from .serializers import JSON, Serializer

logger = logging.getLogger("django_leasequeue")

#: Seconds that ``stop`` waits beyond the drain for the database to hear of the last ends.
STOP_SLACK = 20.0


@dataclass(slots=True)
class Execution:
    """One run of a handler, as ``after_execution`` sees it before anything is stored; what it changes counts.

    ``error`` is ``None`` where the handler returned. Setting it fails the run, clearing it completes it with
    ``result``.
    """

    job: Job
    result: Any
    error: BaseException | None
    #: Milliseconds for which the end is remembered; ``None`` for the job's or the queue's.
    result_ttl_ms: int | None
    #: How long the handler took.
    seconds: float


class FunctionHandler:
    """What the worker needs to know of jobs that a function runs; see ``worker.handler.Handler``.

    Args:
        queue: whose jobs these are.
        function: takes the ``Job``, and the ``JobControl`` as well if it has a second parameter.
        serializer: of payloads and results.
        timeout: seconds that a run may take.
        after_execution: called with the ``Execution`` of every run.
    """

    def __init__(
        self,
        queue: Queue,
        function: Callable[..., Any],
        *,
        serializer: Serializer = JSON,
        timeout: float | None = None,
        after_execution: Callable[[Execution], Any] | None = None,
    ) -> None:
        self._queue = queue
        self._function = function
        self._takes_control = _takes_two(function)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  (an object with an async __call__)
        )
        self.serializer = serializer
        self._timeout = (timeout, None)
        self._after = after_execution
        # Results for the signal, from the run to the moment the database has taken them.
        self._results: dict[tuple[int, int], Any] = {}

    def is_async(self, job: LeasedJob) -> bool:
        """Whether the function is a coroutine function."""
        return self._is_async

    def timeout(self, job: LeasedJob) -> tuple[float | None, float | None]:
        """Return the soft timeout of every job; there is no hard one: a thread cannot be ended from outside."""
        return self._timeout

    def run(self, leased: LeasedJob, control: JobControl) -> str | None:
        """Run a job in a thread."""
        job, args = self._begin(leased, control)
        began = time.monotonic()
        result, error = None, None
        try:
            result = self._function(*args)
        except BaseException as raised:  # noqa: BLE001  (after_execution hears of it; it is raised again below)
            error = raised
        return self._end(Execution(job, result, error, None, time.monotonic() - began), control)

    async def arun(self, leased: LeasedJob, control: JobControl) -> str | None:
        """Run a job in the event loop."""
        job, args = self._begin(leased, control)
        began = time.monotonic()
        result, error = None, None
        try:
            result = await self._function(*args)
        except BaseException as raised:  # noqa: BLE001  (after_execution hears of it; it is raised again below)
            error = raised
        return self._end(Execution(job, result, error, None, time.monotonic() - began), control)

    def _begin(self, leased: LeasedJob, control: JobControl) -> tuple[Job, tuple[Any, ...]]:
        job = Job(leased, control.node, self.serializer)
        if signals.started.receivers:
            signals.send(signals.started, job=job, node=control.node, **self._about(leased))
        return job, (job, control) if self._takes_control else (job,)

    def _end(self, execution: Execution, control: JobControl) -> str | None:
        """Let the hook see and change the run, and say how it ended."""
        if self._after is not None:
            execution = self._ask_hook(self._after, execution)
        if execution.result_ttl_ms is not None:
            control.result_ttl_ms = execution.result_ttl_ms
        if execution.error is not None:
            raise execution.error
        result = execution.result
        if signals.completed.receivers:
            self._results[execution.job.seq, execution.job.claim] = result
        if result is None:
            return None
        value, control.result_body = self.serializer.write(result, "the result")
        return None if value is None else codec.dumps(value, "the result")

    @staticmethod
    def _ask_hook(hook: Callable[[Execution], Any], execution: Execution) -> Execution:
        seen = replace(execution)
        try:
            hook(seen)
            if seen.result_ttl_ms is not None:
                check_integer(seen.result_ttl_ms, "result_ttl_ms", 1, MAX_SPAN_MS)
            if seen.error is not None and not isinstance(seen.error, BaseException):
                seen.error = JobFailed(seen.job.id, "error", str(seen.error), seen.job.deliveries)
        except Exception:
            logger.exception("after_execution raised: the run of %s counts as it was", execution.job)
            return execution
        return seen

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
        """Send the signals."""
        result = self._results.pop((job.seq, job.claim), None)
        view = Job(job, "", self.serializer)
        if ending == "completed":
            if signals.completed.receivers:
                signals.send(signals.completed, job=view, result=result, **self._about(job))
        elif ending == "failing":
            if signals.failing.receivers:
                signals.send(signals.failing, job=view, failure=failure, available_at=available_at, **self._about(job))
        elif signals.failed.receivers:
            signals.send(signals.failed, job=view, failure=failure, **self._about(job))

    def _about(self, job: LeasedJob) -> dict[str, Any]:
        return {
            "queue": job.queue,
            "project": self._queue.project,
            "seq": job.seq,
            "key": job.key,
            "name": job.name,
        }


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    places = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    return len(places) >= 2 or any(item.kind is item.VAR_POSITIONAL for item in parameters)


class Consumer:
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
        handler: takes the ``Job``; a second parameter gets the ``JobControl`` (``lost``, ``raise_if_aborted``,
            ``set_progress``). What it returns is the result. An exception fails the attempt; ``FailForGood`` fails the
            job, ``RetryLater(seconds)`` names the delay.
        concurrency: runs at once.
        timeout: seconds that a run may take; then ``JobTimeout`` is raised in it. ``None`` for no end.
        after_execution: called with the ``Execution`` of every run before its end is stored; may change result, error
            and TTL. One that raises changes nothing and is logged.
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
        after_execution: Callable[[Execution], Any] | None = None,
        drain_timeout: float = 25.0,
        reaper: bool = True,
        prefetch: int = 0,
        **worker_options: Any,
    ) -> None:
        self.queue = Queue(queue) if isinstance(queue, str) else queue
        if not callable(handler):
            raise InvalidOption(f"the handler must be a function; it is {handler!r}.")
        if timeout is not None and not timeout > 0:
            raise InvalidOption(f"timeout must be more than 0 seconds, or None; it is {timeout!r}.")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 1_000:
            raise InvalidOption(f"concurrency must be an integer from 1 to 1,000; it is {concurrency!r}.")
        self.handler = FunctionHandler(self.queue, handler, timeout=timeout, after_execution=after_execution)
        self._options = WorkerOptions(
            queues=(self.queue.name,),
            project=self.queue.project,
            concurrency=concurrency,
            prefetch=prefetch,
            drain_timeout=drain_timeout,
            # This process is not ours to replace.
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
        if self.running:
            return self
        if self.queue.info() is None:
            self.queue.make()
        self._start(run(self.queue.serializer(), self.queue.using))
        return self

    async def astart(self) -> Self:
        """Async twin of ``start``."""
        if self.running:
            return self
        if await self.queue.ainfo() is None:
            await self.queue.amake()
        self._start(await arun(self.queue.serializer(), self.queue.using))
        return self

    def _start(self, serializer: Serializer) -> None:
        self.handler.serializer = serializer
        options = replace(self._options, database=self.queue.using)
        self._worker = Worker(options, node=self.queue.given_node, handler=self.handler)
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
        thread.join(worker.state.options.drain_timeout + STOP_SLACK)
        self._thread = None
        return not thread.is_alive() and not worker.state.held and worker.clean

    async def astop(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        """Async twin of ``stop``."""
        return await asyncio.to_thread(self.stop, timeout)

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
