"""Adding jobs to a queue: written by its serializer, the queue made if it is missing, taken keys followed."""

from __future__ import annotations

from collections.abc import Sequence

from .. import engine
from ..engine.flow.declared import with_key
from ..engine.jobs.results import INLINE_BYTES, complete_steps, status
from ..engine.operation import Steps
from ..exceptions import QueueNotFound
from .base import Handle, make
from .outcomes import Receipt, result_of
from .serializers import Serializer

#: Jobs whose state is read with one statement.
_PAGE = 1_000
#: Times that a key may be taken and freed again while a call runs.
TRIES = 5
_QUEUED = engine.EnqueueStatus.QUEUED


def add_jobs(
    queue: Handle, jobs: Sequence[engine.NewJob], serializer: Serializer, *, results: bool = False
) -> Steps[list[Receipt]]:
    """Add jobs whose ``data`` is the payload; make the queue if it is missing; say what holds taken keys.

    Args:
        queue: the handle.
        jobs: each with its payload as ``data``.
        serializer: of the queue; it writes the payloads.
        results: whether results of completed jobs are wanted.
    """
    written = [written_job(job, serializer) for job in jobs]
    try:
        answers = yield from _add(queue, written).steps()
    except QueueNotFound:
        yield from make(queue)
        answers = yield from _add(queue, written).steps()
    return (yield from _receipts(queue, written, answers, serializer, results))


def _add(queue: Handle, jobs: Sequence[engine.NewJob]) -> engine.Operation[list[engine.Enqueued]]:
    return engine.enqueue(queue.name, jobs, project=queue.project, create=False)


def _receipts(
    queue: Handle,
    jobs: Sequence[engine.NewJob],
    answers: Sequence[engine.Enqueued],
    serializer: Serializer,
    results: bool,
) -> Steps[list[Receipt]]:
    receipts: list[Receipt | None] = [None] * len(jobs)
    open_jobs = list(range(len(jobs)))
    for left in reversed(range(TRIES)):
        taken = yield from _taken(queue, answers, serializer, results)
        again = []
        for index, answer in zip(open_jobs, answers, strict=True):
            receipts[index] = _fresh(jobs[index], answer) or taken.get(answer.seq)
            if receipts[index] is None:
                # The job that held the key has gone without a trace since: the key is free.
                again.append(index)
        if not again or not left:
            break
        open_jobs = again
        answers = yield from _add(queue, [jobs[index] for index in again]).steps()
    for index, answer in zip(open_jobs, answers, strict=True):
        receipts[index] = receipts[index] or Receipt(answer.seq, jobs[index].key, "duplicate", "queued")
    return [receipt for receipt in receipts if receipt is not None]


def _taken(
    queue: Handle, answers: Sequence[engine.Enqueued], serializer: Serializer, results: bool
) -> Steps[dict[int, Receipt]]:
    """Read the states of the jobs that hold the keys of the refused ones."""
    seqs = list(dict.fromkeys(answer.seq for answer in answers if answer.status is not _QUEUED))
    receipts: dict[int, Receipt] = {}
    for start in range(0, len(seqs), _PAGE):
        rows = yield from status(
            queue.name,
            seqs=seqs[start : start + _PAGE],
            inline=INLINE_BYTES if results else None,
            project=queue.project,
        ).steps()
        for row in rows:
            done = row.state == "completed"
            found = (yield from complete_steps(row)) if done and results else row
            result = result_of(found, serializer) if done and results else None
            receipts[row.seq] = Receipt(
                row.seq, row.key, "completed" if done else "duplicate", row.state, result, row.created_at
            )
    return receipts


def written_job(job: engine.NewJob, serializer: Serializer) -> engine.NewJob:
    """Return a job with its payload written as the serializer does: as JSON, or as a body."""
    if job.limit is not None:
        job = with_key(job)
    if job.body is not None or job.data is None:
        return job
    data, body = serializer.write(job.data)
    return job if body is None else job._replace(data=data, body=body)


def _fresh(job: engine.NewJob, answer: engine.Enqueued) -> Receipt | None:
    if answer.status is not _QUEUED:
        return None
    return Receipt(answer.seq, job.key, "queued", "queued", None, answer.created_at)
