"""`Queue`: the Python door to one queue, with its methods that read and administer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, Unpack

from .. import engine, twins
from ..engine.jobs import read, results
from ..engine.jobs.results import INLINE_BYTES, SLICE_BYTES
from ..engine.operation import Statements, operation
from ..engine.queues import stats
from ..engine.queues.queues import QueueInfo, find, make_defined
from ..exceptions import JobNotFound
from ..notify.alarms import Alarm, AsyncAlarm
from ..twins import Give, aiterate, either, iterate, sync, twin
from . import request
from .base import Handle, Ref, arun, asked, make, ref, run, serializer_of, status_of
from .enqueue import JobOptions, ProducerMethods, tagged
from .lease import LeaseMethods
from .outcomes import JobStatus, result_of


class Queue(ProducerMethods, LeaseMethods):
    """A cheap handle of one queue: ``emails = Queue("emails", preset="jobqueue")``.

    It may be made at import time, kept for ever, and shared by threads and event loops. Each method has a twin whose
    name begins with ``a`` for async code; both do the same. Sync methods use Django's connection and are part of the
    caller's transaction; async ones use connections of their own.
    """

    @sync
    def get_status(self, job: Ref) -> Statements[JobStatus | None]:
        """Return what is known of a job, without its result; ``None`` if nothing is (any more).

        Args:
            job: its key or number. A key stands for the last job that was enqueued with it.
        """
        row = yield from status_of(self, job)
        return None if row is None else JobStatus(row)

    aget_status = twin(get_status)

    @sync
    def get_result(self, job: Ref, default: Any = None) -> Statements[Any]:
        """Return the result of a completed job, ``default`` if there is none (yet, or any more).

        A job may have completed with ``None``: ``get_status`` tells, or a ``default`` of your own.

        Args:
            job: its key or number.
            default: what is returned when there is none.

        Raises:
            SerializerError: it cannot be read with the queue's serializer.
        """
        row = yield from status_of(self, job, INLINE_BYTES)
        if row is None or row.state != "completed":
            return default
        serializer = yield from serializer_of(self)
        return result_of((yield from results.complete_steps(row)), serializer)

    aget_result = twin(get_result)

    @sync
    def update_result_ttl(self, job: Ref, ttl_ms: int) -> Statements[bool]:
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
        changed = yield from results.update_result_ttl(self.name, ttl_ms, key=key, seq=seq, project=self.project)
        return changed is not None

    aupdate_result_ttl = twin(update_result_ttl)

    def stream_result(self, job: Ref, chunk_size: int = SLICE_BYTES) -> Iterator[bytes]:
        """Read a result as bytes, piece by piece: as its serializer wrote it, JSON as UTF-8 text.

        A binary result is never in memory as a whole, unless it stands in a storage (``LARGE``). A JSON one is: it
        comes as one piece.

        Args:
            job: key or number of a completed job.
            chunk_size: bytes of a piece.

        Raises:
            JobNotFound: there is no result; or it expired meanwhile.
        """
        return iterate(_pieces(self, job, chunk_size))

    def astream_result(self, job: Ref, chunk_size: int = SLICE_BYTES) -> AsyncIterator[bytes]:
        """Async twin of ``stream_result``."""
        return aiterate(_pieces(self, job, chunk_size))

    @sync
    def counts(self) -> Statements[engine.Counts]:
        """Return the queue's figures: ready, delayed, in flight, dead; exact up to ``LEASEQUEUE["COUNT_CAP"]``.

        Raises:
            QueueNotFound: there is no such queue.
        """
        return (yield from stats.counts(self.name, project=self.project))

    acounts = twin(counts)

    @sync
    def read_state(self, size: int = 100) -> Statements[engine.QueueState]:
        """Return a cheap snapshot of one instant: what is next, in claim order, what is in progress, and a version.

        Args:
            size: jobs of each kind, at most ``LEASEQUEUE["MAX_PAGE"]``.

        Raises:
            QueueNotFound: there is no such queue.
        """
        return (yield from stats.state(self.name, project=self.project, size=size))

    aread_state = twin(read_state)

    @sync
    def list_jobs(self, state: str = "ready", *, after: str | None = None, size: int = 100) -> Statements[engine.Page]:
        """List the jobs of one state, page by page: ``ready`` ones in claim order, ``delayed`` ones the next due first.

        Args:
            state: ``ready``, ``delayed``, ``leased``, ``dead`` or ``record``.
            after: ``next`` of the page before.
            size: jobs of the page, at most ``LEASEQUEUE["MAX_PAGE"]``.

        Raises:
            QueueNotFound, InvalidOption: there is no such queue or state.
        """
        return (yield from read.list_jobs(self.name, state, project=self.project, after=after, size=size))

    alist_jobs = twin(list_jobs)

    def enqueue_and_wait(self, payload: Any = None, *, timeout: float = 30.0, **options: Unpack[JobOptions]) -> Any:
        """Enqueue a job, wait until it has ended, and return its result.

        With a ``key`` that is taken it waits for that job; a completed one returns its remembered result at once, a
        failed one raises at once. Not inside ``transaction.atomic()``: no worker could see the job.

        Args:
            payload: as for ``enqueue``.
            timeout: seconds, at most a day.
            options: as for ``enqueue``.

        Returns:
            The result; ``None`` is one.

        Raises:
            WaitTimeout: it was not finished in time; it goes on, and its result can be read later.
            MaxRetries: its deliveries are used up. ``JobFailed``: its handler gave up.
            JobCancelled: it was cancelled or removed.
            InvalidOption, PayloadTooLarge, SerializerError, QueueNotFound: as ``enqueue``; nothing was added.
        """
        job = tagged(engine.NewJob(payload, **options))
        return twins.run(request.conversation(request.Caller(self, Alarm), job, timeout))

    async def aenqueue_and_wait(
        self,
        payload: Any = None,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109  (the same call as the thread's)
        **options: Unpack[JobOptions],
    ) -> Any:
        """Async twin of ``enqueue_and_wait``.

        A waiting caller costs neither a thread nor a connection; requests and replies of many callers share statements.
        """
        job = tagged(engine.NewJob(payload, **options))
        return await twins.arun(request.conversation(request.Caller(self, AsyncAlarm), job, timeout))

    @sync
    def create(self) -> Statements[bool]:
        """Make the queue unless it is there: as the settings declare it, else as this handle says.

        Returns:
            Whether it is new.
        """
        return (yield from make_defined(self.project, self.name, asked(self), self.using))

    acreate = twin(create)

    @sync
    def make(self) -> Statements[None]:
        """Make the queue unless it is there, as a first job would.

        Raises:
            QueueNotFound: the settings do not declare it, and ``LEASEQUEUE["AUTO_CREATE"]`` is off.
        """
        yield from make(self)

    amake = twin(make)

    @sync
    def info(self) -> Statements[QueueInfo | None]:
        """Return the queue as it is in the database, ``None`` if it is not there."""
        return (yield from find(self.project, self.name))

    ainfo = twin(info)

    @sync
    def pause(self, paused: bool = True) -> Statements[None]:
        """Pause the queue until ``resume()``: claims get nothing, all else goes on. ``pause(False)`` is ``resume()``.

        Raises:
            QueueNotFound: there is no such queue.
        """
        yield from engine.pause(self.name, project=self.project, paused=paused)

    apause = twin(pause)

    @sync
    def resume(self) -> Statements[None]:
        """End a pause.

        Raises:
            QueueNotFound: there is no such queue.
        """
        yield from engine.pause(self.name, project=self.project, paused=False)

    aresume = twin(resume)

    @sync
    def purge(self, *states: str) -> Statements[int]:
        """Remove all jobs of these states (ready and delayed ones by default), 1,000 with each statement.

        Returns:
            How many went.

        Raises:
            QueueNotFound, InvalidOption: there is no such queue or state.
        """
        gone = 0
        while True:
            some = yield from engine.purge(self.name, states=states or ("ready", "delayed"), project=self.project)
            gone += some
            if not some:
                return gone

    apurge = twin(purge)


def _pieces(queue: Handle, job: Ref, chunk_size: int) -> Generator[Any, Any, None]:
    found: results.Status = yield either(run, arun, _result_row(queue, job), queue.using)
    if found.body_size is None:
        yield Give((found.result_json or "null").encode())
        return
    for start in range(0, found.body_size, chunk_size):
        if found.result_body is not None:  # it stands in a storage, and came as a whole
            piece = found.result_body[start : start + chunk_size]
        else:
            piece = yield either(run, arun, results.result_slice(found.seq, start, chunk_size), queue.using)
        if piece is None:
            raise JobNotFound(job, f"The result of job {job} expired while it was read.")
        yield Give(piece)


@operation
def _result_row(queue: Handle, job: Ref) -> Statements[results.Status]:
    row = yield from status_of(queue, job, 0)
    if row is None or row.state != "completed":
        raise JobNotFound(job, f"Job {job} has no result (yet, or any more).")
    if row.body_size is None and row.result_size is not None:
        row = yield from results.complete_steps(row)
    return row
