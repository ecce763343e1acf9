"""Leases of a queue's jobs from claim to end: the jobs of a claim, the record of an end, the errors of a refusal."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from .. import engine
from ..engine.dead.fingerprint import fingerprint, fingerprint_of, text_of
from ..engine.jobs.results import INLINE_BYTES, complete_steps, status
from ..engine.operation import Steps
from ..enums import ResultState
from ..exceptions import JobNotFound, LeaseLost
from .base import Handle, serializer_of
from .job import ClaimedJob
from .outcomes import Finished, result_of
from .serializers import JSON

#: Forms of an error: an exception, a text, or the engine's value.
Error = BaseException | str | engine.Failure


def failure_from(error: Error | None) -> engine.Failure | None:
    """Return what is kept of an error: class, message, traceback, and the fingerprint that groups dead letters."""
    if error is None or isinstance(error, engine.Failure):
        return error
    if isinstance(error, BaseException):
        kind = type(error)
        return engine.Failure(
            type=f"{kind.__module__}.{kind.__qualname__}",
            message=text_of(error),
            traceback="".join(traceback.format_exception(error)),
            fingerprint=fingerprint(error),
        )
    return engine.Failure(type="error", message=str(error), fingerprint=fingerprint_of("error", str(error)))


def refused(job: ClaimedJob, outcome: engine.Outcome) -> JobNotFound:
    """Return the error for a call that the engine refused: ``LeaseLost`` while the job lives, else ``JobNotFound``."""
    return JobNotFound(job.id) if outcome is engine.Outcome.NOT_FOUND else LeaseLost(job.id)


def claimed_jobs(queue: Handle, rows: Sequence[engine.LeasedJob], asked: float) -> Steps[list[ClaimedJob]]:
    """Make jobs of the rows of a claim that began at ``asked`` (monotonic)."""
    binary = any(row.body is not None for row in rows)
    serializer = (yield from serializer_of(queue)) if binary else JSON
    node = queue.node
    return [ClaimedJob(row, node, serializer, asked) for row in rows]


def end_job(queue: Handle, job: ClaimedJob, ending: engine.Ending, result: Any) -> Steps[Finished]:
    """End one job, or find the record of the same end."""
    settled = yield from engine.finish([ending], job.node, project=queue.project, queue=queue.name).steps()
    return (yield from finished(queue, job, ending, result, settled.outcomes[job.seq]))


def finished(
    queue: Handle, job: ClaimedJob, ending: engine.Ending, result: Any, outcome: engine.Outcome
) -> Steps[Finished]:
    """Say how a job ended; where the engine does not find it, look for the record of the same end."""
    wanted = ResultState.COMPLETED if ending.failure is None else ResultState.FAILED
    if outcome is engine.Outcome.OK:
        return Finished(job.seq, job.key, str(wanted.label), result)
    if outcome is engine.Outcome.NOT_FOUND:
        rows = yield from status(queue.name, seqs=[job.seq], inline=INLINE_BYTES, project=queue.project).steps()
        for row in rows:
            if (row.state_number, row.claim, row.node) == (10 + wanted, job.token, job.node):
                found = yield from complete_steps(row)
                serializer = yield from serializer_of(queue)
                return Finished(job.seq, row.key, row.state, result_of(found, serializer), repeated=True)
    raise refused(job, outcome)
