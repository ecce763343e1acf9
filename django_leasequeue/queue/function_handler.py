"""The handler that runs jobs with a function of the host, calls the hook ``after_execution``, and sends signals."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from asgiref.sync import async_to_sync

from .. import signals
from ..conf import process
from ..engine import Failure, LeasedJob, codec
from ..engine.jobs.results import STALLED
from ..engine.limits import MAX_SPAN_MS, check_integer
from ..exceptions import InvalidOption, JobFailed, NotSerializable, SerializerError
from ..tasks.exceptions import FailForGood, RetryLater
from ..worker.control import EndingName, GiveUp, JobControl, Retry
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

    def timeout(self, job: LeasedJob, default: float | None = None) -> tuple[float | None, float | None]:
        soft, hard = self._timeouts
        return (default if soft is None else soft), hard

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
        try:
            value, control.result_body = self.serializer.write(result, "the result")
            return None if value is None else codec.dumps(value, "the result")
        except (InvalidOption, SerializerError) as error:
            wrong = codec.find_unwritable(result) if self.serializer.dumps is None else None
            raise NotSerializable(str(error) if wrong is None else f"the result has {wrong}: return JSON.") from error

    def failed(self, job: LeasedJob, error: BaseException) -> tuple[Failure, Retry | GiveUp]:
        """Return the stored form of an error, and whether the job is retried."""
        failure = failure_from(error)
        assert failure is not None
        if isinstance(error, FailForGood | NotSerializable):
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
    """Measure a run, and keep its error for ``after_execution``, before it is raised."""
    execution, began = Execution(job, None, None, None, 0.0), time.monotonic()
    try:
        yield execution
    except BaseException as error:  # noqa: BLE001  (the handler may raise anything)
        execution.error = error
    execution.seconds = time.monotonic() - began


@contextmanager
def _counting(execution: Execution) -> Iterator[Execution]:
    """Give the hook a copy of a run; its changes count unless it raises or they are invalid."""
    seen = replace(execution)
    try:
        yield seen
        if seen.result_ttl_ms is not None:
            check_integer(seen.result_ttl_ms, "result_ttl_ms", 1, MAX_SPAN_MS)
    except BaseException as error:
        if not process.outlives(error):
            raise
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
