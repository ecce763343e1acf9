"""Immutable values that callers get: the claimed job, the answer to an enqueue, the status of a job, its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ..engine import codec
from ..engine.jobs.results import Reply, Status
from ..engine.leases.sweep import surely_until
from ..engine.rows import LeasedJob
from ..exceptions import JobFailed, MaxRetries
from .serializers import JSON, Serializer

T_co = TypeVar("T_co", covariant=True)

_UNREAD = object()


class Delegated(property, Generic[T_co]):
    """An attribute that is one of another attribute, such as of the engine's row, as it is or converted."""

    def __init__(self, path: str, convert: Callable[[Any], T_co] | None = None) -> None:
        read = attrgetter(path)
        super().__init__(read if convert is None else lambda instance: convert(read(instance)))

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type | None = None, /) -> T_co: ...  # type: ignore[override]


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

    seq = Delegated[int]("lease.seq")
    """The job's number."""
    key = Delegated[str | None]("lease.key")
    """The id that the producer gave it, ``None`` if none."""

    @property
    def id(self) -> str:
        """The key, or else the number as text, for messages and pages."""
        return self.lease.key or str(self.lease.seq)

    queue = Delegated[str]("lease.queue")
    """The name of its queue."""
    name = Delegated[str | None]("lease.name")
    """The kind of job: what the producer gave as ``name``."""
    tag = Delegated[str | None]("lease.tag")
    """The producer's tag."""

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

    meta = Delegated[Any]("lease.meta")
    """The producer's metadata."""
    token = Delegated[int]("lease.token")
    """The token of the claim that this lease belongs to: the proof that it is held."""
    lease_id = Delegated[str]("lease.lease_id")
    """The lease as text, as the HTTP API names it: the token and the job's number."""
    deliveries = Delegated[int]("lease.deliveries")
    """The number of claims of the job, this one included."""
    max_deliveries = Delegated[int]("lease.max_deliveries")
    """The number of claims that it may have; 0 for no limit."""
    created_at = Delegated[datetime]("lease.created_at")
    """The time of its enqueue (aware, UTC)."""
    claimed_at = Delegated[datetime]("lease.claimed_at")
    """The time at which this lease began (aware, UTC)."""
    deadline = Delegated[datetime]("lease.deadline")
    """The time at which this lease ends unless it is extended (aware, UTC)."""

    @property
    def good_until(self) -> float:
        """The monotonic time of this process until which the lease is surely held: a little before the deadline."""
        return surely_until(self.asked, self.lease.deadline_epoch - self.lease.claimed_epoch)

    def extended(self, deadline: datetime) -> ClaimedJob:
        """Return the job with a new deadline."""
        lease = self.lease._replace(deadline_epoch=deadline.timestamp())
        return ClaimedJob(lease, self.node, self.serializer, self.asked)

    progress = Delegated[Any]("lease.progress")
    """The last progress report of an earlier attempt."""
    errors = Delegated[list[dict[str, Any]]]("lease.errors")
    """The failed attempts before this one, oldest first, at most 20."""

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


def utc(value: Any) -> Any:
    """Return a time in UTC; ``None`` as it is."""
    return None if value is None else value.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job at one instant.

    ``state`` is ``queued``, ``processing``, ``failing`` (between two tries, after an error), ``completed``, ``failed``,
    or ``cancelled``.
    """

    #: The engine's row: everything else is read from it.
    row: Status

    seq = Delegated[int]("row.seq")
    """The job's number."""
    key = Delegated[str | None]("row.key")
    """The id that the producer gave it."""

    @property
    def id(self) -> str:
        """The key, or the number as text."""
        return self.row.key or str(self.row.seq)

    name = Delegated[str | None]("row.name")
    """The kind of job: what the producer gave as ``name``."""
    state = Delegated[str]("row.state")
    """The job's state."""
    ended = Delegated[bool]("row.ended")
    """Whether it is done, failed or dead."""
    deliveries = Delegated[int]("row.deliveries")
    """The number of claims so far."""
    node = Delegated[str | None]("row.node")
    """The node that holds it, or held it last."""

    created_at = Delegated[datetime]("row.created_at", utc)
    """The time of its enqueue (aware, UTC)."""
    claimed_at = Delegated[datetime | None]("row.claimed_at", utc)
    """The time of the last claim (aware, UTC)."""
    finished_at = Delegated[datetime | None]("row.finished_at", utc)
    """The time of its end (aware, UTC)."""
    available_at = Delegated[datetime | None]("row.available_at", utc)
    """The time at which a delayed job is due (aware, UTC)."""
    expires_at = Delegated[datetime | None]("row.expires_at", utc)
    """The time until which this is remembered (aware, UTC); ``None`` for a live job, or without end."""
    error_type = Delegated[str | None]("row.error_type")
    """The class of the last error, or a word such as ``LEASE_EXPIRED``."""
    error = Delegated[str | None]("row.error")
    """The last error's message."""
    errors = Delegated[list[dict[str, Any]]]("row.errors")
    """The failed attempts, oldest first, at most 20."""
    progress = Delegated[Any]("row.progress")
    """The last progress report."""

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
