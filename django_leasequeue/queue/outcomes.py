"""Immutable values that tell callers of jobs: the answer to an enqueue, the status of a job, its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..engine import codec
from ..engine.jobs.replies import Reply
from ..engine.jobs.results import Status
from ..exceptions import JobFailed, MaxRetries
from .serializers import Serializer


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
    """Return the result of a completed job.

    Raises:
        SerializerError: it cannot be read with the queue's serializer.
    """
    value = None if row.result_json is None else codec.loads(row.result_json)
    return serializer.read(value, row.result_body, f"the result of job {row.key or row.seq}")
