"""Request and response: enqueue a job, wait until somebody has finished it, return its result."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import connections

from .. import engine, twins
from ..conf import process
from ..engine import pool
from ..engine.jobs import replies
from ..engine.jobs.results import INLINE_BYTES, Status, complete_steps
from ..engine.limits import MAX_BATCH
from ..engine.operation import Steps, operation
from ..exceptions import InvalidOption, JobCancelled, JobNotFound, MaxRetries, StorageError, WaitTimeout
from .adding import add_jobs, written_job
from .base import Handle, find_serializer, known_serializer, serializer_of, status_of
from .calls import arun, run
from .carrier import AsyncLane, shared_lane
from .flush import ENQUEUE, LOOK, Call
from .outcomes import Receipt, failure_of, result_of
from .replies import LAST_POLL, Ticket, get_hub
from .serializers import JSON, Serializer

#: Seconds that a caller waits at most.
MAX_TIMEOUT = 86_400.0
#: Seconds that listening may take to begin; after them the caller polls until it has begun.
READY_TIMEOUT = 5.0

#: The answer to a caller whose job has not ended.
PENDING = object()


class Requested(NamedTuple):
    """The answer to a request: the receipt, whether the job's end will be told, whether it has ended already."""

    receipt: Receipt
    told: bool
    ended: bool


class Caller:
    """The side of a conversation that a thread takes. Its twin for coroutines returns awaitables in place of values.

    Args:
        queue: the queue's handle.
    """

    def __init__(self, queue: Handle) -> None:
        self.queue = queue
        self._event = threading.Event()

    def wake(self) -> None:
        """End the current or the next sleep, from any thread."""
        self._event.set()

    def ready(self, ticket: Ticket, timeout: float) -> Any:
        """Wait until the ticket hears."""
        return ticket.subscription.wait_ready(timeout)

    def request(self, job: engine.NewJob, channel: str) -> Any:
        """Enqueue the job, or join the one that holds its key."""
        return run(ask(self.queue, job, channel), self.queue.using)

    def reply(self, seq: int) -> Any:
        """Read how the job ended."""
        return run(reply_of(self.queue, seq), self.queue.using)

    def ended(self, seqs: list[int]) -> Any:
        """Ask which jobs have ended."""
        return run(replies.ended(seqs), self.queue.using)

    def sleep(self, seconds: float) -> Any:
        """Sleep until somebody wakes us, at most ``seconds``."""
        self._event.wait(seconds)
        self._event.clear()

    def in_transaction(self) -> Any:
        """Whether what is enqueued is part of an open transaction."""
        return connections[self.queue.using].in_atomic_block

    def inline(self, work: Callable[[], None]) -> Any:
        """Run jobs in place of a worker."""
        work()


class AsyncCaller(Caller):
    """The side of a conversation that a coroutine takes.

    Args:
        queue: the queue's handle.
    """

    def __init__(self, queue: Handle) -> None:
        self.queue = queue
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits there
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def ready(self, ticket: Ticket, timeout: float) -> bool:  # noqa: ASYNC109  (the same call as the thread's)
        return await ticket.subscription.async_ready(timeout)

    async def request(self, job: engine.NewJob, channel: str) -> Requested:
        job = written_job(job._replace(reply_to=channel), await self.serializer())
        receipt: Receipt = await (await self.lane(ENQUEUE)).put(Call(ENQUEUE, job))
        if receipt.status != "duplicate":
            return Requested(receipt, True, receipt.status == "completed")
        told = None if receipt.state == "failed" else await arun(replies.join(receipt.seq, channel), self.queue.using)
        return Requested(receipt, bool(told), told is None)

    async def reply(self, seq: int) -> Any:
        row = await (await self.lane(LOOK)).put(Call(LOOK, seq))
        if row is not None and row.left_behind:
            return await arun(reply_of(self.queue, seq), self.queue.using)
        return answer_of(row, await self.serializer())

    async def serializer(self) -> Serializer:
        """Return how the queue's payloads are written."""
        known = known_serializer(self.queue)
        return await arun(find_serializer(self.queue), self.queue.using) if known is None else known

    async def lane(self, purpose: int) -> AsyncLane:
        """Return where the calls go: requests and replies of many callers are folded together."""
        return shared_lane(self.queue, await self.serializer(), purpose)

    async def ended(self, seqs: list[int]) -> list[int]:
        return await arun(replies.ended(seqs), self.queue.using)

    async def sleep(self, seconds: float) -> None:
        if not self._woken:
            self._waiter = self._loop.create_future()
            alarm = self._loop.call_later(seconds, self._ring)
            try:
                await self._waiter
            finally:
                alarm.cancel()
                self._waiter = None
        self._woken = False

    async def in_transaction(self) -> bool:
        if not pool.in_thread():
            return False
        return await sync_to_async(lambda: connections[self.queue.using].in_atomic_block)()

    async def inline(self, work: Callable[[], None]) -> None:
        await sync_to_async(work)()


@operation
def ask(queue: Handle, job: engine.NewJob, channel: str) -> Steps[Requested]:
    """Enqueue a job whose end is told on ``channel``, or join the one that holds its key."""
    serializer = yield from serializer_of(queue)
    receipt = (yield from add_jobs(queue, [job._replace(reply_to=channel)], serializer, results=True))[0]
    if receipt.status != "duplicate":
        return Requested(receipt, True, receipt.status == "completed")
    told = None if receipt.state == "failed" else (yield from replies.join(receipt.seq, channel).steps())
    return Requested(receipt, bool(told), told is None)


