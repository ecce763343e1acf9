"""Immutable values that callers get: the claimed job, the answer to an enqueue, the status of a job, its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..engine import codec
from ..engine.jobs.results import Reply, Status
from ..engine.leases.sweep import surely_until
from ..engine.rows import LeasedJob
from ..exceptions import JobFailed, MaxRetries
from .serializers import JSON, Serializer

_UNREAD = object()


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

    @property
    def seq(self) -> int:
        """The job's number."""
        return self.lease.seq

    @property
    def key(self) -> str | None:
        """The id that the producer gave it, ``None`` if none."""
        return self.lease.key

    @property
    def id(self) -> str:
        """The key, or else the number as text, for messages and pages."""
        return self.lease.key or str(self.lease.seq)

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.lease.queue

    @property
    def name(self) -> str | None:
        """The kind of job: what the producer gave as ``name``."""
        return self.lease.name

    @property
    def tag(self) -> str | None:
        """The producer's tag."""
        return self.lease.tag

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

    @property
    def meta(self) -> Any:
        """The producer's metadata."""
        return self.lease.meta

    @property
    def token(self) -> int:
        """The token of the claim that this lease belongs to: the proof that it is held."""
        return self.lease.token

    @property
    def lease_id(self) -> str:
        """The lease as text, as the HTTP API names it: the token and the job's number."""
        return self.lease.lease_id

    @property
    def deliveries(self) -> int:
        """The number of claims of the job, this one included."""
        return self.lease.deliveries

    @property
    def max_deliveries(self) -> int:
        """The number of claims that it may have; 0 for no limit."""
        return self.lease.max_deliveries

    @property
    def created_at(self) -> datetime:
        """The time of its enqueue (aware, UTC)."""
        return self.lease.created_at

    @property
    def claimed_at(self) -> datetime:
        """The time at which this lease began (aware, UTC)."""
        return self.lease.claimed_at

    @property
    def deadline(self) -> datetime:
        """The time at which this lease ends unless it is extended (aware, UTC)."""
        return self.lease.deadline

    @property
    def good_until(self) -> float:
        """The monotonic time of this process until which the lease is surely held: a little before the deadline."""
        return surely_until(self.asked, self.lease.deadline_epoch - self.lease.claimed_epoch)

    def extended(self, deadline: datetime) -> ClaimedJob:
        """Return the job with a new deadline."""
        lease = self.lease._replace(deadline_epoch=deadline.timestamp())
        return ClaimedJob(lease, self.node, self.serializer, self.asked)

    @property
    def progress(self) -> Any:
        """The last progress report of an earlier attempt."""
        return self.lease.progress

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The failed attempts before this one, oldest first, at most 20."""
        return self.lease.errors

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

    @property
    def seq(self) -> int:
        """The job's number."""
        return self.row.seq

    @property
    def key(self) -> str | None:
        """The id that the producer gave it."""
        return self.row.key

    @property
    def id(self) -> str:
        """The key, or the number as text."""
        return self.row.key or str(self.row.seq)

    @property
    def name(self) -> str | None:
        """The kind of job: what the producer gave as ``name``."""
        return self.row.name

    @property
    def state(self) -> str:
        """The job's state."""
        return self.row.state

    @property
    def ended(self) -> bool:
        """Whether it is done, failed or dead."""
        return self.row.ended

    @property
    def deliveries(self) -> int:
        """The number of claims so far."""
        return self.row.deliveries

    @property
    def node(self) -> str | None:
        """The node that holds it, or held it last."""
        return self.row.node

    @property
    def created_at(self) -> datetime:
        """The time of its enqueue (aware, UTC)."""
        return self.row.created_at.astimezone(UTC)

    @property
    def claimed_at(self) -> datetime | None:
        """The time of the last claim (aware, UTC)."""
        return utc(self.row.claimed_at)

    @property
    def finished_at(self) -> datetime | None:
        """The time of its end (aware, UTC)."""
        return utc(self.row.finished_at)

    @property
    def available_at(self) -> datetime | None:
        """The time at which a delayed job is due (aware, UTC)."""
        return utc(self.row.available_at)

    @property
    def expires_at(self) -> datetime | None:
        """The time until which this is remembered (aware, UTC); ``None`` for a live job, or without end."""
        return utc(self.row.expires_at)

    @property
    def error_type(self) -> str | None:
        """The class of the last error, or a word such as ``LEASE_EXPIRED``."""
        return self.row.error_type

    @property
    def error(self) -> str | None:
        """The last error's message."""
        return self.row.error

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The failed attempts, oldest first, at most 20."""
        return self.row.errors

    @property
    def progress(self) -> Any:
        """The last progress report."""
        return self.row.progress

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
