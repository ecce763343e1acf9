"""Group commit: the calls of many callers as one operation, and the lane of an event loop that flushes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from .. import engine, twins
from ..conf import process
from ..engine.jobs import results
from ..engine.jobs.results import Reply, Status, result_steps, status
from ..engine.limits import MAX_BATCH
from ..engine.operation import BEGIN, Statements, operation
from ..exceptions import LeaseQueueError, QueueClosed, QueueNotFound, StorageError
from .base import Handle, arun, make
from .enqueue import add_jobs
from .lease import claimed_jobs, finished, refused
from .outcomes import ClaimedJob
from .serializers import Serializer

T = TypeVar("T")

#: Bytes (as stored) of a result that is read together with others; a larger one is read by itself.
SMALL_BYTES = 16_384
#: Flushes of one lane under way at once: one waits for the database while the other's answers are handed out.
FLUSHES = 2

ENQUEUE, CLAIM, END, RELEASE, EXTEND, PROGRESS, LOOK = range(7)
#: The lane of each call: what commits durably does not hold up what need not.
LANES = {ENQUEUE: 0, END: 1, RELEASE: 1, EXTEND: 1, PROGRESS: 1, CLAIM: 2, LOOK: 3}


class Claiming(NamedTuple):
    """A claim that one caller asks for."""

    size: int
    lease_ms: int | None
    tag: str | None


@dataclass(slots=True, eq=False)
class Call(Generic[T]):
    """One caller's call, and its answer."""

    kind: int
    #: ``NewJob``, ``Claiming``, ``Ending``, ``Release``, a lease in ms, a progress, or a job's number.
    what: Any
    #: The leased job of a settling call. A flush has one call for a job: the next one gets the answer to what is left.
    job: ClaimedJob | None = None
    #: Of an ``Ending``: the result as the caller gave it.
    result: Any = None
    #: The outcome: a value, or an exception to raise.
    answer: Any = field(default=None, init=False)
    #: The future of the caller that waits for it.
    future: asyncio.Future[Any] | Future[Any] | None = field(default=None, init=False)

    def steps(self) -> Generator[Call[Any], Any, T]:
        """Return the body of a method that makes this call: it waits for the answer."""
        answer: T = yield self
        return answer

    def deliver(self) -> None:
        if self.future is None or self.future.done():
            return
        if isinstance(self.answer, BaseException):
            self.future.set_exception(self.answer)
        else:
            self.future.set_result(self.answer)


def take(pending: list[Call[Any]]) -> list[Call[Any]]:
    """Take the calls of the next flush out of ``pending``: bounded in number, each leased job at most once."""
    if len(pending) <= 1:
        batch, pending[:] = list(pending), []
        return batch
    batch, left = [], []
    seqs: set[int] = set()
    for call in pending:
        if len(batch) >= MAX_BATCH:
            left.append(call)
        elif call.job is not None:
            (left if call.job.seq in seqs else batch).append(call)
            seqs.add(call.job.seq)
        else:
            batch.append(call)
    pending[:] = left
    return batch


@operation
def flush(queue: Handle, serializer: Serializer, calls: Sequence[Call[Any]]) -> Statements[None]:
    """Carry out calls in one transaction, and set their answers.

    First jobs end or go back, then new ones come, then claims are served: they see both. What the engine refuses of
    one job is the answer to that call alone.
    """
    kinds: dict[int, list[Call[Any]]] = {}
    for call in calls:
        kinds.setdefault(call.kind, []).append(call)
    if len(kinds) > 1:
        yield BEGIN, {}
    if END in kinds:
        yield from _end(queue, kinds[END])
    for kind, body in ((RELEASE, _release), (EXTEND, _extend), (PROGRESS, _progress)):
        if kind in kinds:
            yield from body(queue, kinds[kind])
    if ENQUEUE in kinds:
        receipts = yield from add_jobs(queue, [call.what for call in kinds[ENQUEUE]], serializer, results=True)
        for call, receipt in zip(kinds[ENQUEUE], receipts, strict=True):
            call.answer = receipt
    if LOOK in kinds:
        yield from _look(queue, kinds[LOOK])
    if CLAIM in kinds:
        yield from _claim(queue, kinds[CLAIM])


