"""Group commit: the calls of many callers as one operation, each with an answer of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from .. import engine
from ..engine.jobs import results
from ..engine.jobs.results import Reply, Status, result_steps, status
from ..engine.limits import MAX_BATCH
from ..engine.operation import BEGIN, Rows, Step, Steps, operation
from ..exceptions import LeaseQueueError, QueueNotFound
from ..twins import through
from .base import Handle, make
from .enqueue import add_jobs
from .lease import claimed_jobs, finished, refused
from .outcomes import ClaimedJob
from .serializers import Serializer

T = TypeVar("T")

#: Bytes (as stored) of a result that is read together with others; a larger one is read by itself.
SMALL_BYTES = 16_384

ENQUEUE, CLAIM, END, RELEASE, EXTEND, PROGRESS, LOOK = range(7)
#: Calls that name a leased job: one of a job in one flush, so that the second gets the answer to what the first left.
_SETTLING = frozenset({END, RELEASE, EXTEND, PROGRESS})


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
    #: The leased job that it is about.
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
        """Give the answer to who waits for it."""
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
        elif call.kind in _SETTLING and call.job is not None:
            (left if call.job.seq in seqs else batch).append(call)
            seqs.add(call.job.seq)
        else:
            batch.append(call)
    pending[:] = left
    return batch


@operation
def flush(queue: Handle, serializer: Serializer, calls: Sequence[Call[Any]]) -> Steps[None]:
    """Do what the calls ask, in one transaction, and set their answers.

    First jobs end or go back, then new ones come, then claims are served: they see both. What the engine refuses of
    one job is the answer to that call alone.
    """
    kinds: dict[int, list[Call[Any]]] = {}
    for call in calls:
        kinds.setdefault(call.kind, []).append(call)
    mixed = len(kinds) > 1
    if mixed:
        yield BEGIN, {}
    if END in kinds:
        yield from _end(queue, kinds[END])
    for kind, body in ((RELEASE, _release), (EXTEND, _extend), (PROGRESS, _progress)):
        if kind in kinds:
            yield from _strictly(body(queue, kinds[kind]), mixed)
    if ENQUEUE in kinds:
        receipts = yield from add_jobs(queue, [call.what for call in kinds[ENQUEUE]], serializer, results=True)
        for call, receipt in zip(kinds[ENQUEUE], receipts, strict=True):
            call.answer = receipt
    if LOOK in kinds:
        yield from _look(queue, kinds[LOOK])
    if CLAIM in kinds:
        yield from _strictly(_claim(queue, kinds[CLAIM]), mixed)


def _strictly(steps: Steps[T], mixed: bool) -> Steps[T]:
    """Leases need not be durable (option ``leases_durable``), but what shares their transaction may have to be."""
    return through(steps, _durable) if mixed else steps


def _durable(step: Step) -> Steps[Rows]:
    name, params = step
    return (yield name, {**params, "autocommit": False})


def _by_node(calls: Iterable[Call[Any]]) -> dict[str, list[tuple[Call[Any], ClaimedJob]]]:
    groups: dict[str, list[tuple[Call[Any], ClaimedJob]]] = {}
    for call in calls:
        assert call.job is not None
        groups.setdefault(call.job.node, []).append((call, call.job))
    return groups


def _end(queue: Handle, calls: Sequence[Call[Any]]) -> Steps[None]:
    for node, group in _by_node(calls).items():
        endings = [call.what for call, _ in group]
        settled = yield from engine.finish(endings, node, project=queue.project, queue=queue.name).steps()
        for call, job in group:
            try:
                call.answer = yield from finished(queue, job, call.what, call.result, settled.outcomes[job.seq])
            except LeaseQueueError as error:
                call.answer = error


def _release(queue: Handle, calls: Sequence[Call[Any]]) -> Steps[None]:
    for node, group in _by_node(calls).items():
        releases = [call.what for call, _ in group]
        settled = yield from engine.release(releases, node, project=queue.project, queue=queue.name).steps()
        for call, job in group:
            gone = engine.Released("dead", None, job.deliveries)
            _answer(call, job, settled, settled.released.get(job.seq, gone))


def _extend(queue: Handle, calls: Sequence[Call[Any]]) -> Steps[None]:
    for node, same_node in _by_node(calls).items():
        for lease_ms in {call.what for call, _ in same_node}:
            group = [(call, job) for call, job in same_node if call.what == lease_ms]
            seqs, tokens = [job.seq for _, job in group], [job.token for _, job in group]
            settled = yield from engine.extend(
                seqs, node, lease_ms, tokens=tokens, project=queue.project, queue=queue.name
            ).steps()
            for call, job in group:
                _answer(call, job, settled, job.extended(settled.deadlines.get(job.seq, job.lease.deadline)))


def _progress(queue: Handle, calls: Sequence[Call[Any]]) -> Steps[None]:
    for node, group in _by_node(calls).items():
        said = [results.Progress(job.seq, job.token, call.what) for call, job in group]
        settled = yield from results.progress(said, node, project=queue.project, queue=queue.name).steps()
        for call, job in group:
            _answer(call, job, settled, None)


def _answer(call: Call[Any], job: ClaimedJob, settled: engine.Settled, value: Any) -> None:
    outcome = settled.outcomes[job.seq]
    call.answer = value if outcome is engine.Outcome.OK else refused(job, outcome)


def _look(queue: Handle, calls: Sequence[Call[Any]]) -> Steps[None]:
    seqs = list(dict.fromkeys(call.what for call in calls))
    found: dict[int, Reply | Status] = {**(yield from result_steps(seqs, SMALL_BYTES))}
    others = [seq for seq in seqs if seq not in found]
    if others:
        rows = yield from status(queue.name, seqs=others, inline=SMALL_BYTES, project=queue.project).steps()
        found.update({row.seq: row for row in reversed(rows)})
    for call in calls:
        call.answer = found.get(call.what)


def _claim(queue: Handle, calls: Sequence[Call[Any]]) -> Steps[None]:
    """One claim for all who want the same kind of lease; who asked first is served first."""
    groups: dict[tuple[int | None, str | None], list[Call[Any]]] = {}
    for call in calls:
        groups.setdefault(call.what[1:], []).append(call)
    for (lease_ms, tag), group in groups.items():
        size, began = min(sum(call.what.size for call in group), MAX_BATCH), time.monotonic()
        try:
            rows = yield from engine.claim(
                queue.name, queue.node, size, project=queue.project, lease_ms=lease_ms, tag=tag
            ).steps()
        except QueueNotFound:
            yield from make(queue)
            rows = []
        jobs = yield from claimed_jobs(queue, rows, began)
        for call in group:
            call.answer, jobs = jobs[: call.what.size], jobs[call.what.size :]
