"""``Queue``: the Python door to one queue."""

from __future__ import annotations

from typing import Any, Unpack

from .. import engine
from ..engine.operation import Steps
from ..engine.queues.queues import QueueInfo, find, make_defined
from ..twins import sync, twin
from . import request
from .base import asked, make
from .enqueue import JobOptions, ProducerMethods
from .lease import LeaseMethods
from .read import ReadMethods


class Queue(ProducerMethods, LeaseMethods, ReadMethods):
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
        return request.talk(request.Caller(self), job, timeout)

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
        return await request.atalk(request.AsyncCaller(self), job, timeout)

    @sync
    def create(self) -> Steps[bool]:
        """Make the queue unless it is there: as the settings declare it, else as this handle says.

        Returns:
            Whether it is new.
        """
        return (yield from make_defined(self.project, self.name, asked(self), self.using))

    acreate = twin(create)

    @sync
    def make(self) -> Steps[None]:
        """Make the queue unless it is there, as a first job would.

        Raises:
            QueueNotFound: the settings do not declare it, and ``LEASEQUEUE["AUTO_CREATE"]`` is off.
        """
        yield from make(self)

    amake = twin(make)

    @sync
    def info(self) -> Steps[QueueInfo | None]:
        """Return the queue as it is in the database, ``None`` if it is not there."""
        return (yield from find(self.project, self.name))

    ainfo = twin(info)

    @sync
    def pause(self, paused: bool = True) -> Steps[None]:
        """Pause the queue until ``resume()``: claims get nothing, all else goes on. ``pause(False)`` is ``resume()``.

        Raises:
            QueueNotFound: there is no such queue.
        """
        yield from engine.pause(self.name, project=self.project, paused=paused).steps()

    apause = twin(pause)

    @sync
    def resume(self) -> Steps[None]:
        """End a pause.

        Raises:
            QueueNotFound: there is no such queue.
        """
        yield from engine.pause(self.name, project=self.project, paused=False).steps()

    aresume = twin(resume)

    @sync
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
