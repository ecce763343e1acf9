"""Running jobs of ``compat.jobqueue``: what a handler gets, and what the hook after it may change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from ..exceptions import InvalidOption
from ..queue import outcomes as leases
from ..queue.functions import Execution, is_async
from ..tasks.exceptions import FailForGood
from ..worker.control import JobAborted, JobControl
from .jobqueue_events import takes
from .jobqueue_values import AbortSignal, AfterExecutionContext, Job

#: Under this name the meta of a job says for how long its end is remembered: the hook sees it.
TTL = "result_ttl"

Handler = Callable[..., Any]
Payload = Callable[[Any], Any]


def check_handler(handler: Handler) -> Handler:
    """Return what can run jobs.

    Raises:
        InvalidOption: it is no function, or cannot be called with a job alone.
    """
    if not callable(handler):
        raise InvalidOption(f"the handler must be a function; it is {handler!r}.")
    if not takes(handler, 1):
        raise InvalidOption(
            "a handler is called with the job and nothing else: there is no callback. It returns the result, or raises"
            f" what went wrong; as a coroutine function it may await what calls back. It is {handler!r}."
        )
    return handler


def runner(handler: Handler, payload: Payload) -> Callable[[leases.ClaimedJob, JobControl], Any]:
    """Return what a consumer calls to have a job run by ``handler``: a function, or a coroutine function."""

    def seen(job: leases.ClaimedJob, control: JobControl) -> Job:
        return Job(job.id, payload(job.payload), job.deliveries, job.created_at, AbortSignal(control))

    def run(job: leases.ClaimedJob, control: JobControl) -> Any:
        return handler(seen(job, control))

    async def arun(job: leases.ClaimedJob, control: JobControl) -> Any:
        return await handler(seen(job, control))

    return arun if is_async(handler) else run


def after(hook: Callable[[AfterExecutionContext], Any], payload: Payload, ttl: int) -> Callable[[Execution], Any]:
    """Return what a consumer calls after every run to have ``hook`` called after those that end their job.

    Args:
        hook: a function or a coroutine function.
        payload: makes a payload of what the job holds.
        ttl: milliseconds for which ends are remembered of which nothing else is said.
    """

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
    """Give the hook its snapshot of a run, and take over what it changed."""
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
            # Another class would let it be tried again.
            execution.error = FailForGood(str(context.error))
