"""A leased job as Python code holds it: immutable, with its token."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..engine.leases.holders import surely_until
from ..engine.rows import LeasedJob
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
        """The key, or the number as text: what a human would call it."""
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
