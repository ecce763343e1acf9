"""Request and response: enqueue a job, wait until a worker has finished it, return its result."""

from __future__ import annotations

from functools import partial
from typing import Any

from .. import engine, twins
from ..engine import clock
from ..engine.jobs import results
from ..engine.jobs.results import INLINE_BYTES, Reply, Status, complete_steps
from ..engine.limits import check_timeout
from ..engine.operation import Statements, operation
from ..engine.queues import routing
from ..exceptions import JobCancelled, JobNotFound, MaxRetries, WaitTimeout
from ..notify.alarms import Alarm
from ..notify.replies import UNKNOWN_END, End, Ticket, answer, get_hub, work_in_place
from .base import Handle, arun, find_serializer, known_serializer, pinned, run, serializer_of, status_of
from .enqueue import add_jobs, written_job
from .flush import ENQUEUE, LOOK, AsyncLane, Call, shared_lane
from .outcomes import Receipt, failure_of, result_of
from .serializers import JSON, Serializer

#: The answer to a caller whose job has not ended.
PENDING = object()


class Caller:
    """The side of a conversation that asks: a thread by itself, coroutines (``a``) in statements that they share."""

    def __init__(self, queue: Handle, alarm: type[Alarm]) -> None:
        #: All of a conversation is in one database, also when the queue moves meanwhile.
        self.queue = pinned(queue) if routing.spread() else queue
        self.alarm = alarm

    def add(self, job: engine.NewJob) -> Receipt:
        return run(_add(self.queue, job), self.queue.using)

    async def aadd(self, job: engine.NewJob) -> Receipt:
        job = written_job(job, await self.aserializer())
        receipt: Receipt = await (await self.lane(ENQUEUE)).put(Call(ENQUEUE, job))
        return receipt

    def reply(self, receipt: Receipt) -> tuple[Any] | None:
        return run(reply_of(self.queue, receipt), self.queue.using)

    async def areply(self, receipt: Receipt) -> tuple[Any] | None:
        row = await (await self.lane(LOOK)).put(Call(LOOK, receipt.seq))
        if isinstance(row, Status) and row.left_behind:
            return await arun(reply_of(self.queue, receipt), self.queue.using)
        return answer_of(row, receipt, await self.aserializer())

    def serializer(self) -> Serializer:
        known = known_serializer(self.queue)
        return run(find_serializer(self.queue), self.queue.using) if known is None else known

    async def aserializer(self) -> Serializer:
        known = known_serializer(self.queue)
        return await arun(find_serializer(self.queue), self.queue.using) if known is None else known

    async def lane(self, purpose: int) -> AsyncLane:
        return shared_lane(self.queue, await self.aserializer(), purpose)


@operation
def _add(queue: Handle, job: engine.NewJob) -> Statements[Receipt]:
    return (yield from add_jobs(queue, [job], (yield from serializer_of(queue)), results=True))[0]


@operation
def reply_of(queue: Handle, receipt: Receipt) -> Statements[tuple[Any] | None]:
    """Read how a job ended; see ``answer_of``."""
    seq = receipt.seq
    reply = (yield from results.result_steps([seq], INLINE_BYTES)).get(seq)
    if reply is not None:
        return answer_of(reply, receipt, (yield from serializer_of(queue)))
    row = yield from status_of(queue, seq, INLINE_BYTES)
    serializer = (yield from serializer_of(queue)) if row is not None and row.state == "completed" else JSON
    return answer_of(None if row is None else (yield from complete_steps(row)), receipt, serializer)


def answer_of(row: Status | Reply | None, receipt: Receipt, serializer: Serializer) -> tuple[Any] | None:
    """Return how a job ended: its result in a tuple, ``(PENDING,)`` if it has not, ``None`` if nothing is known of it.

    A server that has lost its last commits (a crash with ``durability=disk``, a standby that was behind) gives their
    numbers to other jobs. The time of the enqueue tells them apart: ``JobNotFound``.
    """
    if row is None:
        return None
    if receipt.created_at is not None and row.created_at != receipt.created_at:
        raise _lost(receipt)
    if isinstance(row, Status):
        if not row.ended:
            return (PENDING,)
        if row.state == "failed":
            raise failure_of(row)
        if row.state == "cancelled":
            raise JobCancelled(row.key or row.seq)
    return (result_of(row, serializer),)


def conversation(caller: Caller, job: engine.NewJob, timeout: float) -> twins.Body[Any]:
    """Enqueue and wait. Listening begins before the job is enqueued, so no end is missed."""
    deadline = clock.monotonic() + check_timeout(timeout)
    using = caller.queue.using
    work = yield from work_in_place(using)
    hub = get_hub(using)
    ticket = hub.open(caller.alarm()) if work is None else None
    try:
        if ticket is not None:
            yield ticket.ready(timeout)
        receipt: Receipt = yield twins.either(caller.add, caller.aadd, job._replace(reply_to=hub.channel))
        if receipt.status == "completed":
            return receipt.result
        told: bool | None = True
        if receipt.status == "duplicate":
            join = results.join(receipt.seq, hub.channel)
            told = None if receipt.state == "failed" else (yield twins.either(run, arun, join, using))
        late = WaitTimeout(receipt.key or receipt.seq, timeout)
        read = partial(_read, caller, receipt, ticket)
        if ticket is not None:
            ticket.notified = bool(told)
            ticket.bind(receipt.seq)
            ticket.ended = ticket.ended or told is None
            return (yield from answer(ticket, deadline, read, late))
        if work is not None and told is not None:
            yield work
        found = yield from read()
        if found is None:
            raise late
        return found[0]
    finally:
        if ticket is not None:
            ticket.close()


def _read(caller: Caller, receipt: Receipt, ticket: Ticket | None) -> twins.Body[tuple[Any] | None]:
    """Read how the job ended: its result in a tuple, ``None`` if it has not."""
    end = UNKNOWN_END if ticket is None else ticket.end
    if end.reply is not None:  # a small result has come with the notification
        return answer_of(end.reply, receipt, (yield twins.either(caller.serializer, caller.aserializer)))
    found = yield twins.either(caller.reply, caller.areply, receipt)
    if found is None:
        raise _traceless(receipt, end)
    return None if found[0] is PENDING else found


def _lost(receipt: Receipt) -> JobNotFound:
    name = receipt.key or receipt.seq
    return JobNotFound(
        name, f"Job {name} is lost: the database does not remember its commit. Whether it ran is unknown."
    )


def _traceless(receipt: Receipt, end: End) -> Exception:
    """The error for a job that has ended without a remembered result."""
    name = receipt.key or receipt.seq
    if end.key is not None and end.key != (receipt.key or ""):
        return _lost(receipt)  # the end of a job that got its number
    if end.state == "1":
        return JobNotFound(name, f"Job {name} was completed, but its result is not remembered any more.")
    if end.state == "2":
        return MaxRetries(name, "DEAD_LETTER", "it was moved to the dead-letter topic of its queue")
    if end.state == "3":
        return JobCancelled(name)
    return JobCancelled(name, f"Job {name} is gone: it was cancelled or removed, or its result is not remembered.")
