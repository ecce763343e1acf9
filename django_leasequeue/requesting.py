"""Request and response through a queue's handle: enqueue a job and wait for its result."""

from __future__ import annotations

from typing import Any, Unpack

from . import engine, waiting
from .engine import replies
from .engine.operation import Steps, operation
from .engine.results import INLINE_BYTES, Status, complete_steps
from .exceptions import JobCancelled
from .outcomes import failure_of, result_of
from .producing import JobOptions, Producing
from .serializers import JSON, Serializer


class Requesting(Producing):
    """Enqueueing and waiting."""

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
        """Async twin of ``enqueue_and_wait``: a waiting caller costs neither a thread nor a connection."""
        job = engine.NewJob(payload, **options)
        return await waiting.atalk(self.async_caller(), job, timeout)

    def async_caller(self) -> waiting.AsyncCaller:
        """Return how this handle's coroutines ask and wait."""
        return waiting.AsyncCaller(self)

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
        return answer_of(None if row is None else (yield from complete_steps(row)), serializer)


def answer_of(row: Status | None, serializer: Serializer) -> tuple[Any] | None:
    """Return how a job ended, as ``reply`` does."""
    if row is None:
        return None
    if not row.ended:
        return (waiting.PENDING,)
    if row.state == "failed":
        raise failure_of(row)
    if row.state == "cancelled":
        raise JobCancelled(row.key or row.seq)
    return (result_of(row, serializer),)
