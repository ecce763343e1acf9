"""``BufferedQueue``: the calls of many callers, folded into one transaction while the one before is under way."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from .. import engine
from ..engine.limits import MAX_BATCH, check_count, clamp_delay, clamp_lease
from . import request
from .base import leased
from .calls import arun, run
from .carrier import AsyncLane, ThreadLane, closed
from .enqueue import JobOptions, written_job
from .flush import CLAIM, END, ENQUEUE, EXTEND, LOOK, PROGRESS, RELEASE, Call, Claiming
from .job import Job
from .lease import Error, failure_from
from .outcomes import Finished, Receipt
from .queue import Queue
from .serializers import JSON, Serializer

#: Which calls go together: what commits durably does not hold up what need not.
_LANES = {ENQUEUE: 0, END: 1, RELEASE: 1, EXTEND: 1, PROGRESS: 1, CLAIM: 2, LOOK: 3}

P = ParamSpec("P")
T = TypeVar("T")


def folded(plan: Callable[Concatenate[BufferedQueue, P], Call[T]]) -> Callable[Concatenate[BufferedQueue, P], T]:
    """Make a method for threads of one that returns a call: it waits until a flush has answered it."""

    @wraps(plan)
    def method(self: BufferedQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = self.thread_lane().put(plan(self, *args, **kwargs)).result()
        return answer

    method.plan = plan  # type: ignore[attr-defined]  # twin reads it
    return method


def twin(
    method: Callable[Concatenate[BufferedQueue, P], T],
) -> Callable[Concatenate[BufferedQueue, P], Coroutine[Any, Any, T]]:
    """Make the method for coroutines that does what one made by ``folded`` does."""
    plan: Callable[Concatenate[BufferedQueue, P], Call[T]] = method.plan  # type: ignore[attr-defined]  # made by folded

    @wraps(plan)
    async def async_method(self: BufferedQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = plan(self, *args, **kwargs)
        answer: T = await self.lane(call.kind).put(call)
        return answer

    async_method.__name__ = f"a{method.__name__}"
    async_method.__qualname__ = f"BufferedQueue.{async_method.__name__}"
    async_method.__doc__ = f"Async twin of ``{method.__name__}``."
    return async_method


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
        self.queue = Queue(queue) if isinstance(queue, str) else queue
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
        self._serializer = run(self.queue.serializer(), self.using)
        self._thread_lane = ThreadLane(self.queue, self._serializer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lane, self._thread_lane = self._thread_lane, None
        if lane is not None:
            lane.close()

    async def __aenter__(self) -> Self:
        self._serializer = await arun(self.queue.serializer(), self.using)
        self._lanes = tuple(AsyncLane(self.queue, self._serializer) for _ in range(4))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lanes, self._lanes = self._lanes, ()
        for lane in lanes:
            await lane.close()

    def thread_lane(self) -> ThreadLane:
        """Return where the calls of threads go.

        Raises:
            QueueClosed: outside of the ``with`` block.
        """
        if self._thread_lane is None:
            raise closed()
        return self._thread_lane

    def lane(self, kind: int) -> AsyncLane:
        """Return where the calls of coroutines go.

        Raises:
            QueueClosed: outside of the ``async with`` block.
        """
        if not self._lanes:
            raise closed()
        return self._lanes[_LANES[kind]]

    @folded
    def enqueue(self, payload: Any = None, **options: Unpack[JobOptions]) -> Call[Receipt]:
        """Add a job. Arguments, answer and errors as ``Queue.enqueue``."""
        return Call(ENQUEUE, written_job(engine.NewJob(payload, **options), self._serializer))

    aenqueue = twin(enqueue)

    @folded
    def claim(self, size: int = 1, *, lease_ms: int | None = None, tag: str | None = None) -> Call[list[Job]]:
        """Lease up to ``size`` jobs. Arguments, answer and errors as ``Queue.claim``.

        Callers who wait share one claim: who asked first is served first.
        """
        size = check_count(size, "the number of jobs to claim", MAX_BATCH)
        return Call(CLAIM, Claiming(size, clamp_lease(lease_ms), tag))

    aclaim = twin(claim)

    @folded
    def ack(self, job: Job, result: Any = None, *, result_ttl_ms: int | None = None) -> Call[Finished]:
        """Complete a job. Arguments, answer and errors as ``Queue.ack``."""
        value, body = (None, None) if result is None else self._serializer.write(result, "the result")
        ending = engine.Ending(leased(job).seq, job.claim, result=value, body=body, result_ttl_ms=result_ttl_ms)
        return Call(END, ending, job, result)

    aack = twin(ack)

    @folded
    def fail(self, job: Job, error: Error, *, result_ttl_ms: int | None = None) -> Call[Finished]:
        """Fail a job for good. Arguments, answer and errors as ``Queue.fail``."""
        ending = engine.Ending(leased(job).seq, job.claim, failure=failure_from(error), result_ttl_ms=result_ttl_ms)
        return Call(END, ending, job)

    afail = twin(fail)

    @folded
    def nack(self, job: Job, *, delay_ms: int | None = None, error: Error | None = None) -> Call[engine.Released]:
        """Give a job back. Arguments, answer and errors as ``Queue.nack``."""
        return Call(
            RELEASE, engine.Release(leased(job).seq, job.claim, clamp_delay(delay_ms), failure_from(error)), job
        )

    anack = twin(nack)

    @folded
    def extend(self, job: Job, lease_ms: int | None = None) -> Call[Job]:
        """Extend a lease. Arguments, answer and errors as ``Queue.extend``."""
        return Call(EXTEND, clamp_lease(lease_ms), leased(job))

    aextend = twin(extend)

    @folded
    def progress(self, job: Job, value: Any) -> Call[None]:
        """Say how far a job is. Arguments and errors as ``Queue.progress``."""
        return Call(PROGRESS, value, leased(job))

    aprogress = twin(progress)

    async def aenqueue_and_wait(
        self,
        payload: Any = None,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109  (it is told, not cancelled)
        **options: Unpack[JobOptions],
    ) -> Any:
        """Enqueue a job and wait for its result, as ``Queue.aenqueue_and_wait``; requests and replies are folded."""
        self.lane(ENQUEUE)
        return await request.atalk(_Caller(self), engine.NewJob(payload, **options), timeout)


class _Caller(request.AsyncCaller):
    """How the coroutines of a buffer ask and wait."""

    def __init__(self, buffer: BufferedQueue) -> None:
        super().__init__(buffer.queue)
        self._buffer = buffer

    async def lane(self, purpose: int) -> AsyncLane:
        return self._buffer.lane(purpose)

    async def serializer(self) -> Serializer:
        return self._buffer._serializer
