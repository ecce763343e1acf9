"""The errors. Everything that this app raises on purpose is a ``LeaseQueueError``."""

from __future__ import annotations

from typing import Any


class LeaseQueueError(Exception):
    """Base of all errors of django_leasequeue."""


class DjangoLeasequeueDeprecation1xWarning(DeprecationWarning):
    """A public name is used that version 1 removes; the message names its successor."""


class InvalidOption(LeaseQueueError, ValueError):
    """An argument or an option has an invalid value; the message says which values are valid."""


class PayloadTooLarge(InvalidOption):
    """A payload or a result is larger than the settings allow."""


class NotSerializable(InvalidOption):
    """A task, a handler or a step returned a value that is not JSON: the job fails at once, without a retry."""


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
    """A reader of a topic is past records that the server may have lost, because a lagging standby took over.

    Args:
        queue: the topic.
        after: the reader's position.
        kept: the number up to which every record is kept: read on from it; 0 if unknown.
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


class QueueBusy(LeaseQueueError):
    """The queue was not deleted: open transactions may be adding jobs to it. Try again when they have ended."""

    def __init__(self, queue: str, why: str) -> None:
        self.queue, self.why = queue, why
        super().__init__(f"{queue!r} was not deleted, as it may be about to get jobs: {why}. Try again.")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.queue, self.why)


class QueueFull(LeaseQueueError):
    """The queue is at its cap and rejects new jobs (option ``discard``)."""


class WrittenByEngine(LeaseQueueError, TypeError):
    """Only the engine writes this model: ``create``, ``save``, ``update`` and ``delete`` are refused."""

    def __init__(self, model: str, call: str, instead: str = "") -> None:
        use = f" Use {instead}." if instead else ""
        super().__init__(f"{model} is read only ({call}): the engine writes its rows.{use}")


class JobNotFound(LeaseQueueError):
    """There is no such job, or the caller no longer holds it."""

    def __init__(self, job_id: object, message: str | None = None) -> None:
        self.job_id = job_id
        super().__init__(message or f"Job {job_id} is not there: it was finished, cancelled or has expired.")


class LeaseLost(JobNotFound):
    """The caller's lease is over: it expired, or another worker holds the job now."""

    def __init__(self, job_id: object) -> None:
        super().__init__(job_id, f"The lease of job {job_id} is lost: it expired or another worker holds the job now.")


class StorageError(LeaseQueueError):
    """The database could not be reached, or the connection was lost; ``cause`` is its own error."""

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
    """A leased job cannot begin now: the worker gives it back, and the delivery does not count."""

    #: Milliseconds until the job is tried again.
    back_after_ms = 1_000
    #: Whether it is in the log already.
    is_logged = False


class TransactionLeftOpen(LeaseQueueError):
    """A task returned with an open transaction, which is rolled back: the attempt failed."""

    def __init__(self, left: str) -> None:
        self.left = left
        super().__init__(
            f"The task returned and left {left}: it is rolled back. Leave every atomic() before the end, also one in a"
            " generator (close it), and COMMIT what you BEGIN."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.left,)


class PayloadAway(LargeStorageError, NotBegun):
    """The payload of a leased job cannot be read now; see ``NotBegun``."""

    back_after_ms = 10_000


class LargePayloadLost(LeaseQueueError):
    """A large payload or result is missing in its storage, or was changed there (its SHA-256 differs)."""


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
        what = ": ".join(part for part in (error_type, error) if part) or "the error is unknown"
        super().__init__(f"{self._says.format(job_id=job_id, deliveries=deliveries)}: {what}")

    _says = "Job {job_id} failed"

    @property
    def traceback(self) -> str:
        """The last error's traceback as text, as far as it was kept."""
        return str(self.errors[-1].get("traceback") or "") if self.errors else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id, self.error_type, self.error, self.deliveries, self.errors)


class MaxRetries(JobFailed):
    """The job used up its deliveries; ``error_type``, ``error`` and ``traceback`` are of its last attempt."""

    _says = "Job {job_id} failed in all its {deliveries} attempts"


class JobCancelled(LeaseQueueError):
    """The job was cancelled or removed while a caller waited for it."""

    def __init__(self, job_id: object, message: str | None = None) -> None:
        self.job_id = job_id
        super().__init__(message or f"Job {job_id} was cancelled before it started.")


class WaitTimeout(LeaseQueueError, TimeoutError):
    """The job did not end before the caller's timeout. It continues; ask for its result later."""

    def __init__(self, job_id: object, seconds: float) -> None:
        self.job_id = job_id
        self.seconds = seconds
        super().__init__(f"Job {job_id} was not finished within {seconds:g} s. It continues: ask for its result later.")


class OperationActive(LeaseQueueError):
    """A bulk operation of the same kind is active on the queue; ``operation`` is its number."""

    def __init__(self, kind: str, operation: int) -> None:
        self.kind = kind
        self.operation = operation
        super().__init__(
            f"Operation {operation} ({kind}) is active on the same dead letters: let it end, resume"
            " it if it is paused, or cancel it first."
        )


class EventTimeout(LeaseQueueError, TimeoutError):
    """The event that a task waited for did not come in time; later deliveries raise this as well."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"The event {name!r} did not come in time.")
