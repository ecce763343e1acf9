"""The consumer's methods of `Queue`: claim, ack, fail, nack, extend, progress."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from typing import Any

from .. import engine
from ..engine.dead.fingerprint import fingerprint, fingerprint_of, text_of
from ..engine.jobs import results
from ..engine.jobs.results import INLINE_BYTES, complete_steps, status
from ..engine.leases import sweep
from ..engine.leases.claim import ClaimOptions, claim_steps
from ..engine.leases.finish import finish_steps
from ..engine.leases.settle import Scope
from ..engine.operation import Statements
from ..enums import ResultState
from ..exceptions import InvalidOption, JobNotFound, LeaseLost, QueueNotFound
from ..twins import sync, twin
from ..words import ENDED
from .base import Handle, leased, make, serializer_of
from .outcomes import ClaimedJob, Finished, result_of
from .serializers import JSON

#: Forms of an error: an exception, a text, or the engine's value.
Error = BaseException | str | engine.Failure


def failure_from(error: Error | None) -> engine.Failure | None:
    """Return the stored form of an error: class, message, traceback, and the fingerprint that groups dead letters."""
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


def _check(settled: engine.Settled, job: ClaimedJob) -> None:
    if (outcome := settled.outcomes[job.seq]) is not engine.Outcome.OK:
        raise refused(job, outcome)


def claimed_jobs(queue: Handle, rows: Sequence[engine.LeasedJob], asked: float) -> Statements[list[ClaimedJob]]:
    """Make jobs of the rows of a claim that began at ``asked`` (monotonic)."""
    binary = any(row.body is not None for row in rows)
    serializer = (yield from serializer_of(queue)) if binary else JSON
    node = queue.node
    return [ClaimedJob(row, node, serializer, asked) for row in rows]


def finished(
    queue: Handle, job: ClaimedJob, ending: engine.Ending, result: Any, outcome: engine.Outcome
) -> Statements[Finished]:
    """Say how a job ended; where the engine does not find it, look for the record of the same end."""
    wanted = ResultState.COMPLETED if ending.failure is None else ResultState.FAILED
    if outcome is engine.Outcome.OK:
        return Finished(ending.seq, job.lease.key, str(wanted.label), result)
    if outcome is engine.Outcome.NOT_FOUND:
        rows = yield from status(queue.name, seqs=[job.seq], inline=INLINE_BYTES, project=queue.project)
        for row in rows:
            if (row.state_number, row.claim, row.node) == (ENDED + wanted, job.token, job.node):
                found = yield from complete_steps(row)
                serializer = yield from serializer_of(queue)
                return Finished(job.seq, row.key, row.state, result_of(found, serializer), repeated=True)
    raise refused(job, outcome)


class LeaseMethods(Handle):
    """Methods that claim jobs, and those that only the holder of a lease may call.

    Every call names the lease by its token: a late worker gets an error, never another worker's job.
    """

    @sync
    def claim(
        self,
        size: int = 1,
        *,
        lease_ms: int | None = None,
        tag: str | None = None,
        tags: Sequence[str] | None = None,
        grace_ms: int | None = None,
    ) -> Statements[list[ClaimedJob]]:
        """Lease up to ``size`` jobs to this handle's node, in claim order.

        Args:
            size: how many at most, cut to 1,000.
            lease_ms: length of the leases, clamped to 100..86,400,000; ``None`` for the queue's.
            tag: only jobs with this tag.
            tags: only jobs with one of these tags (at most 20), in the queue's order whatever their tag.
            grace_ms: how long a job with a ``ttl_ms`` outlives its lease at least.

        Returns:
            The jobs; an empty list when none is ready.

        Raises:
            QueueNotFound: there is no such queue and it may not be made.
            NotAQueue: it is a log.
            InvalidOption: an argument is not allowed.
        """
        options: ClaimOptions = {"lease_ms": lease_ms, "tag": tag, "tags": tags, "grace_ms": grace_ms}
        began = time.monotonic()
        try:
            rows = yield from claim_steps([self.name], self.node, size, self.project, **options)
        except QueueNotFound:
            yield from make(self)
            return []
        return (yield from claimed_jobs(self, rows, began))

    aclaim = twin(claim)

    @sync
    def ack(self, job: ClaimedJob, result: Any = None, *, result_ttl_ms: int | None = None) -> Statements[Finished]:
        """Complete a job. It is removed; its result is remembered as long as the queue or the job says.

        A repeat by the same holder returns the stored record, where the queue remembers results.

        Args:
            job: what ``claim`` returned.
            result: any JSON, or bytes; with another serializer whatever that takes.
            result_ttl_ms: milliseconds for which the result is remembered, in place of the job's and the queue's.

        Raises:
            JobNotFound: the job is not there any more; ``LeaseLost`` when another worker has it or the lease is over.
            InvalidOption, PayloadTooLarge, SerializerError: the result was refused; the job is still leased.
        """
        lease = leased(job).lease
        ending = engine.Ending(lease.seq, lease.token, result_ttl_ms=result_ttl_ms)
        if result is not None:
            serializer = yield from serializer_of(self)
            value, body = serializer.write(result, "the result")
            ending = ending._replace(result=value, body=body)
        settled = yield from finish_steps([ending], Scope(job.node, self.project, self.name))
        return (yield from finished(self, job, ending, result, settled.outcomes[ending.seq]))

    aack = twin(ack)

    @sync
    def fail(self, job: ClaimedJob, error: Error, *, result_ttl_ms: int | None = None) -> Statements[Finished]:
        """Fail a job for good: it is not tried again and is no dead letter; its error is remembered like a result.

        Args:
            job: what ``claim`` returned.
            error: an exception, or a message.
            result_ttl_ms: milliseconds for which it is remembered, in place of the job's and the queue's.

        Raises:
            JobNotFound, LeaseLost: as ``ack``.
        """
        leased(job)
        ending = engine.Ending(job.seq, job.token, failure=failure_from(error), result_ttl_ms=result_ttl_ms)
        settled = yield from finish_steps([ending], Scope(job.node, self.project, self.name))
        return (yield from finished(self, job, ending, None, settled.outcomes[ending.seq]))

    afail = twin(fail)

    @sync
    def nack(
        self, job: ClaimedJob, *, delay_ms: int | None = None, error: Error | None = None
    ) -> Statements[engine.Released]:
        """Give a job back to be tried again, or to die if its deliveries are used up (option ``exhaust_at``).

        Args:
            job: what ``claim`` returned.
            delay_ms: milliseconds until it may be claimed again; ``None`` for the queue's backoff (option ``backoff``).
            error: why the attempt failed: it is kept on the job, whose state is then ``failing``.

        Returns:
            Where it went: ``ready``, ``delayed`` or ``dead``.

        Raises:
            JobNotFound, LeaseLost: as ``ack``.
        """
        leased(job)
        release = engine.Release(job.seq, job.token, delay_ms, failure_from(error))
        settled = yield from engine.release([release], job.node, project=self.project, queue=self.name)
        _check(settled, job)
        # A job that moved to a dead-letter topic is not in ``released``.
        return settled.released.get(job.seq) or engine.Released("dead", None, job.deliveries)

    anack = twin(nack)

    @sync
    def extend(self, job: ClaimedJob, lease_ms: int | None = None) -> Statements[ClaimedJob]:
        """Set the end of a lease to now + ``lease_ms`` (a heartbeat; see ``Heartbeat`` for one that beats by itself).

        Args:
            job: what ``claim`` returned.
            lease_ms: clamped to 100..86,400,000; ``None`` for the queue's.

        Returns:
            The job with its new deadline.

        Raises:
            JobNotFound, LeaseLost: as ``ack``.
        """
        leased(job)
        settled = yield from engine.extend(
            [job.seq], job.node, lease_ms, tokens=[job.token], project=self.project, queue=self.name
        )
        _check(settled, job)
        return job.extended(settled.deadlines[job.seq])

    aextend = twin(extend)

    @sync
    def progress(self, job: ClaimedJob, value: Any) -> Statements[None]:
        """Say how far a job is. All can read it (``get_status``); it stays over retries until the next report.

        Args:
            job: what ``claim`` returned.
            value: any JSON, at most 64 KiB.

        Raises:
            JobNotFound, LeaseLost: as ``ack``.
            InvalidOption, PayloadTooLarge: the value was refused.
        """
        leased(job)
        report = results.Progress(job.seq, job.token, value)
        settled = yield from results.progress([report], job.node, project=self.project, queue=self.name)
        _check(settled, job)

    aprogress = twin(progress)

    @sync
    def ack_many(
        self, jobs: Sequence[ClaimedJob], results: Sequence[Any] | None = None, *, result_ttl_ms: int | None = None
    ) -> Statements[engine.Settled]:
        """Complete up to 1,000 jobs of one claim (one node) in one statement.

        Nothing is raised for those that are lost.

        Args:
            jobs: of one node.
            results: one for each of the jobs in their order, as ``ack`` takes it.
            result_ttl_ms: as for ``ack``.

        Returns:
            An outcome per number: ``ok``, ``not_found``, ``not_held``, ``stale_token``, ``expired``;
            ``cancelled`` (of an extension: the job's workflow is, its end still counts).

        Raises:
            InvalidOption, PayloadTooLarge, SerializerError: a result was refused; all jobs are still leased.
        """
        node = self._one_node(jobs)
        endings = [engine.Ending(job.seq, job.token, result_ttl_ms=result_ttl_ms) for job in jobs]
        if results is not None:
            if len(results) != len(jobs):
                raise InvalidOption(f"there must be one result for each of the {len(jobs)} jobs, not {len(results)}.")
            serializer = yield from serializer_of(self)
            written = [(None, None) if value is None else serializer.write(value, "the result") for value in results]
            endings = [
                ending._replace(result=value, body=body) for ending, (value, body) in zip(endings, written, strict=True)
            ]
        return (yield from engine.finish(endings, node, project=self.project, queue=self.name))

    aack_many = twin(ack_many)

    @sync
    def nack_many(
        self, jobs: Sequence[ClaimedJob], *, delay_ms: int | None = None, unstarted: bool = False
    ) -> Statements[engine.Settled]:
        """Give up to 1,000 jobs back in one statement; nothing is raised for those that are lost.

        Args:
            jobs: of one node.
            delay_ms: as for ``nack``.
            unstarted: they were not started: these deliveries do not count, and they go back at once.
        """
        node = self._one_node(jobs)
        if unstarted and delay_ms is None:
            delay_ms = 0
        releases = [engine.Release(job.seq, job.token, delay_ms) for job in jobs]
        settled = engine.release(releases, node, project=self.project, queue=self.name, unstarted=unstarted)
        return (yield from settled)

    anack_many = twin(nack_many)

    @sync
    def extend_many(self, jobs: Sequence[ClaimedJob], lease_ms: int | None = None) -> Statements[engine.Settled]:
        """Extend up to 1,000 leases in one statement; nothing is raised for those that are lost.

        Returns:
            An outcome and a new deadline per number.
        """
        node = self._one_node(jobs)
        tokens = [job.token for job in jobs]
        settled = engine.extend(
            [job.seq for job in jobs], node, lease_ms, tokens=tokens, project=self.project, queue=self.name
        )
        return (yield from settled)

    aextend_many = twin(extend_many)

    def _one_node(self, jobs: Sequence[ClaimedJob]) -> str:
        nodes = {leased(job).node for job in jobs} or {self.node}
        if len(nodes) > 1:
            raise InvalidOption(f"the jobs of one call must be held by one node; these are held by {sorted(nodes)}.")
        return nodes.pop()

    @sync
    def requeue_stale(self, idle_ms: int) -> Statements[int]:
        """Bring back the jobs whose leases expired, or were not renewed for ``idle_ms`` milliseconds.

        Claims bring expired leases back by themselves: this is for those who will not wait for the deadline.

        Returns:
            How many came back.

        Raises:
            QueueNotFound: there is no such queue.
        """
        return (yield from sweep.requeue_stale(self.name, idle_ms, project=self.project))

    arequeue_stale = twin(requeue_stale)