def _by_node(calls: Iterable[Call[Any]]) -> dict[str, list[tuple[Call[Any], ClaimedJob]]]:
    groups: dict[str, list[tuple[Call[Any], ClaimedJob]]] = {}
    for call in calls:
        assert call.job is not None
        groups.setdefault(call.job.node, []).append((call, call.job))
    return groups


def _end(queue: Handle, calls: Sequence[Call[Any]]) -> Statements[None]:
    for node, group in _by_node(calls).items():
        endings = [call.what for call, _ in group]
        settled = yield from engine.finish(endings, node, project=queue.project, queue=queue.name)
        for call, job in group:
            try:
                call.answer = yield from finished(queue, job, call.what, call.result, settled.outcomes[job.seq])
            except LeaseQueueError as error:
                call.answer = error


def _release(queue: Handle, calls: Sequence[Call[Any]]) -> Statements[None]:
    for node, group in _by_node(calls).items():
        releases = [call.what for call, _ in group]
        settled = yield from engine.release(releases, node, project=queue.project, queue=queue.name)
        for call, job in group:
            gone = engine.Released("dead", None, job.deliveries)
            _answer(call, job, settled, settled.released.get(job.seq, gone))


def _extend(queue: Handle, calls: Sequence[Call[Any]]) -> Statements[None]:
    for node, same_node in _by_node(calls).items():
        for lease_ms in {call.what for call, _ in same_node}:
            group = [(call, job) for call, job in same_node if call.what == lease_ms]
            seqs, tokens = [job.seq for _, job in group], [job.token for _, job in group]
            settled = yield from engine.extend(
                seqs, node, lease_ms, tokens=tokens, project=queue.project, queue=queue.name
            )
            for call, job in group:
                _answer(call, job, settled, job.extended(settled.deadlines.get(job.seq, job.lease.deadline)))


def _progress(queue: Handle, calls: Sequence[Call[Any]]) -> Statements[None]:
    for node, group in _by_node(calls).items():
        said = [results.Progress(job.seq, job.token, call.what) for call, job in group]
        settled = yield from results.progress(said, node, project=queue.project, queue=queue.name)
        for call, job in group:
            _answer(call, job, settled, None)


def _answer(call: Call[Any], job: ClaimedJob, settled: engine.Settled, value: Any) -> None:
    outcome = settled.outcomes[job.seq]
    call.answer = value if outcome is engine.Outcome.OK else refused(job, outcome)


def _look(queue: Handle, calls: Sequence[Call[Any]]) -> Statements[None]:
    seqs = list(dict.fromkeys(call.what for call in calls))
    found: dict[int, Reply | Status] = {**(yield from result_steps(seqs, SMALL_BYTES))}
    others = [seq for seq in seqs if seq not in found]
    if others:
        rows = yield from status(queue.name, seqs=others, inline=SMALL_BYTES, project=queue.project)
        found.update({row.seq: row for row in reversed(rows)})
    for call in calls:
        call.answer = found.get(call.what)


def _claim(queue: Handle, calls: Sequence[Call[Any]]) -> Statements[None]:
    """Claim once for all callers of the same kind of lease; the first caller is served first."""
    groups: dict[tuple[int | None, str | None], list[Call[Any]]] = {}
    for call in calls:
        groups.setdefault(call.what[1:], []).append(call)
    for (lease_ms, tag), group in groups.items():
        size, began = min(sum(call.what.size for call in group), MAX_BATCH), time.monotonic()
        try:
            rows = yield from engine.claim(
                queue.name, queue.node, size, project=queue.project, lease_ms=lease_ms, tag=tag
            )
        except QueueNotFound:
            yield from make(queue)
            rows = []
        jobs = yield from claimed_jobs(queue, rows, began)
        for call in group:
            call.answer, jobs = jobs[: call.what.size], jobs[call.what.size :]


# Lanes: one flush after the other


def closed() -> QueueClosed:
    """Return the error for a call that comes too early or too late."""
    return QueueClosed("A BufferedQueue takes calls only inside its `with` or `async with` block.")


