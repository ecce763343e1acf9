"""The producer side of ``compat.jobqueue``: enqueue, wait, status, cancel."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from .. import engine
from ..engine import codec
from ..engine.jobs import results
from ..engine.jobs.results import INLINE_BYTES, Status, complete_steps
from ..engine.limits import MAX_SPAN_MS, check_integer
from ..engine.operation import Statements, announce
from ..queue import queue as queues
from ..queue.base import OnDatabase, serializer_of, status_of
from ..queue.enqueue import CancelStatus, add_jobs
from ..queue.outcomes import result_of
from ..twins import body_of, sync, twin
from .jobqueue_execution import TTL

#: How often a job of the same id may be added and fail while one call adds it.
TRIES = 5
#: The most runs of a job.
MAX_RUNS = 2**31 - 1


class Serde(Protocol):
    """A way to write payloads or results."""

    def serialize(self, value: Any, /) -> bytes: ...

    def deserialize(self, buffer: bytes, /) -> Any: ...


class JsonSerde:
    """JSON as bytes: the format of a queue without a serde."""

    def serialize(self, value: Any, /) -> bytes:
        return codec.dumps(value).encode()

    def deserialize(self, buffer: bytes, /) -> Any:
        return codec.loads(buffer.decode())


def create_json_serde() -> JsonSerde:
    """Return a ``JsonSerde``."""
    return JsonSerde()


class EnqueueResult(NamedTuple):
    """The outcome of an enqueue: ``queued``, ``duplicate`` with the existing state, ``completed`` with the result."""

    status: str
    existing_state: str | None = None
    result: Any = None


class CancelResult(NamedTuple):
    """The state that ``cancel`` found: ``cancelled``, ``processing``, ``completed`` or ``not_found``."""

    status: str


class UpdateResultTTLResult(NamedTuple):
    """The outcome of ``update_result_ttl``: ``updated``, ``not_found`` or ``not_terminal``."""

    status: str


class SerializedError(NamedTuple):
    """The last error of a job.

    ``code`` is the class of the exception, or a word such as ``LEASE_EXPIRED``; ``stack`` is its traceback as text.
    """

    message: str
    code: str | None = None
    stack: str | None = None

    def __str__(self) -> str:
        return self.message


class MessageStatus(NamedTuple):
    """The state of a job (``queued``, ``processing``, ``failing``, ``completed`` or ``failed``) and its runs so far.

    ``result`` is that of a completed job, ``error`` that of one that is failing or has failed.
    """

    id: str
    state: str
    #: When it was enqueued (aware, UTC).
    created_at: datetime
    attempts: int
    result: Any = None
    error: SerializedError | None = None


def runs(retries: int | None, what: str) -> int | None:
    """Return the number of runs, ``None`` if it is not given; 0 and 1 are one run."""
    return None if retries is None else max(1, check_integer(retries, what, 0, MAX_RUNS))


class Producer(OnDatabase):
    """The producing half of a queue."""

    def __init__(
        self,
        storage: queues.Queue,
        payload_serde: Serde | None,
        result_serde: Serde | None,
        max_retries: int | None,
        result_ttl: int | None,
    ) -> None:
        self.queue = storage
        self._payload_serde, self._result_serde = payload_serde, result_serde
        self._runs, self._result_ttl = runs(max_retries, "max_retries"), result_ttl

    @property
    def using(self) -> str:
        """Alias of the database that holds the queue."""
        return self.queue.using

    @sync
    def enqueue(
        self, id: str, payload: Any = None, *, max_attempts: int | None = None, result_ttl: int | None = None
    ) -> Statements[EnqueueResult]:
        """Add a job unless its id is taken. A failed job of that id is forgotten and enqueued again.

        An ``id`` never runs twice at once, nor again while its result is kept: ``result_ttl`` milliseconds, as the
        first accepted enqueue says. ``payload`` is any JSON, or a value for the serde. ``max_attempts`` is the number
        of runs; 0 and 1 are one run. Return ``queued``, ``duplicate`` with the existing state, or ``completed`` with
        the result.
        """
        job = engine.NewJob(self._written(payload), **self._options(id, max_attempts, result_ttl))
        serializer = yield from serializer_of(self.queue)
        receipt = (yield from add_jobs(self.queue, [job], serializer, results=True))[0]
        for _ in range(TRIES):
            if receipt.status != "duplicate" or receipt.state not in ("failed", "dead"):
                break
            yield from self._freed(id)
            receipt = (yield from add_jobs(self.queue, [job], serializer, results=True))[0]
        if receipt.status == "completed":
            return EnqueueResult("completed", None, self._result(receipt.result))
        return EnqueueResult(receipt.status, receipt.state if receipt.status == "duplicate" else None)

    aenqueue = twin(enqueue)

    def _freed(self, id: str) -> Statements[None]:
        row = yield from status_of(self.queue, id)
        if row is not None:
            yield from self._forgotten(row)

    _free = sync(_freed)
    _afree = twin(_free)

    def enqueue_and_wait(
        self,
        id: str,
        payload: Any = None,
        *,
        timeout: float = 30.0,
        max_attempts: int | None = None,
        result_ttl: int | None = None,
    ) -> Any:
        """Add a job, or join the one with its id, and wait for its result. A failed job runs again.

        ``TimeoutError``: not within ``timeout`` seconds; the job continues. ``MaxRetriesError``: all its runs failed.
        ``JobFailedError``: its handler gave up. ``JobCancelledError``: it was cancelled.
        """
        options = self._options(id, max_attempts, result_ttl)
        self._free(id)
        return self._result(self.queue.enqueue_and_wait(self._written(payload), timeout=timeout, **options))

    async def aenqueue_and_wait(
        self,
        id: str,
        payload: Any = None,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109  (the same call as the thread's)
        max_attempts: int | None = None,
        result_ttl: int | None = None,
    ) -> Any:
        """Async twin of ``enqueue_and_wait``."""
        options = self._options(id, max_attempts, result_ttl)
        await self._afree(id)
        return self._result(await self.queue.aenqueue_and_wait(self._written(payload), timeout=timeout, **options))

    @sync
    def cancel(self, id: str) -> Statements[CancelResult]:
        """Remove a job that does not run, or forget a failed one; its id is free again at once.

        Return ``cancelled``, ``processing``, ``completed`` or ``not_found``.
        """
        answer: CancelStatus = yield from body_of(queues.Queue.cancel)(self.queue, id)
        if answer is CancelStatus.FAILED:
            row = yield from status_of(self.queue, id)
            if row is None:
                answer = CancelStatus.NOT_FOUND
            elif (yield from self._forgotten(row)):
                about = {"seq": row.seq, "key": row.key, "name": row.name}
                yield from announce("cancelled", queue=self.queue.name, project=self.queue.project, **about)
                answer = CancelStatus.CANCELLED
        return CancelResult(str(answer))

    acancel = twin(cancel)

    def _forgotten(self, row: Status) -> Statements[bool]:
        """Forget a job if it has failed for good; return whether it had."""
        if row.state != "failed":
            return False
        return (yield from results.forget(self.queue.name, row, project=self.queue.project))

    @sync
    def get_status(self, id: str) -> Statements[MessageStatus | None]:
        """Return the state of a job with its result or error; ``None``: it is unknown or forgotten."""
        row = yield from status_of(self.queue, id, INLINE_BYTES)
        if row is None:
            return None
        result = error = None
        if row.state == "completed":
            serializer = yield from serializer_of(self.queue)
            result = self._result(result_of((yield from complete_steps(row)), serializer))
        if row.state in ("failing", "failed"):
            traceback = row.errors[-1].get("traceback") if row.errors else None
            error = SerializedError(row.error or "", row.error_type, traceback or None)
        return MessageStatus(id, row.state, row.created_at.astimezone(UTC), row.deliveries, result, error)

    aget_status = twin(get_status)

    @sync
    def get_result(self, id: str) -> Statements[Any]:
        """Return the result of a completed job; ``None``: not yet, or no longer."""
        return self._result((yield from body_of(queues.Queue.get_result)(self.queue, id)))

    aget_result = twin(get_result)

    @sync
    def update_result_ttl(self, id: str, ttl: int) -> Statements[UpdateResultTTLResult]:
        """Keep the outcome of a completed or failed job for ``ttl`` milliseconds (1 or more) from now.

        Return ``updated``, ``not_found``, or ``not_terminal`` for a job that has not ended.
        """
        check_integer(ttl, "the result's time to live in milliseconds", 1, MAX_SPAN_MS)
        row = yield from status_of(self.queue, id)
        if row is None:
            return UpdateResultTTLResult("not_found")
        if not row.ended:
            return UpdateResultTTLResult("not_terminal")
        name, project = self.queue.name, self.queue.project
        changed = yield from results.update_result_ttl(name, ttl, seq=row.seq, project=project)
        return UpdateResultTTLResult("not_found" if changed is None else "updated")

    aupdate_result_ttl = twin(update_result_ttl)

    def _options(self, id: str, max_attempts: int | None, result_ttl: int | None) -> Any:
        ttl = self._result_ttl if result_ttl is None else result_ttl
        return {
            "key": id,
            "max_deliveries": self._runs if max_attempts is None else runs(max_attempts, "max_attempts"),
            "result_ttl_ms": ttl,
            "meta": None if ttl is None else {TTL: ttl},
        }

    def _written(self, payload: Any) -> Any:
        return payload if self._payload_serde is None else self._payload_serde.serialize(payload)

    def _payload(self, value: Any) -> Any:
        return value if self._payload_serde is None else self._payload_serde.deserialize(value)

    def _result(self, value: Any) -> Any:
        """Return a result as its serde reads it; ``None`` where there is none."""
        return value if self._result_serde is None or value is None else self._result_serde.deserialize(value)
