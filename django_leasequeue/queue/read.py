"""What anybody may know of a queue and its jobs: status, results, figures, snapshots. Nothing here takes a lock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from .. import engine
from ..engine.jobs import read, results
from ..engine.jobs.results import INLINE_BYTES, SLICE_BYTES
from ..engine.operation import Steps, operation
from ..engine.queues import snapshot, stats
from ..exceptions import JobNotFound
from .base import Handle, Ref, ref
from .calls import arun, call, run, twin
from .outcomes import JobStatus, result_of


class Looking(Handle):
    """Reading."""

    @call
    @operation
    def get_status(self, job: Ref) -> Steps[JobStatus | None]:
        """Return what is known of a job, without its result; ``None`` if nothing is (any more).

        Args:
            job: its key or number. A key stands for the last job that was enqueued with it.
        """
        row = yield from self.status_steps(job)
        return None if row is None else JobStatus(row)

    aget_status = twin(get_status)

    @call
    @operation
    def get_result(self, job: Ref, default: Any = None) -> Steps[Any]:
        """Return the result of a completed job, ``default`` if there is none (yet, or any more).

        A job may have completed with ``None``: ``get_status`` tells, or a ``default`` of your own.

        Args:
            job: its key or number.
            default: what is returned when there is none.

        Raises:
            SerializerError: it cannot be read with the queue's serializer.
        """
        row = yield from self.status_steps(job, INLINE_BYTES)
        if row is None or row.state != "completed":
            return default
        serializer = yield from self.serializer_steps()
        return result_of((yield from results.complete_steps(row)), serializer)

    aget_result = twin(get_result)

    @call
    @operation
    def update_result_ttl(self, job: Ref, ttl_ms: int) -> Steps[bool]:
        """Change how long the end of a job is remembered: from now on if it has ended, else from its end on.

        Args:
            job: its key or number.
            ttl_ms: a positive integer of milliseconds.

        Returns:
            Whether anything is known of the job.

        Raises:
            InvalidOption: ``ttl_ms`` is something else.
        """
        key, seq = ref(job)
        changed = yield from results.update_result_ttl(
            self.name, ttl_ms, key=key, seq=seq, project=self.project
        ).steps()
        return changed is not None

    aupdate_result_ttl = twin(update_result_ttl)

    def stream_result(self, job: Ref, chunk_size: int = SLICE_BYTES) -> Iterator[bytes]:
        """Read a result as bytes, piece by piece: as its serializer wrote it, JSON as UTF-8 text.

        A binary result is never in memory as a whole. A JSON one is: it comes as one piece.

        Args:
            job: key or number of a completed job.
            chunk_size: bytes of a piece.

        Raises:
            JobNotFound: there is no result; or it expired meanwhile.
        """
        found = run(self._result_row(job), self.using)
        if found.body_size is None:
            yield (found.result_json or "null").encode()
            return
        for start in range(0, found.body_size, chunk_size):
            yield _piece(job, run(results.result_slice(found.seq, start, chunk_size), self.using))

    async def astream_result(self, job: Ref, chunk_size: int = SLICE_BYTES) -> AsyncIterator[bytes]:
        """Async twin of ``stream_result``."""
        found = await arun(self._result_row(job), self.using)
        if found.body_size is None:
            yield (found.result_json or "null").encode()
            return
        for start in range(0, found.body_size, chunk_size):
            yield _piece(job, await arun(results.result_slice(found.seq, start, chunk_size), self.using))

    @operation
    def _result_row(self, job: Ref) -> Steps[results.Status]:
        row = yield from self.status_steps(job, 0)
        if row is None or row.state != "completed":
            raise JobNotFound(job, f"Job {job} has no result (yet, or any more).")
        if row.body_size is None and row.result_size is not None:
            row = yield from results.complete_steps(row)
        return row

    @call
    @operation
    def counts(self) -> Steps[engine.Counts]:
        """Return the queue's figures: ready, delayed, in flight, dead; exact up to ``LEASEQUEUE["COUNT_CAP"]``.

        Raises:
            QueueNotFound: there is no such queue.
        """
        return (yield from stats.counts(self.name, project=self.project).steps())

    acounts = twin(counts)

    @call
    @operation
    def read_state(self, size: int = 100) -> Steps[engine.QueueState]:
        """Return a cheap snapshot of one instant: what is next, in claim order, what is in progress, and a version.

        Args:
            size: jobs of each kind, at most ``LEASEQUEUE["MAX_PAGE"]``.

        Raises:
            QueueNotFound: there is no such queue.
        """
        return (yield from snapshot.state(self.name, project=self.project, size=size).steps())

    aread_state = twin(read_state)

    @call
    @operation
    def list_jobs(self, state: str = "ready", *, after: str | None = None, size: int = 100) -> Steps[engine.Page]:
        """List the jobs of one state, page by page: ``ready`` ones in claim order, ``delayed`` ones the next due first.

        Args:
            state: ``ready``, ``delayed``, ``leased``, ``dead`` or ``record``.
            after: ``next`` of the page before.
            size: jobs of the page, at most ``LEASEQUEUE["MAX_PAGE"]``.

        Raises:
            QueueNotFound, InvalidOption: there is no such queue or state.
        """
        return (yield from read.list_jobs(self.name, state, project=self.project, after=after, size=size).steps())

    alist_jobs = twin(list_jobs)


def _piece(job: Ref, piece: bytes | None) -> bytes:
    if piece is None:
        raise JobNotFound(job, f"The result of job {job} expired while it was read.")
    return piece