def flushing(queue: Handle, serializer: Serializer, batch: list[Call[Any]]) -> Generator[Any, Any, None]:
    """Flush calls together, and each by itself if that fails because of one of them; the steps are operations."""
    batch = [call for call in batch if not (call.future is not None and call.future.cancelled())]
    try:
        yield flush(queue, serializer, batch)
    except Exception as error:  # noqa: BLE001  (it is the callers')
        for call in batch:
            call.answer = error
            # It may be one call's own. Not when the connection is lost: what was sent may have happened.
            if len(batch) > 1 and not isinstance(error, StorageError):
                try:
                    yield flush(queue, serializer, [call])
                except Exception as own:  # noqa: BLE001  (it is the caller's)
                    call.answer = own
    for call in batch:
        call.deliver()
    # Jobs claimed for callers who are gone go back.
    gone = [call for call in batch if call.kind == CLAIM and call.future is not None and call.future.cancelled()]
    releases = [
        engine.Release(job.seq, job.token, 0) for call in gone if isinstance(call.answer, list) for job in call.answer
    ]
    if releases:
        back = engine.release(releases, queue.node, project=queue.project, queue=queue.name, unstarted=True)
        with suppress(LeaseQueueError):  # their leases end by themselves
            yield back


def by_database(queue: Handle, batch: list[Call[Any]]) -> list[tuple[str, list[Call[Any]]]]:
    """Return the calls by database: those that add jobs have another one while the queue moves."""
    if (adding := queue.adding) == (using := queue.using):
        return [(using, batch)]
    adds = [call for call in batch if call.kind in (ENQUEUE, LOOK)]  # and looks at what was added
    others = [call for call in batch if call.kind not in (ENQUEUE, LOOK)]
    return [(alias, calls) for alias, calls in ((using, others), (adding, adds)) if calls]


class AsyncLane:
    """Flushes in the running event loop, on its pool of connections; calls ``idle`` at the end."""

    def __init__(self, queue: Handle, serializer: Serializer, idle: Callable[[], Any] | None = None) -> None:
        self._queue = queue
        self._serializer = serializer
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._pending: list[Call[Any]] = []
        self._open = True
        self._tasks: set[asyncio.Task[None]] = set()
        # Tasks that will look at what is pending again before they end.
        self._draining = 0

    def put(self, call: Call[Any]) -> asyncio.Future[Any]:
        if not self._open:
            raise closed()
        future: asyncio.Future[Any] = self._loop.create_future()
        call.future = future
        self._pending.append(call)
        # Who comes while a task is about to start goes along with it.
        if len(self._pending) == 1 and self._draining < FLUSHES:
            self._draining += 1
            task = self._loop.create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return future

    async def close(self) -> None:
        """Flush the buffer and accept no further calls."""
        self._open = False
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._idle is not None and not self._tasks and not self._pending:
            self._idle()

    async def _drain(self) -> None:
        batch: list[Call[Any]] = []
        try:
            while self._pending:
                batch = take(self._pending)
                for using, part in by_database(self._queue, batch):
                    steps = flushing(self._queue, self._serializer, part)
                    await twins.arun(steps, partial(arun, using=using))
        except BaseException as error:
            # The loop ends, or the task was cancelled: no caller may wait for ever.
            left, self._pending = self._pending, []
            for call in batch + left:
                call.answer = QueueClosed(f"The buffer broke off: {error!r}")
                call.deliver()
            raise
        finally:
            self._draining -= 1


_shared: process.PerLoop[dict[Any, AsyncLane]] = process.PerLoop(dict)


def shared_lane(queue: Handle, serializer: Serializer, purpose: int) -> AsyncLane:
    """Return the lane that all coroutines of this event loop share for one purpose on one queue, while it is in use."""
    lanes = _shared.get()
    place = (queue.using, queue.project, queue.name, queue.preset, serializer, purpose)
    lane = lanes.get(place)
    if lane is None:
        lane = lanes[place] = AsyncLane(queue, serializer, partial(lanes.pop, place, None))
    return lane
