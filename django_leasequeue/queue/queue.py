"""``Queue``: the Python door to one queue."""

from __future__ import annotations

from typing import Any, Unpack

from .. import engine
from ..engine.jobs import replies
from ..engine.jobs.results import INLINE_BYTES, complete_steps
from ..engine.operation import Steps, operation
from ..engine.queues.queues import QueueInfo, find, make_defined
from . import request as waiting
from .calls import call, twin
from .enqueue import JobOptions, Producing
from .lease import Leasing
from .read import Looking
from .serializers import JSON


class Queue(Producing, Leasing, Looking):
    """A cheap handle of one queue: ``emails = Queue("emails", preset="jobqueue")``.

    It may be made at import time, kept for ever, and shared by threads and event loops. Each method has a twin whose
    name begins with ``a`` for async code; both do the same. Sync methods use Django's connection and are part of the
    caller's transaction; async ones use connections of their own.
    """

    def enqueue_and_wait(
        self,
        payload: Any = None,
        *,
        timeout: float = 30.0,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Enqueue a job, wait until it has ended, and return its result.

        With a ``key`` that is taken it waits for that job; a completed one returns its remembered result at once, a
        failed one raises at once. Not inside ``transaction.atomic()``: nobody could see the job.

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
        job = engine.NewJob(payload, **options)
        return waiting.talk(waiting.Caller(self), job, timeout)

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
        job = engine.NewJob(payload, **options)
        return await waiting.atalk(waiting.AsyncCaller(self), job, timeout)

    @operation
    def request(self, job: engine.NewJob, channel: str) -> Steps[waiting.Requested]:
        """Enqueue a job whose end is told on ``channel``, or join the one that holds its key."""
        serializer = yield from self.serializer_steps()
        receipt = (yield from self.add_steps([job._replace(reply_to=channel)], serializer, results=True))[0]
        if receipt.status != "duplicate":
            return waiting.Requested(receipt, True, receipt.status == "completed")
        told = None if receipt.state == "failed" else (yield from replies.join(receipt.seq, channel).steps())
        return waiting.Requested(receipt, bool(told), told is None)

    @operation
    def reply(self, seq: int) -> Steps[tuple[Any] | None]:
        """Read how a job ended: its result in a tuple, ``(PENDING,)`` if it has not, ``None`` if nothing is known.

        Raises:
            JobFailed, MaxRetries, JobCancelled: that is how it ended.
        """
        row = yield from self.status_steps(seq, INLINE_BYTES)
        serializer = (yield from self.serializer_steps()) if row is not None and row.state == "completed" else JSON
        return waiting.answer_of(None if row is None else (yield from complete_steps(row)), serializer)

    @call
    @operation
    def create(self) -> Steps[bool]:
        """Make the queue unless it is there: as the settings declare it, else as this handle says.

        Returns:
            Whether it is new.
        """
        return (yield from make_defined(self.project, self.name, self._asked, self.using))

    acreate = twin(create)

    @call
    @operation
    def make(self) -> Steps[None]:
        """Make the queue unless it is there, as a first job would.

        Raises:
            QueueNotFound: the settings do not declare it, and ``LEASEQUEUE["AUTO_CREATE"]`` is off.
        """
        yield from self.make_steps()

    amake = twin(make)

    @call
    @operation
    def info(self) -> Steps[QueueInfo | None]:
        """Return the queue as it is in the database, ``None`` if it is not there."""
        return (yield from find(self.project, self.name))

    ainfo = twin(info)

    @call
    @operation
    def pause(self, paused: bool = True) -> Steps[None]:
        """Pause the queue (claims get nothing; all else goes on), or resume it with ``pause(False)``.

        Raises:
            QueueNotFound: there is no such queue.
        """
        yield from engine.pause(self.name, project=self.project, paused=paused).steps()

    apause = twin(pause)

    @call
    @operation
    def purge(self, *states: str) -> Steps[int]:
        """Remove all jobs of these states (ready and delayed ones by default), 1,000 with each statement.

        Returns:
            How many went.

        Raises:
            QueueNotFound, InvalidOption: there is no such queue or state.
        """
        gone = 0
        while True:
            some = yield from engine.purge(
                self.name, states=states or ("ready", "delayed"), project=self.project
            ).steps()
            gone += some
            if not some:
                return gone

    apurge = twin(purge)
