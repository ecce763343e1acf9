"""The producer's methods of `Queue`: enqueue, cancel, redrive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypedDict, Unpack

from .. import conf, engine
from ..engine import metadata
from ..engine.flow.declared import Limit, with_key
from ..engine.jobs.results import INLINE_BYTES, complete_steps, status
from ..engine.jobs.unique import hold_steps
from ..engine.limits import MAX_BATCH
from ..engine.operation import BEGIN, Statements
from ..exceptions import BatchTooLarge, QueueNotFound
from ..twins import Repeatable, sync, twin
from .base import Handle, Ref, make, named, ref, serializer_of, status_of
from .outcomes import Receipt, result_of
from .serializers import Serializer

#: Jobs of one ``enqueue_many``.
MAX_MANY = 100_000
#: Times that a key may be taken and freed again while a call runs.
TRIES = 5
_QUEUED = engine.EnqueueStatus.QUEUED


def add_jobs(
    queue: Handle, jobs: Sequence[engine.NewJob], serializer: Serializer, *, results: bool = False
) -> Statements[list[Receipt]]:
    """Add jobs whose ``data`` is the payload, and make a missing queue; receipts name the holders of taken keys."""
    written = [written_job(job, serializer) for job in jobs]
    try:
        answers = yield from _add(queue, written)
    except QueueNotFound:
        yield from make(queue)
        answers = yield from _add(queue, written)
    receipts: list[Receipt | None] = [None] * len(jobs)
    open_jobs = list(range(len(jobs)))
    for left in reversed(range(TRIES)):
        taken = yield from _taken(queue, answers, serializer, results)
        again = []
        for index, answer in zip(open_jobs, answers, strict=True):
            if answer.status is _QUEUED:
                receipts[index] = Receipt(answer.seq, written[index].key, "queued", "queued", None, answer.created_at)
            elif answer.seq in taken:
                receipts[index] = taken[answer.seq]
            else:
                # The job that held the key has gone without a trace since: the key is free.
                again.append(index)
        if not again or not left:
            break
        open_jobs = again
        answers = yield from _add(queue, [written[index] for index in again])
    for index, answer in zip(open_jobs, answers, strict=True):
        receipts[index] = receipts[index] or Receipt(answer.seq, written[index].key, "duplicate", "queued")
    return [receipt for receipt in receipts if receipt is not None]


def _add_many(queue: Handle, jobs: Sequence[Any]) -> Statements[list[Receipt]]:
    given = [tagged(job if isinstance(job, engine.NewJob) else engine.NewJob(job)) for job in jobs]
    if len(given) > MAX_MANY:
        raise BatchTooLarge(f"one call of enqueue_many takes at most {MAX_MANY} jobs; there are {len(given)}.")
    serializer = yield from serializer_of(queue)
    size = conf.settings.MAX_ENQUEUE
    if len(given) > size:
        yield BEGIN, {}
        yield from hold_steps(queue.project, queue.name, given)
    receipts: list[Receipt] = []
    for start in range(0, len(given), size):
        receipts += yield from add_jobs(queue, given[start : start + size], serializer)
    return receipts


def _add(queue: Handle, jobs: Sequence[engine.NewJob]) -> engine.Operation[list[engine.Enqueued]]:
    return engine.enqueue(queue.name, jobs, project=queue.project, create=False)


def _taken(
    queue: Handle, answers: Sequence[engine.Enqueued], serializer: Serializer, results: bool
) -> Statements[dict[int, Receipt]]:
    """Read the states of the jobs that hold the keys of the refused ones."""
    seqs = list(dict.fromkeys(answer.seq for answer in answers if answer.status is not _QUEUED))
    receipts: dict[int, Receipt] = {}
    for start in range(0, len(seqs), MAX_BATCH):
        batch, inline = seqs[start : start + MAX_BATCH], INLINE_BYTES if results else None
        rows = yield from status(queue.name, seqs=batch, inline=inline, project=queue.project)
        for row in rows:
            found, result = "completed" if row.state == "completed" else "duplicate", None
            if results and found == "completed":
                result = result_of((yield from complete_steps(row)), serializer)
            receipts[row.seq] = Receipt(row.seq, row.key, found, row.state, result, row.created_at)
    return receipts


def tagged(job: engine.NewJob) -> engine.NewJob:
    """Return a job with the tags of the task that runs here, if there is one that has some."""
    return job if metadata.inherited.get() is None else job._replace(tags=metadata.with_inherited(job.tags))


def written_job(job: engine.NewJob, serializer: Serializer) -> engine.NewJob:
    """Return a job with its payload written as the serializer does: as JSON, or as a body."""
    if job.limit is not None:
        job = with_key(job)
    if job.body is not None or job.data is None:
        return job
    data, body = serializer.write(job.data)
    return job if body is None else job._replace(data=data, body=body)


class CancelStatus(StrEnum):
    """The place where ``cancel`` found a job."""

    CANCELLED = "cancelled"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    NOT_FOUND = "not_found"


class JobOptions(TypedDict, total=False):
    """Options of a job beside its payload."""

    #: The caller's id of the job. While it is taken (queue option ``dedup_until``) no second job is made.
    key: str | None
    #: The kind of job, for consumers that serve several.
    name: str | None
    #: Claims can ask for one tag, or for several.
    tag: str | None
    #: Clamped to the queue's range; which comes first is the queue's option ``priority_order``.
    priority: int | None
    #: A JSON object beside the payload.
    meta: dict[str, Any] | None
    #: Names and values (texts, integers, bools) to find it by, at most 16; a task that runs adds its own.
    tags: dict[str, Any] | None
    #: Not before this time (aware); wins over ``delay_ms``.
    run_at: datetime | None
    #: Not before so many milliseconds from now.
    delay_ms: int | None
    #: Milliseconds after which it is removed unless it is leased.
    ttl_ms: int | None
    #: Milliseconds for which its end is remembered, in place of the queue's ``result_ttl_ms``.
    result_ttl_ms: int | None
    #: Claims that it may have, in place of the queue's; 0 for no limit.
    max_deliveries: int | None
    #: A NOTIFY channel that is told of its end (``enqueue_and_wait`` has its own).
    reply_to: str | None
    #: Bytes that its payload may have, in place of ``LEASEQUEUE["MAX_PAYLOAD_BYTES"]``; at most 256 MiB.
    max_bytes: int | None
    #: How long its ``key`` holds (then at most 512 bytes), in place of ``dedup_until``: until it starts or has ended.
    unique_until: Literal["start", "end"] | None
    #: The ``key`` holds for so many milliseconds from the enqueueing on.
    unique_for_ms: int | None
    #: What becomes of the job that waits under the ``key`` and was never started: it stays (``ignore``), this one takes
    #: its place, or it gets the time of this one.
    on_conflict: Literal["ignore", "replace", "reschedule"] | None
    #: How many jobs of a key may run at once or start in a time; ``{name}`` in it stands for a field of the payload.
    limit: Limit | None


class ProducerMethods(Handle):
    """Methods that add jobs and take them out."""

    @sync
    def enqueue(self, payload: Any = None, **options: Unpack[JobOptions]) -> Statements[Receipt]:
        """Add a job, in the caller's transaction if there is one.

        Args:
            payload: any JSON, or bytes; with another serializer whatever that takes.
            options: see ``JobOptions``: ``key``, ``name``, ``tag``, ``priority``, ``meta``, ``tags``, ``run_at``,
                ``delay_ms``, ``ttl_ms``, ``result_ttl_ms``, ``max_deliveries``, ``reply_to``, ``max_bytes``,
                ``unique_until``, ``unique_for_ms``, ``on_conflict``, ``limit``.

        Returns:
            What became of it: ``queued``, ``duplicate`` with the existing job's state, ``completed`` with its result.

        Raises:
            InvalidOption, PayloadTooLarge, SerializerError: the job was refused; nothing was added.
            QueueNotFound: there is no such queue and it may not be made.
        """
        serializer = yield from serializer_of(self)
        return (yield from add_jobs(self, [tagged(engine.NewJob(payload, **options))], serializer, results=True))[0]

    aenqueue = twin(enqueue)

    def enqueue_many(self, jobs: Iterable[Any]) -> list[Receipt]:
        """Add many jobs at once: all or none, in the caller's transaction if there is one.

        Args:
            jobs: at most 100,000 payloads, or ``NewJob`` values for more than a payload: ``NewJob(payload, key="a")``.

        Returns:
            One receipt per job, in order. Results of completed ones are not in it: see ``get_result``.

        Raises:
            BatchTooLarge: there are more.
            InvalidOption, PayloadTooLarge, SerializerError, QueueNotFound: as ``enqueue``; nothing was added.
        """
        # Listed: an operation may be done again, and an iterator is read only once.
        return self._run(Repeatable(_add_many, self, list(jobs)))

    async def aenqueue_many(self, jobs: Iterable[Any]) -> list[Receipt]:
        """Async twin of ``enqueue_many``."""
        return await self._arun(Repeatable(_add_many, self, list(jobs)))

    @sync
    def cancel(self, job: Ref, *, running: bool = False) -> Statements[CancelStatus]:
        """Take out a job that is not running (queued, delayed or between two tries). A waiting caller is notified.

        A claim at the same time wins or loses, never both.

        Args:
            job: its key or number.
            running: take it out also while it runs. Its handler is told at once (``control.lost``, the reason
                ``cancelled``); nothing that it says of the job counts any more.

        Returns:
            ``cancelled``: it is gone, and its key free. Else where it is: ``processing``, ``completed``, ``failed``, or
            ``not_found``.
        """
        for _ in range(TRIES):
            gone = yield from engine.cancel(self.name, project=self.project, running=running, **named(job))
            if gone:
                return CancelStatus.CANCELLED
            found = yield from status_of(self, job)
            if found is None:
                return CancelStatus.NOT_FOUND
            if found.state not in ("queued", "failing"):
                return CancelStatus(found.state)
        return CancelStatus.PROCESSING

    acancel = twin(cancel)

    @sync
    def redrive(
        self,
        jobs: Ref | Sequence[Ref],
        *,
        to: str | None = None,
        delay_ms: int | None = None,
        from_step: str | None = None,
    ) -> Statements[list[engine.Redriven]]:
        """Bring dead jobs of this queue (or of this dead-letter topic) back; their deliveries start again at 0.

        Args:
            jobs: keys or numbers, at most 1,000.
            to: the queue to put them in; ``None`` for this one.
            delay_ms: not before so many milliseconds from now.
            from_step: this step and those that were kept after it run again; a job without it is left alone.

        Returns:
            One answer per job, in order: ``state`` is ``ready``, ``delayed``, ``conflict``, ``no_step`` or
            ``not_found``.

        Raises:
            QueueNotFound, BatchTooLarge, InvalidOption: nothing was redriven.
        """
        several = isinstance(jobs, Sequence) and not isinstance(jobs, str) and not hasattr(jobs, "seq")
        refs: list[Ref] = list(jobs) if several else [jobs]
        places = [ref(job) for job in refs]
        keys = [key for key, _ in places if key is not None]
        found: dict[str | None, int] = {}
        if keys:
            rows = yield from status(self.name, keys=keys, project=self.project)
            for row in rows:
                found.setdefault(row.key, row.seq)
        seqs = [found.get(key) if key is not None else seq for key, seq in places]
        known = [seq for seq in seqs if seq is not None]
        answers = yield from engine.redrive(
            self.name, known, to=to, delay_ms=delay_ms, from_step=from_step, project=self.project
        )
        by_seq = {answer.seq: answer for answer in answers}
        missing = engine.Redriven(0, "not_found", None)
        return [missing if seq is None else by_seq[seq] for seq in seqs]

    aredrive = twin(redrive)