@operation
def reply_of(queue: Handle, seq: int) -> Steps[tuple[Any] | None]:
    """Read how a job ended: its result in a tuple, ``(PENDING,)`` if it has not, ``None`` if nothing is known.

    Raises:
        JobFailed, MaxRetries, JobCancelled: that is how it ended.
    """
    row = yield from status_of(queue, seq, INLINE_BYTES)
    serializer = (yield from serializer_of(queue)) if row is not None and row.state == "completed" else JSON
    return answer_of(None if row is None else (yield from complete_steps(row)), serializer)


def answer_of(row: Status | None, serializer: Serializer) -> tuple[Any] | None:
    """Return how a job ended: its result in a tuple, ``(PENDING,)`` if it has not, ``None`` if nothing is known of it.

    Raises:
        JobFailed, MaxRetries, JobCancelled: that is how it ended.
    """
    if row is None:
        return None
    if not row.ended:
        return (PENDING,)
    if row.state == "failed":
        raise failure_of(row)
    if row.state == "cancelled":
        raise JobCancelled(row.key or row.seq)
    return (result_of(row, serializer),)


def conversation(caller: Caller, job: engine.NewJob, timeout: float) -> Generator[Any, Any, Any]:
    """Enqueue and wait: yields what the caller has to do, is sent what came of it.

    Listening begins before the job is enqueued, so no end is missed. A caller that is not told (the connection is lost,
    or there is none) looks by itself, and one caller's look serves all of the process.
    """
    deadline = time.monotonic() + check_timeout(timeout)
    queue = caller.queue
    hidden = yield caller.in_transaction
    inline = process.switches.inline
    work = inline if inline is not None and (hidden or inline.always) else None
    if hidden and work is None:
        raise InvalidOption(
            "enqueue_and_wait inside transaction.atomic() would wait for a job that no worker can see. Call it after"
            " the transaction, or in a test use the fixture 'leasequeue'."
        )
    hub = get_hub(queue.using)
    if work is not None:
        return (yield from _run_here(caller, job, hub.channel, work, timeout))
    ticket = hub.open(caller)
    try:
        yield partial(caller.ready, ticket, min(READY_TIMEOUT, timeout))
        asked: Requested = yield partial(caller.request, job, hub.channel)
        receipt = asked.receipt
        if receipt.status == "completed":
            return receipt.result
        ticket.bind(receipt.seq)
        ticket.told = asked.told
        if asked.ended:
            ticket.ended = True
        while True:
            if not ticket.ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise WaitTimeout(receipt.key or receipt.seq, timeout)
                yield partial(caller.sleep, min(left, ticket.patience()))
                yield from _look(caller, ticket)
                continue
            try:
                answer = yield partial(caller.reply, receipt.seq)
            except StorageError:
                # The database is away: the caller's time is not over yet.
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                yield partial(caller.sleep, min(left, LAST_POLL))
                continue
            if answer is None:
                raise _traceless(receipt, ticket.word)
            if answer[0] is not PENDING:
                return answer[0]
            ticket.again()
    finally:
        ticket.close()


def _run_here(
    caller: Caller, job: engine.NewJob, channel: str, work: process.Inline, timeout: float
) -> Generator[Any, Any, Any]:
    """Enqueue, run what is ready in place of a worker, and read how it ended: there is nothing to wait for."""
    asked: Requested = yield partial(caller.request, job, channel)
    receipt = asked.receipt
    if receipt.status == "completed":
        return receipt.result
    if not asked.ended:
        yield partial(caller.inline, work)
    answer = yield partial(caller.reply, receipt.seq)
    if answer is None:
        raise _traceless(receipt, "")
    if answer[0] is PENDING:
        raise WaitTimeout(receipt.key or receipt.seq, timeout)
    return answer[0]


def _look(caller: Caller, ticket: Ticket) -> Generator[Any, Any, None]:
    """Look for ends that nobody told, for all callers of this process, if it is time to."""
    if ticket.ended:
        return
    seqs = ticket.look_due()
    for start in range(0, len(seqs), MAX_BATCH):
        try:
            ended = yield partial(caller.ended, seqs[start : start + MAX_BATCH])
        except StorageError:
            # The database is away: the caller's time is not over yet.
            ticket.look_failed()
            return
        ticket.looked(ended)


def _traceless(receipt: Receipt, word: str) -> Exception:
    """The error for a job that has ended and of which nothing is remembered."""
    name = receipt.key or receipt.seq
    if word == "1":
        return JobNotFound(name, f"Job {name} was completed, but its result is not remembered any more.")
    if word == "2":
        return MaxRetries(name, "DEAD_LETTER", "it was moved to the dead-letter topic of its queue")
    if word == "3":
        return JobCancelled(name)
    return JobCancelled(name, f"Job {name} is gone: it was cancelled or removed, or its result is not remembered.")


def check_timeout(timeout: float) -> float:
    """Return ``timeout`` if it is a number of seconds that one may wait.

    Raises:
        InvalidOption: it is something else.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT:
        raise InvalidOption(f"timeout must be seconds, more than 0 and at most {MAX_TIMEOUT:g}; it is {timeout!r}.")
    return float(timeout)


def talk(caller: Caller, job: engine.NewJob, timeout: float) -> Any:
    """Carry out a conversation in a thread."""
    return twins.run(conversation(caller, job, timeout), _take)


async def atalk(caller: AsyncCaller, job: engine.NewJob, timeout: float) -> Any:  # noqa: ASYNC109  (it is told, not cancelled)
    """Carry out a conversation in a coroutine."""
    return await twins.arun(conversation(caller, job, timeout), _take)


def _take(step: Callable[[], Any]) -> Any:
    return step()
