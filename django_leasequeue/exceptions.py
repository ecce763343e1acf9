"""The errors. Everything that this app raises on purpose is a ``LeaseQueueError``."""

from __future__ import annotations

from typing import Any


class LeaseQueueError(Exception):
    """Base of all errors of django_leasequeue."""


class InvalidOption(LeaseQueueError, ValueError):
    """An argument or an option has a value that is not allowed; the message says which are."""


class PayloadTooLarge(InvalidOption):
    """A payload or a result is larger than the settings allow."""


class BatchTooLarge(InvalidOption):
    """A call names more jobs than one call may."""


class QueueNotFound(LeaseQueueError):
    """There is no such queue."""

    def __init__(self, queue: str, project: str = "") -> None:
        self.queue = queue
        self.project = project
        where = f" in project {project!r}" if project else ""
        super().__init__(
            f"There is no queue {queue!r}{where}. Declare it in LEASEQUEUE['QUEUES'] and run migrate, or let its first"
            " job make it (LEASEQUEUE['AUTO_CREATE'] = True)."
        )


class NotAQueue(LeaseQueueError):
    """The topic is a log: its records are read, never leased."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(f"{queue!r} is a log, not a queue: its records can be read but not claimed.")


class LogTruncated(LeaseQueueError):
    """A reader of a topic stands behind records that the server may have lost: a standby took over that was behind.

    Args:
        queue: the topic.
        after: where the reader stands.
        kept: the number up to which every record is still there: read on from it; 0 where that is not known.
        timeline: the server's timeline now.
    """

    def __init__(self, queue: str, after: int, kept: int, timeline: int) -> None:
        self.queue, self.after, self.kept, self.timeline = queue, after, kept, timeline
        super().__init__(
            f"a failover or a restore may have lost records of {queue!r} that were read up to number {after}; the"
            f" server's timeline is {timeline} now. Every record up to number {kept} is kept: read on from there, or"
            " set reset. Later ones may come again, and others under the numbers of lost ones."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.queue, self.after, self.kept, self.timeline)


class QueueConflict(LeaseQueueError):
    """The queue exists with a property that cannot change."""


class QueueFull(LeaseQueueError):
    """The queue is at its cap and rejects new jobs (option ``discard``)."""


class WrittenByEngine(LeaseQueueError, TypeError):
    """The rows of this model are written by the engine: no ``create``, ``save``, ``update`` or ``delete``."""

    def __init__(self, model: str, call: str, instead: str = "") -> None:
        use = f" Use {instead}." if instead else ""
        super().__init__(f"{model} is read only ({call}): the engine writes its rows.{use}")


class JobNotFound(LeaseQueueError):
    """There is no such job, or it is not held by the caller any more."""

    def __init__(self, job_id: object, message: str | None = None) -> None:
        self.job_id = job_id
        super().__init__(message or f"Job {job_id} is not there: it was finished, cancelled or has expired.")


class LeaseLost(JobNotFound):
    """The caller's lease is over: it expired, or another worker holds the job now."""

    def __init__(self, job_id: object) -> None:
        super().__init__(job_id, f"The lease of job {job_id} is lost: it expired or another worker holds the job now.")


class StorageError(LeaseQueueError):
    """The database could not be reached or broke off; ``cause`` is its own error."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        self.cause = cause
        super().__init__(message)


class LargeStorageError(LeaseQueueError):
    """The storage of large payloads (``LEASEQUEUE["LARGE"]``) could not be reached, or refused; ``cause`` is its error.

    Nothing was enqueued or ended. Try again later.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        self.cause = cause
        super().__init__(message)


class NotBegun(LeaseQueueError):
    """What a leased job needs cannot be reached now: the worker gives the job back; the delivery does not count."""

    #: Milliseconds until the job is tried again.
    back_after_ms = 1_000


class PayloadAway(LargeStorageError, NotBegun):
    """The payload of a leased job cannot be read now; see ``NotBegun``."""

    back_after_ms = 10_000


class LargePayloadLost(LeaseQueueError):
    """A large payload or result is not in its storage any more, or not what was stored there (its SHA-256 differs)."""


class QueueClosed(LeaseQueueError):
    """A ``BufferedQueue`` or a ``Consumer`` was used before it was started or after it was stopped."""


class SerializerError(LeaseQueueError, ValueError):
    """A payload or a result cannot be written or read with the queue's serializer."""


class JobFailed(LeaseQueueError):
    """The job ended with an error.

    Args:
        job_id: its key, or its number.
        error_type: the class of the last error (dotted), or a word such as ``LEASE_EXPIRED``.
        error: the last error's message.
        deliveries: how often the job was claimed.
        errors: the failed attempts, oldest first: dicts of ``at``, ``node``, ``type``, ``message``, ``traceback``.
    """

    def __init__(
        self,
        job_id: object,
        error_type: str | None = None,
        error: str | None = None,
        deliveries: int = 0,
        errors: list[dict[str, Any]] | None = None,
    ) -> None:
        self.job_id = job_id
        self.error_type = error_type
        self.error = error
        self.deliveries = deliveries
        self.errors: list[dict[str, Any]] = errors or []
        what = ": ".join(part for part in (error_type, error) if part) or "nothing is known of the error"
        super().__init__(f"{self._says.format(job_id=job_id, deliveries=deliveries)}: {what}")

    _says = "Job {job_id} failed"

    @property
    def traceback(self) -> str:
        """The last error's traceback as text, as far as it was kept."""
        return str(self.errors[-1].get("traceback") or "") if self.errors else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id, self.error_type, self.error, self.deliveries, self.errors)


class MaxRetries(JobFailed):
    """The job used up its deliveries; what its last attempt said is in ``error_type``, ``error`` and ``traceback``."""

    _says = "Job {job_id} failed {deliveries} times, as often as it may"


class JobCancelled(LeaseQueueError):
    """The job was cancelled or removed while a caller waited for it."""

    def __init__(self, job_id: object, message: str | None = None) -> None:
        self.job_id = job_id
        super().__init__(message or f"Job {job_id} was cancelled before it started.")


class WaitTimeout(LeaseQueueError, TimeoutError):
    """The job did not end in the time that the caller waits. The job goes on; ask for its result later."""

    def __init__(self, job_id: object, seconds: float) -> None:
        self.job_id = job_id
        self.seconds = seconds
        super().__init__(f"Job {job_id} was not finished within {seconds:g} s. It goes on: ask for its result later.")


class OperationActive(LeaseQueueError):
    """A bulk operation of the same kind is active on the queue; ``operation`` is its number."""

    def __init__(self, kind: str, operation: int) -> None:
        self.kind = kind
        self.operation = operation
        super().__init__(
            f"Operation {operation} ({kind}) is active on the same dead letters: let it end, or cancel it first."
        )


class EventTimeout(LeaseQueueError, TimeoutError):
    """The event that a task waited for did not come in time; a later delivery of the task hears the same."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"The event {name!r} did not come in the time that the task waits for it.")
