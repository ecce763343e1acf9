"""Immutable values that callers get: the claimed job, the answer to an enqueue, the status of a job, its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ..engine import codec
from ..engine.jobs.results import Reply, Status
from ..engine.leases.holders import surely_until
from ..engine.rows import LeasedJob
from ..exceptions import JobFailed, MaxRetries
from .serializers import JSON, Serializer

T = TypeVar("T")

_UNREAD = object()


class Of(Generic[T]):
    """A property that only passes on what another object has: ``Of[type](function, "what it is")``."""

    if TYPE_CHECKING:

        def __init__(self, read: Callable[[Any], T], doc: str) -> None: ...

        def __get__(self, item: object, kind: type | None = None, /) -> T: ...

    else:

        def __new__(cls, read, doc):
            return property(read, doc=doc)


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """One delivery of a job, from a claim: who has it holds its lease, until its ``deadline``.

    It never changes: ``extend`` returns a new one with the new deadline.
    """

    #: The engine's row: everything else is read from it.
    lease: LeasedJob
    #: The holder.
    node: str
    serializer: Serializer = field(default=JSON, repr=False, compare=False)
    #: When the claim was asked for, by this process's clock (monotonic): ``claimed_at`` is not before it.
    asked: float = field(default_factory=time.monotonic, repr=False, compare=False)
    _payload: Any = field(default=_UNREAD, init=False, repr=False, compare=False)

    seq = Of[int](lambda job: job.lease.seq, "The job's number.")
    key = Of[str | None](lambda job: job.lease.key, "The id that the producer gave it, ``None`` if none.")
    id = Of[str](lambda job: job.lease.key or str(job.lease.seq), "The key, or else the number as text.")
    queue = Of[str](lambda job: job.lease.queue, "The name of its queue.")
    name = Of[str | None](lambda job: job.lease.name, "The kind of job: what the producer gave as ``name``.")
    tag = Of[str | None](lambda job: job.lease.tag, "The producer's tag.")

    @property
    def payload(self) -> Any:
        """The value that was enqueued.

        Raises:
            SerializerError: it cannot be read with the queue's serializer.
        """
        if self._payload is _UNREAD:
            lease = self.lease.loaded()
            value = self.serializer.read(lease.data, lease.body, f"the payload of job {self.id}")
            object.__setattr__(self, "_payload", value)
        return self._payload

    meta = Of[Any](lambda job: job.lease.meta, "The producer's metadata.")
    token = Of[int](lambda job: job.lease.token, "The token of the claim: the proof that the lease is held.")
    lease_id = Of[str](lambda job: job.lease.lease_id, "The lease as the HTTP API names it: token and number as text.")
    deliveries = Of[int](lambda job: job.lease.deliveries, "The number of claims of the job, this one included.")
    max_deliveries = Of[int](lambda job: job.lease.max_deliveries, "The claims that it may have; 0 for no limit.")
    created_at = Of[datetime](lambda job: job.lease.created_at, "The time of its enqueue (aware, UTC).")
    claimed_at = Of[datetime](lambda job: job.lease.claimed_at, "The time at which this lease began (aware, UTC).")
    deadline = Of[datetime](lambda job: job.lease.deadline, "When this lease ends unless extended (aware, UTC).")

    @property
    def good_until(self) -> float:
        """The monotonic time of this process until which the lease is surely held: a little before the deadline."""
        return surely_until(self.asked, self.lease.deadline_epoch - self.lease.claimed_epoch)

    def extended(self, deadline: datetime) -> ClaimedJob:
        """Return the job with a new deadline."""
        lease = self.lease._replace(deadline_epoch=deadline.timestamp())
        return ClaimedJob(lease, self.node, self.serializer, self.asked)

    progress = Of[Any](lambda job: job.lease.progress, "The last progress report of an earlier attempt.")
    errors = Of[list[dict[str, Any]]](lambda job: job.lease.errors, "The failed attempts, oldest first, at most 20.")

    def __str__(self) -> str:
        return f"job {self.id} of {self.queue}"


class Receipt(NamedTuple):
    """The answer to an enqueue.

    ``status`` is ``queued`` for a new job; ``duplicate`` when its key is taken by a job that is in ``state``;
    ``completed`` when that job is done and its result is remembered: it is in ``result``.
    """

    seq: int
    key: str | None
    status: str
    state: str
    result: Any = None
    created_at: datetime | None = None


class Finished(NamedTuple):
    """The end of a job by its holder: ``completed`` or ``failed``.

    ``repeated`` says that it had been ended before, by the same holder in the same way: ``result`` is then the stored
    one.
    """

    seq: int
    key: str | None
    state: str
    result: Any = None
    repeated: bool = False


def utc(value: datetime | None) -> datetime | None:
    """Return a time in UTC."""
    return None if value is None else value.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job at one instant.

    ``state`` is ``queued``, ``processing``, ``failing`` (between two tries, after an error), ``completed``, ``failed``,
    or ``cancelled``.
    """

    #: The engine's row: everything else is read from it.
    row: Status

    seq = Of[int](lambda job: job.row.seq, "The job's number.")
    key = Of[str | None](lambda job: job.row.key, "The id that the producer gave it.")
    id = Of[str](lambda job: job.row.key or str(job.row.seq), "The key, or else the number as text.")
    name = Of[str | None](lambda job: job.row.name, "The kind of job: what the producer gave as ``name``.")
    state = Of[str](lambda job: job.row.state, "The job's state.")
    ended = Of[bool](lambda job: job.row.ended, "Whether it is done, failed or dead.")
    deliveries = Of[int](lambda job: job.row.deliveries, "The number of claims so far.")
    node = Of[str | None](lambda job: job.row.node, "The node that holds it, or held it last.")
    created_at = Of[datetime](lambda job: job.row.created_at.astimezone(UTC), "The time of its enqueue (aware, UTC).")
    claimed_at = Of[datetime | None](lambda job: utc(job.row.claimed_at), "The time of the last claim (aware, UTC).")
    finished_at = Of[datetime | None](lambda job: utc(job.row.finished_at), "The time of its end (aware, UTC).")
    available_at = Of[datetime | None](lambda job: utc(job.row.available_at), "When a delayed job is due (aware, UTC).")
    expires_at = Of[datetime | None](
        lambda job: utc(job.row.expires_at),
        "The time until which this is remembered (aware, UTC); ``None`` for a live job, or without end.",
    )
    error_type = Of[str | None](lambda job: job.row.error_type, "The last error's class, or a word: ``LEASE_EXPIRED``.")
    error = Of[str | None](lambda job: job.row.error, "The last error's message.")
    errors = Of[list[dict[str, Any]]](lambda job: job.row.errors, "The failed attempts, oldest first, at most 20.")
    progress = Of[Any](lambda job: job.row.progress, "The last progress report.")

    @property
    def failure(self) -> JobFailed | None:
        """The exception that a waiting caller gets; ``None`` if it has not failed.

        ``MaxRetries`` when its deliveries are used up, ``JobFailed`` when its handler gave up.
        """
        return failure_of(self.row) if self.state == "failed" else None


def failure_of(row: Status) -> JobFailed:
    """Return the exception for a failed job."""
    kind = MaxRetries if row.exhausted else JobFailed
    return kind(row.key or row.seq, row.error_type, row.error, row.deliveries, row.errors)


def result_of(row: Status | Reply, serializer: Serializer) -> Any:
    """Return the result of a completed job."""
    value = None if row.result_json is None else codec.loads(row.result_json)
    return serializer.read(value, row.result_body, f"the result of job {row.key or row.seq}")
